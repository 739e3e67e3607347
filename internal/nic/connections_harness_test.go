package nic

import (
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/rdma"
)

// fabric is NICs joined in memory, in virtual time.
type fabric struct {
	t     *testing.T
	now   clock.Time
	hosts []*station
	// loses says whether a packet is lost; nil loses none.
	loses func(from *station, p *ibt.Packet) bool
	delay clock.Time
	wires []flying
	pairs uint32 // connections made, each with QPNs of its own
}

// flying is a packet on its way.
type flying struct {
	at   clock.Time
	to   *station
	p    ibt.Packet
	data []byte
}

// station is a NIC with one program that connects.
type station struct {
	*bench
	f       *fabric
	addr    string
	s       *CMSession
	channel uint32
	events  []ConnectionEvent
	async   []Event
	groups  map[netip.Addr]map[uint32]bool
	isDown  bool
}

const stationIf = 7

// JoinGroup implements GroupPort.
func (h *station) JoinGroup(group netip.Addr, ifindex uint32) error {
	if h.groups[group] == nil {
		h.groups[group] = map[uint32]bool{}
	}
	h.groups[group][ifindex] = true
	return nil
}

// LeaveGroup implements GroupPort.
func (h *station) LeaveGroup(group netip.Addr, ifindex uint32) { delete(h.groups[group], ifindex) }

// newFabric makes hosts 10.0.0.1, 10.0.0.2, … with fd00::1, fd00::2, … and loopback addresses.
func newFabric(t *testing.T, hosts int) *fabric {
	f := &fabric{t: t, delay: clock.Time(time.Microsecond)}
	for i := range hosts {
		f.hosts = append(f.hosts, f.newStation(byte(i+1)))
	}
	return f
}

func (f *fabric) newStation(number byte) *station {
	f.t.Helper()
	h := &station{f: f, groups: map[netip.Addr]map[uint32]bool{}}
	h.bench = &bench{t: f.t, heap: new(arena), now: f.now}
	h.n = New(Config{
		Devices: oneDevice, NodeGUID: rdma.GUID(0x1000 + uint64(number)), Version: "test",
		Secret: uint64(number) * 0x9e3779b97f4a7c15, Memory: h.heap, Groups: h,
	})
	v4 := netip.AddrFrom4([4]byte{10, 0, 0, number})
	v6 := netip.AddrFrom16([16]byte{0: 0xfd, 15: number})
	ll := netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 15: number})
	h.addr = v4.String()
	p := Port{MTU: rdma.MTU1024, Active: true}
	own := []netip.Addr{v4, v6, ll, ipOf("127.0.0.1"), netip.IPv6Loopback()}
	for i, a := range own {
		e := abi.GIDEntry{
			GID: rdma.GIDFromAddr(a), Index: uint32(i), Port: 1, Type: 2, IfIndex: stationIf,
		}
		if a.IsLoopback() {
			e.IfIndex = 1
		}
		p.GIDs = append(p.GIDs, e)
	}
	h.n.SetPort(f.now, 0, p)
	h.c, h.bells = h.open()
	pd, r := h.c.AllocPD()
	h.granted(r)
	h.pd = pd
	h.s, h.channel = h.join("test")
	return h
}

// join opens a session with one channel.
func (h *station) join(name string) (*CMSession, uint32) {
	h.t.Helper()
	s, r := h.n.OpenCM(h.f.now, CMConfig{Name: name, PID: 7, PortMin: 1024})
	h.granted(r)
	ch, r := s.CreateEventChannel()
	h.granted(r)
	return s, ch
}

// run moves everything until nothing is left to do, or d has passed.
func (f *fabric) run(d time.Duration) {
	f.t.Helper()
	end := f.now.Add(d)
	for {
		busy := false
		for _, h := range f.hosts {
			h.now = f.now
			if !h.isDown {
				busy = h.turn() || busy
			}
		}
		if busy {
			continue
		}
		next := f.next()
		if next > end {
			f.now = end
			return
		}
		f.now = max(f.now, next)
		f.deliver()
		for _, h := range f.hosts {
			if h.now = f.now; !h.isDown {
				h.n.HandleTimeout(f.now)
			}
		}
	}
}

// next is when something happens by itself.
func (f *fabric) next() clock.Time {
	at := clock.Never
	for _, h := range f.hosts {
		if !h.isDown {
			at = min(at, h.n.PollTimeout())
		}
	}
	for i := range f.wires {
		at = min(at, f.wires[i].at)
	}
	return at
}

func (f *fabric) deliver() {
	kept := f.wires[:0]
	var due []flying
	for _, w := range f.wires {
		if w.at <= f.now {
			due = append(due, w)
		} else {
			kept = append(kept, w)
		}
	}
	f.wires = kept
	for i := range due {
		if w := &due[i]; !w.to.isDown {
			w.p.Payload = w.data
			w.to.n.HandlePacket(f.now, &w.p)
		}
	}
}

func (h *station) turn() bool {
	busy := h.n.HandleDoorbells(h.now)
	var p ibt.Packet
	for h.n.PollTransmit(h.now, &p) {
		busy = true
		h.emit(&p)
	}
	var e Event
	for h.n.PollEvent(&e) {
		h.async = append(h.async, e)
	}
	var c ConnectionEvent
	for h.n.PollConnectionEvent(&c) {
		h.events = append(h.events, c)
	}
	var l Lookup
	for h.n.PollLookup(&l) {
		busy = true
		r := h.f.route(h, &l)
		h.n.HandleRoute(h.now, &r)
	}
	return busy || h.n.HasWork()
}

func (h *station) emit(p *ibt.Packet) {
	if h.n.IsLocal(p.DGID) {
		h.n.HandlePacket(h.now, p)
		return
	}
	isGroup := p.DGID.IsMulticast()
	if isGroup && h.n.HasGroup(p.DGID) {
		h.n.HandlePacket(h.now, p)
	}
	if h.f.loses != nil && h.f.loses(h, p) {
		return
	}
	for _, to := range h.f.hosts {
		member := isGroup && to != h && to.groups[p.DGID.Addr()][stationIf]
		if to.n.IsLocal(p.DGID) || member {
			h.f.wires = append(h.f.wires, flying{
				at: h.now + h.f.delay, to: to, p: *p, data: append([]byte(nil), p.Payload...),
			})
		}
	}
}

// route knows the way to the hosts there are.
func (f *fabric) route(h *station, l *Lookup) Route {
	r := Route{ID: l.ID, Errno: syscall.ENETUNREACH}
	for _, to := range f.hosts {
		if to.n.IsLocal(rdma.GIDFromAddr(l.Destination)) {
			r.Errno, r.MTU = 0, rdma.MTU4096
			r.Source = h.n.devices[0].port.firstAddress(l.Destination)
		}
	}
	return r
}

func cmAddr(text string, port uint16) abi.CMAddr {
	a := sockaddr{addr: netip.MustParseAddr(text), port: port}
	return a.abi()
}

// id makes an identifier of a session.
func (h *station) id(space portSpace, t rdma.QPType) uint32 {
	h.t.Helper()
	id, r := h.s.CreateID(&abi.CreateIDReq{
		Channel: h.channel, PortSpace: uint32(space), QPType: uint32(t),
	})
	h.granted(r)
	return id
}

func (h *station) tcp() uint32 { h.t.Helper(); return h.id(spaceTCP, rdma.QPTypeRC) }

// listen makes a listener.
func (h *station) listen(space portSpace, addr string, port uint16, backlog uint32) uint32 {
	h.t.Helper()
	id := h.id(space, rdma.QPTypeRC)
	_, r := h.s.BindAddr(&abi.CMAddrReq{ID: id, Src: cmAddr(addr, port)})
	h.granted(r)
	_, r = h.s.Listen(&abi.CMListenReq{ID: id, Backlog: backlog})
	h.granted(r)
	return id
}

// resolve takes an identifier to where it may connect.
func (h *station) resolve(id uint32, addr string, port uint16) {
	h.t.Helper()
	h.granted(h.s.ResolveAddr(h.f.now, &abi.CMAddrReq{ID: id, Dst: cmAddr(addr, port)}))
	h.expect(eventAddrResolved, id)
	h.granted(h.s.ResolveRoute(h.f.now, &abi.CMAddrReq{ID: id}))
	h.expect(eventRouteResolved, id)
}

// wait runs until the station has an event, and takes it.
func (h *station) wait(d time.Duration) *abi.CMEvent {
	h.t.Helper()
	h.f.run(0)
	for end := h.f.now.Add(d); len(h.events) == 0; {
		next := h.f.next()
		if next > end {
			h.t.Fatalf("%s: no event within %v", h.addr, d)
		}
		h.f.run(time.Duration(max(next-h.f.now, 0)))
	}
	e := h.events[0]
	h.events = h.events[1:]
	return &e.Record
}

// expect takes the next event and wants it to be of a kind, about an identifier.
func (h *station) expect(kind eventKind, id uint32) *abi.CMEvent {
	h.t.Helper()
	e := h.wait(5 * time.Minute)
	if eventKind(e.Event) != kind || id != 0 && e.ID != id {
		h.t.Fatalf("%s: event %d about %d (status %d), want %d about %d", h.addr, e.Event, e.ID,
			e.Status, kind, id)
	}
	return e
}

// silent wants no event for a while.
func (h *station) silent(d time.Duration) {
	h.t.Helper()
	h.f.run(d)
	if len(h.events) > 0 {
		e := &h.events[0].Record
		h.t.Fatalf("%s: unwanted event %d about %d, status %d", h.addr, e.Event, e.ID, e.Status)
	}
}

func (h *station) query(id uint32) abi.CMRoute {
	h.t.Helper()
	r, refusal := h.s.QueryID(id)
	h.granted(refusal)
	return r
}

// params are what programs pass to connect and accept.
func params(qpn uint32, private string) abi.CMParam {
	p := abi.CMParam{
		QPN: qpn, ResponderResources: 3, InitiatorDepth: 2, RetryCount: 5, RNRRetryCount: 6,
	}
	setPrivate(&p, []byte(private))
	return p
}

// refused wants a refusal with an errno.
func (h *station) refused(r *rdma.Refusal, errno syscall.Errno) {
	h.t.Helper()
	if r == nil || r.Errno != errno {
		h.t.Fatalf("got %v, want a refusal with %v", r, errno)
	}
	if r.Reason == "" {
		h.t.Fatalf("%v without words", errno)
	}
}

// connect brings a connection about and returns both its ends. The listener is there.
func (h *station) connect(to *station, addr string, port uint16) (active, passive uint32) {
	h.t.Helper()
	active = h.tcp()
	h.resolve(active, addr, port)
	qpn := 0x100 + 2*h.f.pairs
	h.f.pairs++
	h.granted(h.s.Connect(h.f.now, &abi.CMConnReq{ID: active, Param: params(qpn, "hello")}))
	passive = to.expect(eventConnectRequest, 0).ID
	to.granted(to.s.Accept(h.f.now, &abi.CMConnReq{ID: passive, Param: params(qpn+1, "welcome")}))
	h.expect(eventConnectResponse, active)
	h.granted(h.s.Establish(h.f.now, active))
	to.expect(eventEstablished, passive)
	return active, passive
}

// quiet wants nothing left of connections but what the stations still own.
func (f *fabric) quiet() {
	f.t.Helper()
	f.run(10 * time.Minute)
	for _, h := range f.hosts {
		if got, want := h.n.cm.engine.Len(), len(h.n.cm.calls); got != want {
			f.t.Errorf("%s: %d connections in the engine, %d owned", h.addr, got, want)
		}
	}
}

func ipOf(text string) netip.Addr { return netip.MustParseAddr(text) }
