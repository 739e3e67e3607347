package sim

import (
	"math/rand/v2"
	"time"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/sim/check"
)

// World is one run.
type World struct {
	cfg      Config
	plan     plan
	random   *rand.Rand
	now      clock.Time
	calendar calendar
	court    check.Court
	trace    *trace
	observe  observer
	marks    map[string]uint64
	strikes  map[uint64]func() // by place

	hosts     []*host
	links     []*link // that were needed so far
	mild      bitSet  // pairs of hosts between which nothing goes wrong by itself
	stirred   bitSet  // hosts whose NIC something was done to
	apps      []*app
	pairs     []*pair
	datagrams []*endpoint
	vandals   []*vandal
	board     *board       // of a world of connections, else nil
	streams   *streamWorld // of a world of iWARP, else nil
	restless  int          // who was not at rest when somebody asked the last time
	isCalm    bool
	healedAt  clock.Time
	calmAt    clock.Time
	restAt    clock.Time

	arrival  ibt.Packet
	stock    *stock
	inFlight int
	appCount int
	ids      uint64

	packets, local, completions, requests uint64
}

// restTime is how long the world may take to come to rest after the trouble.
const restTime = 10 * time.Second

// restTime is longer where TCP tries to bring last words to peers that are gone.
func (w *World) restTime() time.Duration {
	if w.streams != nil {
		return 3 * time.Minute
	}
	return restTime
}

func newWorld(cfg Config) *World {
	switch cfg.World {
	case WorldConnections:
		return newConnectionWorld(cfg)
	case WorldIWARP:
		return newIWARPWorld(cfg)
	}
	w := newEmptyWorld(cfg)
	w.makePlan()
	w.populate()
	w.mishaps()
	return w
}

func newEmptyWorld(cfg Config) *World {
	w := &World{
		cfg: cfg, random: rand.New(rand.NewPCG(cfg.Seed, 0x736f6674726e6963)),
		trace: newTrace(cfg.Trace), marks: map[string]uint64{}, strikes: map[uint64]func(){},
		stock: stocks.Get().(*stock),
	}
	w.observe = observer{
		world: w, flows: map[uint64]*flow{}, requests: map[uint64]*check.Conversation{},
		answers: map[uint64]*check.Conversation{},
	}
	w.now = clock.Time(time.Second)
	return w
}

// populate makes what the plan says.
func (w *World) populate() {
	w.planMany()
	for i := range w.plan.hosts {
		w.hosts = append(w.hosts, newHost(w, i))
	}
	w.mild.grow(len(w.hosts) * len(w.hosts))
	for from := range w.hosts {
		for to := range w.hosts {
			if from != to && w.chance(0.15) {
				w.mild.add(from*len(w.hosts) + to)
			}
		}
	}
	for i := range w.plan.apps {
		w.newApp(w.hosts[i%len(w.hosts)])
	}
	for range w.plan.domains {
		w.newPair(rdma.QPTypeXRCSend)
	}
	for range w.plan.connections {
		kind := rdma.QPType(w.pick(int(rdma.QPTypeRC), int(rdma.QPTypeRC), int(rdma.QPTypeRC),
			int(rdma.QPTypeUC)))
		if w.streams != nil {
			kind = rdma.QPTypeRC
		}
		w.newPair(kind)
	}
	for range w.plan.datagrams {
		w.newDatagramEndpoint()
	}
	for range w.plan.vandals {
		a := w.newVandal(w.hosts[w.between(0, len(w.hosts)-1)])
		b := w.newVandal(w.hosts[w.between(0, len(w.hosts)-1)])
		pairVandals(a, b)
	}
}

func (w *World) newPair(kind rdma.QPType) {
	p := &pair{world: w, kind: kind, number: len(w.pairs)}
	w.pairs = append(w.pairs, p)
	p.connect()
	p.watch()
}

// run takes the world through its three parts.
func (w *World) run() {
	if w.board != nil {
		w.runCalls()
		return
	}
	end := w.now.Add(w.plan.duration)
	w.judgeMemoryAt(w.now.Add(w.plan.duration / 4))
	w.advance(end)
	w.calm()
	w.stirAll()
	w.turnAll()
	w.advance(w.now.Add(w.restTime()))
	w.restAt = w.now
	if !w.court.HasFailed() {
		w.judgeRest()
	}
	w.judgeMemory("at rest")
	w.close()
}

// advance lets everything happen that is planned up to the given time.
func (w *World) advance(till clock.Time) {
	for !w.calendar.isEmpty() && !w.court.HasFailed() {
		if w.calendar.heap[0].at > till {
			w.now = till
			return
		}
		e := w.calendar.next()
		w.now = max(w.now, e.at)
		if e.flight != nil {
			w.arrive(e.flight)
			continue
		}
		e.run()
	}
}

// at plans something.
func (w *World) at(t clock.Time, run func()) { w.calendar.add(event{at: t, run: run}) }

// turnAll drains the NICs on which verbs were called, and those that have work left.
func (w *World) turnAll() {
	for i := w.stirred.next(0); i >= 0; i = w.stirred.next(i + 1) {
		w.hosts[i].turn()
	}
}

// stirAll has turnAll drain every NIC.
func (w *World) stirAll() {
	for i := range w.hosts {
		w.stirred.add(i)
	}
}

// isSettled reports that trouble is over and that everything posted has come to an end. Each
// program asks after each look at its queues: what was not at rest the last time is asked first.
func (w *World) isSettled() bool {
	if w.court.HasFailed() {
		return true
	}
	if !w.isCalm || w.inFlight > 0 {
		return false
	}
	apps, pairs := len(w.apps), len(w.pairs)
	n := apps + pairs
	if w.streams != nil {
		n += len(w.hosts)
	}
	for i := range n {
		at := (w.restless + i) % n
		isSettled := false
		switch {
		case at < apps:
			isSettled = w.apps[at].isSettled()
		case at < apps+pairs:
			p := w.pairs[at-apps]
			isSettled = !p.isDoomed || p.isOver()
		default:
			isSettled = !w.hosts[at-apps-pairs].hasUnread()
		}
		if !isSettled {
			w.restless = at
			return false
		}
	}
	return true
}

func (a *app) isSettled() bool {
	if a.isGone {
		return true
	}
	for _, e := range a.endpoints {
		if e.ledger.Open() > 0 || e.qpState() == rdma.QPStateSQD || e.qpState() == rdma.QPStateSQE {
			return false
		}
	}
	for _, q := range a.cqs {
		if n, _ := q.ring.Pending(); n > 0 && q.mode != cqAwaited {
			return false
		}
	}
	return true
}

// isOver reports that both ends are gone.
func (p *pair) isOver() bool {
	for _, e := range p.ends {
		if e != nil && !e.isGone {
			return false
		}
	}
	return true
}

// newID returns a number that no other work request has.
func (w *World) newID() uint64 {
	w.ids++
	return w.ids
}

// endpointsMax is how many queue pairs an application has when it gets no more.
const endpointsMax = 8

// pickApp returns some application that lives, or nil.
func (w *World) pickApp() *app {
	var all []*app
	for _, h := range w.hosts {
		for _, a := range h.apps {
			if !a.isGone && !a.process.isDead && len(a.endpoints) < endpointsMax {
				all = append(all, a)
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[w.between(0, len(all)-1)]
}

// Random choices, all from the seed.

func (w *World) between(lo, hi int) int { return lo + w.random.IntN(hi-lo+1) }

func (w *World) pick(list ...int) int { return list[w.random.IntN(len(list))] }

func (w *World) pickFloat(list ...float64) float64 { return list[w.random.IntN(len(list))] }

func (w *World) chance(p float64) bool { return p > 0 && w.random.Float64() < p }

func (w *World) delay(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(w.random.Int64N(int64(hi-lo)+1))
}
