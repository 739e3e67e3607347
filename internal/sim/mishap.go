package sim

import (
	"time"

	"github.com/softrnic/softrnic/internal/rdma"
)

// mishaps lets large things go wrong from time to time.
func (w *World) mishaps() {
	w.at(w.now.Add(w.delay(w.plan.mishapGap/2, 2*w.plan.mishapGap)), func() {
		if w.isCalm {
			return
		}
		w.mishap()
		w.turnAll()
		w.mishaps()
	})
}

func (w *World) mishap() {
	p := &w.plan
	var all []func()
	for _, m := range []struct {
		on  bool
		run func()
	}{
		{p.partitions && len(w.hosts) > 1, w.partition},
		{p.clogs && len(w.hosts) > 1, w.clog},
		{p.restarts, w.restart},
		{p.deaths, w.killApp},
		{p.deregs, w.deregisterSome},
		{p.ports, w.flapPort},
		{w.streams != nil && (w.streams.resets || w.streams.mutes), w.breakSome},
	} {
		if m.on {
			all = append(all, m.run)
		}
	}
	if len(all) > 0 {
		all[w.between(0, len(all)-1)]()
	}
}

// tolerateLoss lets connections between two hosts fail; nil stands for any host.
func (w *World) tolerateLoss(a, b *host) {
	for _, p := range w.pairs {
		x, y := p.ends[0], p.ends[1]
		if !p.isReliable() || x == nil || y == nil {
			continue
		}
		if x.app.host == a && y.app.host == b || x.app.host == b && y.app.host == a {
			x.may(rdma.WCRetryExcErr)
			y.may(rdma.WCRetryExcErr)
		}
	}
}

// partition cuts two hosts off from each other. What is cut for less than three timeouts has to
// survive a retry count of 7; connections with less tolerate failure from the start.
func (w *World) partition() {
	a := w.hosts[w.between(0, len(w.hosts)-1)]
	b := w.hosts[(a.index+w.between(1, len(w.hosts)-1))%len(w.hosts)]
	d := w.delay(time.Millisecond, 150*time.Millisecond)
	if w.chance(0.2) {
		d = w.delay(150*time.Millisecond, 2*time.Second)
	}
	if d > 150*time.Millisecond || w.now.Sub(w.healedAt) < time.Second && w.healedAt != 0 {
		w.tolerateLoss(a, b)
	}
	w.healedAt = max(w.healedAt, w.now.Add(d))
	w.trace.note(w.now, "partition of %s and %s for %s", a.name, b.name, d.String())
	w.mark("mishap.partition")
	a.linkTo(b).cut(d)
	if w.chance(0.7) {
		b.linkTo(a).cut(d)
	}
}

// clog makes one direction slow for a while.
func (w *World) clog() {
	a := w.hosts[w.between(0, len(w.hosts)-1)]
	b := w.hosts[(a.index+w.between(1, len(w.hosts)-1))%len(w.hosts)]
	w.tolerateLoss(a, b)
	l := a.linkTo(b)
	slow := w.plan.profile
	slow.Rate = uint64(w.pick(1, 10, 100)) * 1e6
	w.mark("mishap.clog")
	w.trace.note(w.now, "clog from %s to %s", a.name, b.name)
	l.setProfile(slow)
	w.at(w.now.Add(w.delay(time.Millisecond, 30*time.Millisecond)), func() {
		if !w.isCalm {
			l.setProfile(w.plan.profile)
		}
	})
}

// restart kills the NIC of a host with everything on it; another one comes after a while.
func (w *World) restart() {
	h := w.hosts[w.between(0, len(w.hosts)-1)]
	if h.isDown {
		return
	}
	w.mark("mishap.restart")
	h.stop()
	w.at(w.now.Add(w.delay(0, 30*time.Millisecond)), func() {
		w.trace.note(w.now, "%s: a NIC starts", h.name)
		h.start()
		if !w.isCalm {
			w.newApp(h)
		}
	})
}

// killApp ends an application as SIGKILL does: its memory is gone at once, and the NIC finds out
// when the connection to it breaks.
func (w *World) killApp() {
	a := w.pickApp()
	if a == nil || a.process.isDead {
		return
	}
	w.mark("mishap.death")
	w.trace.note(w.now, "%s: dies", a.name)
	a.process.isDead = true
	w.targetDies(a)
	for _, e := range a.endpoints {
		// The process's memory cannot be reached any more.
		e.may(rdma.WCLocProtErr, rdma.WCWRFlushErr)
		if e.pair != nil {
			e.pair.spoil()
			e.peer.may(rdma.WCRemOpErr, rdma.WCRemAccessErr)
		}
	}
	w.at(w.now.Add(w.delay(0, 5*time.Millisecond)), func() {
		h := a.host
		if a.isGone {
			return
		}
		a.close()
		if !w.isCalm {
			w.newApp(h)
		}
	})
}

// deregisterSome takes a window away while its peer uses it: from now on its bytes stay.
func (w *World) deregisterSome() {
	p := w.pairs[w.between(0, len(w.pairs)-1)]
	e := p.ends[w.between(0, 1)]
	if e == nil || e.isGone || e.near == nil || e.near.area.isGone || e.app.process.isDead {
		return
	}
	w.mark("mishap.dereg")
	w.trace.note(w.now, "%s: deregisters its window", e.name)
	p.spoil()
	e.peer.may(rdma.WCRemAccessErr)
	e.removeDoor()
	e.app.deregister(e.near.area)
	e.near.model.Close()
}

// flapPort takes a port down and up again: every application hears of both.
func (w *World) flapPort() {
	h := w.hosts[w.between(0, len(w.hosts)-1)]
	if h.isDown {
		return
	}
	w.mark("mishap.port")
	for _, active := range []bool{false, true} {
		before := make([]int, len(h.apps))
		for i, a := range h.apps {
			before[i] = a.portEvents
		}
		h.setPort(active)
		h.turn()
		for i, a := range h.apps {
			if a.portEvents != before[i]+1 {
				w.court.Failf("%s: %d events about a port that changed once",
					a.name, a.portEvents-before[i])
			}
		}
	}
}

// calm ends all trouble.
func (w *World) calm() {
	w.trace.note(w.now, "calm")
	w.isCalm, w.calmAt = true, w.now
	w.closeVandals()
	for _, l := range w.links {
		l.calm()
	}
	w.plan.lostBells, w.plan.lateTimers = 0, 0
}
