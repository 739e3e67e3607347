package iwarp

import (
	"bytes"
	"syscall"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

func TestDisconnect_FinishesWhatWasPostedBefore(t *testing.T) {
	w := connected(t, worldConfig{})
	pattern(w.a.mem, 1)
	w.b.receive(1, w.b.at(0, 100))
	w.a.receive(9, w.a.at(0, 100))
	w.a.post(w.now, remote(wqeOf(rdma.WRWrite, 1), w.b, 1000), w.a.at(0, 500_000))
	w.a.post(w.now, remote(wqeOf(rdma.WRRead, 2), w.b, 1000), w.a.at(600_000, 300_000))
	w.a.post(w.now, wqeOf(rdma.WRSend, 3), w.a.at(0, 100))
	w.a.c.Disconnect(w.now)
	w.a.post(w.now, wqeOf(rdma.WRSend, 4), w.a.at(0, 100)) // too late
	w.settle()
	ok, flushed := rdma.WCSuccess, rdma.WCWRFlushErr
	wantStatus(t, w.a.sends.take(), ok, ok, ok, flushed)
	wantStatus(t, w.b.recvs.take(), ok)
	wantStatus(t, w.a.recvs.take(), flushed)
	if !bytes.Equal(w.b.mem[1000:501_000], w.a.mem[:500_000]) {
		t.Error("the WRITE was cut")
	}
	if a, b := w.a.end(), w.b.end(); a.How != HowLocal || b.How != HowPeer {
		t.Errorf("ended %+v and %+v", a, b)
	}
	if w.a.q.State() != rdma.QPStateError || w.b.q.State() != rdma.QPStateError ||
		len(w.a.causes)+len(w.a.raised)+len(w.b.raised) != 0 {
		t.Errorf("states %v, %v; events %v, %v", w.a.q.State(), w.b.q.State(), w.a.raised, w.b.raised)
	}
	if c := w.b.causes; len(c) != 1 || c[0].Status != ok || c[0].Vendor != abi.VendorPeerEnded {
		t.Errorf("of an end in order, the peer notes %+v", c)
	}
}

// TestEnd_FromOutside_LeavesEvidence: what is flushed since the peer is gone has no completion
// before it that says so.
func TestEnd_FromOutside_LeavesEvidence(t *testing.T) {
	none := func(*raw) {}
	late := func(r *raw) { // posted, and not looked at yet
		r.n.write(remote(wqeOf(rdma.WRWrite, 7), r.n, 8), nil, []abi.SGE{r.n.at(0, 8)})
		r.n.sq.Publish()
	}
	read := func(r *raw) {
		r.n.post(r.now, remote(wqeOf(rdma.WRRead, 7), r.n, 8), r.n.at(0, 8))
		r.drain()
	}
	done := func(r *raw) {
		r.n.post(r.now, wqeOf(rdma.WRSend, 7), r.n.at(0, 8))
		r.drain()
	}
	ok, flushed := rdma.WCSuccess, rdma.WCWRFlushErr
	for name, x := range map[string]struct {
		begin  func(*raw)
		errno  syscall.Errno
		status rdma.WCStatus
		vendor abi.Vendor
	}{
		"in order, nothing under way":   {none, 0, ok, abi.VendorPeerEnded},
		"in order, all done":            {done, 0, ok, abi.VendorPeerEnded},
		"in order, a READ under way":    {read, 0, flushed, abi.VendorPeerEnded},
		"in order, a WRITE just posted": {late, 0, flushed, abi.VendorPeerEnded},
		"reset, nothing under way":      {none, syscall.ECONNRESET, ok, abi.VendorStreamLost},
		"reset, a READ under way":       {read, syscall.ECONNRESET, flushed, abi.VendorStreamLost},
		"silence, a WRITE just posted":  {late, syscall.ETIMEDOUT, flushed, abi.VendorStreamLost},
	} {
		t.Run(name, func(t *testing.T) {
			r := initiatorNode(t, nodeConfig{})
			x.begin(r)
			r.n.c.HandleEnd(r.now, x.errno)
			c := r.n.causes
			if len(c) != 1 || c[0].Status != x.status || c[0].Vendor != x.vendor {
				t.Fatalf("evidence %+v", c)
			}
			if x.status == flushed && (c[0].WRID != 7 || c[0].Addr != testBase+8 || c[0].Length != 8) {
				t.Errorf("evidence of another request: %+v", c[0])
			}
			if e := r.n.sends.take(); x.status == flushed {
				wantStatus(t, e, flushed)
			}
			r.n.c.HandleEnd(r.now, 0)
			r.n.post(r.now, wqeOf(rdma.WRSend, 8), r.n.at(0, 8))
			if len(r.n.causes) != 1 {
				t.Errorf("noted again: %+v", r.n.causes)
			}
		})
	}
}

func TestDisconnect_Idle_EndsAtOnce(t *testing.T) {
	w := connected(t, worldConfig{})
	w.b.q.Modify(w.now, &Attr{}, 0, rdma.QPStateSQD) // CLOSING
	w.run(0)
	if a, b := w.a.end(), w.b.end(); a.How != HowPeer || b.How != HowLocal ||
		w.a.c.Closing() != CloseFIN || w.b.c.Closing() != CloseFIN {
		t.Errorf("ended %+v and %+v", a, b)
	}
}

func TestDisconnect_LocalOperationsOnly_EndsToo(t *testing.T) {
	w := connected(t, worldConfig{})
	window, _ := w.a.table.AllocWindow(testPD, rdma.MWType1)
	x := wqeOf(rdma.WRBindMW, 1)
	x.RKey, x.Extra, x.RemoteAddr = uint32(window.Key+1), uint32(w.a.region.Key), testBase
	x.CompareAdd, x.Swap = 100, uint64(rdma.AccessRemoteRead)
	w.a.write(x, nil, nil)
	w.a.sq.Publish()
	w.a.c.Disconnect(w.now)
	w.run(time.Millisecond)
	wantStatus(t, w.a.sends.take(), rdma.WCSuccess)
	if e := w.a.end(); e.How != HowLocal {
		t.Errorf("ended %+v", e)
	}
}

func TestDisconnect_PeerThatTakesNothing_RunsOutOfTime(t *testing.T) {
	r := initiatorNode(t, nodeConfig{})
	r.n.post(r.now, remote(wqeOf(rdma.WRRead, 1), r.n, 0), r.n.at(0, 8))
	r.n.c.Disconnect(r.now)
	r.drain()
	r.wait(limits.StreamDrainTimeout - 1)
	wantKinds(t, r.n)
	r.wait(1)
	if e := r.n.end(); e.How != HowTimeout || r.n.c.Closing() != CloseAbort {
		t.Errorf("ended %+v", e)
	}
	wantStatus(t, r.n.sends.take(), rdma.WCWRFlushErr)
}

func TestModifyToError_FlushesEverythingOnce(t *testing.T) {
	for _, cut := range []bool{false, true} {
		w := connected(t, worldConfig{})
		for i := range 3 {
			w.a.receive(uint64(i), w.a.at(0, 10))
			w.a.write(remote(wqeOf(rdma.WRWrite, uint64(i)), w.b, 0), nil, []abi.SGE{w.a.at(0, 300_000)})
		}
		w.a.ring(w.now)
		if cut { // in the middle of an FPDU
			w.split = func(int) int { return 1001 }
			w.transmit(0, w.a)
		}
		w.a.q.Modify(w.now, &Attr{}, 0, rdma.QPStateError)
		want := CloseFIN
		if cut {
			want = CloseAbort
		}
		if w.a.c.Closing() != want {
			t.Errorf("closing %v, want %v", w.a.c.Closing(), want)
		}
		w.settle()
		f := rdma.WCWRFlushErr
		wantStatus(t, w.a.sends.take(), f, f, f)
		wantStatus(t, w.a.recvs.take(), f, f, f)
		w.a.post(w.now, wqeOf(rdma.WRSend, 9), w.a.at(0, 10))
		wantStatus(t, w.a.sends.take(), f)
		if e := w.a.end(); e.How != HowError || w.a.sq.Unreleased() != 0 {
			t.Errorf("ended %+v, %d slots in use", e, w.a.sq.Unreleased())
		}
	}
}

func TestReset_IsSilent_AndTheQueuePairServesAgain(t *testing.T) {
	w := connected(t, worldConfig{})
	w.a.receive(1, w.a.at(0, 10))
	w.a.write(wqeOf(rdma.WRSend, 1), nil, []abi.SGE{w.a.at(0, 10)})
	w.a.sq.Publish()
	w.a.q.Modify(w.now, &Attr{}, 0, rdma.QPStateReset)
	w.settle()
	if len(w.a.sends.entries)+len(w.a.recvs.entries) != 0 || w.a.sq.Unreleased() != 0 ||
		w.a.rq.Unreleased() != 0 || w.a.q.State() != rdma.QPStateReset {
		t.Fatal("a reset is not silent")
	}
	if e := w.a.end(); e.How != HowError {
		t.Errorf("ended %+v", e)
	}
	// Both ends once more, over another stream.
	access := Attr{Access: rdma.AccessLocalWrite | rdma.AccessRemoteAny}
	for _, n := range []*node{w.a, w.b} {
		n.q.Modify(w.now, &access, 0, rdma.QPStateReset)
		n.q.Modify(w.now, &access, rdma.QPAttrAccessFlags, rdma.QPStateInit)
		n.c = NewConn(ConnConfig{Now: w.now, Initiator: n == w.a})
		n.ended, n.events, n.private = false, nil, nil
		n.receive(1, n.at(0, 100))
	}
	w.air, w.fin = [2][]byte{}, [2]bool{}
	w.dial()
	transferBoth(t, w)
}

func TestRelease_EndsTheConnection(t *testing.T) {
	w := connected(t, worldConfig{})
	w.a.receive(1, w.a.at(0, 10))
	w.a.q.Release()
	w.settle()
	if a, b := w.a.end(), w.b.end(); a.How != HowError || b.How != HowPeer {
		t.Errorf("ended %+v and %+v", a, b)
	}
	if len(w.a.recvs.entries) != 0 {
		t.Error("a queue pair that goes completes")
	}
}

// TestTerminate_OutlivesItsQueuePair: a program that sees its error completion may destroy the
// queue pair before TCP took the Terminate.
func TestTerminate_OutlivesItsQueuePair(t *testing.T) {
	r := responderNode(t, nodeConfig{})
	r.n.c.HandleStream(r.now, fpdu(writeTo(0x777, testBase), []byte{1}))
	r.n.q.Modify(r.now, &Attr{}, 0, rdma.QPStateError)
	r.n.q.Release()
	r.drain()
	all := r.hear()
	if len(all) != 1 || all[0].header.Opcode != iwarp.OpcodeTerminate {
		t.Fatalf("heard %v", all)
	}
	if e := r.n.end(); e.How != HowTerminateSent || r.n.c.Closing() != CloseFIN {
		t.Errorf("ended %+v", e)
	}
}

func TestTerminate_PeerThatTakesNothing_RunsOutOfTime(t *testing.T) {
	r := responderNode(t, nodeConfig{})
	r.n.c.HandleStream(r.now, fpdu(writeTo(0x777, testBase), []byte{1}))
	if !r.n.c.Fill(r.now, &r.v) {
		t.Fatal("nothing to send")
	}
	r.n.c.HandleSent(r.now, 3)
	r.now = r.now.Add(limits.TerminateTimeout)
	r.n.c.HandleTimeout(r.now)
	r.n.poll(r.now)
	if e := r.n.end(); e.How != HowTerminateSent || r.n.c.Closing() != CloseAbort || r.n.c.HasWork() {
		t.Errorf("ended %+v, closing %v", e, r.n.c.Closing())
	}
}

// TestTerminate_InTheMiddleOfAnFPDU_ComesBehindIt refuses the peer while a long WRITE is on its way
// out: what is begun is finished, what is not is dropped.
func TestTerminate_InTheMiddleOfAnFPDU_ComesBehindIt(t *testing.T) {
	for _, c := range []ConnConfig{{}, {FPDU: FPDULarge}, {CRC: true}, {Markers: true}} {
		w := connected(t, worldConfig{
			a: nodeConfig{conn: c}, b: nodeConfig{conn: c},
		})
		pattern(w.a.mem, 7)
		w.a.post(w.now, remote(wqeOf(rdma.WRWrite, 1), w.b, 0), w.a.at(0, 200_000))
		w.split = func(int) int { return 70_001 }
		w.transmit(0, w.a)
		w.b.post(w.now, wqeOf(rdma.WRSend, 1), w.b.at(0, 10)) // there is no receive
		w.settle()
		if a, b := w.a.end(), w.b.end(); a.Code != iwarp.CodeUntaggedNoBuffer ||
			b.How != HowTerminateReceived || b.Code != a.Code {
			t.Errorf("%+v: ended %+v and %+v", c, a, b)
		}
		wantStatus(t, w.a.sends.take(), rdma.WCWRFlushErr)
		n := 70_001 - 4_000
		if !bytes.Equal(w.a.mem[:n], w.b.mem[:n]) || w.b.mem[199_999] != 0 {
			t.Errorf("%+v: what was begun was not finished, or all was sent", c)
		}
	}
}

// TestMemoryThatGoes_WhileItsBytesAreOnTheirWay breaks the connection off where an FPDU is begun
// that cannot be finished.
func TestMemoryThatGoes_WhileItsBytesAreOnTheirWay(t *testing.T) {
	w := connected(t, worldConfig{a: nodeConfig{conn: ConnConfig{FPDU: FPDULarge}}})
	w.a.post(w.now, remote(wqeOf(rdma.WRWrite, 1), w.b, 0), w.a.at(0, 200_000))
	w.split = func(int) int { return 10_000 }
	w.transmit(0, w.a)
	w.a.table.Deregister(w.a.region)
	w.settle()
	wantStatus(t, w.a.sends.take(), rdma.WCLocProtErr)
	if e := w.a.end(); e.How != HowError || w.a.c.Closing() != CloseAbort {
		t.Errorf("ended %+v, closing %v", e, w.a.c.Closing())
	}
	// The source of a READ.
	w = connected(t, worldConfig{b: nodeConfig{conn: ConnConfig{FPDU: FPDULarge}}})
	w.a.post(w.now, remote(wqeOf(rdma.WRRead, 1), w.b, 0), w.a.at(0, 200_000))
	for w.transmit(0, w.a) || w.land(0, w.b) {
	}
	w.split = func(int) int { return 10_000 }
	w.transmit(1, w.b)
	w.b.table.Deregister(w.b.region)
	w.settle()
	if e := w.b.end(); e.How != HowError || w.b.c.Closing() != CloseAbort {
		t.Errorf("ended %+v, closing %v", e, w.b.c.Closing())
	}
	if len(w.b.sends.entries) != 0 {
		t.Error("a completion without a request")
	}
}

// TestMemoryThatGoes_BeforeASegmentIsFramed lets the requests before it complete, and tells the
// peer.
func TestMemoryThatGoes_BeforeASegmentIsFramed(t *testing.T) {
	s := &space{}
	w := connected(t, worldConfig{a: nodeConfig{space: s}})
	w.a.post(w.now, remote(wqeOf(rdma.WRWrite, 1), w.b, 0), w.a.at(0, 100_000))
	w.a.post(w.now, remote(wqeOf(rdma.WRWrite, 2), w.b, 0), w.a.at(0, 900_000))
	w.transmit(0, w.a)
	s.gone = true
	w.settle()
	wantStatus(t, w.a.sends.take(), rdma.WCSuccess, rdma.WCLocProtErr)
	if e := w.b.end(); e.How != HowTerminateReceived || e.Code != iwarp.CodeRDMAPLocal {
		t.Errorf("ended %+v", e)
	}
	// A READ whose source goes while its answer is framed.
	s = &space{}
	w = connected(t, worldConfig{b: nodeConfig{space: s}})
	w.a.post(w.now, remote(wqeOf(rdma.WRRead, 1), w.b, 0), w.a.at(0, 900_000))
	for w.transmit(0, w.a) || w.land(0, w.b) {
	}
	w.transmit(1, w.b)
	s.gone = true
	w.settle()
	wantStatus(t, w.a.sends.take(), rdma.WCRemOpErr)
	if e := w.a.end(); e.How != HowTerminateReceived || e.Code != iwarp.CodeRDMAPLocal {
		t.Errorf("ended %+v", e)
	}
}

func TestCorruptRing_EndsTheQueuePair(t *testing.T) {
	w := connected(t, worldConfig{})
	for range 300 { // more than the ring has
		w.a.sq.Push()
	}
	w.a.sq.Publish()
	w.a.q.HandleDoorbell(w.now)
	w.settle()
	if w.a.q.State() != rdma.QPStateError || len(w.a.raised) != 1 ||
		w.a.raised[0] != rdma.EventQPFatal {
		t.Errorf("state %v, events %v", w.a.q.State(), w.a.raised)
	}
	if e := w.b.end(); e.How != HowTerminateReceived {
		t.Errorf("ended %+v", e)
	}
}

func TestFlush_OfMoreThanACallDoes_GoesOn(t *testing.T) {
	w := connected(t, worldConfig{a: nodeConfig{entries: 2048}})
	for i := range 2000 {
		w.a.receive(uint64(i), w.a.at(0, 10))
		w.a.write(remote(wqeOf(rdma.WRRead, uint64(i)), w.b, 0), nil, []abi.SGE{w.a.at(0, 8)})
	}
	w.a.sq.Publish()
	w.a.q.Modify(w.now, &Attr{}, 0, rdma.QPStateError)
	if !w.a.q.HasWork() || len(w.a.sends.entries) > limits.WQEsPerDoorbell {
		t.Errorf("%d flushed in one call", len(w.a.sends.entries))
	}
	w.settle()
	if len(w.a.sends.entries) != 2000 || len(w.a.recvs.entries) != 2000 || w.a.q.HasWork() {
		t.Errorf("%d and %d flushed", len(w.a.sends.entries), len(w.a.recvs.entries))
	}
}

// TestTerminate_WhileAMessageWaits_ForgetsIt fails on this side while a message of the peer waits
// for a receive, and takes the queue pair away before the Terminate is sent.
func TestTerminate_WhileAMessageWaits_ForgetsIt(t *testing.T) {
	for _, hasCRC := range []bool{false, true} {
		r := responderNode(t, nodeConfig{conn: ConnConfig{CRC: hasCRC, Patience: time.Second}})
		r.say(fpdu(sendHeader(nil), []byte("early")))
		if !r.n.c.IsWaiting() {
			t.Fatal("a message without a receive does not wait")
		}
		r.n.sq.Push()
		for range 300 {
			r.n.sq.Push()
		}
		r.n.sq.Publish()
		r.n.q.HandleDoorbell(r.now) // the ring is damaged
		r.n.q.Release()
		r.now = r.now.Add(2 * time.Millisecond)
		r.n.c.HandleTimeout(r.now)
		r.drain()
		if all := r.hear(); len(all) != 1 || all[0].header.Opcode != iwarp.OpcodeTerminate {
			t.Fatalf("heard %v", all)
		}
		if e := r.n.end(); e.Code != iwarp.CodeRDMAPLocal {
			t.Errorf("ended %+v", e)
		}
	}
}

// TestTerminate_BeforeTheReplyIsSent_IsAReset: whoever waits for an MPA frame takes a Terminate for
// nonsense.
func TestTerminate_BeforeTheReplyIsSent_IsAReset(t *testing.T) {
	r := newRaw(t, false, nodeConfig{})
	r.n.c.HandleStream(r.now, request(nil))
	r.n.poll(r.now) // accepts
	r.n.c.HandleStream(r.now, fpdu(writeTo(0x777, testBase), []byte{1}))
	r.drain()
	if e := r.n.end(); e.How != HowError || e.Code != iwarp.CodeTaggedSTag ||
		r.n.c.Closing() != CloseAbort || len(r.out) != 0 {
		t.Errorf("ended %+v, closing %v, said %x", e, r.n.c.Closing(), r.out)
	}
}

// TestMemoryThatGoes_BeforeItsBytesAreSent is told to the peer: no FPDU is begun that cannot be
// finished.
func TestMemoryThatGoes_BeforeItsBytesAreSent(t *testing.T) {
	w := connected(t, worldConfig{a: nodeConfig{conn: ConnConfig{FPDU: FPDULarge}}})
	other := w.a.register(testPD, rdma.AccessLocalWrite, nil)
	pattern(w.a.mem, 1)
	w.a.write(remote(wqeOf(rdma.WRWrite, 1), w.b, 0), nil, []abi.SGE{w.a.at(0, 50_000)})
	lost := w.a.at(0, 50_000)
	lost.LKey = uint32(other.Key)
	w.a.write(remote(wqeOf(rdma.WRWrite, 2), w.b, 50_000), nil, []abi.SGE{lost})
	w.a.write(remote(wqeOf(rdma.WRWrite, 3), w.b, 0), nil, []abi.SGE{w.a.at(0, 50_000)})
	w.a.ring(w.now)
	if !w.a.c.Fill(w.now, &w.v) { // all are framed
		t.Fatal("nothing to send")
	}
	w.a.c.HandleSent(w.now, 0)
	w.a.table.Deregister(other)
	w.settle()
	wantStatus(t, w.a.sends.take(), rdma.WCSuccess, rdma.WCLocProtErr, rdma.WCWRFlushErr)
	if e := w.b.end(); e.How != HowTerminateReceived || e.Code != iwarp.CodeRDMAPLocal {
		t.Errorf("ended %+v", e)
	}
	if !bytes.Equal(w.a.mem[:50_000], w.b.mem[:50_000]) || w.b.mem[50_000] != 0 {
		t.Error("the wrong WRITE was sent")
	}
	// The source of a READ.
	w = connected(t, worldConfig{b: nodeConfig{conn: ConnConfig{FPDU: FPDULarge}}})
	w.b.receive(1, w.b.at(0, 10))
	w.a.post(w.now, remote(wqeOf(rdma.WRRead, 1), w.b, 0), w.a.at(0, 50_000))
	for w.transmit(0, w.a) || w.land(0, w.b) {
	}
	if !w.b.c.Fill(w.now, &w.v) {
		t.Fatal("nothing to send")
	}
	w.b.c.HandleSent(w.now, 0)
	w.b.table.Deregister(w.b.region)
	w.settle()
	wantStatus(t, w.a.sends.take(), rdma.WCWRFlushErr)
	wantStatus(t, w.b.recvs.take(), rdma.WCWRFlushErr)
	if e := w.a.end(); e.How != HowTerminateReceived || len(w.b.sends.entries) != 0 {
		t.Errorf("ended %+v", e)
	}
}

// TestSend_RegionRegisteredAgain_GoesOn: what is framed and not sent is fetched where it is now.
func TestSend_RegionRegisteredAgain_GoesOn(t *testing.T) {
	for _, op := range []rdma.WROpcode{rdma.WRWrite, rdma.WRRead} {
		w := connected(t, worldConfig{split: func(n int) int { return min(n, 3000) }})
		from, to := w.a, w.b
		if op == rdma.WRRead {
			from, to = to, from
		}
		const n = 200_000
		pattern(from.mem[500_000:500_000+n], 7)
		x := remote(wqeOf(op, 1), w.b, 500_000)
		x.Flags |= uint8(rdma.SendSignaled)
		list := w.a.at(500_000, n)
		if op == rdma.WRWrite {
			x.RemoteAddr = testBase
		} else {
			list = w.a.at(0, n)
		}
		w.a.post(w.now, x, list)
		for range 3 {
			w.step()
		}
		s := &space{base: testBase, bytes: from.mem}
		cfg := mem.Config{
			PD: testPD, Addr: testBase, IOVA: testBase, Length: uint64(len(from.mem)), Space: s,
			Access:   rdma.AccessLocalWrite | rdma.AccessRemoteAny,
			Segments: []mem.Segment{{Addr: testBase, Length: uint64(len(from.mem))}},
		}
		if _, r := from.table.Reregister(from.region, cfg); r != nil {
			t.Fatal(r)
		}
		w.settle()
		wantStatus(t, w.a.sends.take(), rdma.WCSuccess)
		if !bytes.Equal(to.mem[:n], from.mem[500_000:500_000+n]) {
			t.Errorf("%v: other bytes", op)
		}
	}
}

// TestCorruptRing_BeforeTheConnection_IsSaidByTheRules: an initiator says nothing behind its
// Terminate, and a responder nothing before the initiator has spoken.
func TestCorruptRing_BeforeTheConnection_IsSaidByTheRules(t *testing.T) {
	corrupt := func(n *node) {
		for range 300 {
			n.sq.Push()
		}
		n.sq.Publish()
	}
	r := newRaw(t, true, nodeConfig{params: Params{IRD: 4, ORD: 4, RTR: RTRAny}})
	f := r.frame()
	corrupt(r.n)
	f.IsReply, f.Setup.RTRRead, f.Setup.RTRSend = true, false, false
	r.say(f.Append(nil))
	if all := r.hear(); len(all) != 1 || all[0].header.Opcode != iwarp.OpcodeTerminate {
		t.Errorf("the initiator says %v", all)
	}

	r = newRaw(t, false, nodeConfig{})
	r.say(request(func(f *iwarp.Frame) { f.Setup.PeerToPeer, f.Setup.RTRWrite = true, true }))
	r.frame()
	corrupt(r.n)
	r.n.q.HandleDoorbell(r.now)
	r.drain()
	if all := r.hear(); len(all) != 0 {
		t.Errorf("the responder says %v", all)
	}
	if e := r.n.end(); e.How != HowError || r.n.c.Closing() != CloseAbort {
		t.Errorf("ended %+v, %v", e, r.n.c.Closing())
	}
}
