package iwarp

import (
	"bytes"
	"syscall"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

func TestMPA_PrivateData_ArrivesAtBothEnds(t *testing.T) {
	for _, revision := range []uint8{1, 2} {
		n := PrivateDataMax(revision)
		there, back := make([]byte, n), make([]byte, n)
		pattern(there, 1)
		pattern(back, 2)
		for _, split := range []func(int) int{nil, func(int) int { return 1 }} {
			w := newWorld(t, worldConfig{
				a: nodeConfig{
					conn:   ConnConfig{Revision: revision},
					params: Params{PrivateData: there, IRD: 5, ORD: 6, RTR: RTRAny},
				},
				b:     nodeConfig{params: Params{PrivateData: back, IRD: 3, ORD: 9}},
				split: split,
			})
			w.dial()
			wantKinds(t, w.a, EventReply)
			wantKinds(t, w.b, EventRequest, EventEstablished)
			if !bytes.Equal(w.b.private[0], there) || !bytes.Equal(w.a.private[0], back) {
				t.Errorf("revision %d: private data differ", revision)
			}
			if e := w.b.events[0]; e.Revision != revision || e.IsNegotiated != (revision == 2) {
				t.Errorf("request %+v", e)
			}
		}
	}
}

// TestMPA_W03_DepthsAreTheLesserOfBoth is case W03: IRD and ORD are agreed on by min().
func TestMPA_W03_DepthsAreTheLesserOfBoth(t *testing.T) {
	const unknown = iwarp.DepthUnknown
	for _, x := range []struct{ aIRD, aORD, bIRD, bORD, wantAORD, wantBIRD, wantBORD uint16 }{
		{4, 4, 4, 4, 4, 4, 4},
		{16, 2, 4, 8, 2, 2, 8},
		{1, 16, 4, 8, 4, 4, 1},
		{1, 0, 4, 8, 0, 0, 1},
		{unknown, unknown, 4, 8, 4, 4, 8},
	} {
		w := newWorld(t, worldConfig{
			a: nodeConfig{params: Params{IRD: x.aIRD, ORD: x.aORD, RTR: RTRAny}},
			b: nodeConfig{params: Params{IRD: x.bIRD, ORD: x.bORD}},
		})
		w.dial()
		a, b := w.a.events[0], w.b.events[1]
		if a.ORD != x.wantAORD || b.IRD != x.wantBIRD || b.ORD != x.wantBORD {
			t.Errorf("%+v: a ORD %d, b IRD %d ORD %d", x, a.ORD, b.IRD, b.ORD)
		}
		if got := w.b.q.Attr(); uint16(got.MaxRdAtomic) != x.wantBORD ||
			uint16(got.MaxDestRdAtomic) != x.wantBIRD {
			t.Errorf("%+v: attributes %+v", x, got)
		}
	}
}

// TestMPA_W01_ReplyKeepsFlagA is case W01: a request for the peer-to-peer model is answered with
// one. W02: of the RTR messages offered exactly one is chosen.
func TestMPA_W01_W02_ReplyKeepsFlagA_AndChoosesOneRTR(t *testing.T) {
	for offered := RTR(0); offered <= RTRAny; offered++ {
		r := newRaw(t, false, nodeConfig{})
		r.say(request(func(f *iwarp.Frame) {
			f.Setup.PeerToPeer = true
			f.Setup.RTRWrite, f.Setup.RTRRead = offered&RTRWrite != 0, offered&RTRRead != 0
			f.Setup.RTRSend = offered&RTRSend != 0
		}))
		f := r.frame()
		chosen := rtrOf(&f.Setup)
		if !f.Setup.PeerToPeer || offered != 0 && chosen&offered == 0 || chosen&(chosen-1) != 0 ||
			chosen == 0 {
			t.Errorf("offered %b: reply %v", offered, f)
		}
	}
	// Who offers none, or none that is accepted, hears of one that is.
	for offered, accepted := range map[RTR]RTR{0: RTRRead, RTRRead: RTRSend, RTRSend: RTRWrite} {
		if got := chooseRTR(offered, accepted); got != accepted {
			t.Errorf("offered %b, accepted %b: %b", offered, accepted, got)
		}
	}
	r := newRaw(t, false, nodeConfig{})
	r.say(request(func(f *iwarp.Frame) { f.Setup.RTRRead = true }))
	if f := r.frame(); f.Setup.PeerToPeer || rtrOf(&f.Setup) != 0 || f.Setup.RTRRead {
		t.Errorf("the client-server model was answered with %v", f)
	}
}

// TestMPA_W02_EachRTR_LetsTheResponderSend is case W02: the RTR is answered, names an STag that is
// not 0, takes no receive and disturbs no sequence.
func TestMPA_W02_EachRTR_LetsTheResponderSend(t *testing.T) {
	for _, rtr := range []RTR{RTRWrite, RTRRead, RTRSend} {
		w := newWorld(t, worldConfig{
			a: nodeConfig{params: Params{IRD: 4, ORD: 4, RTR: rtr}},
		})
		w.b.receive(1, w.b.at(0, 100))
		w.a.receive(2, w.a.at(0, 100))
		w.hold[0] = false
		w.dial()
		if w.b.events[1].RTR != rtr {
			t.Fatalf("RTR %b: %+v", rtr, w.b.events)
		}
		if len(w.b.recvs.entries) != 0 {
			t.Fatalf("RTR %b has taken a receive", rtr)
		}
		transferBoth(t, w)
	}
}

// transferBoth does a SEND and a READ in both directions, into receives that are posted.
func transferBoth(t *testing.T, w *world) {
	t.Helper()
	pattern(w.a.mem[1000:2000], 1)
	pattern(w.b.mem[1000:2000], 2)
	for _, x := range []*node{w.a, w.b} {
		peer := w.b
		if x == w.b {
			peer = w.a
		}
		x.post(w.now, wqeOf(rdma.WRSend, 1), x.at(1000, 50))
		read := wqeOf(rdma.WRRead, 2)
		read.RKey, read.RemoteAddr = uint32(peer.region.Key), testBase+1000
		x.post(w.now, read, x.at(3000, 1000))
	}
	w.settle()
	for _, x := range []*node{w.a, w.b} {
		wantStatus(t, x.sends.take(), rdma.WCSuccess, rdma.WCSuccess)
		wantStatus(t, x.recvs.take(), rdma.WCSuccess)
	}
	if !bytes.Equal(w.a.mem[3000:4000], w.b.mem[1000:2000]) ||
		!bytes.Equal(w.b.mem[3000:4000], w.a.mem[1000:2000]) {
		t.Fatal("bytes differ")
	}
}

// TestMPA_ReplyThatIsLost_HoldsTheResponder: what it says would come together with the reply.
func TestMPA_ReplyThatIsLost_HoldsTheResponder(t *testing.T) {
	for _, isSpokenTo := range []bool{false, true} {
		isTaken := false
		r := newRaw(t, false, nodeConfig{conn: ConnConfig{IsTaken: func() bool { return isTaken }}})
		r.say(request(nil))
		r.frame()
		r.n.receive(1, r.n.at(100, 10))
		r.n.post(r.now, wqeOf(rdma.WRSend, 1), r.n.at(0, 10))
		r.wait(limits.MPAHoldTime * 5)
		if len(r.hear()) != 0 {
			t.Fatal("the responder has spoken before its reply was there")
		}
		if isTaken = true; isSpokenTo {
			r.say(fpdu(sendHeader(nil), nil))
		} else {
			r.wait(limits.MPAHoldTime)
			if len(r.hear()) != 0 {
				t.Fatal("the initiator has no time to read the reply")
			}
			r.wait(limits.MPAHoldTime)
		}
		if got := r.hear(); len(got) != 1 || got[0].header.Opcode != iwarp.OpcodeSend {
			t.Fatalf("heard %v", got)
		}
	}
}

func TestMPA_Responder_WaitsForRTR(t *testing.T) {
	w := newWorld(t, worldConfig{a: nodeConfig{params: Params{IRD: 4, ORD: 4, RTR: RTRWrite}}})
	w.a.receive(1, w.a.at(0, 100))
	w.a.c.Request(w.now, w.a.q, &w.a.params)
	for len(w.b.events) == 0 {
		w.step()
	}
	w.hold[0] = true
	w.b.post(w.now, wqeOf(rdma.WRSend, 1), w.b.at(0, 10))
	w.run(time.Second)
	if len(w.a.recvs.entries) != 0 || len(w.b.events) != 1 {
		t.Fatalf("the responder has spoken first: %v", w.b.events)
	}
	w.hold[0] = false
	w.run(time.Second)
	wantStatus(t, w.a.recvs.take(), rdma.WCSuccess)
	wantKinds(t, w.b, EventRequest, EventEstablished)
}

// TestMPA_PeerThatOffersNoRTR_StillHasTheFirstWord: the responder proposes a WRITE, and waits.
func TestMPA_PeerThatOffersNoRTR_StillHasTheFirstWord(t *testing.T) {
	r := newRaw(t, false, nodeConfig{})
	r.say(request(func(f *iwarp.Frame) { f.Setup.PeerToPeer = true }))
	if f := r.frame(); !f.Setup.PeerToPeer || rtrOf(&f.Setup) != RTRWrite {
		t.Errorf("reply %v", f)
	}
	r.n.post(r.now, wqeOf(rdma.WRSend, 1), r.n.at(0, 10))
	r.wait(limits.MPARTRTimeout - 1)
	if len(r.hear()) != 0 {
		t.Fatal("the responder has spoken first")
	}
	r.say(fpdu(writeTo(rtrSTag, 0), nil))
	if got := r.hear(); len(got) != 1 || got[0].header.Opcode != iwarp.OpcodeSend {
		t.Fatalf("heard %v", got)
	}
}

func TestMPA_ResponderWithoutRTR_WaitsForTheFirstWordButNotForEver(t *testing.T) {
	r := newRaw(t, false, nodeConfig{})
	r.say(request(nil))
	r.frame()
	wantKinds(t, r.n, EventRequest, EventEstablished)
	r.n.post(r.now, wqeOf(rdma.WRSend, 1), r.n.at(0, 10))
	r.drain()
	if len(r.hear()) != 0 {
		t.Fatal("the responder has spoken first")
	}
	r.wait(limits.MPAHoldTime)
	if got := r.hear(); len(got) != 1 || got[0].header.Opcode != iwarp.OpcodeSend {
		t.Fatalf("heard %v", got)
	}
}

func TestMPA_Reject_TellsWhy(t *testing.T) {
	w := newWorld(t, worldConfig{
		a: nodeConfig{params: Params{IRD: 1, ORD: 1, RTR: RTRAny}},
		b: nodeConfig{params: Params{PrivateData: []byte("no thanks"), IRD: 1}},
	})
	w.b.refuses = true
	w.dial()
	wantKinds(t, w.a, EventRejected, EventClosed)
	wantKinds(t, w.b, EventRequest, EventClosed)
	if string(w.a.private[0]) != "no thanks" || w.a.q.State() != rdma.QPStateInit ||
		w.a.q.Conn() != nil || w.b.c.Closing() != CloseFIN {
		t.Errorf("%q, state %v, closing %v", w.a.private[0], w.a.q.State(), w.b.c.Closing())
	}
}

func TestMPA_StrangersAndSluggards_AreTurnedAway(t *testing.T) {
	for _, x := range []struct {
		name string
		b    []byte
		how  How
	}{
		{"HTTP", []byte("GET / HTTP/1.1\r\nHost: example.net\r\n\r\n"), HowProtocol},
		{"one wrong byte", []byte("M!"), HowProtocol},
		{"a reply", frameBytes(iwarp.Frame{IsReply: true, Revision: 2}), HowProtocol},
		{"revision 3", request(func(f *iwarp.Frame) { f.Revision = 3 }), HowProtocol},
		{"silence", nil, HowTimeout},
		{"half a request", request(nil)[:19], HowTimeout},
		{"bytes after the request", append(request(nil), 0), HowProtocol},
		{"an FPDU after the request", append(request(nil), fpdu(iwarp.Header{
			Opcode: iwarp.OpcodeSend, Last: true, MSN: 1,
		}, nil)...), HowProtocol},
	} {
		r := newRaw(t, false, nodeConfig{})
		r.say(x.b)
		if x.how == HowTimeout {
			r.wait(limits.MPARequestTimeout - time.Millisecond)
			wantKinds(t, r.n)
			r.wait(time.Millisecond)
		}
		if e := r.n.end(); e.How != x.how || r.n.c.Closing() != CloseAbort || len(r.out) != 0 {
			t.Errorf("%s: ended %+v, closing %v, said %q", x.name, e, r.n.c.Closing(), r.out)
		}
		if r.n.q.State() != rdma.QPStateInit {
			t.Errorf("%s: state %v", x.name, r.n.q.State())
		}
	}
}

// TestMPA_SlowLoris_OneByteAtATime_RunsOutOfTime feeds a request so slowly that each byte comes
// long before the timeout.
func TestMPA_SlowLoris_OneByteAtATime_RunsOutOfTime(t *testing.T) {
	r := newRaw(t, false, nodeConfig{})
	for _, c := range request(nil) {
		if r.n.c.IsClosed() {
			break
		}
		r.say([]byte{c})
		r.wait(time.Second)
	}
	if e := r.n.end(); e.How != HowTimeout || r.now > clock.Time(0).Add(11*time.Second) {
		t.Errorf("ended %+v at %v", e, r.now)
	}
}

func TestMPA_EarlyBytes_WhileTheProgramDecides(t *testing.T) {
	r := newRaw(t, false, nodeConfig{})
	r.n.c.HandleStream(0, request(nil))
	r.n.c.HandleStream(0, []byte{0})
	var e Event
	if !r.n.c.PollEvent(&e) || e.Kind != EventRequest ||
		!r.n.c.PollEvent(&e) || e.Kind != EventClosed || e.End.How != HowProtocol {
		t.Fatalf("event %+v", e)
	}
	r.n.c.Accept(0, r.n.q, &r.n.params) // too late: it does nothing
	if r.n.q.State() != rdma.QPStateInit || r.n.c.HasWork() {
		t.Error("a dead connection was accepted")
	}
}

func TestMPA_Initiator_JudgesTheReply(t *testing.T) {
	base := iwarp.Frame{
		IsReply: true, Revision: 2, Enhanced: true,
		Setup: iwarp.Setup{IRD: 4, ORD: 4, PeerToPeer: true, RTRWrite: true},
	}
	for _, x := range []struct {
		name string
		edit func(*iwarp.Frame)
		code iwarp.Code
	}{
		{"two RTR messages", func(f *iwarp.Frame) { f.Setup.RTRRead = true }, iwarp.CodeMPARTR},
		{"no RTR message", func(f *iwarp.Frame) { f.Setup.RTRWrite = false }, iwarp.CodeMPARTR},
		{"one not offered", func(f *iwarp.Frame) {
			f.Setup.RTRWrite, f.Setup.RTRSend = false, true
		}, iwarp.CodeMPARTR},
		{"more READs than this end serves", func(f *iwarp.Frame) { f.Setup.ORD = 5 }, iwarp.CodeMPAIRD},
	} {
		r := newRaw(t, true, nodeConfig{params: Params{IRD: 4, ORD: 4, RTR: RTRWrite | RTRRead}})
		r.frame()
		f := base
		x.edit(&f)
		r.say(frameBytes(f))
		t.Log(x.name)
		r.wantTerminate(x.code)
	}
	for _, b := range [][]byte{
		request(nil), []byte("HTTP/1.1 400 Bad Request\r\n"),
		frameBytes(iwarp.Frame{IsReply: true, Revision: 9}),
	} {
		r := newRaw(t, true, nodeConfig{params: Params{RTR: RTRAny}})
		r.frame()
		r.say(b)
		if e := r.n.end(); e.How != HowProtocol || r.n.c.Closing() != CloseAbort {
			t.Errorf("%q: ended %+v", b, e)
		}
	}
}

func TestMPA_Initiator_TakesWhatFollowsTheReplyAtOnce(t *testing.T) {
	r := newRaw(t, true, nodeConfig{})
	r.n.receive(1, r.n.at(0, 100))
	r.frame()
	b := frameBytes(iwarp.Frame{IsReply: true, Revision: 2, Enhanced: true})
	r.say(append(b, fpdu(sendHeader(nil), []byte("hi"))...))
	wantStatus(t, r.n.recvs.take(), rdma.WCSuccess)
	if string(r.n.mem[:2]) != "hi" {
		t.Error("not placed")
	}
}

// TestMPA_Initiator_GivesAStrangerTime: Soft-iWARP may not notice what comes at the heels of its
// reply.
func TestMPA_Initiator_GivesAStrangerTime(t *testing.T) {
	for _, isLarge := range []bool{false, true} {
		r := newRaw(t, true, nodeConfig{
			conn:   ConnConfig{Shyness: limits.MPAShyTime},
			params: Params{IRD: 4, ORD: 4, RTR: RTRWrite},
		})
		r.n.post(0, abi.SendWQE{WRID: 1, Opcode: uint8(rdma.WRSend)}, r.n.at(0, 10))
		r.frame()
		r.say(frameBytes(iwarp.Frame{
			IsReply: true, Revision: 2, Enhanced: true, LargeFPDU: isLarge,
			Setup: iwarp.Setup{IRD: 4, ORD: 4, PeerToPeer: true, RTRWrite: true},
		}))
		if got := len(r.hear()); (got == 2) != isLarge || !isLarge && got != 0 {
			t.Errorf("large FPDUs %v: %d messages at once", isLarge, got)
		}
		r.wait(limits.MPAShyTime - 1)
		if got := r.hear(); len(got) != 0 {
			t.Errorf("large FPDUs %v: %d messages too early", isLarge, len(got))
		}
		r.wait(1)
		got := r.hear()
		if !isLarge && (len(got) != 2 || got[0].header.Opcode != iwarp.OpcodeWrite ||
			got[1].header.Opcode != iwarp.OpcodeSend) {
			t.Errorf("heard %v", got)
		}
		if isLarge && r.n.c.PollTimeout() != clock.Never {
			t.Error("a timer is left")
		}
	}
}

// TestMPA_Initiator_LeavesWhileItIsShy: what was posted is sent before the end all the same.
func TestMPA_Initiator_LeavesWhileItIsShy(t *testing.T) {
	r := newRaw(t, true, nodeConfig{
		conn:   ConnConfig{Shyness: limits.MPAShyTime},
		params: Params{IRD: 4, ORD: 4, RTR: RTRWrite},
	})
	r.n.post(0, abi.SendWQE{WRID: 1, Opcode: uint8(rdma.WRSend)}, r.n.at(0, 10))
	r.frame()
	r.say(frameBytes(iwarp.Frame{
		IsReply: true, Revision: 2, Enhanced: true,
		Setup: iwarp.Setup{IRD: 4, ORD: 4, PeerToPeer: true, RTRWrite: true},
	}))
	r.n.c.Disconnect(r.now)
	r.drain()
	if got := r.hear(); len(got) != 2 || r.n.c.Closing() != CloseFIN {
		t.Errorf("heard %v, then %v", got, r.n.c.Closing())
	}
}

func TestMPA_EndsInEachPhase(t *testing.T) {
	for _, errno := range []syscall.Errno{0, syscall.ECONNRESET, syscall.ETIMEDOUT} {
		for name, begin := range map[string]func() *raw{
			"request": func() *raw { return newRaw(t, false, nodeConfig{}) },
			"reply":   func() *raw { return newRaw(t, true, nodeConfig{}) },
			"rtr": func() *raw {
				r := newRaw(t, false, nodeConfig{})
				r.say(request(func(f *iwarp.Frame) { f.Setup.PeerToPeer, f.Setup.RTRRead = true, true }))
				return r
			},
			"open": func() *raw { return responderNode(t, nodeConfig{}) },
		} {
			r := begin()
			state := r.n.q.State()
			r.n.receive(7, r.n.at(0, 10))
			r.n.c.HandleEnd(r.now, errno)
			r.drain()
			want, closing := HowReset, CloseNone
			if errno == 0 {
				want, closing = HowPeer, CloseAbort
				if name == "open" {
					closing = CloseFIN
				}
			}
			if e := r.n.end(); e.How != want || e.Errno != errno || r.n.c.Closing() != closing {
				t.Errorf("%s, %v: ended %+v, closing %v", name, errno, e, r.n.c.Closing())
			}
			if r.n.q.Conn() != nil {
				t.Errorf("%s: still attached", name)
			}
			if state == rdma.QPStateRTS {
				wantStatus(t, r.n.recvs.take(), rdma.WCWRFlushErr)
			}
		}
	}
}

func TestMPA_Timeouts_OfEachPhase(t *testing.T) {
	r := newRaw(t, true, nodeConfig{})
	r.wait(limits.MPAReplyTimeout)
	if e := r.n.end(); e.How != HowTimeout {
		t.Errorf("reply: %+v", e)
	}
	r = newRaw(t, false, nodeConfig{})
	r.say(request(func(f *iwarp.Frame) { f.Setup.PeerToPeer, f.Setup.RTRWrite = true, true }))
	r.wait(limits.MPARTRTimeout)
	if e := r.n.end(); e.How != HowTimeout || r.n.q.State() != rdma.QPStateError {
		t.Errorf("RTR: %+v, %v", e, r.n.q.State())
	}
}

// TestNudge_SilentPeer_IsSentWritesOfNothing is for a peer that overlooks the first messages of a
// connection until something else comes.
func TestNudge_SilentPeer_IsSentWritesOfNothing(t *testing.T) {
	open := func(isLarge bool) *raw {
		r := newRaw(t, true, nodeConfig{
			conn: ConnConfig{Shyness: limits.MPAShyTime}, params: Params{IRD: 4, ORD: 4, RTR: RTRWrite},
		})
		r.frame()
		r.say(frameBytes(iwarp.Frame{
			IsReply: true, Revision: 2, Enhanced: true, LargeFPDU: isLarge,
			Setup: iwarp.Setup{IRD: 4, ORD: 4, PeerToPeer: true, RTRWrite: true},
		}))
		r.wait(limits.MPAShyTime)
		if got := r.hear(); len(got) != 1 {
			t.Fatalf("heard %v in place of the RTR", got)
		}
		return r
	}
	r := open(false)
	var at []time.Duration
	for range 10_000 {
		r.wait(time.Millisecond)
		for _, x := range r.hear() {
			if x.header.Opcode != iwarp.OpcodeWrite || len(x.payload) != 0 || x.header.STag == 0 {
				t.Fatalf("heard %v", x)
			}
			at = append(at, r.now.Sub(0).Round(10*time.Millisecond))
		}
	}
	if len(at) != nudges || at[0] > 100*time.Millisecond || at[2] > time.Second {
		t.Errorf("nudged at %v", at)
	}
	// One that speaks is left alone, as is one that is no such driver.
	r = open(false)
	r.n.receive(1, r.n.at(0, 10))
	r.wait(20 * time.Millisecond)
	r.say(fpdu(sendHeader(nil), nil))
	for range 100 {
		r.wait(100 * time.Millisecond)
	}
	if got := r.hear(); len(got) != 0 || r.n.c.PollTimeout() != clock.Never {
		t.Errorf("heard %v", got)
	}
	if r = open(true); r.n.c.PollTimeout() != clock.Never {
		t.Error("a peer that takes long FPDUs is watched")
	}
}

// TestNudge_Responder_ThatHasSaidNothing_IsSilent: there is nothing that the peer can have
// overlooked, and it may not be ready for the first word.
func TestNudge_Responder_ThatHasSaidNothing_IsSilent(t *testing.T) {
	r := newRaw(t, false, nodeConfig{conn: ConnConfig{Shyness: limits.MPAShyTime}})
	r.say(request(nil))
	r.frame()
	for range 100 {
		r.wait(100 * time.Millisecond)
	}
	if got := r.hear(); len(got) != 0 || r.n.c.PollTimeout() != clock.Never {
		t.Errorf("heard %v", got)
	}
}

// TestMPA_Initiator_EchoOfItsOwnBits_IsNoClaim: Linux's siw answers with the bits of the request,
// and so seems to take large FPDUs.
func TestMPA_Initiator_EchoOfItsOwnBits_IsNoClaim(t *testing.T) {
	r := newRaw(t, true, nodeConfig{
		conn:   ConnConfig{Shyness: limits.MPAShyTime},
		params: Params{IRD: 4, ORD: 4, RTR: RTRWrite},
	})
	bits := r.out[16]
	r.n.post(0, abi.SendWQE{WRID: 1, Opcode: uint8(rdma.WRSend)}, r.n.at(0, 10))
	r.frame()
	reply := frameBytes(iwarp.Frame{
		IsReply: true, Revision: 2, Enhanced: true,
		Setup: iwarp.Setup{IRD: 4, ORD: 4, PeerToPeer: true, RTRWrite: true},
	})
	reply[16] |= bits
	r.say(reply)
	if got := r.hear(); len(got) != 0 || r.n.c.mulpdu == largeULPDU {
		t.Errorf("heard %v at once; FPDUs of %d", got, r.n.c.mulpdu)
	}
}

// TestMPA_ReplyOfRevision1_ServesWhatTheInitiatorWasNotTold: depths that the request named and the
// reply could not bind nobody.
func TestMPA_ReplyOfRevision1_ServesWhatTheInitiatorWasNotTold(t *testing.T) {
	w := newWorld(t, worldConfig{
		a: nodeConfig{params: Params{IRD: 1, ORD: limits.MaxRDAtomic, RTR: RTRAny}},
		b: nodeConfig{conn: ConnConfig{Revision: 1}, params: Params{IRD: 1, ORD: 1}},
	})
	w.dial()
	const reads = 8
	want := make([]rdma.WCStatus, reads)
	for i := range reads {
		w.a.write(remote(wqeOf(rdma.WRRead, uint64(i)), w.b, 0), nil, []abi.SGE{w.a.at(100*i, 50)})
	}
	w.a.ring(w.now)
	w.settle()
	wantStatus(t, w.a.sends.take(), want...)
}
