package nic

import (
	"encoding/binary"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
	"github.com/softrnic/softrnic/internal/wire/mad"
)

func TestListen_SeveralListenersOfAPort_EachGetsItsAddress(t *testing.T) {
	f := newFabric(t, 2)
	a, b := f.hosts[0], f.hosts[1]
	p := b.n.devices[0].port.Port
	p.GIDs = append(p.GIDs[:len(p.GIDs):len(p.GIDs)], abi.GIDEntry{
		GID: rdma.GIDFromAddr(ipOf("10.0.0.22")), Index: 9, Port: 1, Type: 2, IfIndex: stationIf,
	})
	b.n.SetPort(f.now, 0, p)
	listeners := map[string]uint32{}
	for _, addr := range []string{"10.0.0.2", "10.0.0.22", "fd00::2"} {
		listeners[addr] = b.listen(spaceTCP, addr, 7471, 1)
	}
	for addr, listener := range listeners {
		id := a.tcp()
		a.resolve(id, addr, 7471)
		a.granted(a.s.Connect(f.now, &abi.CMConnReq{ID: id, Param: params(0x100, "")}))
		e := b.expect(eventConnectRequest, 0)
		if e.ListenID != listener || b.query(e.ID).Src != cmAddr(addr, 7471) {
			t.Fatalf("%s: %+v", addr, e)
		}
		b.granted(b.s.Reject(f.now, &abi.CMConnReq{ID: e.ID}))
		a.expect(eventRejected, id)
	}
	// One that goes leaves the others alone.
	b.granted(b.s.DestroyID(f.now, listeners["10.0.0.2"]))
	for addr := range listeners {
		id := a.tcp()
		a.resolve(id, addr, 7471)
		a.granted(a.s.Connect(f.now, &abi.CMConnReq{ID: id, Param: params(0x100, "")}))
		if addr == "10.0.0.2" {
			a.expect(eventRejected, id)
			continue
		}
		b.expect(eventConnectRequest, 0)
	}
}

func TestListen_IPv6Wildcard_TakesIPv4UnlessAFOnly(t *testing.T) {
	for _, only := range []uint64{0, 1} {
		f := newFabric(t, 2)
		a, b := f.hosts[0], f.hosts[1]
		l := b.tcp()
		b.granted(b.s.SetOption(&abi.CMOptionReq{ID: l, Name: optionAFOnly, Len: 4, Value: only}))
		_, r := b.s.BindAddr(&abi.CMAddrReq{ID: l, Src: cmAddr("::", 7471)})
		b.granted(r)
		_, r = b.s.Listen(&abi.CMListenReq{ID: l})
		b.granted(r)
		id := a.tcp()
		a.resolve(id, "10.0.0.2", 7471)
		a.granted(a.s.Connect(f.now, &abi.CMConnReq{ID: id, Param: params(0x100, "")}))
		if only != 0 {
			a.expect(eventRejected, id)
		} else if e := b.expect(eventConnectRequest, 0); b.query(e.ID).Src.Family != familyInet {
			t.Fatalf("address %+v", b.query(e.ID).Src)
		}
		id = a.tcp()
		a.resolve(id, "fd00::2", 7471)
		a.granted(a.s.Connect(f.now, &abi.CMConnReq{ID: id, Param: params(0x102, "")}))
		if e := b.expect(eventConnectRequest, 0); b.query(e.ID).Src.Family != familyInet6 {
			t.Fatalf("address %+v", b.query(e.ID).Src)
		}
	}
}

func TestListen_WithoutBind_TakesAPort(t *testing.T) {
	a := newFabric(t, 1).hosts[0]
	id := a.tcp()
	got, r := a.s.Listen(&abi.CMListenReq{ID: id, Backlog: 5})
	a.granted(r)
	if got.Src.Family != familyInet || got.Src.Port < portAnyMin || got.Port != 0 ||
		got.Device[0] != 0 {
		t.Fatalf("bound to %+v", got)
	}
}

// Requests beyond the backlog wait for their repetition until the program has looked at one; they
// are refused where it looks at none.
func TestListen_BacklogFull_WaitsUntilTaken(t *testing.T) {
	f := newFabric(t, 2)
	a, b := f.hosts[0], f.hosts[1]
	b.listen(spaceTCP, "0.0.0.0", 7471, 2)
	connect := func(qpn uint32) uint32 {
		id := a.tcp()
		a.resolve(id, "10.0.0.2", 7471)
		a.granted(a.s.Connect(f.now, &abi.CMConnReq{ID: id, Param: params(qpn, "")}))
		f.run(time.Second)
		return id
	}
	connect(0x100)
	connect(0x101)
	connect(0x102)
	a.silent(0)
	child := b.expect(eventConnectRequest, 0).ID
	b.expect(eventConnectRequest, 0)
	b.silent(0)
	b.query(child) // taken, though neither accepted nor rejected
	f.run(time.Second)
	b.expect(eventConnectRequest, 0)
	id := connect(0x103)
	f.run(limits.CMBacklogPatience / 2)
	a.silent(0)
	f.run(limits.CMBacklogPatience)
	if e := a.expect(eventRejected, id); e.Status != int32(mad.ReasonNoResources) {
		t.Fatalf("status %d", e.Status)
	}
	b.silent(0)
}

func TestIDs_Limit_RequestsRejectedForWantOfResources(t *testing.T) {
	f := newFabric(t, 2)
	a, b := f.hosts[0], f.hosts[1]
	b.listen(spaceTCP, "0.0.0.0", 7471, 0)
	req := &abi.CreateIDReq{Channel: b.channel, PortSpace: uint32(spaceTCP)}
	var last uint32
	for len(b.n.cm.ids) < limits.MaxCMIDs {
		var r *rdma.Refusal
		last, r = b.s.CreateID(req)
		b.granted(r)
	}
	_, r := b.s.CreateID(req)
	b.refused(r, syscall.ENOMEM)
	id := a.tcp()
	a.resolve(id, "10.0.0.2", 7471)
	a.granted(a.s.Connect(f.now, &abi.CMConnReq{ID: id, Param: params(0x100, "")}))
	if e := a.expect(eventRejected, id); e.Status != int32(mad.ReasonNoResources) {
		t.Fatalf("status %d", e.Status)
	}
	b.granted(b.s.DestroyID(f.now, last))
	_, r = b.s.CreateID(req)
	b.granted(r)
}

func TestSessions_Limits_Refused(t *testing.T) {
	a := newFabric(t, 1).hosts[0]
	var r *rdma.Refusal
	for range limits.MaxEventChannels {
		_, r = a.s.CreateEventChannel()
	}
	a.refused(r, syscall.ENOMEM)
	a.n.CloseCM(0, a.s)
	var sessions []*CMSession
	for range limits.MaxContexts {
		s, r := a.n.OpenCM(0, CMConfig{})
		a.granted(r)
		sessions = append(sessions, s)
	}
	_, r = a.n.OpenCM(0, CMConfig{})
	a.refused(r, syscall.ENOMEM)
	_, r = sessions[0].CreateEventChannel()
	a.granted(r)
}

func TestConnect_PrivateDataTooLong_Refused(t *testing.T) {
	f := newFabric(t, 2)
	a, b := f.hosts[0], f.hosts[1]
	long := func(n uint8) abi.CMParam {
		p := params(0x100, "")
		p.PrivateDataLen = n
		return p
	}
	b.listen(spaceTCP, "0.0.0.0", 7471, 0)
	b.listen(spaceUDP, "0.0.0.0", 7471, 0)
	for _, row := range []struct {
		space           portSpace
		req, rep, rej   uint8
		accepted, ended eventKind
	}{
		{spaceTCP, 56, 196, 148, eventConnectResponse, eventRejected},
		{spaceUDP, 180, 136, 136, eventEstablished, eventUnreachable},
	} {
		connect := func() (id, child uint32) {
			id = a.id(row.space, rdma.QPTypeRC)
			a.resolve(id, "10.0.0.2", 7471)
			a.refused(a.s.Connect(f.now, &abi.CMConnReq{ID: id, Param: long(row.req + 1)}), syscall.EINVAL)
			a.granted(a.s.Connect(f.now, &abi.CMConnReq{ID: id, Param: long(row.req)}))
			return id, b.expect(eventConnectRequest, 0).ID
		}
		id, child := connect()
		b.granted(b.s.Accept(f.now, &abi.CMConnReq{ID: child, Param: long(row.rep)}))
		a.expect(row.accepted, id)
		a.granted(a.s.DestroyID(f.now, id))
		f.run(time.Millisecond)
		b.events = nil
		id, child = connect()
		b.refused(b.s.Reject(f.now, &abi.CMConnReq{ID: child, Param: long(row.rej + 1)}), syscall.EINVAL)
		b.refused(b.s.Reject(f.now, &abi.CMConnReq{ID: child, Reason: 1 << 16}), syscall.EINVAL)
		b.granted(b.s.Reject(f.now, &abi.CMConnReq{ID: child, Param: long(row.rej)}))
		a.expect(row.ended, id)
	}
}

func TestSetOption_Garbage_Refused(t *testing.T) {
	a := newFabric(t, 1).hosts[0]
	id := a.tcp()
	a.refused(a.s.SetOption(&abi.CMOptionReq{ID: id, Level: 1, Name: 1, Len: 8}), syscall.ENOSYS)
	a.refused(a.s.SetOption(&abi.CMOptionReq{ID: id, Name: 9, Len: 4}), syscall.ENOSYS)
	a.refused(a.s.SetOption(&abi.CMOptionReq{ID: id, Name: optionTOS, Len: 4}), syscall.EINVAL)
	a.refused(a.s.SetOption(&abi.CMOptionReq{ID: 999, Name: optionTOS, Len: 1}), syscall.EINVAL)
	ud := a.id(spaceUDP, rdma.QPTypeUD)
	a.refused(a.s.SetOption(&abi.CMOptionReq{ID: ud, Name: optionAckTimeout, Len: 1}), syscall.EINVAL)
	for _, space := range []uint32{0, 1, 0x0107} {
		_, r := a.s.CreateID(&abi.CreateIDReq{Channel: a.channel, PortSpace: space})
		a.refused(r, syscall.EINVAL)
	}
	_, r := a.s.CreateID(&abi.CreateIDReq{Channel: a.channel, PortSpace: uint32(spaceIB), QPType: 77})
	a.refused(r, syscall.EINVAL)
}

// Two programs do not reach each other's identifiers.
func TestSessions_ForeignHandles_Unknown(t *testing.T) {
	f := newFabric(t, 1)
	a := f.hosts[0]
	id := a.tcp()
	s, channel := a.join("other")
	a.refused(s.DestroyID(f.now, id), syscall.EINVAL)
	a.refused(s.MigrateID(&abi.CMMigrateReq{ID: id, Channel: channel}), syscall.EINVAL)
	a.refused(a.s.MigrateID(&abi.CMMigrateReq{ID: id, Channel: channel}), syscall.EINVAL)
	a.refused(s.DestroyEventChannel(f.now, a.channel), syscall.EINVAL)
	_, r := s.CreateID(&abi.CreateIDReq{Channel: a.channel, PortSpace: uint32(spaceTCP)})
	a.refused(r, syscall.EINVAL)
}

// garbage calls everything in any order with anything.
type garbage struct {
	*station
	random *rand.Rand
	ids    []uint32
}

func (g *garbage) pick() uint32 {
	if len(g.ids) == 0 || g.random.IntN(20) == 0 {
		return g.random.Uint32()
	}
	return g.ids[g.random.IntN(len(g.ids))]
}

func (g *garbage) addr() abi.CMAddr {
	list := []string{
		"10.0.0.1", "10.0.0.2", "127.0.0.1", "::1", "fd00::1", "fd00::2", "0.0.0.0", "::", "239.1.1.1",
		"192.0.2.1", "fe80::1", "::ffff:10.0.0.2", "ff02::5",
	}
	a := cmAddr(list[g.random.IntN(len(list))], uint16(7470+g.random.IntN(3)))
	if g.random.IntN(10) == 0 {
		a.Family = uint16(g.random.IntN(40))
	}
	if g.random.IntN(3) == 0 {
		a.Scope = stationIf
	}
	return a
}

func (g *garbage) param() abi.CMParam {
	p := params(g.random.Uint32N(1<<25), "x")
	p.PrivateDataLen = uint8(g.random.IntN(256))
	p.ResponderResources, p.RetryCount = uint8(g.random.IntN(256)), uint8(g.random.IntN(256))
	p.QKey = g.random.Uint32N(3)
	return p
}

func (g *garbage) step() {
	s, now, id := g.s, g.f.now, g.pick()
	conn := &abi.CMConnReq{ID: id, Reason: g.random.Uint32N(50), Param: g.param()}
	addr := &abi.CMAddrReq{ID: id, Src: g.addr(), Dst: g.addr()}
	calls := []func(){
		func() {
			spaces := []portSpace{spaceTCP, spaceUDP, spaceIB, spaceIPoIB, 5}
			id, r := s.CreateID(&abi.CreateIDReq{
				Channel: g.channel, PortSpace: uint32(spaces[g.random.IntN(len(spaces))]),
				QPType: g.random.Uint32N(12),
			})
			if r == nil {
				g.ids = append(g.ids, id)
			}
		},
		func() { _, _ = s.BindAddr(addr) },
		func() { _ = s.ResolveAddr(now, addr) },
		func() { addr.Src = abi.CMAddr{}; _ = s.ResolveAddr(now, addr) },
		func() { _ = s.ResolveRoute(now, addr) },
		func() { _, _ = s.Listen(&abi.CMListenReq{ID: id, Backlog: g.random.Uint32N(5)}) },
		func() { _ = s.Connect(now, conn) },
		func() { _ = s.Accept(now, conn) },
		func() { _ = s.Reject(now, conn) },
		func() { _ = s.Disconnect(now, id) },
		func() { _ = s.Establish(now, id) },
		func() { _ = s.Notify(now, &abi.CMNotifyReq{ID: id, Event: g.random.Uint32N(6)}) },
		func() { _, _ = s.InitQPAttr(&abi.CMInitQPAttrReq{ID: id, State: g.random.Uint32N(9)}) },
		func() {
			_ = s.SetOption(&abi.CMOptionReq{
				ID: id, Name: g.random.Uint32N(5), Len: g.random.Uint32N(6), Value: g.random.Uint64(),
			})
		},
		func() {
			_, _ = s.JoinMulticast(now,
				&abi.CMMulticastReq{ID: id, Flags: g.random.Uint32N(4), Addr: g.addr()})
		},
		func() { _ = s.LeaveMulticast(g.random.Uint32N(5000)) },
		func() {
			if g.random.IntN(4) == 0 {
				_ = s.DestroyID(now, id)
			}
		},
		func() {
			if r, refusal := s.QueryID(id); refusal == nil && r.Port > 1 {
				g.t.Fatalf("port %d", r.Port)
			}
		},
	}
	calls[g.random.IntN(len(calls))]()
	for i := range g.events {
		if e := &g.events[i].Record; eventKind(e.Event) == eventConnectRequest {
			g.ids = append(g.ids, e.ID)
		}
	}
	g.events = nil
}

func TestSessions_RandomCalls_NothingLeaks(t *testing.T) {
	for seed := range uint64(12) {
		f := newFabric(t, 2)
		random := rand.New(rand.NewPCG(seed, 1))
		f.loses = func(*station, *ibt.Packet) bool { return random.IntN(10) == 0 }
		var gs []*garbage
		for _, h := range f.hosts {
			gs = append(gs, &garbage{station: h, random: random})
		}
		for range 4000 {
			gs[random.IntN(2)].step()
			if random.IntN(3) == 0 {
				f.run(time.Duration(random.IntN(2000)) * time.Microsecond)
			}
		}
		for _, h := range f.hosts {
			h.n.CloseCM(f.now, h.s)
		}
		f.quiet()
		for _, h := range f.hosts {
			c := h.n.cm
			if left := len(c.ids) + len(c.calls) + len(c.accepted) + len(c.services) + len(c.cookies) +
				len(c.ports.owners) + c.joins + c.channels + len(h.n.multicast.groups); left != 0 {
				t.Fatalf("seed %d: %+v left", seed, c)
			}
		}
	}
}

// Packets for QP1 that are no management datagrams, and datagrams of any content.
func TestGSI_Garbage_CountedOrIgnored(t *testing.T) {
	f := newFabric(t, 2)
	a := f.hosts[0]
	a.listen(spaceTCP, "0.0.0.0", 7471, 0)
	good := ibt.Packet{
		Address: ibt.Address{
			SGID: rdma.GIDFromAddr(ipOf("10.0.0.2")), DGID: rdma.GIDFromAddr(ipOf("10.0.0.1")),
		},
		Headers: ib.Headers{
			BTH:  ib.BTH{Opcode: ib.UDSendOnly, DestQPN: 1, PKey: rdma.PKeyDefault},
			DETH: ib.DETH{QKey: rdma.QKeyGSI, SrcQPN: 1},
		},
		Payload: make([]byte, 256),
	}
	bad := []func(p *ibt.Packet){
		func(p *ibt.Packet) { p.Headers.DETH.QKey = 5 },
		func(p *ibt.Packet) { p.Headers.BTH.PKey = 0x1234 },
		func(p *ibt.Packet) { p.Headers.BTH.Opcode = ib.RCSendOnly },
		func(p *ibt.Packet) { p.Payload = p.Payload[:255] },
		func(p *ibt.Packet) { p.Payload = nil },
	}
	for i, spoil := range bad {
		p := good
		spoil(&p)
		a.n.HandlePacket(f.now, &p)
		if a.n.counters.BadMAD != uint64(i+1) {
			t.Fatalf("packet %d was taken", i)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		p := good
		h := mad.Header{
			Class: mad.ClassCM, ClassVersion: 2, Method: mad.MethodSend,
			TransactionID: random.Uint64(), Attribute: mad.Attribute(0x10 + random.IntN(12)),
		}
		p.Payload = h.Append(nil)
		for len(p.Payload) < 256 {
			p.Payload = append(p.Payload, byte(random.Uint32()))
		}
		if random.IntN(2) == 0 { // a request that gets through to the NIC
			copy(p.Payload[24+8:], []byte{0, 0, 0, 0, 1, 6, 0x1d, 0x2f})
		}
		a.n.HandlePacket(f.now, &p)
	}
	f.run(time.Second)
	if a.n.counters.RcvdMAD != 20000 || len(a.n.cm.ids) > 1+limits.MaxListenBacklog {
		t.Fatalf("%d taken, %d identifiers", a.n.counters.RcvdMAD, len(a.n.cm.ids))
	}
	a.n.CloseCM(f.now, a.s)
	f.quiet()
}

func TestConnections_IPv6FlowInfo_ChoosesTheFlowLabel(t *testing.T) {
	f := newFabric(t, 2)
	a, b := f.hosts[0], f.hosts[1]
	b.listen(spaceTCP, "::", 7471, 0)
	for _, label := range []uint32{0, 0xabcde} {
		id := a.tcp()
		dst := cmAddr("fd00::2", 7471)
		dst.FlowInfo = binary.NativeEndian.Uint32(binary.BigEndian.AppendUint32(nil, label|6<<28))
		a.granted(a.s.ResolveAddr(f.now, &abi.CMAddrReq{ID: id, Dst: dst}))
		a.expect(eventAddrResolved, id)
		a.granted(a.s.ResolveRoute(f.now, &abi.CMAddrReq{ID: id}))
		a.expect(eventRouteResolved, id)
		got := a.query(id)
		if label != 0 && got.FlowLabel != label || got.FlowLabel == 0 || got.Dst != dst {
			t.Fatalf("flow label %#x of %+v", got.FlowLabel, got.Dst)
		}
		a.granted(a.s.Connect(f.now, &abi.CMConnReq{ID: id, Param: params(0x100+label, "")}))
		child := b.expect(eventConnectRequest, 0).ID
		if peer := b.query(child); peer.FlowLabel != got.FlowLabel {
			t.Fatalf("the peer answers with flow label %#x", peer.FlowLabel)
		}
	}
}

// restart replaces a station's NIC by a new one, as kill -9 and a start do.
func (f *fabric) restart(at int) *station {
	f.t.Helper()
	h := f.newStation(byte(at + 1))
	f.hosts[at] = h
	return h
}

// The peer's NIC is killed and started again in each state of a connection: the survivor's
// attempts end, and the next connection comes about.
func TestConnections_PeerRestarts_EveryStateEnds(t *testing.T) {
	for state := range 5 {
		f := newFabric(t, 2)
		a, b := f.hosts[0], f.hosts[1]
		b.listen(spaceTCP, "0.0.0.0", 7471, 0)
		id := a.tcp()
		a.resolve(id, "10.0.0.2", 7471)
		a.granted(a.s.Connect(f.now, &abi.CMConnReq{ID: id, Param: params(0x100, "")}))
		want := eventRejected
		accept := func() uint32 {
			child := b.expect(eventConnectRequest, 0).ID
			b.granted(b.s.Accept(f.now, &abi.CMConnReq{ID: child, Param: params(0x200, "")}))
			return child
		}
		switch state {
		case 0: // the REQ meets a NIC where nobody listens
			b = f.restart(1)
		case 1: // the request was delivered
			b.expect(eventConnectRequest, 0)
			b = f.restart(1)
		case 2: // the REP is lost with its sender
			f.loses = func(from *station, _ *ibt.Packet) bool { return from == b }
			accept()
			f.run(time.Millisecond)
			f.loses = nil
			b = f.restart(1)
		case 3: // the RTU meets a NIC that knows nothing
			accept()
			a.expect(eventConnectResponse, id)
			b = f.restart(1)
			a.granted(a.s.Establish(f.now, id))
			want = eventDisconnected
		case 4: // established
			child := accept()
			a.expect(eventConnectResponse, id)
			a.granted(a.s.Establish(f.now, id))
			b.expect(eventEstablished, child)
			b = f.restart(1)
			a.silent(time.Minute)
			a.granted(a.s.Disconnect(f.now, id))
			want = eventDisconnected
		}
		start := f.now
		a.expect(want, id)
		if took := f.now.Sub(start); took > 10*time.Second {
			t.Errorf("state %d: took %v", state, took)
		}
		b.listen(spaceTCP, "0.0.0.0", 7471, 0)
		a.events = nil
		a.connect(b, "10.0.0.2", 7471)
	}
}
