package nic

import (
	"slices"

	"github.com/softrnic/softrnic/internal/clock"
)

// hold keeps completions of a queue from being seen for a time, so that several are found at once:
// sends with receives, as adapters do that a program's author had not before him (case T20).
type hold struct {
	due                  clock.Time // when they are shown; counts while the queue is in heldList
	isHolding            bool
	isSolicited, isError bool // one of them is
}

// holdBack keeps one more completion, which is in the ring already.
func (q *cq) holdBack(solicited, isError bool) {
	h := &q.hold
	if !h.isHolding {
		*h = hold{isHolding: true, due: q.nic.now.Add(q.nic.cfg.HoldCompletions)}
		q.nic.held = append(q.nic.held, q)
	}
	h.isSolicited, h.isError = h.isSolicited || solicited, h.isError || isError
	if q.ring.Free() == 0 {
		q.showHeld() // a queue that is just deep enough must not overrun by this
	}
}

// showHeld shows what is held back.
func (q *cq) showHeld() {
	if q.hold.isHolding {
		q.nic.held.remove(q)
		q.hold.isHolding = false
		q.show(q.hold.isSolicited, q.hold.isError)
	}
}

// showHeld shows what the queue pair's completion queues hold back, before its completions are
// cancelled: the application's library looks for them among those that it can see.
func (q *qp) showHeld() {
	for _, c := range []*cq{q.sendCQ, q.recvCQ} {
		if c != nil {
			c.showHeld()
		}
	}
}

// heldList is the queues that hold completions back.
type heldList []*cq

func (l *heldList) remove(q *cq) {
	if i := slices.Index(*l, q); i >= 0 {
		*l = slices.Delete(*l, i, i+1)
	}
}

func (l *heldList) deadline() clock.Time {
	at := clock.Never
	for _, q := range *l {
		at = min(at, q.hold.due)
	}
	return at
}

// handleTimeout shows what was held back long enough.
func (l *heldList) handleTimeout(now clock.Time) {
	for _, q := range slices.Clone(*l) {
		if q.hold.due <= now {
			q.showHeld()
		}
	}
}
