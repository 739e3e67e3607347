package sim

import (
	"fmt"
	"math"
	"time"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/rdma"
)

// Worlds by name. In the first, programs exchange what connects queue pairs by other means and all
// that matters is data; in the second they use rdma_cm, and time goes a thousand times faster. The
// third is the first with iWARP instead of RoCE.
const (
	WorldVerbs       = "verbs"
	WorldConnections = "connections"
	WorldIWARP       = "iwarp"
)

// WorldNames lists the worlds that Config.World may name.
var WorldNames = []string{WorldVerbs, WorldConnections, WorldIWARP}

// callPlan is what a seed makes of a world of connections, beside what it shares with the others.
type callPlan struct {
	perHost int
	places  int           // of a program's memory, one for a queue pair
	entries uint32        // of its completion queue
	gap     time.Duration // between two things that a program does
	think   time.Duration // a program decides within this time
	nap     time.Duration // and looks at events within this time
	calls   int           // connections in all

	// sameNumbers: a NIC that starts again gives the queue pair numbers of its last life.
	sameNumbers bool
	mixed       bool // ports have different MTUs
	addresses   bool // addresses come and go
	lookups     float64
	small       float64       // chance of a small backlog
	sluggish    float64       // chance that a program takes minutes to decide
	stranger    time.Duration // between two messages of somebody who means harm; 0: there is none
}

// board is what a world of connections has beside hosts and links.
type board struct {
	world   *World
	plan    callPlan
	callers []*caller
	calls   map[uint64]*call // by token
	casts   map[uint64]*call // messages to groups
	tokens  uint64
	ends    map[commKey]*callEnd
	numbers map[number]int // how often a queue pair number was connected
	heard   []ibt.Packet   // messages that the stranger has overheard
	// tamper is how a test harms an event; it says how often the event comes.
	tamper func(e *nic.ConnectionEvent) int
	lit    map[service]clock.Time // services that have a listener, since when
}

// newConnectionWorld makes a world of connections.
func newConnectionWorld(cfg Config) *World {
	w := newEmptyWorld(cfg)
	w.board = &board{
		world: w, calls: map[uint64]*call{}, casts: map[uint64]*call{}, ends: map[commKey]*callEnd{},
		numbers: map[number]int{}, lit: map[service]clock.Time{},
	}
	w.makeCallPlan()
	w.populateCalls()
	w.callMishaps()
	if w.board.plan.stranger > 0 {
		w.harass()
	}
	return w
}

func (w *World) makeCallPlan() {
	p, c := &w.plan, &w.board.plan
	p.hosts = w.between(1, 4)
	if w.cfg.Hosts > 0 {
		p.hosts = w.cfg.Hosts
	}
	c.perHost = w.between(1, 2)
	p.duration = w.delay(5*time.Second, time.Duration(w.pick(20, 60, 200))*time.Second)
	c.calls = w.pick(10, 40, 150)
	c.gap = p.duration / time.Duration(w.pick(10, 40, 100))
	if w.cfg.Duration > 0 {
		p.duration, c.calls = w.cfg.Duration, math.MaxInt
		c.gap = max(min(p.duration/100, 2*time.Second), time.Microsecond)
	}
	c.think = time.Duration(w.pick(0, 1, 100, 3000, 20000)) * time.Millisecond
	c.nap = time.Duration(w.pick(0, 10, 1000, 20000, 2000000)) * time.Microsecond
	c.sameNumbers, c.mixed = w.chance(0.5), w.chance(0.5)
	c.lookups, c.small = w.pickFloat(0, 0, 0.1), w.pickFloat(0, 0.3)
	c.sluggish = w.pickFloat(0, 0, 0.1)
	p.mtu = rdma.MTU(w.between(1, 5))
	p.burst, p.packetCost = w.pick(1, 16), time.Microsecond
	p.lag = time.Duration(w.pick(0, 3, 50)) * time.Microsecond
	p.lateTimers = w.pickFloat(0, 0, 0.2)
	p.localSegment = uint32(w.pick(0, 0, 5000))
	p.profile.Delay = time.Duration(w.pick(1, 5, 20, 200, 8000)) * time.Microsecond
	name := w.cfg.Faults
	if name == "" {
		// What is worth most here is what many mishaps bring about.
		name = FaultNames[min(w.between(0, 2*len(FaultNames)), len(FaultNames)-1)]
	}
	p.mishapGap = p.duration / time.Duration(w.between(2, 30))
	switch name {
	case FaultsLight:
		w.planCallNetwork(0.02)
	case FaultsHeavy:
		w.planCallNetwork(0.3)
	case FaultsChaos:
		w.planCallNetwork(w.pickFloat(0, 0.02, 0.2))
		p.partitions, p.restarts = w.chance(0.5), w.chance(0.5)
		p.deaths, c.addresses = w.chance(0.5), w.chance(0.3)
		if w.chance(0.3) {
			c.stranger = c.gap / time.Duration(w.pick(1, 4))
		}
	}
}

// planCallNetwork gives the links faults; what is held back is held back for longer than a
// connection manager waits.
func (w *World) planCallNetwork(most float64) {
	f := &w.plan.profile
	roll := func(share float64) float64 {
		if !w.chance(share) {
			return 0
		}
		return w.random.Float64() * most
	}
	f.Loss, f.Dup, f.Reorder, f.Corrupt = roll(0.7), roll(0.6), roll(0.5), roll(0.3)
	f.Gap = time.Duration(w.pick(1, 100, 500)) * time.Millisecond
	if w.chance(0.3) {
		f.Jitter = time.Duration(w.random.Float64() * float64(f.Delay))
	}
}

// isBrisk reports that programs answer before any manager gives up.
func (p *callPlan) isBrisk() bool {
	return p.sluggish == 0 && p.nap <= 20*time.Millisecond && p.think <= 3*time.Second
}

func (p *callPlan) String() string {
	s := fmt.Sprintf(", %d programs a host, a deed in %v, decisions within %v", p.perHost,
		p.gap.Round(time.Millisecond), p.think)
	for _, f := range []struct {
		on   bool
		name string
	}{
		{p.sameNumbers, "numbers come again"},
		{p.mixed, "different MTUs"},
		{p.addresses, "addresses come and go"},
		{p.sluggish > 0, "sluggish programs"},
		{p.stranger > 0, "a stranger"},
	} {
		if f.on {
			s += ", " + f.name
		}
	}
	return s
}

func (w *World) populateCalls() {
	w.planManyCalls()
	for i := range w.plan.hosts {
		w.hosts = append(w.hosts, newHost(w, i))
	}
	for range w.board.plan.perHost {
		for _, h := range w.hosts {
			w.newCaller(h)
		}
	}
}

// callMishaps lets large things go wrong from time to time.
func (w *World) callMishaps() {
	w.at(w.now.Add(w.delay(w.plan.mishapGap/2, 2*w.plan.mishapGap)), func() {
		if w.isCalm {
			return
		}
		p, c := &w.plan, &w.board.plan
		var all []func()
		for _, m := range []struct {
			on  bool
			run func()
		}{
			{p.partitions && len(w.hosts) > 1 && w.mayCut(), w.cutCalls},
			{p.restarts, w.restartCalls},
			{p.deaths, w.killCaller},
			{c.addresses && w.mayCut(), w.hideAddress},
		} {
			if m.on {
				all = append(all, m.run)
			}
		}
		if len(all) > 0 {
			all[w.between(0, len(all)-1)]()
		}
		w.turnAll()
		w.callMishaps()
	})
}

// outageMax is how long two hosts may be apart. It is much less than what a connection manager
// tries for, so that all promises hold nevertheless.
const outageMax = 20 * time.Second

// mayCut reports that the last outage is over for long enough, so that many in a row do not come to
// one that is too long.
func (w *World) mayCut() bool { return w.healedAt == 0 || w.now.Sub(w.healedAt) > outageMax }

func (w *World) cutCalls() {
	a := w.hosts[w.between(0, len(w.hosts)-1)]
	b := w.hosts[(a.index+w.between(1, len(w.hosts)-1))%len(w.hosts)]
	d := w.delay(10*time.Millisecond, outageMax)
	w.healedAt = w.now.Add(d)
	w.mark("call.partition")
	w.trace.note(w.now, "partition of %s and %s for %s", a.name, b.name, d.String())
	a.linkTo(b).cut(d)
	if w.chance(0.7) {
		b.linkTo(a).cut(d)
	}
	if d > neighbourTime && w.chance(0.5) {
		w.at(w.now.Add(neighbourTime), func() { w.missNeighbour(a, b) })
	}
}

// neighbourTime is how long a host asks for a neighbour by ARP before it says that there is none.
const neighbourTime = 3 * time.Second

// missNeighbour has a host say that another one does not answer.
func (w *World) missNeighbour(a, b *host) {
	if a.isDown || w.isCalm {
		return
	}
	w.mark("call.no_neighbour")
	w.trace.note(w.now, "%s: finds no neighbour %s", a.name, b.name)
	a.nic.HandleNoHost(w.now, b.gids[w.between(0, 1)])
	a.turn()
}

// restartCalls kills the NIC of a host with all programs; another one comes after a while.
func (w *World) restartCalls() {
	h := w.hosts[w.between(0, len(w.hosts)-1)]
	if h.isDown {
		return
	}
	w.mark("call.restart")
	again := h.targets()
	h.stop()
	w.at(w.now.Add(w.delay(0, time.Duration(w.pick(1, 1000, 20000))*time.Millisecond)), func() {
		w.trace.note(w.now, "%s: a NIC starts", h.name)
		h.start()
		for range w.board.plan.perHost {
			w.newCaller(h)
		}
		if !w.isCalm && w.chance(0.7) {
			for _, s := range again {
				h.callers[0].dialTo(s)
			}
		}
		w.turnAll()
	})
}

// targets are the services that programs of the host are connected with, in the order of their
// queue pairs: programs that are started again call the same peers, maybe with the same numbers.
func (h *host) targets() []service {
	byNumber := map[uint32]service{}
	for _, c := range h.callers {
		for _, e := range c.ends {
			if e.isActive && e.plug != nil {
				byNumber[e.plug.qpn] = e.call.target
			}
		}
	}
	var out []service
	for _, n := range sortedKeys(byNumber) {
		out = append(out, byNumber[n])
	}
	return out
}

// killCaller ends a program as SIGKILL does; another one takes its place.
func (w *World) killCaller() {
	c := w.pickCaller()
	if c == nil {
		return
	}
	w.mark("call.death")
	w.trace.note(w.now, "%s: dies", c.name)
	c.expectFarewells()
	c.close()
	w.at(w.now.Add(w.delay(0, 5*time.Second)), func() {
		if !c.host.isDown && c.host.lives == c.life && !w.isCalm {
			w.newCaller(c.host)
			w.turnAll()
		}
	})
}

// hideAddress takes an address of a host away and gives it back after a while.
func (w *World) hideAddress() {
	h := w.hosts[w.between(0, len(w.hosts)-1)]
	i := w.between(0, len(h.gids)-1)
	if h.isDown || h.hidden[i] {
		return
	}
	w.mark("call.address")
	w.trace.note(w.now, "%s: address %d goes", h.name, i)
	h.hidden[i] = true
	h.setPort(true)
	d := w.delay(10*time.Millisecond, outageMax)
	w.healedAt = w.now.Add(d)
	w.at(w.now.Add(d), func() {
		h.hidden[i] = false
		if !h.isDown {
			w.trace.note(w.now, "%s: address %d comes", h.name, i)
			h.setPort(true)
			w.turnAll()
		}
	})
}

// calmCalls ends all trouble.
func (w *World) calmCalls() {
	w.trace.note(w.now, "calm")
	w.isCalm, w.calmAt = true, w.now
	for _, h := range w.hosts {
		h.hidden = [2]bool{}
		if !h.isDown {
			h.setPort(true)
		}
	}
	for _, l := range w.links {
		l.calm()
	}
	w.plan.lateTimers, w.board.plan.lookups = 0, 0
}
