package nic

import (
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/mad"
)

func privateOf(p *abi.CMParam) string {
	return strings.TrimRight(string(p.PrivateData[:p.PrivateDataLen]), "\x00")
}

func TestConnections_TwoNICs_EventsAndParametersInOrder(t *testing.T) {
	f := newFabric(t, 2)
	a, b := f.hosts[0], f.hosts[1]
	listener := b.listen(spaceTCP, "0.0.0.0", 7471, 3)
	id := a.tcp()
	a.resolve(id, "10.0.0.2", 7471)
	if r := a.query(id); string(r.Device[:5]) != "rnic0" || r.HasRoute != 1 || r.PathMTU != 3 ||
		r.Port != 1 || r.DGID != rdma.GIDFromAddr(ipOf("10.0.0.2")) || r.Src.Port < portAnyMin {
		t.Fatalf("route %+v", r)
	}
	a.granted(a.s.Connect(f.now, &abi.CMConnReq{ID: id, Param: params(0x123, "request")}))

	e := b.expect(eventConnectRequest, 0)
	child := e.ID
	p := &e.Param
	if e.ListenID != listener || privateOf(p) != "request" || p.PrivateDataLen != 56 ||
		p.QPN != 0x123 {
		t.Fatalf("request %+v", e)
	}
	// What the active side wants to initiate, the passive side has to respond to.
	if p.ResponderResources != 2 || p.InitiatorDepth != 3 || p.RetryCount != 5 ||
		p.RNRRetryCount != 6 {
		t.Fatalf("resources %+v", p)
	}
	route, active := b.query(child), a.query(id)
	if route.Src != cmAddr("10.0.0.2", 7471) || route.Dst != active.Src || route.Port != 1 ||
		string(route.Device[:5]) != "rnic0" {
		t.Fatalf("new identifier %+v", route)
	}
	b.granted(b.s.Accept(f.now, &abi.CMConnReq{ID: child, Param: params(0x321, "reply")}))
	e = a.expect(eventConnectResponse, id)
	if privateOf(&e.Param) != "reply" || e.Param.PrivateDataLen != mad.REPPrivateLen ||
		e.Param.QPN != 0x321 || e.Status != 0 {
		t.Fatalf("response %+v", e)
	}
	b.silent(0)
	a.granted(a.s.Establish(f.now, id))
	if e := b.expect(eventEstablished, child); e.Param.PrivateDataLen != 0 {
		t.Fatalf("established with %d bytes of private data that nobody sent", e.Param.PrivateDataLen)
	}
	a.silent(time.Minute) // nothing more on the active side: the program knows

	a.granted(a.s.Disconnect(f.now, id))
	b.expect(eventDisconnected, child)
	if e := a.expect(eventDisconnected, id); e.Status != 0 {
		t.Fatalf("status %d", e.Status)
	}
	a.expect(eventTimewaitExit, id)
	b.expect(eventTimewaitExit, child)
	a.granted(a.s.DestroyID(f.now, id))
	b.granted(b.s.DestroyID(f.now, child))
	b.granted(b.s.DestroyID(f.now, listener))
	f.quiet()
}

// C03: rping to an address of its own host.
func TestConnections_OwnAddress_C03_Completes(t *testing.T) {
	for _, addr := range []string{"10.0.0.1", "fd00::1"} {
		f := newFabric(t, 1)
		a := f.hosts[0]
		a.listen(spaceTCP, "::", 7471, 0)
		id, child := a.connect(a, addr, 7471)
		a.granted(a.s.Disconnect(f.now, id))
		seen := map[uint32]int{}
		for range 2 {
			seen[a.expect(eventDisconnected, 0).ID]++
		}
		for range 2 {
			seen[a.expect(eventTimewaitExit, 0).ID]++
		}
		if seen[id] != 2 || seen[child] != 2 {
			t.Fatalf("%s: events by identifier: %v", addr, seen)
		}
	}
}

// C04: loopback addresses resolve to this NIC, also where its GID table has none of them.
func TestConnections_LoopbackAddress_C04_ResolvesToThisNIC(t *testing.T) {
	for _, addr := range []string{"127.0.0.1", "::1", "0.0.0.0", "::", "127.0.0.5"} {
		for _, without := range []bool{false, true} {
			f := newFabric(t, 1)
			a := f.hosts[0]
			if without {
				p := a.n.devices[0].port.Port
				p.GIDs = p.GIDs[:1]
				a.n.SetPort(f.now, 0, p)
			}
			a.listen(spaceTCP, "::", 7471, 0)
			id, child := a.connect(a, addr, 7471)
			if r := a.query(child); r.Device[0] == 0 || r.Port != 1 {
				t.Fatalf("%s: %+v", addr, r)
			}
			a.granted(a.s.Disconnect(f.now, id))
			a.expect(eventDisconnected, 0)
		}
	}
}

// C14: an address that nobody can reach, or that belongs to no port of this NIC, says which.
func TestConnections_AddressError_C14_StatusSaysWhy(t *testing.T) {
	f := newFabric(t, 1)
	a := f.hosts[0]
	id := a.tcp()
	req := &abi.CMAddrReq{ID: id, Dst: cmAddr("192.0.2.1", 1)}
	for range 2 { // after an error one may try again
		a.granted(a.s.ResolveAddr(f.now, req))
		if e := a.expect(eventAddrError, id); e.Status != -int32(syscall.ENETUNREACH) {
			t.Fatalf("status %d", e.Status)
		}
	}
	a.granted(a.s.ResolveAddr(f.now, req))
	f.run(0)
	a.events = nil
	// The route leaves by an address that the NIC has not got.
	a.granted(a.s.ResolveAddr(f.now, req))
	a.n.HandleRoute(f.now, &Route{ID: id, Source: ipOf("192.0.2.9"), MTU: rdma.MTU1024})
	if e := a.expect(eventAddrError, id); e.Status != -int32(syscall.ENODEV) {
		t.Fatalf("status %d", e.Status)
	}
	// A link too small for any path MTU.
	var l Lookup
	for a.n.PollLookup(&l) {
		continue
	}
	a.granted(a.s.ResolveAddr(f.now, req))
	a.n.HandleRoute(f.now, &Route{ID: id, Source: ipOf("10.0.0.1")})
	if e := a.expect(eventAddrError, id); e.Status != -int32(syscall.EMSGSIZE) {
		t.Fatalf("status %d", e.Status)
	}
	// Answers for those who do not ask are ignored.
	a.n.HandleRoute(f.now, &Route{ID: id})
	a.n.HandleRoute(f.now, &Route{ID: 999})
	a.silent(time.Second)
}

func TestConnections_NobodyListens_RejectedWithReason8(t *testing.T) {
	f := newFabric(t, 2)
	a, b := f.hosts[0], f.hosts[1]
	b.listen(spaceTCP, "127.0.0.1", 7471, 0) // another address
	b.listen(spaceUDP, "0.0.0.0", 7472, 0)   // another port space
	for _, port := range []uint16{7471, 7472, 7473} {
		id := a.tcp()
		a.resolve(id, "10.0.0.2", port)
		a.granted(a.s.Connect(f.now, &abi.CMConnReq{ID: id, Param: params(0x100, "")}))
		if e := a.expect(eventRejected, id); e.Status != int32(mad.ReasonInvalidServiceID) {
			t.Fatalf("port %d: status %d", port, e.Status)
		}
		a.granted(a.s.Disconnect(f.now, id))
		a.refused(a.s.Connect(f.now, &abi.CMConnReq{ID: id}), syscall.EINVAL)
		a.granted(a.s.DestroyID(f.now, id))
	}
	b.silent(time.Second)
	f.quiet()
}

func TestConnections_RejectEachReason_ArrivesWithPrivateData(t *testing.T) {
	f := newFabric(t, 2)
	a, b := f.hosts[0], f.hosts[1]
	b.listen(spaceTCP, "0.0.0.0", 7471, 0)
	for reason := range uint32(36) {
		id := a.tcp()
		a.resolve(id, "10.0.0.2", 7471)
		a.granted(a.s.Connect(f.now, &abi.CMConnReq{ID: id, Param: params(0x100, "")}))
		child := b.expect(eventConnectRequest, 0).ID
		b.granted(b.s.Reject(f.now, &abi.CMConnReq{ID: child, Reason: reason, Param: params(0, "no")}))
		e := a.expect(eventRejected, id)
		want := reason
		if want == 0 {
			want = uint32(mad.ReasonConsumer)
		}
		if uint32(e.Status) != want || privateOf(&e.Param) != "no" ||
			e.Param.PrivateDataLen != mad.REJPrivateLen {
			t.Fatalf("reason %d: %+v", reason, e)
		}
		b.refused(b.s.Accept(f.now, &abi.CMConnReq{ID: child}), syscall.EINVAL)
		b.granted(b.s.DestroyID(f.now, child))
		a.granted(a.s.DestroyID(f.now, id))
	}
	f.quiet()
}

// TestConnections_AcceptRefused_RejectsThePeer: a program whose accept fails leaves the request
// behind often enough, and the peer is not to wait for an answer until it gives up.
func TestConnections_AcceptRefused_RejectsThePeer(t *testing.T) {
	f := newFabric(t, 2)
	a, b := f.hosts[0], f.hosts[1]
	for _, space := range []portSpace{spaceTCP, spaceUDP} {
		b.listen(space, "0.0.0.0", 7471, 0)
	}
	long, far := params(0x200, ""), params(1<<24, "")
	long.PrivateDataLen = 200
	for _, row := range []struct {
		space  portSpace
		param  abi.CMParam
		event  eventKind
		status int32
	}{
		{spaceTCP, long, eventRejected, int32(mad.ReasonConsumer)},
		{spaceTCP, far, eventRejected, int32(mad.ReasonConsumer)},
		{spaceUDP, long, eventUnreachable, int32(mad.SIDRStatusRejected)},
		{spaceUDP, far, eventUnreachable, int32(mad.SIDRStatusRejected)},
	} {
		id := a.id(row.space, rdma.QPTypeRC)
		a.resolve(id, "10.0.0.2", 7471)
		a.granted(a.s.Connect(f.now, &abi.CMConnReq{ID: id, Param: params(0x100, "")}))
		child := b.expect(eventConnectRequest, 0).ID
		began := f.now
		b.refused(b.s.Accept(f.now, &abi.CMConnReq{ID: child, Param: row.param}), syscall.EINVAL)
		if e := a.expect(row.event, id); e.Status != row.status {
			t.Errorf("%v: status %d, want %d", row.space, e.Status, row.status)
		}
		if took := f.now.Sub(began); took > 100*time.Millisecond {
			t.Errorf("%v: the peer knew after %v", row.space, took)
		}
		again := abi.CMConnReq{ID: child, Param: params(0x200, "")}
		b.refused(b.s.Accept(f.now, &again), syscall.EINVAL)
		b.granted(b.s.DestroyID(f.now, child))
		a.granted(a.s.DestroyID(f.now, id))
	}
	f.quiet()
}

func TestConnections_RejectReply_PassiveSideLearns(t *testing.T) {
	f := newFabric(t, 2)
	a, b := f.hosts[0], f.hosts[1]
	b.listen(spaceTCP, "0.0.0.0", 7471, 0)
	id := a.tcp()
	a.resolve(id, "10.0.0.2", 7471)
	a.granted(a.s.Connect(f.now, &abi.CMConnReq{ID: id, Param: params(0x100, "")}))
	child := b.expect(eventConnectRequest, 0).ID
	b.granted(b.s.Accept(f.now, &abi.CMConnReq{ID: child, Param: params(0x200, "")}))
	a.expect(eventConnectResponse, id)
	a.granted(a.s.Reject(f.now, &abi.CMConnReq{ID: id}))
	if e := b.expect(eventRejected, child); e.Status != int32(mad.ReasonConsumer) {
		t.Fatalf("status %d", e.Status)
	}
}

func TestConnections_SilentPeer_UnreachableAfterRetries(t *testing.T) {
	f := newFabric(t, 2)
	a, b := f.hosts[0], f.hosts[1]
	b.isDown = true
	id := a.tcp()
	a.resolve(id, "10.0.0.2", 7471)
	sent := 0
	f.loses = func(*station, *ibt.Packet) bool { sent++; return false }
	start := f.now
	a.granted(a.s.Connect(f.now, &abi.CMConnReq{ID: id, Param: params(0x100, "")}))
	e := a.expect(eventUnreachable, id)
	if e.Status != -int32(syscall.ETIMEDOUT) || sent != cmRetries+2 { // the last one is a REJ
		t.Fatalf("status %d after %d messages", e.Status, sent)
	}
	if took := f.now.Sub(start); took < 60*time.Second || took > 90*time.Second {
		t.Fatalf("gave up after %v", took)
	}
}

func TestConnections_HostWithoutNIC_UnreachableAtOnce(t *testing.T) {
	f := newFabric(t, 2)
	a := f.hosts[0]
	f.hosts[1].isDown = true
	id := a.tcp()
	a.resolve(id, "10.0.0.2", 7471)
	a.granted(a.s.Connect(f.now, &abi.CMConnReq{ID: id, Param: params(0x100, "")}))
	f.run(time.Millisecond)
	a.n.HandleUnreachable(f.now, rdma.GIDFromAddr(ipOf("10.0.0.3"))) // somebody else
	a.silent(0)
	a.n.HandleUnreachable(f.now, rdma.GIDFromAddr(ipOf("10.0.0.2")))
	if e := a.expect(eventUnreachable, id); e.Status != -int32(syscall.ECONNREFUSED) {
		t.Fatalf("status %d", e.Status)
	}
	a.silent(5 * time.Minute)
	id = a.tcp()
	a.resolve(id, "10.0.0.2", 7471)
	a.granted(a.s.Connect(f.now, &abi.CMConnReq{ID: id, Param: params(0x102, "")}))
	a.n.HandleNoHost(f.now, rdma.GIDFromAddr(ipOf("10.0.0.2")))
	if e := a.expect(eventUnreachable, id); e.Status != -int32(syscall.EHOSTUNREACH) {
		t.Fatalf("status %d", e.Status)
	}
	f.quiet()
}

// C10: a peer that does not answer a DREQ is visible in the status.
func TestConnections_DisconnectUnanswered_C10_StatusIsTimeout(t *testing.T) {
	f := newFabric(t, 2)
	a, b := f.hosts[0], f.hosts[1]
	b.listen(spaceTCP, "0.0.0.0", 7471, 0)
	id, _ := a.connect(b, "10.0.0.2", 7471)
	b.isDown = true
	a.granted(a.s.Disconnect(f.now, id))
	if e := a.expect(eventDisconnected, id); e.Status != -int32(syscall.ETIMEDOUT) {
		t.Fatalf("status %d", e.Status)
	}
	a.expect(eventTimewaitExit, id)
}

// C08: both ends disconnect at once: each has one DISCONNECTED and one TIMEWAIT_EXIT.
func TestConnections_BothDisconnect_C08_TimewaitExitOnEachSide(t *testing.T) {
	f := newFabric(t, 2)
	a, b := f.hosts[0], f.hosts[1]
	b.listen(spaceTCP, "0.0.0.0", 7471, 0)
	id, child := a.connect(b, "10.0.0.2", 7471)
	a.granted(a.s.Disconnect(f.now, id))
	b.granted(b.s.Disconnect(f.now, child))
	a.expect(eventDisconnected, id)
	b.expect(eventDisconnected, child)
	a.granted(a.s.Disconnect(f.now, id)) // programs do this after the event
	b.granted(b.s.Disconnect(f.now, child))
	a.expect(eventTimewaitExit, id)
	b.expect(eventTimewaitExit, child)
	a.silent(10 * time.Minute)
	b.silent(0)
}

// C09: what happens to addresses while a connection lives changes nothing in it.
func TestConnections_AddressGone_C09_ConnectionGoesOn(t *testing.T) {
	f := newFabric(t, 2)
	a, b := f.hosts[0], f.hosts[1]
	b.listen(spaceTCP, "0.0.0.0", 7471, 0)
	id, child := a.connect(b, "10.0.0.2", 7471)
	a.n.HandleUnreachable(f.now, rdma.GIDFromAddr(ipOf("10.0.0.2")))
	p := b.n.devices[0].port.Port
	b.n.SetPort(f.now, 0, Port{MTU: p.MTU})
	b.silent(time.Second)
	a.silent(0)
	b.n.SetPort(f.now, 0, p)
	b.granted(b.s.Disconnect(f.now, child))
	a.expect(eventDisconnected, id)
}

// C02: connecting again and again from the same identifier of the same host never meets a stale
// connection, also while the last one is in TIMEWAIT.
func TestConnections_ManyInTurn_C02_NoneIsStale(t *testing.T) {
	f := newFabric(t, 2)
	a, b := f.hosts[0], f.hosts[1]
	b.listen(spaceTCP, "0.0.0.0", 7471, 0)
	for range 200 {
		id, child := a.connect(b, "10.0.0.2", 7471)
		a.granted(a.s.Disconnect(f.now, id))
		b.expect(eventDisconnected, child)
		a.expect(eventDisconnected, id)
		b.granted(b.s.DestroyID(f.now, child))
		a.granted(a.s.DestroyID(f.now, id))
	}
	f.quiet()
	if len(a.n.cm.ids) != 0 || len(b.n.cm.ids) != 1 || len(a.n.cm.ports.owners) != 0 {
		t.Fatalf("%d and %d identifiers, %d ports left", len(a.n.cm.ids), len(b.n.cm.ids),
			len(a.n.cm.ports.owners))
	}
}

// C13: an accepted identifier dies with its listener's channel, unless it was migrated.
func TestConnections_ChannelDestroyed_C13_OnlyMigratedIDsLiveOn(t *testing.T) {
	f := newFabric(t, 2)
	a, b := f.hosts[0], f.hosts[1]
	b.listen(spaceTCP, "0.0.0.0", 7471, 0)
	id1, child1 := a.connect(b, "10.0.0.2", 7471)
	id2, child2 := a.connect(b, "10.0.0.2", 7471)
	other, r := b.s.CreateEventChannel()
	b.granted(r)
	b.granted(b.s.MigrateID(&abi.CMMigrateReq{ID: child2, Channel: other}))
	b.granted(b.s.DestroyEventChannel(f.now, b.channel))
	a.expect(eventDisconnected, id1)
	if _, r := b.s.QueryID(child1); r == nil {
		t.Fatal("the identifier outlived its channel")
	}
	b.query(child2)
	a.granted(a.s.Disconnect(f.now, id2))
	b.expect(eventDisconnected, child2)
	_, r = b.s.CreateID(&abi.CreateIDReq{Channel: b.channel, PortSpace: uint32(spaceTCP)})
	b.refused(r, syscall.EINVAL)
	b.refused(b.s.DestroyEventChannel(f.now, b.channel), syscall.EINVAL)
	b.refused(b.s.MigrateID(&abi.CMMigrateReq{ID: child2, Channel: b.channel}), syscall.EINVAL)
}

// A program that dies in any state leaves nothing, and its peer learns.
func TestConnections_SessionEnds_PeersLearnInEveryState(t *testing.T) {
	f := newFabric(t, 2)
	a, b := f.hosts[0], f.hosts[1]
	die := func(h *station) {
		h.n.CloseCM(f.now, h.s)
		f.run(time.Millisecond)
		h.events = nil
		h.s, h.channel = h.join("next")
	}
	request := func() (id, child uint32) {
		b.listen(spaceTCP, "0.0.0.0", 7471, 0)
		id = a.tcp()
		a.resolve(id, "10.0.0.2", 7471)
		a.granted(a.s.Connect(f.now, &abi.CMConnReq{ID: id, Param: params(0x100, "")}))
		return id, b.expect(eventConnectRequest, 0).ID
	}
	id, _ := request()
	die(b) // with an unanswered request
	if e := a.expect(eventRejected, id); e.Status != int32(mad.ReasonConsumer) {
		t.Fatalf("status %d", e.Status)
	}
	_, child := request()
	die(a) // having asked
	b.expect(eventRejected, child)
	die(b)
	_, child = request()
	b.granted(b.s.Accept(f.now, &abi.CMConnReq{ID: child, Param: params(0x200, "")}))
	f.run(time.Millisecond)
	die(a) // with a reply
	b.expect(eventRejected, child)
	die(b)
	id, child = request()
	b.granted(b.s.Accept(f.now, &abi.CMConnReq{ID: child, Param: params(0x200, "")}))
	a.expect(eventConnectResponse, id)
	a.granted(a.s.Establish(f.now, id))
	b.expect(eventEstablished, child)
	die(b) // connected
	a.expect(eventDisconnected, id)
	a.expect(eventTimewaitExit, id)
	a.n.CloseCM(f.now, a.s)
	a.n.CloseCM(f.now, a.s) // twice is once
	f.quiet()
	for _, h := range f.hosts {
		if len(h.n.cm.ids)+len(h.n.cm.calls)+len(h.n.cm.services)+len(h.n.cm.ports.owners) != 0 {
			t.Errorf("%s: %d identifiers, %d calls, %d services, %d ports left", h.addr,
				len(h.n.cm.ids), len(h.n.cm.calls), len(h.n.cm.services), len(h.n.cm.ports.owners))
		}
	}
}

func TestConnections_LostRTU_TrafficStandsForIt(t *testing.T) {
	f := newFabric(t, 2)
	a, b := f.hosts[0], f.hosts[1]
	b.listen(spaceTCP, "0.0.0.0", 7471, 0)
	id := a.tcp()
	a.resolve(id, "10.0.0.2", 7471)
	a.granted(a.s.Connect(f.now, &abi.CMConnReq{ID: id, Param: params(0x100, "")}))
	child := b.expect(eventConnectRequest, 0).ID
	b.granted(b.s.Accept(f.now, &abi.CMConnReq{ID: child, Param: params(0x200, "")}))
	a.expect(eventConnectResponse, id)
	f.loses = func(*station, *ibt.Packet) bool { return true }
	a.granted(a.s.Establish(f.now, id))
	b.silent(time.Millisecond)
	commEst := uint32(rdma.EventCommEst)
	b.granted(b.s.Notify(f.now, &abi.CMNotifyReq{ID: child, Event: commEst}))
	b.expect(eventEstablished, child)
	b.granted(b.s.Notify(f.now, &abi.CMNotifyReq{ID: child, Event: commEst})) // again: no event
	b.silent(time.Second)
	b.refused(b.s.Notify(f.now, &abi.CMNotifyReq{ID: child, Event: 3}), syscall.EINVAL)
}

func TestConnections_DeviceRemoved_BoundIDsLearn(t *testing.T) {
	f := newFabric(t, 2)
	a, b := f.hosts[0], f.hosts[1]
	wild := b.listen(spaceTCP, "0.0.0.0", 7471, 0)
	_, child := a.connect(b, "10.0.0.2", 7471)
	b.n.RemoveDevice(f.now)
	b.expect(eventDeviceRemoval, child)
	b.silent(0) // the wildcard listener is bound to no device
	if s := b.n.Status().CMIDs; len(s) != 2 || s[0].ID != wild || s[0].State != "listening" ||
		s[1].State != "established" || s[1].Local != "10.0.0.2:7471" || s[1].QPN != 0x101 ||
		s[1].DestQPN != 0x100 || s[1].Program != "test" || s[1].RemoteGID != "::ffff:10.0.0.1" {
		t.Fatalf("status %+v", s)
	}
}

// Whatever a link does to the messages, both sides agree in the end.
func TestConnections_BadLink_BothSidesAgree(t *testing.T) {
	for seed := range uint64(20) {
		f := newFabric(t, 2)
		a, b := f.hosts[0], f.hosts[1]
		random := rand.New(rand.NewPCG(seed, 9))
		b.listen(spaceTCP, "0.0.0.0", 7471, 0)
		f.loses = func(*station, *ibt.Packet) bool {
			if n := len(f.wires); n > 0 && random.IntN(4) == 0 { // an old one once more, and late
				w := f.wires[random.IntN(n)]
				w.at = w.at.Add(time.Duration(random.IntN(6000)) * time.Millisecond)
				f.wires = append(f.wires, w)
			}
			return random.IntN(4) == 0
		}
		for range 10 {
			id, child := a.connect(b, "10.0.0.2", 7471)
			h, at := a, id
			if random.IntN(2) == 0 {
				h, at = b, child
			}
			h.granted(h.s.Disconnect(f.now, at))
			a.expect(eventDisconnected, id)
			b.expect(eventDisconnected, child)
			a.expect(eventTimewaitExit, id)
			b.expect(eventTimewaitExit, child)
			a.granted(a.s.DestroyID(f.now, id))
			b.granted(b.s.DestroyID(f.now, child))
		}
		a.silent(time.Minute)
		f.quiet()
	}
}
