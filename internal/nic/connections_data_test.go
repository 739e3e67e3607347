package nic

import (
	"bytes"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/cm"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/mad"
)

// move applies what InitQPAttr says to a queue pair, as the library does.
func (h *station) move(id uint32, q *appQP, states ...rdma.QPState) abi.QPAttr {
	h.t.Helper()
	var last abi.QPAttr
	for _, to := range states {
		rsp, r := h.s.InitQPAttr(&abi.CMInitQPAttrReq{ID: id, State: uint32(to)})
		h.granted(r)
		h.granted(q.modify(rsp.Attr, rdma.QPAttrMask(rsp.Mask)))
		last = rsp.Attr
	}
	return last
}

// connected brings up two queue pairs of a type by rdma_cm.
func (f *fabric) connected(space portSpace, kind rdma.QPType, addr string) (
	qa, qb *appQP, ca, cb *appCQ,
) {
	f.t.Helper()
	a, b := f.hosts[0], f.hosts[len(f.hosts)-1]
	ca, cb = a.cq(64, 0), b.cq(64, 0)
	make := func(h *station, cq *appCQ) *appQP {
		q := h.qp(abi.CreateQPReq{
			Type: uint32(kind), PD: h.pd, SendCQ: cq.handle, RecvCQ: cq.handle,
			MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 2, MaxRecvSGE: 2,
		})
		q.b = h.bench
		return q
	}
	qa, qb = make(a, ca), make(b, cb)
	listener := b.id(space, kind)
	_, r := b.s.BindAddr(&abi.CMAddrReq{ID: listener, Src: cmAddr(addr, 7471)})
	b.granted(r)
	_, r = b.s.Listen(&abi.CMListenReq{ID: listener})
	b.granted(r)
	id := a.id(space, kind)
	a.resolve(id, addr, 7471)
	a.move(id, qa, sInit)
	a.granted(a.s.Connect(f.now, &abi.CMConnReq{ID: id, Param: params(qa.rsp.QPN, "")}))
	child := b.expect(eventConnectRequest, 0).ID
	b.move(child, qb, sInit, sRTR, sRTS)
	b.granted(b.s.Accept(f.now, &abi.CMConnReq{ID: child, Param: params(qb.rsp.QPN, "")}))
	a.expect(eventConnectResponse, id)
	a.move(id, qa, sInit, sRTR, sRTS)
	a.granted(a.s.Establish(f.now, id))
	b.expect(eventEstablished, child)
	return qa, qb, ca, cb
}

func (f *fabric) exchange(qa, qb *appQP, ca, cb *appCQ) {
	f.t.Helper()
	const n = 5000
	a, b := f.hosts[0], f.hosts[len(f.hosts)-1]
	from, fromAt, src := a.region(n, rdma.AccessLocalWrite)
	into, intoAt, dst := b.region(n, rdma.AccessLocalWrite)
	for i := range src {
		src[i] = byte(i * 7)
	}
	qb.recv(1, abi.SGE{Addr: intoAt, Length: n, LKey: into.LKey})
	f.run(time.Millisecond)
	qa.send(abi.SendWQE{WRID: 2, Opcode: uint8(rdma.WRSend), Flags: uint8(rdma.SendSignaled)},
		abi.SGE{Addr: fromAt, Length: n, LKey: from.LKey})
	f.run(time.Second)
	sent, got := ca.poll(), cb.poll()
	if a == b {
		sent, got = append(sent, got...), nil
	}
	if len(sent)+len(got) != 2 || !bytes.Equal(src, dst) {
		f.t.Fatalf("completions %+v and %+v, equal: %v", sent, got, bytes.Equal(src, dst))
	}
	for _, e := range append(sent, got...) {
		if e.Status != 0 {
			f.t.Fatalf("completion %+v", e)
		}
	}
}

// C06 and T02: what works with addresses exchanged by hand works by rdma_cm, in every size.
func TestConnections_QueuePairs_C06_T02_CarryData(t *testing.T) {
	rows := []struct {
		name  string
		hosts int
		space portSpace
		kind  rdma.QPType
		addr  string
	}{
		{"RC IPv4", 2, spaceTCP, rdma.QPTypeRC, "10.0.0.2"},
		{"RC IPv6", 2, spaceTCP, rdma.QPTypeRC, "fd00::2"},
		{"RC own address", 1, spaceTCP, rdma.QPTypeRC, "10.0.0.1"},
		{"RC loopback", 1, spaceTCP, rdma.QPTypeRC, "127.0.0.1"},
		{"RC port space IB", 2, spaceIB, rdma.QPTypeRC, "10.0.0.2"},
		{"UC port space IB", 2, spaceIB, rdma.QPTypeUC, "10.0.0.2"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			f := newFabric(t, row.hosts)
			f.exchange(f.connected(row.space, row.kind, row.addr))
		})
	}
}

func TestInitQPAttr_RCConnection_FollowsREQAndREP(t *testing.T) {
	f := newFabric(t, 2)
	a, b := f.hosts[0], f.hosts[1]
	b.listen(spaceTCP, "0.0.0.0", 7471, 0)
	id := a.tcp()
	attr := func(h *station, id uint32, to rdma.QPState) abi.CMInitQPAttrRsp {
		t.Helper()
		rsp, r := h.s.InitQPAttr(&abi.CMInitQPAttrReq{ID: id, State: uint32(to)})
		h.granted(r)
		return rsp
	}
	_, r := a.s.InitQPAttr(&abi.CMInitQPAttrReq{ID: id, State: uint32(sInit)})
	a.refused(r, syscall.EINVAL)
	a.granted(a.s.SetOption(&abi.CMOptionReq{ID: id, Name: optionTOS, Len: 1, Value: 0x68}))
	a.resolve(id, "10.0.0.2", 7471)
	if got := attr(a, id, sInit); got.Mask != uint32(toInit) || got.Attr.AccessFlags != 0 ||
		got.Attr.Port != 1 || got.Attr.State != uint32(sInit) {
		t.Fatalf("before connect %+v", got)
	}
	p := params(0x100, "")
	p.InitiatorDepth = 0 // no READs from this side
	a.granted(a.s.Connect(f.now, &abi.CMConnReq{ID: id, Param: p}))
	_, r = a.s.InitQPAttr(&abi.CMInitQPAttrReq{ID: id, State: uint32(sRTR)})
	a.refused(r, syscall.EINVAL)
	child := b.expect(eventConnectRequest, 0).ID
	if got := attr(b, child, sInit).Attr; rdma.Access(got.AccessFlags) != rdma.AccessRemoteWrite {
		t.Fatalf("access %v without resources", rdma.Access(got.AccessFlags))
	}
	got := attr(b, child, sRTR)
	if got.Mask != uint32(toRTR) || got.Attr.DestQPN != 0x100 || got.Attr.MaxDestRdAtomic != 0 ||
		got.Attr.PathMTU != uint32(rdma.MTU1024) || got.Attr.MinRNRTimer != 0 {
		t.Fatalf("RTR %+v", got)
	}
	if ah := got.Attr.AH; ah.DGID != rdma.GIDFromAddr(ipOf("10.0.0.1")) || ah.TrafficClass != 0x68 ||
		ah.HopLimit != 64 || ah.SGIDIndex != 0 || ah.IsGlobal != 1 || ah.FlowLabel == 0 {
		t.Fatalf("address vector %+v", ah)
	}
	passive := attr(b, child, sRTS)
	if passive.Mask != uint32(toRTS) || passive.Attr.RetryCnt != 5 || passive.Attr.RNRRetry != 6 ||
		passive.Attr.MaxRdAtomic != 3 || passive.Attr.Timeout != packetLife+1 {
		t.Fatalf("RTS %+v", passive)
	}
	p = params(0x200, "")
	p.RNRRetryCount, p.RetryCount = 2, 1
	b.granted(b.s.Accept(f.now, &abi.CMConnReq{ID: child, Param: p}))
	a.expect(eventConnectResponse, id)
	ours := attr(a, id, sRTS)
	// The peer's REP says how often to repeat after RNR, our REQ how often after a timeout.
	if ours.Attr.RetryCnt != 5 || ours.Attr.RNRRetry != 2 || ours.Attr.MaxRdAtomic != 3 {
		t.Fatalf("RTS of the active side %+v", ours)
	}
	// Each side begins where the other expects it to.
	if ours.Attr.SQPSN != attr(b, child, sRTR).Attr.RQPSN ||
		passive.Attr.SQPSN != attr(a, id, sRTR).Attr.RQPSN || ours.Attr.SQPSN == passive.Attr.SQPSN {
		t.Fatal("PSNs do not fit")
	}
	_, r = a.s.InitQPAttr(&abi.CMInitQPAttrReq{ID: id, State: uint32(sSQD)})
	a.refused(r, syscall.EINVAL)
}

func TestInitQPAttr_AckTimeoutOption_ReplacesTheComputedOne(t *testing.T) {
	f := newFabric(t, 2)
	a, b := f.hosts[0], f.hosts[1]
	b.listen(spaceTCP, "0.0.0.0", 7471, 0)
	id := a.tcp()
	set := func(v uint64) *rdma.Refusal {
		return a.s.SetOption(&abi.CMOptionReq{ID: id, Name: optionAckTimeout, Len: 1, Value: v})
	}
	a.refused(set(32), syscall.EINVAL)
	a.granted(set(20))
	a.resolve(id, "10.0.0.2", 7471)
	if r := a.query(id); r.PacketLife != 19 {
		t.Fatalf("packet life %d", r.PacketLife)
	}
	a.granted(a.s.Connect(f.now, &abi.CMConnReq{ID: id, Param: params(0x100, "")}))
	child := b.expect(eventConnectRequest, 0).ID
	rsp, r := b.s.InitQPAttr(&abi.CMInitQPAttrReq{ID: child, State: uint32(sRTS)})
	b.granted(r)
	b.granted(b.s.Accept(f.now, &abi.CMConnReq{ID: child, Param: params(0x200, "")}))
	a.expect(eventConnectResponse, id)
	own, r := a.s.InitQPAttr(&abi.CMInitQPAttrReq{ID: id, State: uint32(sRTS)})
	a.granted(r)
	if rsp.Attr.Timeout != 20 || own.Attr.Timeout != 20 {
		t.Fatalf("timeouts %d and %d", rsp.Attr.Timeout, own.Attr.Timeout)
	}
}

func TestAckTimeout_DelayAndLifetime_Table(t *testing.T) {
	for _, row := range [][3]uint8{
		{15, 18, 19}, {15, 16, 17}, {15, 14, 16}, {15, 15, 17}, {15, 10, 15}, {0, 30, 31}, {15, 31, 31},
	} {
		if got := ackTimeout(row[0], row[1]); got != row[2] {
			t.Errorf("delay %d, lifetime %d: %d, want %d", row[0], row[1], got, row[2])
		}
	}
}

// Options that a vendor's queue pairs agree upon (rdma_set_local_ece(3)) are carried both ways,
// repeated messages included.
func TestConnections_VendorOptions_AreCarried(t *testing.T) {
	f := newFabric(t, 2)
	a, b := f.hosts[0], f.hosts[1]
	b.listen(spaceTCP, "0.0.0.0", 7471, 0)
	id, lost := a.tcp(), 0
	a.resolve(id, "10.0.0.2", 7471)
	f.loses = func(*station, *ibt.Packet) bool { lost++; return lost%2 == 1 }
	ask := params(0x100, "")
	ask.ECEVendor, ask.ECEOptions = 0x15b3, 0x10000003
	a.granted(a.s.Connect(f.now, &abi.CMConnReq{ID: id, Param: ask}))
	e := b.expect(eventConnectRequest, 0)
	if p := &e.Param; p.ECEVendor != 0x15b3 || p.ECEOptions != 0x10000003 {
		t.Errorf("request: vendor %#x, options %#x", p.ECEVendor, p.ECEOptions)
	}
	reply := params(0x101, "")
	reply.ECEVendor, reply.ECEOptions = 0x8086ab, 7
	b.granted(b.s.Accept(f.now, &abi.CMConnReq{ID: e.ID, Param: reply}))
	e = a.expect(eventConnectResponse, id)
	if p := &e.Param; p.ECEVendor != 0x8086ab || p.ECEOptions != 7 {
		t.Errorf("response: vendor %#x, options %#x", p.ECEVendor, p.ECEOptions)
	}
}

// A message that gets lost is no more than a hiccup, though a peer may take 4.3 s to answer one.
func TestConnections_EachMessageLostOnce_CostsAMoment(t *testing.T) {
	f := newFabric(t, 2)
	a, b := f.hosts[0], f.hosts[1]
	b.listen(spaceTCP, "0.0.0.0", 7471, 0)
	lost := map[uint8]bool{}
	f.loses = func(_ *station, p *ibt.Packet) bool {
		const attribute = 17 // its low byte in the header of a MAD
		kind := p.Payload[attribute]
		was := lost[kind]
		lost[kind] = true
		return !was
	}
	begin := f.now
	id, _ := a.connect(b, "10.0.0.2", 7471)
	if d := f.now.Sub(begin); d > time.Second {
		t.Errorf("connected after %v", d)
	}
	begin = f.now
	a.granted(a.s.Disconnect(f.now, id))
	a.expect(eventDisconnected, id)
	if d := f.now.Sub(begin); d > time.Second {
		t.Errorf("disconnected after %v", d)
	}
	if len(lost) < 5 {
		t.Errorf("lost are only %v", lost)
	}
}

// setMTU gives the station's port another MTU.
func (h *station) setMTU(mtu rdma.MTU) {
	p := h.n.devices[0].port.Port
	p.MTU = mtu
	h.n.SetPort(h.f.now, 0, p)
}

// Packets that are too large for one of the ports would never arrive, so that both use what the
// smaller one takes, whoever asks.
func TestConnections_PortsOfDifferentMTU_AgreeOnTheSmaller(t *testing.T) {
	for _, mtus := range [][2]rdma.MTU{
		{rdma.MTU4096, rdma.MTU1024},
		{rdma.MTU1024, rdma.MTU4096},
		{rdma.MTU4096, rdma.MTU256},
		{rdma.MTU2048, rdma.MTU512},
		{rdma.MTU4096, rdma.MTU4096},
	} {
		for _, kind := range []rdma.QPType{rdma.QPTypeRC, rdma.QPTypeUC} {
			f := newFabric(t, 2)
			largest := 0
			f.loses = func(_ *station, p *ibt.Packet) bool {
				largest = max(largest, len(p.Payload))
				return false
			}
			for i, h := range f.hosts {
				h.setMTU(mtus[i])
			}
			space := spaceTCP
			if kind == rdma.QPTypeUC {
				space = spaceIB
			}
			qa, qb, ca, cb := f.connected(space, kind, "10.0.0.2")
			f.exchange(qa, qb, ca, cb)
			if want := min(mtus[0], mtus[1]).Bytes(); largest != want {
				t.Errorf("%v, MTUs %v: packets with up to %d bytes, want %d", kind, mtus, largest, want)
			}
		}
	}
}

// A refusal that names no smaller MTU is the program's to hear.
func TestConnections_MTURefusedWithoutAWayOut_Rejected(t *testing.T) {
	for _, info := range [][]byte{
		nil, {uint8(rdma.MTU1024) << 4}, {uint8(rdma.MTU4096) << 4}, {0}, {0xff},
	} {
		f := newFabric(t, 2)
		a, b := f.hosts[0], f.hosts[1]
		b.listen(spaceTCP, "0.0.0.0", 7471, 0)
		id := a.tcp()
		a.resolve(id, "10.0.0.2", 7471)
		a.granted(a.s.Connect(f.now, &abi.CMConnReq{ID: id, Param: params(0x100, "")}))
		child := b.expect(eventConnectRequest, 0).ID
		b.granted(b.n.cm.engine.Reject(f.now, b.s.ids[child].call, &cm.RejectParams{
			Reason: uint16(mad.ReasonInvalidMTU), AdditionalInfo: info,
		}))
		b.n.cm.stir()
		if e := a.expect(eventRejected, id); e.Status != int32(mad.ReasonInvalidMTU) {
			t.Errorf("%x: status %d", info, e.Status)
		}
		b.silent(time.Minute)
	}
}

// ud makes a datagram queue pair of an identifier, in RTS.
func (h *station) ud(id uint32, cq *appCQ) *appQP {
	h.t.Helper()
	q := h.qp(abi.CreateQPReq{
		Type: uint32(rdma.QPTypeUD), PD: h.pd, SendCQ: cq.handle, RecvCQ: cq.handle,
		MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1,
	})
	q.b = h.bench
	h.move(id, q, sInit)
	for _, to := range []rdma.QPState{sRTR, sRTS} {
		mask := rdma.QPAttrState
		if to == sRTS {
			mask |= rdma.QPAttrSQPSN
		}
		h.granted(q.modify(abi.QPAttr{State: uint32(to)}, mask))
	}
	return q
}

// say sends a datagram to where an event pointed.
func (h *station) say(q *appQP, to *abi.CMParam, text string) {
	h.t.Helper()
	ah, r := h.c.CreateAH(&abi.CreateAHReq{PD: h.pd, Attr: to.AH})
	h.granted(r)
	rsp, addr, m := h.region(len(text), rdma.AccessLocalWrite)
	copy(m, text)
	q.send(abi.SendWQE{
		Opcode: uint8(rdma.WRSend), AH: ah, RemoteQPN: to.QPN, RemoteQKey: to.QKey,
	}, abi.SGE{Addr: addr, Length: uint32(len(text)), LKey: rsp.LKey})
}

// hear posts a receive and returns where the text will be.
func (h *station) hear(q *appQP) []byte {
	h.t.Helper()
	rsp, addr, m := h.region(40+64, rdma.AccessLocalWrite)
	q.recv(1, abi.SGE{Addr: addr, Length: 40 + 64, LKey: rsp.LKey})
	return m[40:]
}

func TestConnections_DatagramService_ResolvesAndTalks(t *testing.T) {
	f := newFabric(t, 2)
	a, b := f.hosts[0], f.hosts[1]
	ca, cb := a.cq(16, 0), b.cq(16, 0)
	b.listen(spaceUDP, "0.0.0.0", 7471, 0)
	id := a.id(spaceUDP, rdma.QPTypeUD)
	a.resolve(id, "10.0.0.2", 7471)
	qa := a.ud(id, ca)
	a.granted(a.s.Connect(f.now, &abi.CMConnReq{ID: id, Param: params(qa.rsp.QPN, "who?")}))
	e := b.expect(eventConnectRequest, 0)
	child := e.ID
	if privateOf(&e.Param) != "who?" || e.Param.PrivateDataLen != 180 {
		t.Fatalf("request %+v", e)
	}
	qb := b.ud(child, cb)
	b.granted(b.s.Accept(f.now, &abi.CMConnReq{ID: child, Param: params(qb.rsp.QPN, "me")}))
	e = a.expect(eventEstablished, id)
	if privateOf(&e.Param) != "me" || e.Param.QPN != qb.rsp.QPN ||
		e.Param.QKey != uint32(qkeyDefault) ||
		e.Param.AH.DGID != rdma.GIDFromAddr(ipOf("10.0.0.2")) || e.Param.PrivateDataLen != 136 {
		t.Fatalf("reply %+v", e)
	}
	text := b.hear(qb)
	a.say(qa, &e.Param, "datagram")
	f.run(time.Millisecond)
	if got := cb.poll(); len(got) != 1 || got[0].Status != 0 || string(text[:8]) != "datagram" {
		t.Fatalf("completions %+v, text %q", got, text[:8])
	} else if got[0].SL != levelIPv4 {
		t.Errorf("service level %d, want that of IPv4 over UDP", got[0].SL)
	}
	a.granted(a.s.Disconnect(f.now, id)) // no more than the kernel does
	a.granted(a.s.DestroyID(f.now, id))
	b.granted(b.s.DestroyID(f.now, child))
	f.quiet()
}

func TestConnections_DatagramServiceRefused_UnreachableWithStatus(t *testing.T) {
	f := newFabric(t, 2)
	a, b := f.hosts[0], f.hosts[1]
	query := func() uint32 {
		id := a.id(spaceUDP, rdma.QPTypeUD)
		a.resolve(id, "10.0.0.2", 7471)
		a.granted(a.s.Connect(f.now, &abi.CMConnReq{ID: id, Param: params(0, "")}))
		return id
	}
	id := query()
	if e := a.expect(eventUnreachable, id); e.Status != int32(mad.SIDRStatusUnsupportedService) {
		t.Fatalf("nobody listens: status %d", e.Status)
	}
	b.listen(spaceUDP, "0.0.0.0", 7471, 0)
	id = query()
	child := b.expect(eventConnectRequest, 0).ID
	b.granted(b.s.Reject(f.now, &abi.CMConnReq{ID: child, Param: params(0, "not you")}))
	e := a.expect(eventUnreachable, id)
	if e.Status != int32(mad.SIDRStatusRejected) || privateOf(&e.Param) != "not you" {
		t.Fatalf("rejected: %+v", e)
	}
	b.isDown = true
	id = query()
	if e := a.expect(eventUnreachable, id); e.Status != -int32(syscall.ETIMEDOUT) {
		t.Fatalf("silent: status %d", e.Status)
	}
}

// member joins a group and attaches a queue pair.
func (h *station) member(group string, flags uint32) (
	q *appQP, cq *appCQ, e *abi.CMEvent, id uint32,
) {
	h.t.Helper()
	cq = h.cq(16, 0)
	id = h.id(spaceUDP, rdma.QPTypeUD)
	own := h.addr
	if netip.MustParseAddr(group).Is6() {
		own = rdma.GID(h.n.devices[0].port.GIDs[1].GID).String()
	}
	_, r := h.s.BindAddr(&abi.CMAddrReq{ID: id, Src: cmAddr(own, 0)})
	h.granted(r)
	h.granted(h.s.ResolveAddr(h.f.now, &abi.CMAddrReq{ID: id, Dst: cmAddr(group, 0)}))
	h.expect(eventAddrResolved, id)
	q = h.ud(id, cq)
	handle, r := h.s.JoinMulticast(h.f.now,
		&abi.CMMulticastReq{ID: id, Flags: flags, Addr: cmAddr(group, 0)})
	h.granted(r)
	e = h.expect(eventMulticastJoin, id)
	if e.Join != handle || e.Param.QPN != 0xffffff || e.Param.QKey != uint32(qkeyDefault) ||
		e.Param.AH.DGID != rdma.GIDFromAddr(netip.MustParseAddr(group)) {
		h.t.Fatalf("join %+v", e)
	}
	if flags == joinFull {
		req := &abi.AttachMulticastReq{GID: e.Param.AH.DGID, QP: q.rsp.Handle}
		h.granted(h.c.AttachMulticast(req))
	}
	return q, cq, e, id
}

func TestMulticast_JoinAndAttach_EveryMemberHears(t *testing.T) {
	for _, group := range []string{"239.1.2.3", "ff0e::1234"} {
		f := newFabric(t, 3)
		a, b, c := f.hosts[0], f.hosts[1], f.hosts[2]
		qa, _, e, _ := a.member(group, joinFull)
		qb, cb, eb, idB := b.member(group, joinFull)
		qb2, cb2, _, _ := b.member(group, joinFull)
		_, cc, _, _ := c.member(group, joinSendOnly)
		if len(c.groups[netip.MustParseAddr(group)]) != 0 {
			t.Fatal("a sender is a member on the wire")
		}
		own, text, text2 := a.hear(qa), b.hear(qb), b.hear(qb2)
		a.say(qa, &e.Param, "to all")
		f.run(time.Millisecond)
		for _, m := range [][]byte{own, text, text2} {
			if string(m[:6]) != "to all" {
				t.Fatalf("%s: a member heard %q", group, m[:6])
			}
		}
		if n := len(cb.poll()) + len(cb2.poll()) + len(cc.poll()); n != 2 {
			t.Fatalf("%d completions", n)
		}
		if s := b.n.Status().Groups; len(s) != 1 || len(s[0].QPNs) != 2 || len(s[0].Interfaces) != 1 {
			t.Fatalf("groups %+v", s)
		}
		// Attached twice is attached once; who has left hears nothing, others do.
		req := &abi.AttachMulticastReq{GID: e.Param.AH.DGID, QP: qb.rsp.Handle}
		b.granted(b.c.AttachMulticast(req))
		b.granted(b.c.DetachMulticast(req))
		b.refused(b.c.DetachMulticast(req), syscall.EINVAL)
		b.granted(b.s.LeaveMulticast(eb.Join))
		b.refused(b.s.LeaveMulticast(eb.Join), syscall.EINVAL)
		text, text2 = b.hear(qb), b.hear(qb2)
		a.hear(qa)
		a.say(qa, &e.Param, "second")
		f.run(time.Millisecond)
		if string(text2[:6]) != "second" || string(text[:6]) == "second" {
			t.Fatalf("after leaving: %q and %q", text[:6], text2[:6])
		}
		b.granted(b.s.DestroyID(f.now, idB))
		b.n.CloseContext(f.now, b.c)
		b.n.CloseCM(f.now, b.s)
		if len(b.n.multicast.groups) != 0 || len(b.groups[netip.MustParseAddr(group)]) != 0 ||
			b.n.cm.joins != 0 {
			t.Fatalf("%d groups left, %v", len(b.n.multicast.groups), b.groups)
		}
	}
}

func TestMulticast_InterfaceComes_AttachedGroupFollows(t *testing.T) {
	f := newFabric(t, 1)
	a := f.hosts[0]
	q, _, e, id := a.member("239.1.2.3", joinFull)
	a.granted(a.s.DestroyID(f.now, id)) // the queue pair is still attached
	group := ipOf("239.1.2.3")
	p := a.n.devices[0].port.Port
	p.GIDs = append(p.GIDs[:len(p.GIDs):len(p.GIDs)], abi.GIDEntry{
		GID: rdma.GIDFromAddr(ipOf("10.9.0.1")), Index: 9, Port: 1, Type: 2, IfIndex: 12,
	})
	a.n.SetPort(f.now, 0, p)
	if g := a.groups[group]; len(g) != 2 || !g[12] || !g[stationIf] {
		t.Fatalf("member on %v", g)
	}
	p.GIDs = p.GIDs[:len(p.GIDs)-1]
	a.n.SetPort(f.now, 0, p)
	if g := a.groups[group]; len(g) != 1 || g[12] {
		t.Fatalf("member on %v", g)
	}
	// An attached queue pair stays (ibv_create_qp(3)); what a program has when it ends goes.
	a.refused(a.c.DestroyQP(f.now, q.rsp.Handle), syscall.EBUSY)
	if !a.n.HasGroup(e.Param.AH.DGID) {
		t.Error("the refused destroy has detached")
	}
	a.granted(a.c.DetachMulticast(&abi.AttachMulticastReq{
		GID: e.Param.AH.DGID, QP: q.rsp.Handle,
	}))
	a.granted(a.c.DestroyQP(f.now, q.rsp.Handle))
	if len(a.groups[group]) != 0 || a.n.HasGroup(e.Param.AH.DGID) {
		t.Fatalf("member on %v", a.groups[group])
	}
}

func TestMulticast_BadRequests_Refused(t *testing.T) {
	f := newFabric(t, 1)
	a := f.hosts[0]
	cq := a.cq(16, 0)
	rc := a.rc(cq)
	gid := rdma.GIDFromAddr(ipOf("239.1.2.3"))
	a.refused(a.c.AttachMulticast(&abi.AttachMulticastReq{GID: gid, QP: 999}), syscall.EINVAL)
	r := a.c.AttachMulticast(&abi.AttachMulticastReq{GID: gid, QP: rc.rsp.Handle})
	a.refused(r, syscall.EINVAL)
	id := a.id(spaceUDP, rdma.QPTypeUD)
	join := func(id, flags uint32, addr string) *rdma.Refusal {
		_, r := a.s.JoinMulticast(f.now,
			&abi.CMMulticastReq{ID: id, Flags: flags, Addr: cmAddr(addr, 0)})
		return r
	}
	a.refused(join(id, joinFull, "239.1.2.3"), syscall.EINVAL) // not bound
	_, r = a.s.BindAddr(&abi.CMAddrReq{ID: id, Src: cmAddr("10.0.0.1", 0)})
	a.granted(r)
	ud := a.ud(id, cq)
	a.refused(a.c.AttachMulticast(&abi.AttachMulticastReq{
		GID: rdma.GIDFromAddr(ipOf("10.0.0.9")), QP: ud.rsp.Handle,
	}), syscall.EINVAL)
	a.refused(join(id, 3, "239.1.2.3"), syscall.EINVAL)
	a.refused(join(id, 0, "239.1.2.3"), syscall.EINVAL)
	a.refused(join(id, joinFull, "10.0.0.9"), syscall.EINVAL)
	a.refused(join(id, joinFull, "ff0e::1"), syscall.EINVAL) // of another family
	a.refused(join(999, joinFull, "239.1.2.3"), syscall.EINVAL)
	a.refused(join(a.tcp(), joinFull, "239.1.2.3"), syscall.EINVAL)
	a.granted(join(id, joinFull, "239.1.2.3"))
}

// The RTU is lost, the peer's first packet is not: the passive side's queue pair waits in RTR, and
// the NIC needs no program to notice.
func TestConnections_LostRTU_FirstPacketEstablishes(t *testing.T) {
	f := newFabric(t, 2)
	a, b := f.hosts[0], f.hosts[1]
	ca, cb := a.cq(16, 0), b.cq(16, 0)
	qa, qb := a.rc(ca), b.rc(cb)
	b.listen(spaceTCP, "0.0.0.0", 7471, 0)
	id := a.tcp()
	a.resolve(id, "10.0.0.2", 7471)
	a.granted(a.s.Connect(f.now, &abi.CMConnReq{ID: id, Param: params(qa.rsp.QPN, "")}))
	child := b.expect(eventConnectRequest, 0).ID
	b.move(child, qb, sInit, sRTR)
	b.granted(b.s.Accept(f.now, &abi.CMConnReq{ID: child, Param: params(qb.rsp.QPN, "")}))
	a.expect(eventConnectResponse, id)
	a.move(id, qa, sInit, sRTR, sRTS)
	f.loses = func(_ *station, p *ibt.Packet) bool { return p.Headers.BTH.DestQPN == rdma.QPNGSI }
	a.granted(a.s.Establish(f.now, id))
	b.silent(time.Millisecond)
	qa.send(abi.SendWQE{Opcode: uint8(rdma.WRWrite)}) // of no bytes
	b.expect(eventEstablished, child)
	b.move(child, qb, sRTS)
	b.silent(time.Minute)
}
