package nic

import (
	"bytes"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
	"github.com/softrnic/softrnic/test/racetest"
)

func wr(op rdma.WROpcode, id uint64) abi.SendWQE {
	return abi.SendWQE{WRID: id, Opcode: uint8(op), Flags: uint8(rdma.SendSignaled)}
}

func TestStreams_Connect_TellsBothSidesAndMovesData(t *testing.T) {
	for _, device := range []DeviceConfig{
		{Name: "iwarp0", Transport: TransportIWARP}, crcDevice(),
	} {
		l := newLAN(t, device)
		a, z, _ := l.pair()
		if a.q.state() != sRTS || z.q.state() != sRTS {
			t.Fatalf("states %v and %v", a.q.state(), z.q.state())
		}
		id, ok := a.n.StreamOf(rdma.QPN(a.q.rsp.QPN))
		if _, other := a.n.StreamOf(1); !ok || other || a.socks[id] == nil {
			t.Errorf("the queue pair's stream is %d, %v", id, ok)
		}
		const size = 200_000
		amr, aaddr, amem := a.region(size, everyRight)
		zmr, zaddr, zmem := z.region(size, everyRight)
		for i := range amem {
			amem[i] = byte(i * 7)
		}
		z.q.recv(9, abi.SGE{Addr: zaddr, Length: size, LKey: zmr.LKey})
		a.q.send(wr(rdma.WRSend, 1), abi.SGE{Addr: aaddr, Length: size, LKey: amr.LKey})
		a.polled(1, rdma.WCSuccess)
		if got := z.polled(1, rdma.WCSuccess); got[0].WRID != 9 || got[0].ByteLen != size {
			t.Errorf("received %+v", got)
		}
		if !bytes.Equal(amem, zmem) {
			t.Error("SEND: other bytes")
		}
		clear(zmem)
		w := wr(rdma.WRWrite, 2)
		w.RemoteAddr, w.RKey = zaddr, zmr.RKey
		a.q.send(w, abi.SGE{Addr: aaddr, Length: size, LKey: amr.LKey})
		a.polled(1, rdma.WCSuccess)
		clear(amem)
		r := wr(rdma.WRRead, 3)
		r.RemoteAddr, r.RKey = zaddr, zmr.RKey
		a.q.send(r, abi.SGE{Addr: aaddr, Length: size, LKey: amr.LKey})
		a.polled(1, rdma.WCSuccess)
		if amem[1] != 7 || !bytes.Equal(amem, zmem) {
			t.Error("WRITE and READ: other bytes")
		}
		l.empty()
	}
}

func TestStreams_ConnectRequest_TellsPrivateDataAndDepths(t *testing.T) {
	l := newLAN(t)
	x, y := l.nodes[0], l.nodes[1]
	listener := y.server()
	a, z := x.queue(), y.queue()
	id := x.caller(y)
	x.granted(x.s.Connect(l.now, &abi.CMConnReq{ID: id, Param: params(a.q.rsp.QPN, "hello")}))
	e := y.expect(eventConnectRequest, 0)
	p := &e.Param
	if got := string(p.PrivateData[:p.PrivateDataLen]); got != "hello" || e.ListenID != listener {
		t.Errorf("private data %q of listener %d", got, e.ListenID)
	}
	if p.ResponderResources != 2 || p.InitiatorDepth != 3 {
		t.Errorf("depths %d, %d, want what the peer initiates and serves", p.ResponderResources,
			p.InitiatorDepth)
	}
	route, r := y.s.QueryID(e.ID)
	y.granted(r)
	if route.Src != cmAddr(y.addr.String(), lanPort) || route.Dst.Addr != cmAddr("10.0.0.1", 0).Addr {
		t.Errorf("addresses %+v", route)
	}
	answer := params(z.q.rsp.QPN, "welcome")
	answer.ResponderResources, answer.InitiatorDepth = 1, 1
	y.granted(y.s.Accept(l.now, &abi.CMConnReq{ID: e.ID, Param: answer}))
	got := x.expect(eventEstablished, id)
	if text := string(got.Param.PrivateData[:got.Param.PrivateDataLen]); text != "welcome" {
		t.Errorf("private data %q", text)
	}
	if at := x.query(id); at.Src.Port == 0 || at.Src.Port != route.Dst.Port {
		t.Errorf("port %d here, %d there", at.Src.Port, route.Dst.Port)
	}
	y.expect(eventEstablished, e.ID)
	l.empty()
}

func (h *node) query(id uint32) abi.CMRoute {
	h.t.Helper()
	r, refusal := h.s.QueryID(id)
	h.granted(refusal)
	return r
}

func TestStreams_Reject_TellsPrivateData(t *testing.T) {
	l := newLAN(t)
	x, y := l.nodes[0], l.nodes[1]
	y.server()
	a, id := x.queue(), x.caller(y)
	x.granted(x.s.Connect(l.now, &abi.CMConnReq{ID: id, Param: params(a.q.rsp.QPN, "")}))
	asked := y.expect(eventConnectRequest, 0).ID
	no := abi.CMConnReq{ID: asked, Param: params(0, "no thanks")}
	y.granted(y.s.Reject(l.now, &no))
	e := x.expect(eventRejected, id)
	got := string(e.Param.PrivateData[:e.Param.PrivateDataLen])
	if e.Status != -int32(syscall.ECONNRESET) || got != "no thanks" {
		t.Errorf("status %d, private data %q", e.Status, got)
	}
	x.silent(time.Minute)
	l.clean()
	l.empty()
}

func TestStreams_Connect_NobodyListens_IsRejected(t *testing.T) {
	l := newLAN(t)
	x, y := l.nodes[0], l.nodes[1]
	a, id := x.queue(), x.caller(y)
	x.granted(x.s.Connect(l.now, &abi.CMConnReq{ID: id, Param: params(a.q.rsp.QPN, "")}))
	if e := x.expect(eventRejected, id); e.Status != -int32(syscall.ECONNREFUSED) {
		t.Errorf("status %d", e.Status)
	}
	if a.q.state() != sInit {
		t.Errorf("the queue pair is in %v", a.q.state())
	}
	l.empty()
}

// Servers exist that tell their port to the client just before they listen.
func TestStreams_Connect_ServerListensALittleLater_IsFound(t *testing.T) {
	l := newLAN(t)
	x, y := l.nodes[0], l.nodes[1]
	a, id := x.queue(), x.caller(y)
	x.granted(x.s.Connect(l.now, &abi.CMConnReq{ID: id, Param: params(a.q.rsp.QPN, "")}))
	x.silent(150 * time.Millisecond)
	y.server()
	y.expect(eventConnectRequest, 0)
	l.empty()

	// Whoever gives up between two attempts leaves nothing.
	l = newLAN(t)
	x, y = l.nodes[0], l.nodes[1]
	a, id = x.queue(), x.caller(y)
	other, second := x.queue(), x.caller(y)
	for qpn, id := range map[uint32]uint32{a.q.rsp.QPN: id, other.q.rsp.QPN: second} {
		x.granted(x.s.Connect(l.now, &abi.CMConnReq{ID: id, Param: params(qpn, "")}))
	}
	l.run(30 * time.Millisecond)
	x.granted(x.s.DestroyID(l.now, id))
	x.granted(x.c.DestroyQP(l.now, other.q.rsp.Handle))
	x.expect(eventRejected, second)
	l.clean()
	l.empty()
}

func TestStreams_Connect_HostDoesNotAnswer_IsUnreachable(t *testing.T) {
	l := newLAN(t)
	x, y := l.nodes[0], l.nodes[1]
	l.isDead = func(a netip.Addr) bool { return a == y.addr }
	a, id := x.queue(), x.caller(y)
	x.granted(x.s.Connect(l.now, &abi.CMConnReq{ID: id, Param: params(a.q.rsp.QPN, "")}))
	if e := x.expect(eventUnreachable, id); e.Status != -int32(syscall.ETIMEDOUT) {
		t.Errorf("status %d", e.Status)
	}
	l.empty()
}

// errno of failed connects, and which event programs get for it.
func TestStreams_Connect_Errnos_AreEvents(t *testing.T) {
	for errno, want := range map[syscall.Errno]eventKind{
		syscall.ECONNREFUSED: eventRejected, syscall.ETIMEDOUT: eventUnreachable,
		syscall.EHOSTUNREACH: eventUnreachable, syscall.ENETUNREACH: eventUnreachable,
		syscall.EACCES: eventConnectError,
	} {
		l := newLAN(t)
		x, y := l.nodes[0], l.nodes[1]
		a, id := x.queue(), x.caller(y)
		l.isDead = func(netip.Addr) bool { return true }
		x.granted(x.s.Connect(l.now, &abi.CMConnReq{ID: id, Param: params(a.q.rsp.QPN, "")}))
		for _, s := range x.socks {
			s.fail(errno)
		}
		l.isDead = nil
		if e := x.expect(want, id); e.Status != -int32(errno) {
			t.Errorf("%v: status %d", errno, e.Status)
		}
		x.refuses = errno
		again := x.caller(y)
		refused(t, "connect", x.s.Connect(l.now, &abi.CMConnReq{
			ID: again, Param: params(a.q.rsp.QPN, ""),
		}), errno)
		x.refuses = nil
		l.empty()
	}
}

func TestStreams_Disconnect_EndsBothAndFlushes(t *testing.T) {
	l := newLAN(t)
	a, z, _ := l.pair()
	mr, addr, _ := a.region(4096, everyRight)
	a.q.recv(1, abi.SGE{Addr: addr, Length: 64, LKey: mr.LKey})
	zmr, zaddr, _ := z.region(4096, everyRight)
	z.q.recv(2, abi.SGE{Addr: zaddr, Length: 64, LKey: zmr.LKey})
	z.q.recv(3, abi.SGE{Addr: zaddr, Length: 64, LKey: zmr.LKey})
	// What was posted before the end arrives.
	a.q.send(wr(rdma.WRSend, 4), abi.SGE{Addr: addr, Length: 64, LKey: mr.LKey})
	l.nodes[0].n.HandleDoorbells(l.now)
	a.granted(a.s.Disconnect(l.now, a.id))
	if e := a.expect(eventDisconnected, a.id); e.Status != 0 {
		t.Errorf("status %d", e.Status)
	}
	z.expect(eventDisconnected, z.id)
	l.run(time.Second)
	done := z.cq.poll()
	if len(done) != 2 || done[0].Status != uint32(rdma.WCSuccess) ||
		done[1].Status != uint32(rdma.WCWRFlushErr) {
		t.Errorf("receives: %+v", done)
	}
	if a.q.state() != sError || z.q.state() != sError {
		t.Errorf("states %v and %v", a.q.state(), z.q.state())
	}
	a.granted(a.s.Disconnect(l.now, a.id))
	z.granted(z.s.Disconnect(l.now, z.id))
	a.silent(time.Minute)
	z.silent(time.Minute)
	l.clean()
	l.empty()
}

// Case W06 of the list of cases: queue pairs of iWARP come up by rdma_cm only, and the refusal says
// so.
func TestModifyQP_W06_OfIWARPByHand_IsRefusedWithTheReason(t *testing.T) {
	l := newLAN(t)
	h := l.nodes[0]
	cq := h.cq(16, 0)
	q := h.rc(cq)
	a := fullAttr(5)
	a.State = uint32(sInit)
	h.granted(q.modify(a, toInit))
	for _, step := range []struct {
		to   rdma.QPState
		mask rdma.QPAttrMask
	}{{sRTR, toRTR}, {sRTS, toRTS}, {sRTS, rdma.QPAttrState}} {
		a.State = uint32(step.to)
		r := q.modify(a, step.mask)
		refused(t, step.to.String(), r, syscall.EINVAL)
		if !strings.Contains(r.Reason, "iWARP connections are made by rdma_cm") {
			t.Errorf("reason %q", r.Reason)
		}
	}
	h.granted(q.modify(abi.QPAttr{}, 0))
	if q.state() != sInit {
		t.Errorf("state %v", q.state())
	}
	a.State = uint32(sError)
	h.granted(q.modify(a, rdma.QPAttrState))
	a.State = uint32(sReset)
	h.granted(q.modify(a, rdma.QPAttrState))
	refused(t, "SQE", q.modify(abi.QPAttr{State: uint32(sSQE)}, rdma.QPAttrState), syscall.EINVAL)
	l.empty()
}

func TestQueryQP_OfIWARP_ShowsWhatMPAAgreedOn(t *testing.T) {
	l := newLAN(t)
	a, z, _ := l.pair()
	got, r := a.c.QueryQP(a.q.rsp.Handle)
	a.granted(r)
	if got.State != uint32(sRTS) || got.MaxRdAtomic != 2 || got.MaxDestRdAtomic != 3 ||
		got.MaxSendWR != 8 || got.PathMTU != uint32(rdma.MTU1024) ||
		rdma.Access(got.AccessFlags)&rdma.AccessRemoteRead == 0 {
		t.Errorf("active side: %+v", got)
	}
	got, r = z.c.QueryQP(z.q.rsp.Handle)
	z.granted(r)
	if got.State != uint32(sRTS) {
		t.Errorf("passive side: %+v", got)
	}
	l.empty()
}

// Programs that move their queue pairs themselves, with what rdma_init_qp_attr gives, and then call
// rdma_establish, need not know that there is nothing to do (rping -q).
func TestStreams_ProgramMovesItsQueuePairItself_NothingChanges(t *testing.T) {
	l := newLAN(t)
	a, z, _ := l.pair()
	for _, e := range []*end{a, z} {
		for _, to := range []rdma.QPState{sInit, sRTR, sRTS} {
			rsp, r := e.s.InitQPAttr(&abi.CMInitQPAttrReq{ID: e.id, State: uint32(to)})
			e.granted(r)
			e.granted(e.q.modify(rsp.Attr, rdma.QPAttrMask(rsp.Mask)))
		}
		e.granted(e.s.Establish(l.now, e.id))
		if e.q.state() != sRTS {
			t.Errorf("%v: %v", e.addr, e.q.state())
		}
	}
	l.empty()
}

func TestInitQPAttr_OfIWARP_LeavesNothingToDoButINIT(t *testing.T) {
	l := newLAN(t)
	x, y := l.nodes[0], l.nodes[1]
	y.server()
	id := x.caller(y)
	for state, want := range map[rdma.QPState]rdma.QPAttrMask{
		sInit: rdma.QPAttrState | rdma.QPAttrAccessFlags, sRTR: 0, sRTS: 0,
	} {
		rsp, r := x.s.InitQPAttr(&abi.CMInitQPAttrReq{ID: id, State: uint32(state)})
		x.granted(r)
		if rdma.QPAttrMask(rsp.Mask) != want || rsp.Attr.State != uint32(state) {
			t.Errorf("%v: mask %v", state, rdma.QPAttrMask(rsp.Mask))
		}
	}
	l.empty()
}

func TestStreams_QueuePairOfSomebodyElse_IsRefused(t *testing.T) {
	l := newLAN(t)
	a, z, _ := l.pair()
	x, y := l.nodes[0], l.nodes[1]
	bells := bytesOf(make([]uint64, abi.DoorbellPageBytes/8))
	c, r := x.n.OpenContext(l.now, ContextConfig{Name: "other", UID: 1, Doorbells: bells})
	x.granted(r)
	own, ownPD := x.c, x.pd
	x.c = c
	pd, r := c.AllocPD()
	x.granted(r)
	x.pd = pd
	foreign := x.rc(x.cq(4, 0))
	x.c, x.pd = own, ownPD
	ready := x.queue()
	x.granted(ready.q.modify(abi.QPAttr{State: uint32(sError)}, rdma.QPAttrState))
	for what, qpn := range map[string]uint32{
		"of nobody": 0x999, "of another user": foreign.rsp.QPN, "connected": a.q.rsp.QPN,
		"in error": ready.q.rsp.QPN,
	} {
		id := x.caller(y)
		refused(t, what, x.s.Connect(l.now, &abi.CMConnReq{ID: id, Param: params(qpn, "")}),
			syscall.EINVAL)
	}
	// Of the passive side: the peer is told.
	fresh, id := x.queue(), x.caller(y)
	x.granted(x.s.Connect(l.now, &abi.CMConnReq{ID: id, Param: params(fresh.q.rsp.QPN, "")}))
	asked := y.expect(eventConnectRequest, 0).ID
	refused(t, "accept", y.s.Accept(l.now, &abi.CMConnReq{ID: asked, Param: params(0x999, "")}),
		syscall.EINVAL)
	x.expect(eventRejected, id)
	_ = z
	x.n.CloseContext(l.now, c)
	l.empty()
}

func TestListen_TCPPortOfAnotherProgram(t *testing.T) {
	taken := netip.AddrPortFrom(netip.IPv4Unspecified(), lanPort)
	l := newLAN(t)
	l.nodes[0].taken[taken] = true
	_, r := l.nodes[0].listen("0.0.0.0", lanPort, 1)
	refused(t, "the only wire", r, syscall.EADDRINUSE)
	if r.Reason != "listen at 0.0.0.0:7000: bind: address already in use" {
		t.Errorf("%q is said", r.Reason)
	}

	l = newLAN(t, DeviceConfig{Name: "rnic0"}, DeviceConfig{Name: "iwarp0", Transport: TransportIWARP})
	h := l.nodes[0]
	h.taken[taken] = true
	id, r := h.listen("0.0.0.0", lanPort, 1)
	h.granted(r)
	if why := h.n.cm.ids[id].deaf; !strings.Contains(why, "7000") {
		t.Errorf("%q is no reason", why)
	}
	if len(h.n.Causes(0)) != 1 {
		t.Error("nothing is noted")
	}
	other, r := h.listen("0.0.0.0", lanPort+1, 1)
	h.granted(r)
	if len(h.listeners) != 1 || h.n.cm.ids[other].service == nil {
		t.Error("a wildcard does not listen on every wire")
	}
	l.empty()
}

func TestListen_PortThatTheNICChooses_IsOneThatTCPHas(t *testing.T) {
	l := newLAN(t)
	h := l.nodes[0]
	id := h.tcp()
	route, r := h.s.BindAddr(&abi.CMAddrReq{ID: id, Src: cmAddr("0.0.0.0", 0)})
	h.granted(r)
	h.taken[netip.AddrPortFrom(netip.IPv4Unspecified(), route.Src.Port)] = true
	got, r := h.s.Listen(&abi.CMListenReq{ID: id, Backlog: 1})
	h.granted(r)
	if got.Src.Port == 0 || got.Src.Port == route.Src.Port {
		t.Errorf("port %d", got.Src.Port)
	}
	if len(h.n.cm.ports.owners) != 1 {
		t.Errorf("%d ports are owned", len(h.n.cm.ports.owners))
	}
	l.empty()
}

// Case T14 of the list of cases: a message that finds no receive waits for one, as long as a
// program that posts as fast as it can needs; then its sender is told.
func TestStreams_T14_ReceiveComesLate_IsTaken(t *testing.T) {
	l := newLAN(t)
	a, z, _ := l.pair()
	mr, addr, _ := a.region(4096, everyRight)
	zmr, zaddr, _ := z.region(4096, everyRight)
	bell := ring.Word(z.q.mem, abi.OffRQDoorbell)
	for round := range uint64(3) {
		a.q.send(wr(rdma.WRSend, round), abi.SGE{Addr: addr, Length: 64, LKey: mr.LKey})
		l.run(20 * time.Millisecond)
		if bell.Load() != 1 || len(z.cq.poll()) != 0 {
			t.Fatalf("the doorbell word is %d", bell.Load())
		}
		z.q.recv(7+round, abi.SGE{Addr: zaddr, Length: 64, LKey: zmr.LKey})
		if got := z.polled(1, rdma.WCSuccess); got[0].WRID != 7+round || bell.Load() != 0 {
			t.Fatalf("received %+v, the doorbell word is %d", got, bell.Load())
		}
	}
	a.polled(3, rdma.WCSuccess)
	a.q.send(wr(rdma.WRSend, 9), abi.SGE{Addr: addr, Length: 64, LKey: mr.LKey})
	a.polled(1, rdma.WCSuccess)
	z.expect(eventDisconnected, z.id)
	a.expect(eventDisconnected, a.id)
	text := strings.Join(l.nodes[1].n.Causes(0)[0].Chain, "; ")
	if !strings.Contains(text, "no buffer") {
		t.Errorf("%q", text)
	}
	l.empty()
}

// pass takes what a node has to send to the other end of a connection, by hand.
func (e *end) pass(to *end, b []byte) {
	var id StreamID
	for e.n.PollStream(e.lan.now, &id) {
		e.vector.Reset()
		if !e.n.FillStream(e.lan.now, id, &e.vector) {
			continue
		}
		n := 0
		for _, p := range e.vector.Pieces {
			n += copy(b[n:], p)
		}
		e.n.HandleSent(e.lan.now, id, n, false)
		to.n.HandleStream(e.lan.now, to.socks[to.stream()].id, b[:n])
	}
}

func (e *end) stream() StreamID {
	id, _ := e.n.StreamOf(rdma.QPN(e.q.rsp.QPN))
	return id
}

func TestStreams_DataPath_AllocatesNothing(t *testing.T) {
	if racetest.Enabled {
		t.Skip("the race detector allocates")
	}
	l := newLAN(t)
	a, z, _ := l.pair()
	mr, addr, _ := a.region(4096, everyRight)
	zmr, zaddr, _ := z.region(4096, everyRight)
	w := wr(rdma.WRWrite, 1)
	w.RemoteAddr, w.RKey = zaddr, zmr.RKey
	r := wr(rdma.WRRead, 2)
	r.RemoteAddr, r.RKey = zaddr, zmr.RKey
	s := wr(rdma.WRSend, 3)
	list := abi.SGE{Addr: addr, Length: 1000, LKey: mr.LKey}
	b := make([]byte, 1<<16)
	round := func() {
		z.q.recv(1, abi.SGE{Addr: zaddr, Length: 4096, LKey: zmr.LKey})
		a.q.send(w, list)
		a.q.send(r, list)
		a.q.send(s, list)
		a.n.HandleDoorbells(l.now)
		a.pass(z, b)
		z.pass(a, b)
		for _, cq := range []*appCQ{a.cq, z.cq} {
			n, _ := cq.cons.Pending()
			cq.cons.Release(n)
		}
	}
	round()
	if got := testing.AllocsPerRun(100, round); got != 0 {
		t.Errorf("%v allocations a round", got)
	}
	if n := a.n.qps[rdma.QPN(a.q.rsp.QPN)].counters[work.CountRDMASends]; n < 100 {
		t.Errorf("%d sends", n)
	}
}
