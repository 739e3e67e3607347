package nic

import (
	"container/heap"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/limits"
)

// runQueue holds the QPs that have something to transmit, in turn.
type runQueue struct {
	head, tail *qp
	count      int
}

func (r *runQueue) len() int { return r.count }

// push appends q unless it waits already, and renews its quota.
func (r *runQueue) push(q *qp) {
	if q.queued {
		return
	}
	q.queued, q.quota, q.nextRun = true, limits.PacketsPerPoll, nil
	if r.tail == nil {
		r.head = q
	} else {
		r.tail.nextRun = q
	}
	r.tail = q
	r.count++
}

// pop removes the head.
//
// Preconditions: len() > 0.
func (r *runQueue) pop() {
	q := r.head
	r.head = q.nextRun
	if r.head == nil {
		r.tail = nil
	}
	q.queued, q.nextRun = false, nil
	r.count--
}

// remove takes q out, wherever it is; destroying a QP is rare enough for a walk.
func (r *runQueue) remove(q *qp) {
	if !q.queued {
		return
	}
	var prev *qp
	for x := r.head; x != q; x = x.nextRun {
		prev = x
	}
	if prev == nil {
		r.pop()
		return
	}
	prev.nextRun = q.nextRun
	if r.tail == q {
		r.tail = prev
	}
	q.queued, q.nextRun = false, nil
	r.count--
}

// timerHeap orders QPs by deadline. A deadline that moves later is left where it is and looked at
// again when it comes, since that is what most timers do: the peer answers in time.
type timerHeap []*qp

func (h timerHeap) Len() int { return len(h) }

func (h timerHeap) Less(i, j int) bool {
	if h[i].deadline != h[j].deadline {
		return h[i].deadline < h[j].deadline
	}
	return h[i].handle < h[j].handle
}

func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].timer, h[j].timer = i+1, j+1
}

// Push implements heap.Interface.
func (h *timerHeap) Push(x any) {
	q := x.(*qp)
	*h = append(*h, q)
	q.timer = len(*h)
}

// Pop implements heap.Interface.
func (h *timerHeap) Pop() any {
	last := len(*h) - 1
	q := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	q.timer = 0
	return q
}

func (h *timerHeap) update(q *qp, at clock.Time) {
	switch {
	case q.timer == 0 && at != clock.Never:
		q.deadline = at
		heap.Push(h, q)
	case q.timer != 0 && at < q.deadline:
		q.deadline = at
		heap.Fix(h, q.timer-1)
	}
}

func (h *timerHeap) remove(q *qp) {
	if q.timer != 0 {
		heap.Remove(h, q.timer-1)
	}
}

func (h *timerHeap) next() clock.Time {
	if len(*h) == 0 {
		return clock.Never
	}
	return (*h)[0].deadline
}

// due removes and returns a QP whose deadline has come, or nil.
func (h *timerHeap) due(now clock.Time) *qp {
	if len(*h) == 0 || (*h)[0].deadline > now {
		return nil
	}
	return heap.Pop(h).(*qp)
}
