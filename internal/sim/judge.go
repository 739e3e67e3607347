package sim

import (
	"time"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/rdma"
)

// judgeMemory looks for bytes that changed without a right.
func (w *World) judgeMemory(when string) {
	for _, a := range w.apps {
		a.mem.Verify(when)
	}
	for _, v := range w.vandals {
		v.mem.Verify(when)
	}
}

// judgeMemoryAt does so a few times while the trouble lasts.
func (w *World) judgeMemoryAt(t clock.Time) {
	w.at(t, func() {
		w.judgeMemory("in trouble")
		if !w.isCalm {
			w.judgeMemoryAt(w.now.Add(w.plan.duration/4 + time.Microsecond))
		}
	})
}

// isGentle reports a plan in which nothing ever goes wrong.
func (p *plan) isGentle() bool {
	return !p.isLossy() && p.isOrdered() && !p.isSluggish() && p.profile.Jitter == 0 &&
		p.bad == 0 && p.vandals == 0 && !p.restarts && !p.deaths && !p.deregs && !p.cycles &&
		!p.overruns && p.strips == 0
}

// judgeCounters finds recovery where there was nothing to recover from: on a good network a peer
// that is merely busy is no reason for a timeout (case T11).
func (w *World) judgeCounters() {
	if !w.plan.isGentle() || w.marks["wc."+rdma.WCRNRRetryExcErr.String()] > 0 {
		return
	}
	w.mark("world.gentle")
	for _, name := range []string{
		"local_ack_timeout_err", "rcvd_seq_err", "completer_retry_err", "retry_exceeded_err",
	} {
		if n := w.marks["counter."+name]; n > 0 {
			w.court.Failf("%s is %d on a network without faults", name, n)
		}
	}
}

// closeVandals ends what would never come to rest.
func (w *World) closeVandals() {
	for _, v := range w.vandals {
		v.close()
	}
}

// judgeRest is called when everything should have come to an end.
func (w *World) judgeRest() {
	if !w.calendar.isEmpty() {
		w.court.Failf("the world is not at rest after %v: %d events are planned",
			restTime, len(w.calendar.heap))
	}
	for _, h := range w.hosts {
		if h.isDown {
			continue
		}
		if h.nic.HasWork() {
			w.court.Failf("%s: the NIC still has work", h.name)
		}
		if t := h.nic.PollTimeout(); t != clock.Never {
			w.court.Failf("%s: a timer is set for %v from now", h.name, t.Sub(w.now))
		}
		for _, a := range h.apps {
			a.judgeRest()
		}
	}
	for _, a := range w.apps {
		a.judgeCells()
	}
	w.judgeHalves()
}

func (a *app) judgeRest() {
	for _, q := range a.cqs {
		q.judgeSleep()
		q.pollAll()
	}
	a.judgeShared()
	for _, e := range a.endpoints {
		if n := e.ledger.Open(); n > 0 {
			a.world.court.Failf("%s: %d requests have no end (state %v)", e.name, n, e.qpState())
		}
		isOver := e.qpState() == rdma.QPStateError ||
			a.world.streams != nil && e.qpState() != rdma.QPStateRTS
		if e.in != nil && !isOver {
			e.in.Finish()
		}
		if e.qpState() == rdma.QPStateRTS && e.peer != nil && !e.peer.isGone {
			e.see()
		}
		if e.isTarget() && e.qpState() != rdma.QPStateError {
			e.pair.finishTargets()
		}
		for _, qpn := range sortedKeys(e.from) {
			e.from[qpn].Finish()
		}
	}
}

// close ends all applications and looks for what they leave behind.
func (w *World) close() {
	w.closeVandals()
	for _, h := range w.hosts {
		for len(h.apps) > 0 {
			h.apps[0].close()
		}
	}
	if w.streams != nil {
		w.stirAll()
		w.turnAll()
		w.advance(w.now.Add(w.restTime()))
	}
	for _, h := range w.hosts {
		if h.isDown {
			continue
		}
		s := h.nic.Status()
		if n := len(s.Contexts); n > 0 {
			w.court.Failf("%s: %d contexts are left", h.name, n)
		}
		if n := h.heap.live; n > 0 {
			w.court.Failf("%s: memory of %d queues is left", h.name, n)
		}
		h.judgeStreams()
		if t := h.nic.PollTimeout(); t != clock.Never {
			w.court.Failf("%s: a timer without a queue pair", h.name)
		}
	}
	for _, a := range w.apps {
		a.mem.VerifyAll("after the end")
	}
	for _, v := range w.vandals {
		v.mem.VerifyAll("after the end")
	}
	w.markCounters()
	w.judgeCounters()
}
