package nic

import (
	"encoding/binary"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
)

// move is send for an end whose bytes pass in memory, as the shell does it.
func (s *sock) move() {
	n, l, t := s.node.n, s.node.lan, s.peer
	if !t.wants() {
		n.HandleSent(l.now, s.id, 0, true)
		l.after(100*time.Microsecond, s.tryAgain)
		return
	}
	var v work.Vector
	if !n.FillStream(l.now, s.id, &v) {
		return
	}
	given := 0
	for _, b := range v.Pieces {
		given += len(b)
		if !t.isGone {
			n.HandleStream(l.now, t.id, b)
		}
		if s.isGone || !t.wants() {
			break
		}
	}
	n.HandleSent(l.now, s.id, given, false)
}

func (s *sock) wants() bool { return s.isGone || s.node.n.WantsStream(s.id) }

// tryAgain asks whether a twin takes more by now.
func (s *sock) tryAgain() {
	switch {
	case s.isGone:
	case s.peer.wants():
		s.node.n.HandleWritable(s.lan().now, s.id)
	default:
		s.lan().after(100*time.Microsecond, s.tryAgain)
	}
}

// streamBench is a NIC with two queue pairs of iWARP that are connected within it: a initiates.
type streamBench struct {
	*lan
	x    *node
	a, z *end
	mr   abi.RegMRRsp
	addr uint64
	mem  []byte
}

// newStreamBench connects them. change, where not nil, may change what either end brings.
func newStreamBench(
	t *testing.T, device DeviceConfig, isJoined bool, change func(p *abi.CMParam),
) *streamBench {
	t.Helper()
	l := newLAN(t, device)
	b := &streamBench{lan: l, x: l.nodes[0]}
	b.x.n.direct = newDirect(b.x.n, bytesOf(make([]uint64, 4)))
	b.x.server()
	b.a, b.z = b.x.queue(), b.x.queue()
	b.connect(isJoined, change)
	b.mr, b.addr, b.mem = b.x.region(100_000, everyRight)
	return b
}

func (b *streamBench) connect(isJoined bool, change func(p *abi.CMParam)) {
	b.t.Helper()
	x := b.x
	p, z := params(b.a.q.rsp.QPN, "hello"), params(b.z.q.rsp.QPN, "welcome")
	if change != nil {
		change(&p)
		change(&z)
	}
	b.a.id = b.a.caller(x)
	x.granted(x.s.Connect(b.now, &abi.CMConnReq{ID: b.a.id, Param: p}))
	b.z.id = x.expect(eventConnectRequest, 0).ID
	if isJoined {
		id, _ := x.n.StreamOf(rdma.QPN(b.a.q.rsp.QPN))
		s := x.socks[id]
		s.isJoined, s.peer.isJoined = true, true
		x.n.HandleJoined(b.now, id, s.peer.id)
	}
	if b.a.q.rights() != 0 {
		b.t.Error("rights while MPA is not through")
	}
	x.granted(x.s.Accept(b.now, &abi.CMConnReq{ID: b.z.id, Param: z}))
	x.expect(eventEstablished, b.a.id)
	x.expect(eventEstablished, b.z.id)
}

func (b *streamBench) done() uint32 { return ring.Word(b.a.q.mem, abi.OffSQDone).Load() }

func (b *streamBench) sock() *sock {
	id, _ := b.x.n.StreamOf(rdma.QPN(b.a.q.rsp.QPN))
	return b.x.socks[id]
}

const streamRights = abi.GrantWrite | abi.GrantRead | abi.GrantAtomic

var streamDevice = DeviceConfig{Name: "iwarp0", Transport: TransportIWARP}

func TestDirectStream_Grant_FollowsBothEnds(t *testing.T) {
	b := newStreamBench(t, streamDevice, true, nil)
	step := func(what string, r *rdma.Refusal, a, z uint32) {
		t.Helper()
		b.x.granted(r)
		if b.a.q.rights() != a || b.z.q.rights() != z {
			t.Errorf("%s: rights %#x and %#x, not %#x and %#x", what, b.a.q.rights(), b.z.q.rights(), a, z)
		}
	}
	access := func(x rdma.Access) *rdma.Refusal {
		return b.z.q.modify(abi.QPAttr{AccessFlags: uint32(x)}, rdma.QPAttrAccessFlags)
	}
	step("connected", nil, streamRights, streamRights)
	link := b.a.q.grant()
	if link != b.z.q.grant() {
		t.Errorf("the ends do not agree on their connection: %#x, %#x", link, b.z.q.grant())
	}
	step("the target takes rights back; atomics are its regions' to allow",
		access(rdma.AccessRemoteRead), abi.GrantRead|abi.GrantAtomic, streamRights)
	step("all", access(0), abi.GrantAtomic, streamRights)
	step("and gives them", access(accessStreamed), streamRights, streamRights)
	b.x.n.HoldDirect(true)
	step("held", nil, 0, 0)
	b.x.n.HoldDirect(false)
	step("and no more", nil, streamRights, streamRights)
	if b.a.q.grant() != link {
		t.Error("the connection is another although it has not changed")
	}
	step("the target fails", b.z.q.modify(abi.QPAttr{State: uint32(sError)}, rdma.QPAttrState), 0, 0)
	b.run(time.Second)
	reset := abi.QPAttr{State: uint32(sReset)}
	step("is reset", b.z.q.modify(reset, rdma.QPAttrState), 0, 0)
	step("as the other", b.a.q.modify(reset, rdma.QPAttrState), 0, 0)
	b.x.events = nil
	for _, e := range []*end{b.a, b.z} {
		b.x.granted(e.q.modify(abi.QPAttr{State: uint32(sInit), AccessFlags: uint32(accessStreamed)},
			rdma.QPAttrState|rdma.QPAttrAccessFlags))
	}
	b.connect(true, nil)
	step("connected anew", nil, streamRights, streamRights)
	if b.a.q.grant() == link {
		t.Error("another connection has the number of the one before")
	}
	b.empty()
}

// Whatever begins to end a connection ends the rights, at both ends and at once.
func TestDirectStream_Grant_EndsWithTheConnection(t *testing.T) {
	state := func(s rdma.QPState) abi.QPAttr { return abi.QPAttr{State: uint32(s)} }
	for name, end := range map[string]func(b *streamBench){
		"disconnect":      func(b *streamBench) { b.x.s.Disconnect(b.now, b.a.id) },
		"by the peer":     func(b *streamBench) { b.x.s.Disconnect(b.now, b.z.id) },
		"SQD":             func(b *streamBench) { b.a.q.modify(state(sSQD), rdma.QPAttrState) },
		"the peer's SQD":  func(b *streamBench) { b.z.q.modify(state(sSQD), rdma.QPAttrState) },
		"reset":           func(b *streamBench) { b.z.q.modify(state(sReset), rdma.QPAttrState) },
		"destroyed":       func(b *streamBench) { b.x.c.DestroyQP(b.now, b.z.q.rsp.Handle) },
		"the identifier":  func(b *streamBench) { b.x.s.DestroyID(b.now, b.z.id) },
		"TCP breaks":      func(b *streamBench) { b.sock().end(syscall.ECONNRESET) },
		"TCP ends":        func(b *streamBench) { b.sock().end(0) },
		"TCP ends there":  func(b *streamBench) { b.sock().peer.end(0) },
		"a bad key":       func(b *streamBench) { b.bad(); b.run(0) },
		"the session":     func(b *streamBench) { b.x.n.CloseCM(b.now, b.x.s) },
		"the application": func(b *streamBench) { b.x.n.CloseContext(b.now, b.x.c) },
	} {
		b := newStreamBench(t, streamDevice, true, nil)
		before := b.a.q.rights()
		b.a.q.busy()
		end(b)
		if before != streamRights || b.a.q.grant() != 0 || b.z.q.grant() != 0 {
			t.Errorf("%s: rights %#x, then grants %#x and %#x", name, before, b.a.q.grant(),
				b.z.q.grant())
		}
		if w := b.x.n.TakeDirectWaits(); name != "the application" && len(w) != 1 {
			t.Errorf("%s: %d waits for who is at work", name, len(w))
		}
		b.run(time.Second)
		if b.a.q.grant() != 0 || b.z.q.grant() != 0 {
			t.Errorf("%s: the rights come back", name)
		}
	}
}

// bad posts a WRITE that the peer refuses.
func (b *streamBench) bad() {
	w := wr(rdma.WRWrite, 1)
	w.RemoteAddr, w.RKey = b.addr, b.mr.RKey^1
	b.a.q.send(w, abi.SGE{Addr: b.addr, Length: 8, LKey: b.mr.LKey})
}

func TestDirectStream_Grant_OnlyWhereItIsTheSame(t *testing.T) {
	markers, mss := streamDevice, streamDevice
	markers.Stream.Markers = true
	mss.Stream.FPDU = FPDUMSS
	noDepth := func(p *abi.CMParam) { p.ResponderResources, p.InitiatorDepth = 0, 0 }
	for name, c := range map[string]struct {
		device   DeviceConfig
		isJoined bool
		change   func(p *abi.CMParam)
		want     uint32
	}{
		"plain":         {streamDevice, true, nil, streamRights},
		"short FPDUs":   {mss, true, nil, streamRights},
		"markers":       {markers, true, nil, 0},
		"by TCP":        {streamDevice, false, nil, 0},
		"without READs": {streamDevice, true, noDepth, abi.GrantWrite},
	} {
		b := newStreamBench(t, c.device, c.isJoined, c.change)
		b.run(time.Second)
		if b.a.q.rights() != c.want || b.z.q.rights() != c.want {
			t.Errorf("%s: rights %#x and %#x, not %#x", name, b.a.q.rights(), b.z.q.rights(), c.want)
		}
		b.empty()
	}
}

// A SEND is complete when the peer's engine has it, and handled when there is a receive: nothing
// may overtake it.
func TestDirectStream_Done_WaitsForTheReceive(t *testing.T) {
	b := newStreamBench(t, streamDevice, true, nil)
	sge := abi.SGE{Addr: b.addr, Length: 8, LKey: b.mr.LKey}
	w := wr(rdma.WRWrite, 1)
	w.RemoteAddr, w.RKey = b.addr+64, b.mr.RKey
	b.a.q.send(w, sge)
	b.a.polled(1, rdma.WCSuccess)
	if b.done() != 1 {
		t.Fatalf("%d done after a WRITE", b.done())
	}
	b.a.q.send(wr(rdma.WRSend, 2), sge)
	b.a.polled(1, rdma.WCSuccess)
	b.run(10 * time.Millisecond)
	if b.done() != 1 || b.a.q.rights() != streamRights {
		t.Fatalf("%d done, rights %#x, while a message waits for its receive", b.done(), b.a.q.rights())
	}
	b.z.q.recv(9, sge)
	b.z.polled(1, rdma.WCSuccess)
	if b.done() != 2 {
		t.Errorf("%d done after the receive", b.done())
	}
	b.empty()
}

// TestDirectStream_RandomPrograms_NothingOvertakes does random requests of one queue pair, directly
// whenever a library might. WRITEs count a word at the peer, which never goes back; a message finds
// what was written before it; a READ reads what was.
func TestDirectStream_RandomPrograms_NothingOvertakes(t *testing.T) {
	direct := 0
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 8))
		b := newStreamBench(t, streamDevice, true, nil)
		word, back := b.mem[:8], b.mem[512:520]
		count, last, sent, taken := uint64(0), uint64(0), []uint64(nil), 0
		look := func() {
			t.Helper()
			now := binary.LittleEndian.Uint64(word)
			if now < last {
				t.Fatalf("seed %d: the word goes from %d to %d", seed, last, now)
			}
			last = now
			for range b.z.cq.poll() {
				if now < sent[taken] {
					t.Fatalf("seed %d: message %d is there, %d, and %d not", seed, taken, now, sent[taken])
				}
				taken++
			}
			if got := binary.LittleEndian.Uint64(back); got > count {
				t.Fatalf("seed %d: read %d of %d", seed, got, count)
			}
		}
		for range 300 {
			mayGo := b.a.q.rights() == streamRights && b.done() == b.a.q.posted()
			switch k := r.IntN(6); {
			case k < 3 && mayGo:
				direct++
				count++
				binary.LittleEndian.PutUint64(word, count)
			case k < 3 && b.a.q.sq.Free() > 0:
				count++
				w := wr(rdma.WRWrite, count)
				w.RemoteAddr, w.RKey = b.addr, b.mr.RKey
				slot := 1024 + 8*(count%1024)
				binary.LittleEndian.PutUint64(b.mem[slot:], count)
				b.a.q.send(w, abi.SGE{Addr: b.addr + slot, Length: 8, LKey: b.mr.LKey})
			case k == 3 && b.a.q.sq.Free() > 0:
				sent = append(sent, count)
				b.a.q.send(wr(rdma.WRSend, count), abi.SGE{Addr: b.addr, Length: 8, LKey: b.mr.LKey})
			case k == 4 && b.a.q.sq.Free() > 0:
				w := wr(rdma.WRRead, count)
				w.RemoteAddr, w.RKey = b.addr, b.mr.RKey
				b.a.q.send(w, abi.SGE{Addr: b.addr + 512, Length: 8, LKey: b.mr.LKey})
			case b.z.q.rq.Free() > 0 && r.IntN(3) > 0:
				b.z.q.recv(1, abi.SGE{Addr: b.addr + 600, Length: 8, LKey: b.mr.LKey})
			}
			look()
			b.a.cq.poll()
			b.run([]time.Duration{0, 20 * time.Microsecond, time.Millisecond}[r.IntN(3)])
			look()
		}
		for taken < len(sent) {
			b.z.q.recv(1, abi.SGE{Addr: b.addr + 600, Length: 8, LKey: b.mr.LKey})
			b.run(time.Millisecond)
			look()
		}
		b.run(time.Second)
		if look(); last != count || b.a.q.state() != sRTS {
			t.Fatalf("seed %d: %d of %d, state %v", seed, last, count, b.a.q.state())
		}
		b.empty()
	}
	if direct < 300 {
		t.Errorf("only %d requests were done directly", direct)
	}
}

// posted is how many requests the library has shown.
func (q *appQP) posted() uint32 { return ring.Word(q.mem, abi.OffSQProducer).Load() }
