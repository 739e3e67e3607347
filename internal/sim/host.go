package sim

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/rdma"
)

// host is one machine: a NIC, the shell around it, and applications.
type host struct {
	world *World
	index int
	name  string
	nic   *nic.NIC
	lives int // how often the NIC was started
	gids  [2]rdma.GID
	links map[*host]*link // by the other host; made when the first packet goes there
	apps  []*app
	mtu   rdma.MTU

	// In a world of connections.
	callers []*caller
	hidden  [2]bool // addresses that are gone for a while
	groups  map[netip.Addr]bool

	// In a world of iWARP.
	tcp    *network
	stream nic.StreamOptions

	isDown bool
	wakeAt clock.Time // the event that calls for the NIC's timer
	turnAt clock.Time // the event that drains the NIC
	bellAt clock.Time // the event that looks at doorbells
	out    ibt.Packet
	event  nic.Event
	// What the events run, made once.
	turned, woken, belled func()
	heap                  *heap
	isBusy                bool              // inside turn: applications are not called from within
	counters              map[string]uint64 // of the NICs that are gone
}

// listener is whoever owns a context.
type listener interface {
	handleEvent(e *nic.Event)
}

func newHost(w *World, index int) *host {
	h := &host{
		world: w, index: index, name: fmt.Sprintf("h%d", index), counters: map[string]uint64{},
		links: map[*host]*link{},
	}
	hi, lo := byte((index+1)>>8), byte(index+1) // what addresses of hosts differ in
	h.gids[0] = rdma.GIDFromAddr(netip.AddrFrom4([4]byte{10, 0, hi, lo}))
	h.gids[1] = rdma.GID{0: 0xfd, 14: hi, 15: lo}
	h.turned, h.woken, h.belled = h.turnPlanned, h.wakePlanned, h.lookAtBells
	h.mtu = w.plan.mtu
	if w.board != nil && w.board.plan.mixed {
		h.mtu = rdma.MTU(w.between(1, 5))
	}
	h.start()
	return h
}

// start powers a NIC on. QPNs of different NICs and lives are apart, so that what is late meets
// nobody by chance.
func (h *host) start() {
	w := h.world
	h.lives++
	h.isDown = false
	h.wakeAt, h.turnAt, h.bellAt = clock.Never, clock.Never, clock.Never
	h.heap = &heap{stock: w.stock}
	first := uint64(h.index*4096+h.lives%8*512+w.random.IntN(256)) & 0xffff
	if w.board != nil && w.board.plan.sameNumbers {
		first = uint64(h.index * 4096)
	}
	h.groups = map[netip.Addr]bool{}
	secret := w.random.Uint64()&^(0xffff<<20) | first<<20
	cfg := nic.Config{
		Devices: []nic.DeviceConfig{{Name: "rnic0"}}, Secret: secret,
		NodeGUID: rdma.GUID(0x0200_0000_0000_0001 + h.index),
		Memory:   h.heap, Version: "sim", LocalSegment: w.plan.localSegment, Groups: h,
		Scratch: w.stock.scratch,
	}
	if w.streams != nil {
		h.tcp, h.stream = newNetwork(h), w.chooseStreamOptions()
		cfg.Streams = h.tcp
		cfg.Devices = []nic.DeviceConfig{{
			Name: "iwarp0", Transport: nic.TransportIWARP, Stream: h.stream,
		}}
	}
	h.nic = nic.New(cfg)
	h.setPort(true)
}

func (h *host) setPort(active bool) {
	port := nic.Port{MTU: h.mtu, Active: active}
	for i, g := range h.gids {
		if h.hidden[i] {
			continue
		}
		port.GIDs = append(port.GIDs, abi.GIDEntry{
			GID: g, Index: uint32(i), Port: 1, Type: uint32(rdma.GIDTypeRoCEv2), IfIndex: 2,
		})
	}
	if h.tcp != nil {
		mac := rdma.GID{2, 4: byte((h.index + 1) >> 8), 5: byte(h.index + 1)}
		port.GIDs = []abi.GIDEntry{{GID: mac, Port: 1, IfIndex: 2}}
		for _, g := range h.gids {
			port.Addresses = append(port.Addresses, nic.PortAddress{Addr: g.Addr(), Interface: 2})
		}
	}
	h.nic.SetPort(h.world.now, 0, port)
	h.stir()
}

// stop powers the NIC off as kill -9 does: nothing is told to anybody.
func (h *host) stop() {
	w := h.world
	w.trace.note(w.now, "%s: the NIC dies", h.name)
	for name, v := range h.nic.Status().Counters {
		h.counters[name] += v
	}
	h.isDown = true
	for _, a := range h.apps {
		a.lose()
	}
	h.loseStreams()
	h.apps = nil
	for len(h.callers) > 0 {
		h.callers[0].lose()
	}
	for _, v := range w.vandals {
		if v.host == h {
			v.lose()
		}
	}
}

// turn does what the daemon does after each stimulus, a bounded part of it.
func (h *host) turn() {
	if h.isDown || h.isBusy {
		return
	}
	w := h.world
	w.stirred.remove(h.index)
	h.isBusy = true
	for range w.plan.burst {
		if !h.nic.PollTransmit(w.now, &h.out) {
			break
		}
		h.emit(&h.out)
	}
	h.isBusy = false
	for h.nic.PollEvent(&h.event) {
		h.event.Context.Owner().(listener).handleEvent(&h.event)
	}
	h.turnCalls()
	h.turnStreams()
	if h.nic.HasWork() {
		h.stir()
		h.turnAfter(time.Duration(w.plan.burst) * w.plan.packetCost)
	}
	h.armTimer()
}

// stir says that something was done to the NIC: turnAll drains it.
func (h *host) stir() { h.world.stirred.add(h.index) }

// emit sends a packet, or hands it over by reference when it stays on this NIC.
func (h *host) emit(p *ibt.Packet) {
	w := h.world
	if w.board != nil && !h.launch(p) {
		return
	}
	if h.nic.IsLocal(p.DGID) {
		w.local++
		w.trace.loops(w.now, h.name, &p.Headers.BTH)
		h.nic.HandlePacket(w.now, p)
		w.struck(h, &p.Headers)
		return
	}
	if to := w.hostOf(p.DGID); to != nil && to != h {
		h.linkTo(to).carry(p)
		return
	}
	w.court.Failf("%s: a packet for %v, which is nobody", h.name, p.DGID)
}

// hostOf finds a host by one of its addresses, nil where they are nobody's.
func (w *World) hostOf(g rdma.GID) *host {
	i := int(binary.BigEndian.Uint16(g[14:])) - 1
	if i < 0 || i >= len(w.hosts) || g != w.hosts[i].gids[0] && g != w.hosts[i].gids[1] {
		return nil
	}
	return w.hosts[i]
}

// turnSoon plans a turn. A host takes a moment, so that packets come in batches.
func (h *host) turnSoon() {
	h.stir()
	h.turnAfter(h.world.delay(0, h.world.plan.lag))
}

func (h *host) turnAfter(d time.Duration) {
	w := h.world
	at := w.now.Add(d)
	if h.turnAt <= at {
		return
	}
	h.turnAt = at
	w.at(at, h.turned)
}

// turnPlanned is what turnAfter plans: nothing where another turn was planned since.
func (h *host) turnPlanned() {
	if h.turnAt == h.world.now {
		h.turnAt = clock.Never
		h.turn()
	}
}

// armTimer plans the call of HandleTimeout; a busy host is sometimes late.
func (h *host) armTimer() {
	w := h.world
	t := h.nic.PollTimeout()
	if t == clock.Never || t >= h.wakeAt {
		return
	}
	t = max(t, w.now)
	if w.plan.lateTimers > 0 && w.chance(w.plan.lateTimers) {
		t = t.Add(w.delay(0, 2*time.Millisecond))
		h.stir() // whoever looks at all hosts may find the timer earlier
	}
	h.wakeAt = t
	w.at(t, h.woken)
}

// wakePlanned is what armTimer plans.
func (h *host) wakePlanned() {
	w := h.world
	if h.wakeAt != w.now || h.isDown {
		return
	}
	h.wakeAt = clock.Never
	if h.nic.PollTimeout() <= w.now {
		h.nic.HandleTimeout(w.now)
	}
	h.turn()
}

// bellDelay is how long a doorbell may be overlooked.
const bellDelay = 20 * time.Millisecond

// rung plans a look at the doorbells. One in a while is overlooked until much later, as when the
// lane falls asleep at the wrong moment.
func (h *host) rung() {
	w := h.world
	d := w.delay(0, w.plan.lag)
	if w.chance(w.plan.lostBells) {
		d = w.delay(time.Millisecond, bellDelay)
		w.mark("doorbell.late")
	}
	at := w.now.Add(d)
	if h.bellAt <= at {
		return
	}
	h.bellAt = at
	w.at(at, h.belled)
}

// lookAtBells is what rung plans.
func (h *host) lookAtBells() {
	w := h.world
	if h.bellAt != w.now || h.isDown {
		return
	}
	h.bellAt = clock.Never
	h.nic.HandleDoorbells(w.now)
	h.turn()
}
