package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
	"github.com/softrnic/softrnic/internal/sim/check"
)

// Layout of an application's memory: areas for buffers with guards between, cells for atomics, and
// room from which windows for peers are cut.
const (
	areaCount    = 4 // the last one is read-only
	receiveAreas = 2
	guardBytes   = 4096
	cellCount    = 16
)

// app is one application: a process with a context on its host's NIC.
type app struct {
	world   *World
	host    *host
	name    string
	ctx     *nic.Context
	isGone  bool // context closed or NIC dead
	base    uint64
	mem     *check.Memory
	process process
	bells   []byte
	pd      uint32
	channel uint32

	areas        []*area
	windows      *area // not registered: the room for windows
	cells        *area
	slots        *area
	words        [slotCount]*check.Slot // of slots
	counters     [cellCount / 2]*check.Counter
	chains       [cellCount / 2]*check.Chain
	segmentsHeld int
	scratch      []byte
	list         []abi.SGE

	cqs       []*cq
	srq       *sharedQueue
	xrcd      uint32
	queues    []*sharedQueue // of the host's XRC domain
	endpoints []*endpoint
	round     []*endpoint // of one step: work may end some
	receives  map[uint64]*receive
	sends     map[uint64]*endpoint
	isPacing  bool
	paced     func()

	portEvents int

	// In a world of iWARP.
	session       *nic.CMSession
	box, listener uint32
	port          uint16
	dials         map[uint32]*endpoint // by identifier
	sleptAt       clock.Time
	sleepTill     clock.Time // that long that peers may lose patience
}

func (w *World) newApp(h *host) *app {
	w.appCount++
	a := &app{
		world: w, host: h, name: fmt.Sprintf("%s.a%d", h.name, w.appCount),
		base: uint64(w.appCount) << 32, bells: make([]byte, abi.DoorbellPageBytes),
		receives: make(map[uint64]*receive), sends: make(map[uint64]*endpoint),
	}
	size := areaCount*(w.plan.areaBytes+guardBytes) + 4*guardBytes + w.plan.windowsRoom
	w.random.Uint64() // which once was a memory's content: other seeds would mean other worlds
	a.mem = check.NewMemory(&w.court, a.name, size)
	a.process.app, a.paced = a, a.pacedOnce
	ctx, refusal := h.nic.OpenContext(w.now, nic.ContextConfig{
		Name: a.name, PID: uint32(1000 + w.appCount), UID: 1000, Space: &a.process,
		Doorbells: a.bells, ReleaseSegments: a.releaseSegments, Owner: a,
	})
	if refusal != nil {
		w.court.Failf("%s: open: %v", a.name, refusal)
		return nil
	}
	a.ctx = ctx
	a.pd, refusal = ctx.AllocPD()
	if refusal == nil {
		a.channel, refusal = ctx.CreateChannel()
	}
	if refusal != nil {
		w.court.Failf("%s: alloc_pd: %v", a.name, refusal)
	}
	if w.streams != nil {
		a.dials = map[uint32]*endpoint{}
		a.openStreams()
	}
	a.layOut()
	a.newCQ(cqEntries)
	if w.plan.maxMessage <= sharedMost && w.chance(w.plan.shared) {
		a.srq = a.newSharedQueue(nil)
		a.cqs[0].load += sharedLoad
	}
	if w.plan.domains > 0 {
		a.joinDomain()
	}
	h.apps = append(h.apps, a)
	w.apps = append(w.apps, a)
	a.pace()
	return a
}

func (a *app) layOut() {
	at := guardBytes
	access := [areaCount]rdma.Access{
		rdma.AccessLocalWrite, rdma.AccessLocalWrite, rdma.AccessLocalWrite, 0,
	}
	for i := range areaCount {
		a.areas = append(a.areas, a.register(span{at, a.world.plan.areaBytes}, access[i]))
		at += a.world.plan.areaBytes + guardBytes
	}
	a.cells = a.register(span{at, 8 * cellCount}, rdma.AccessLocalWrite|rdma.AccessRemoteAtomic)
	// Atomics need alignment of the address that the peer names.
	a.mem.Claim(at, 8*cellCount)
	for i := range cellCount / 2 {
		start := get64(a.mem.Bytes[at+8*i:])
		name := fmt.Sprintf("%s cell %d", a.name, i)
		a.counters[i] = check.NewCounter(&a.world.court, name, start)
		j := cellCount/2 + i
		start = get64(a.mem.Bytes[at+8*j:])
		a.chains[i] = check.NewChain(&a.world.court, fmt.Sprintf("%s cell %d", a.name, j), start)
	}
	at += guardBytes
	a.layOutSlots(at)
	at += guardBytes
	a.windows = &area{app: a, span: span{at, a.world.plan.windowsRoom}}
}

// after plans something that this application does, if it is still there then.
func (a *app) after(d time.Duration, run func()) {
	w := a.world
	w.at(w.now.Add(d), func() {
		if !a.isGone {
			run()
			a.host.turn()
		}
	})
}

// pace keeps the application going: it looks at everything from time to time.
func (a *app) pace() {
	if a.isPacing {
		return
	}
	a.isPacing = true
	w := a.world
	d := w.plan.pause/2 + w.delay(0, w.plan.pause)
	if w.isCalm {
		d = w.slowDown(max(d, 100*time.Microsecond))
	}
	d += a.sleep()
	w.at(w.now.Add(d), a.paced)
}

// pacedOnce is what pace plans.
func (a *app) pacedOnce() {
	if a.isGone {
		return
	}
	a.isPacing = false
	a.step()
	if !a.world.isSettled() {
		a.pace()
	}
	a.host.turn()
}

func (a *app) step() {
	w := a.world
	a.postReceives()
	a.judgeSlots()
	for _, q := range a.cqs {
		switch {
		case q.mode == cqPolled:
			q.poll(w.pick(1, 4, 64))
		case q.mode == cqSolicited && w.chance(0.2):
			q.pollAll()
		}
	}
	a.round = append(a.round[:0], a.endpoints...)
	for _, e := range a.round {
		e.work()
	}
	if w.plan.doors > 0 && w.chance(0.02) {
		a.reregisterSome()
	}
}

func (a *app) postReceives() {
	w := a.world
	if w.plan.isSlow && !w.isCalm && w.chance(0.7) {
		return
	}
	if a.srq != nil {
		a.srq.fill()
	}
	for _, s := range a.queues {
		s.fill()
	}
	for _, e := range a.endpoints {
		e.fill()
	}
}

// complete takes a completion to the queue that it belongs to.
func (a *app) complete(q *cq, c *abi.CQE) {
	w := a.world
	w.completions++
	status := rdma.WCStatus(c.Status)
	w.markStatus(status)
	w.trace.counts(w.now, "%s: completion wr_id=%d status=%d opcode=%d len=%d qp=%d", a.name,
		c.WRID, uint64(c.Status), uint64(c.Opcode), uint64(c.ByteLen), uint64(c.QPNum))
	if r := a.receives[c.WRID]; r != nil {
		delete(a.receives, c.WRID)
		r.complete(q, c)
		return
	}
	e := a.sends[c.WRID]
	if e == nil || e.isGone {
		w.court.Failf("%s: completion (%v) with wr_id %#x, which nobody posted", a.name, status, c.WRID)
		return
	}
	if q != e.sendCQ {
		w.court.Failf("%s: completion of a send in the wrong CQ", e.name)
	}
	if !e.ledger.Complete(c) {
		return
	}
	// A library gives slots back up to this index: that of the oldest request still open.
	if want := e.sq.Pushed() - uint32(e.ledger.Open()); c.SQIndex != want {
		w.court.Failf("%s: completion of wr_id %#x has send queue index %d, not %d",
			e.name, c.WRID, c.SQIndex, want)
	}
}

// handleEvent takes what the NIC tells the application. It plans the reaction: the NIC is not to
// be called from here.
func (a *app) handleEvent(e *nic.Event) {
	w := a.world
	if a.isGone {
		w.court.Failf("%s: an event for a context that is closed", a.name)
		return
	}
	if e.Channel != 0 {
		for _, q := range a.cqs {
			if q.handle == e.Handle {
				q.wake()
				return
			}
		}
		// The queue was destroyed while the event was on its way.
		w.mark("cq.late_event")
		return
	}
	w.trace.note(w.now, "%s: event %s of %d", a.name, e.Type.String(), int(e.Handle))
	w.mark("event." + e.Type.String())
	if e.Type == rdma.EventPortActive || e.Type == rdma.EventPortErr {
		a.portEvents++
		return
	}
	for _, x := range a.endpoints {
		if x.handle == e.Handle {
			x.handleEvent(e.Type)
			return
		}
	}
	for _, q := range a.cqs {
		if q.handle == e.Handle && e.Type == rdma.EventCQErr {
			q.overrun()
		}
	}
}

// lose says that the context is gone; memory may not change from now on.
func (a *app) lose() {
	if a.isGone {
		return
	}
	a.isGone = true
	for _, e := range slices.Clone(a.endpoints) {
		if !e.moveOn() {
			e.vanish()
		}
	}
	a.world.loseTargets(a)
	a.mem.Freeze()
}

// close gives everything back, as a process that ends.
func (a *app) close() {
	if a.isGone {
		return
	}
	w := a.world
	w.targetDies(a)
	for _, e := range a.endpoints {
		if e.isTarget() {
			e.drainCQs() // of others too, who would not know its number any more
		}
	}
	if a.session != nil && w.chance(0.5) {
		a.host.nic.CloseCM(w.now, a.session)
		a.session = nil
	}
	a.host.nic.CloseContext(w.now, a.ctx)
	if a.session != nil {
		a.host.nic.CloseCM(w.now, a.session)
	}
	a.lose()
	a.host.apps = slices.DeleteFunc(a.host.apps, func(x *app) bool { return x == a })
	if a.segmentsHeld != 0 {
		w.court.Failf("%s: %d segments of regions were not given back", a.name, a.segmentsHeld)
	}
	a.host.turn()
}

// judgeCells compares the cells with what requesters saw.
func (a *app) judgeCells() {
	for i := range cellCount / 2 {
		a.counters[i].Final(get64(a.mem.Bytes[a.cells.off+8*i:]))
		a.chains[i].Final(get64(a.mem.Bytes[a.cells.off+8*(cellCount/2+i):]))
	}
	a.judgeSlots()
}

var _ mem.Space = (*process)(nil)

// bell returns the words of a doorbell slot.
func (a *app) ringBell(slot uint32) {
	word := int(slot / 64)
	ring.Word64(a.bells, abi.OffDoorbellWords+8*word).Or(1 << (slot % 64))
	ring.Word64(a.bells, abi.OffDoorbellSummary+8*(word/64)).Or(1 << (word % 64))
	a.host.rung()
}
