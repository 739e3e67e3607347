package nic

import (
	"container/heap"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/limits"
)

// turn is the place of a queue pair or of a stream in a line.
type turn[T any] struct {
	owner    T
	next     *turn[T]
	isQueued bool
}

// line holds those that have something to send, in turn.
type line[T any] struct {
	head, tail *turn[T]
	count      int
}

func (l *line[T]) len() int { return l.count }

// push appends t unless it waits already.
func (l *line[T]) push(t *turn[T]) {
	if t.isQueued {
		return
	}
	t.isQueued, t.next = true, nil
	if l.tail == nil {
		l.head = t
	} else {
		l.tail.next = t
	}
	l.tail = t
	l.count++
}

// pop removes the head.
//
// Preconditions: len() > 0.
func (l *line[T]) pop() {
	t := l.head
	l.head = t.next
	if l.head == nil {
		l.tail = nil
	}
	t.isQueued, t.next = false, nil
	l.count--
}

// rotate lets the next one have its turn.
//
// Preconditions: len() > 0.
func (l *line[T]) rotate() {
	t := l.head
	l.pop()
	l.push(t)
}

// remove takes t out, wherever it is; who is destroyed is rare enough for a walk.
func (l *line[T]) remove(t *turn[T]) {
	if !t.isQueued {
		return
	}
	var prev *turn[T]
	for x := l.head; x != t; x = x.next {
		prev = x
	}
	if prev == nil {
		l.pop()
		return
	}
	prev.next = t.next
	if l.tail == t {
		l.tail = prev
	}
	t.isQueued, t.next = false, nil
	l.count--
}

// runQueue is the line of the queue pairs of RoCE.
type runQueue struct{ line[*qp] }

// push appends q unless it waits already, and renews its quota.
func (r *runQueue) push(q *qp) {
	if !q.turn.isQueued {
		q.quota = limits.PacketsPerPoll
	}
	r.line.push(&q.turn)
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
