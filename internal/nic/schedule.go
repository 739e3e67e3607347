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

// timer is the timer of a queue pair or of a stream.
type timer[T any] struct {
	owner    T
	order    uint32 // decides between equal deadlines, so that whatever happens repeats
	deadline clock.Time
	index    int // in the heap + 1; 0 = not in it
}

// timerHeap orders timers by deadline. A deadline that moves later is left where it is and looked
// at again when it comes, since that is what most timers do: the peer answers in time.
type timerHeap[T any] []*timer[T]

func (h timerHeap[T]) Len() int { return len(h) }

func (h timerHeap[T]) Less(i, j int) bool {
	if h[i].deadline != h[j].deadline {
		return h[i].deadline < h[j].deadline
	}
	return h[i].order < h[j].order
}

func (h timerHeap[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}

// Push implements heap.Interface.
func (h *timerHeap[T]) Push(x any) {
	t := x.(*timer[T])
	*h = append(*h, t)
	t.index = len(*h)
}

// Pop implements heap.Interface.
func (h *timerHeap[T]) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	t.index = 0
	return t
}

func (h *timerHeap[T]) update(t *timer[T], at clock.Time) {
	switch {
	case t.index == 0 && at != clock.Never:
		t.deadline = at
		heap.Push(h, t)
	case t.index != 0 && at < t.deadline:
		t.deadline = at
		heap.Fix(h, t.index-1)
	}
}

func (h *timerHeap[T]) remove(t *timer[T]) {
	if t.index != 0 {
		heap.Remove(h, t.index-1)
	}
}

func (h *timerHeap[T]) next() clock.Time {
	if len(*h) == 0 {
		return clock.Never
	}
	return (*h)[0].deadline
}

// due removes a timer whose deadline has come and returns its owner, or the zero value.
func (h *timerHeap[T]) due(now clock.Time) (owner T) {
	if len(*h) == 0 || (*h)[0].deadline > now {
		return owner
	}
	return heap.Pop(h).(*timer[T]).owner
}
