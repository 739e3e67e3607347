package nic

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
