package sim

import (
	"slices"
	"time"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/sim/check"
)

// callRest is how long a world of connections may take to come to rest: programs decide within
// minutes, and managers give up after as long.
const callRest = 15 * time.Minute

// runCalls takes a world of connections through its parts.
func (w *World) runCalls() {
	for _, part := range []struct {
		begin func()
		time  time.Duration
	}{
		{func() {}, w.plan.duration},
		{w.calmCalls, callRest},
		{w.lastWords, time.Minute},
		{w.judgeWords, 0},
		{w.partAll, callRest},
		{w.judgeCallRest, 0},
		{w.closeCalls, callRest},
		{w.judgeLeft, 0},
	} {
		part.begin()
		w.stirAll()
		w.turnAll()
		w.advance(w.now.Add(part.time))
		if w.court.HasFailed() {
			return // what follows would be the echo
		}
		w.restAt = w.now
	}
}

// lastWords has both ends of each connection say something on the network that is good now.
func (w *World) lastWords() {
	for _, p := range w.pairsUp() {
		for _, e := range p {
			e.before = e.plug.heard
			e.talk()
		}
	}
}

// pairsUp lists connections that both ends believe in and that have lost nothing.
func (w *World) pairsUp() [][2]*callEnd {
	var out [][2]*callEnd
	for _, token := range sortedKeys(w.board.calls) {
		k := w.board.calls[token]
		if k.kind != rdma.QPTypeRC && k.kind != rdma.QPTypeXRCSend || k.from == nil ||
			k.from.isGone || k.from.fate.State() != check.EndUp {
			continue
		}
		p := k.from.peer()
		if p == nil || p.fate.State() != check.EndUp || k.from.plug.isDone() || p.plug.isDone() {
			continue
		}
		out = append(out, [2]*callEnd{k.from, p})
	}
	return out
}

// isDone reports a queue pair that failed or has said all that there is room for.
func (p *plug) isDone() bool {
	p.caller.poll()
	return p.isBroken || p.said >= talkMax || p.state() != rdma.QPStateRTS
}

func (w *World) judgeWords() {
	for _, c := range w.board.callers {
		if !c.isGone {
			c.poll()
		}
	}
	for _, p := range w.pairsUp() {
		for _, e := range p {
			if e.before == e.plug.heard && e.isTold {
				w.court.Failf("%v: data do not flow: %d heard", &e.fate, e.before)
			}
			w.mark("call.last_word")
		}
	}
}

// partAll ends everything that is left, in the ways that there are.
func (w *World) partAll() {
	for _, c := range slices.Clone(w.board.callers) {
		if c.isGone {
			continue
		}
		for _, h := range sortedKeys(c.ends) {
			e := c.ends[h]
			if e == nil {
				continue
			}
			switch {
			case e.fate.State() == check.EndUp && w.chance(0.6):
				e.disconnect()
			case e.fate.State() != check.EndListening:
				e.destroy()
			}
		}
	}
}

// judgeCallRest is called when all connections should have come to an end.
func (w *World) judgeCallRest() {
	if !w.calendar.isEmpty() {
		w.court.Failf("the world is not at rest: %d events are planned", len(w.calendar.heap))
	}
	for _, h := range w.hosts {
		if h.isDown {
			continue
		}
		if t := h.nic.PollTimeout(); t != clock.Never || h.nic.HasWork() {
			w.court.Failf("%s: a timer is set for %v from now, work: %v", h.name, t.Sub(w.now),
				h.nic.HasWork())
		}
		for _, c := range h.callers {
			for _, n := range sortedKeys(c.ends) {
				e := c.ends[n]
				if s := e.fate.State(); s != check.EndListening && s != check.EndOver &&
					s != check.EndServing && s != check.EndIdle && s != check.EndResolved {
					w.court.Failf("%v at rest", &e.fate)
				}
			}
		}
	}
}

// closeCalls ends all programs.
func (w *World) closeCalls() {
	for _, c := range slices.Clone(w.board.callers) {
		c.close()
	}
}

// judgeLeft looks for what programs left behind.
func (w *World) judgeLeft() {
	for _, h := range w.hosts {
		if h.isDown {
			continue
		}
		s := h.nic.Status()
		if len(s.CMIDs) > 0 || len(s.Contexts) > 0 || len(s.Groups) > 0 || len(h.groups) > 0 {
			w.court.Failf("%s: left are identifiers %v, %d contexts, groups %v and %v", h.name, s.CMIDs,
				len(s.Contexts), s.Groups, h.groups)
		}
		if n := h.heap.live; n > 0 {
			w.court.Failf("%s: memory of %d queues is left", h.name, n)
		}
		if n := h.nic.Connections(); n > 0 {
			w.court.Failf("%s: the communication manager knows of %d connections", h.name, n)
		}
	}
	w.markCounters()
}
