package nic

import (
	"container/heap"

	"github.com/softrnic/softrnic/internal/clock"
)

// streamQueue holds the streams that have something to send, in turn.
type streamQueue struct {
	head, tail *stream
}

// push appends s unless it waits already.
func (r *streamQueue) push(s *stream) {
	if s.isQueued {
		return
	}
	s.isQueued, s.nextRun = true, nil
	if r.tail == nil {
		r.head = s
	} else {
		r.tail.nextRun = s
	}
	r.tail = s
}

// pop removes the head.
//
// Preconditions: the queue is not empty.
func (r *streamQueue) pop() {
	s := r.head
	r.head = s.nextRun
	if r.head == nil {
		r.tail = nil
	}
	s.isQueued, s.nextRun = false, nil
}

// rotate lets the next one have its turn.
//
// Preconditions: the queue is not empty.
func (r *streamQueue) rotate() {
	s := r.head
	r.pop()
	r.push(s)
}

// remove takes s out, wherever it is; the end of a connection is rare enough for a walk.
func (r *streamQueue) remove(s *stream) {
	if !s.isQueued {
		return
	}
	var prev *stream
	for x := r.head; x != s; x = x.nextRun {
		prev = x
	}
	if prev == nil {
		r.pop()
		return
	}
	prev.nextRun = s.nextRun
	if r.tail == s {
		r.tail = prev
	}
	s.isQueued, s.nextRun = false, nil
}

// streamTimers orders streams by deadline. As with queue pairs, a deadline that moves later is left
// where it is and looked at again when it comes.
type streamTimers []*stream

func (h streamTimers) Len() int { return len(h) }

func (h streamTimers) Less(i, j int) bool {
	if h[i].deadline != h[j].deadline {
		return h[i].deadline < h[j].deadline
	}
	return h[i].id < h[j].id
}

func (h streamTimers) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].timer, h[j].timer = i+1, j+1
}

// Push implements heap.Interface.
func (h *streamTimers) Push(x any) {
	s := x.(*stream)
	*h = append(*h, s)
	s.timer = len(*h)
}

// Pop implements heap.Interface.
func (h *streamTimers) Pop() any {
	last := len(*h) - 1
	s := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	s.timer = 0
	return s
}

func (h *streamTimers) update(s *stream, at clock.Time) {
	switch {
	case s.timer == 0 && at != clock.Never:
		s.deadline = at
		heap.Push(h, s)
	case s.timer != 0 && at < s.deadline:
		s.deadline = at
		heap.Fix(h, s.timer-1)
	}
}

func (h *streamTimers) remove(s *stream) {
	if s.timer != 0 {
		heap.Remove(h, s.timer-1)
	}
}

func (h *streamTimers) next() clock.Time {
	if len(*h) == 0 {
		return clock.Never
	}
	return (*h)[0].deadline
}

// due removes and returns a stream whose deadline has come, or nil.
func (h *streamTimers) due(now clock.Time) *stream {
	if len(*h) == 0 || (*h)[0].deadline > now {
		return nil
	}
	return heap.Pop(h).(*stream)
}
