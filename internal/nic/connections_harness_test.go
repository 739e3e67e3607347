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
	*party
	f      *fabric
	addr   string
	groups map[netip.Addr]map[uint32]bool
	isDown bool
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
	h.party = &party{bench: &bench{t: f.t, heap: new(arena), now: f.now}, around: f}
	h.n = New(Config{
		Devices: oneDevice, NodeGUID: rdma.GUID(0x1000 + uint64(number)), Version: "test",
		Secret: uint64(number) * 0x9e3779b97f4a7c15, Memory: h.heap, Groups: h,
	})
	v4 := netip.AddrFrom4([4]byte{10, 0, 0, number})
	v6 := netip.AddrFrom16([16]byte{0: 0xfd, 15: number})
	ll := netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 15: number})
	h.addr, h.name = v4.String(), v4.String()
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

func (f *fabric) time() clock.Time { return f.now }

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
	busy = h.collect(func(l *Lookup) Route { return h.f.route(h, l) }) || busy
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
