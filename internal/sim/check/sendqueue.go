package check

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
)

// Send is a send work request as the application posted it.
type Send struct {
	ID       uint64
	Opcode   rdma.WCOpcode // of its completion
	Signaled bool
	// Bytes is the byte_len of a READ's or atomic's completion; −1 where it says nothing.
	Bytes int64
	// Must is empty for a request that is in order. Else it has to fail, with one of these.
	Must StatusSet
	// Done is called once when the outcome is known.
	Done func(status rdma.WCStatus)
}

// SendQueue follows the send queue of one queue pair. Completions come in posting order; a
// success of an unsignaled request shows by that of a later one; after an error everything is
// flushed (IBTA 10.8.6, 11.4.2.1).
type SendQueue struct {
	Court *Court
	Name  string
	QPN   uint32
	// May holds the errors that something outside the queue has given cause for.
	May StatusSet

	open   []Send // a part of room
	room   []Send
	failed bool
	nSent  int
}

// Post records a work request.
func (q *SendQueue) Post(s Send) {
	if len(q.open) == cap(q.open) && 2*len(q.open) < cap(q.room) {
		q.open = append(q.room[:0], q.open...) // what is done made room in front
	}
	isFull := len(q.open) == cap(q.open)
	q.open = append(q.open, s)
	if isFull {
		q.room = q.open
	}
	q.nSent++
}

// Open returns how many work requests have no outcome yet.
func (q *SendQueue) Open() int { return len(q.open) }

// Posted returns how many work requests there were.
func (q *SendQueue) Posted() int { return q.nSent }

// HasFailed reports that an error completion was seen and everything else flushes.
func (q *SendQueue) HasFailed() bool { return q.failed }

// Recover tells that the queue works again (SQE→RTS).
func (q *SendQueue) Recover() { q.failed = false }

// HasUnsignaledTail reports requests whose outcome only a later completion can tell.
func (q *SendQueue) HasUnsignaledTail() bool {
	for i := range q.open {
		if q.open[i].Signaled {
			return false
		}
	}
	return len(q.open) > 0
}

// Close forgets what is open, as destroying or resetting the queue pair does; their outcome stays
// unknown and is reported as flushed.
func (q *SendQueue) Close() {
	open := q.open
	q.open = nil
	for i := range open {
		open[i].done(rdma.WCWRFlushErr)
	}
}

func (s *Send) done(status rdma.WCStatus) {
	if s.Done != nil {
		s.Done(status)
	}
}

// Complete judges a completion and returns whether it belonged to a known request.
func (q *SendQueue) Complete(c *abi.CQE) bool {
	status := rdma.WCStatus(c.Status)
	at := q.find(c.WRID)
	if at < 0 {
		q.Court.Failf("%s: completion for wr_id %#x (%v), which is not outstanding",
			q.Name, c.WRID, status)
		return false
	}
	if c.QPNum != q.QPN {
		q.Court.Failf("%s: completion of wr_id %#x has qp_num %#x", q.Name, c.WRID, c.QPNum)
	}
	for range at {
		q.skip()
	}
	s := q.open[0]
	q.open = q.open[1:]
	if status == rdma.WCSuccess {
		q.succeed(&s, c)
	} else {
		q.fail(&s, status)
	}
	s.done(status)
	return true
}

func (q *SendQueue) find(id uint64) int {
	for i := range q.open {
		if q.open[i].ID == id {
			return i
		}
	}
	return -1
}

// skip takes the outcome of the oldest request from a completion of a later one.
func (q *SendQueue) skip() {
	s := q.open[0]
	q.open = q.open[1:]
	switch {
	case s.Signaled:
		q.Court.Failf("%s: no completion of signaled wr_id %#x before that of a later request",
			q.Name, s.ID)
	case s.Must != 0:
		q.Court.Failf("%s: wr_id %#x passed; it has to fail with %v", q.Name, s.ID, s.Must)
	case q.failed:
		q.Court.Failf("%s: wr_id %#x was not flushed", q.Name, s.ID)
	}
	s.done(rdma.WCSuccess)
}

func (q *SendQueue) succeed(s *Send, c *abi.CQE) {
	switch {
	case q.failed:
		q.Court.Failf("%s: wr_id %#x succeeded after an error", q.Name, s.ID)
	case s.Must != 0:
		q.Court.Failf("%s: wr_id %#x succeeded; it has to fail with %v", q.Name, s.ID, s.Must)
	case !s.Signaled:
		q.Court.Failf("%s: unsignaled wr_id %#x has a completion", q.Name, s.ID)
	case rdma.WCOpcode(c.Opcode) != s.Opcode:
		q.Court.Failf("%s: wr_id %#x completes as opcode %d, not %d",
			q.Name, s.ID, c.Opcode, s.Opcode)
	case s.Bytes >= 0 && int64(c.ByteLen) != s.Bytes:
		q.Court.Failf("%s: wr_id %#x has byte_len %d, not %d", q.Name, s.ID, c.ByteLen, s.Bytes)
	}
}

func (q *SendQueue) fail(s *Send, status rdma.WCStatus) {
	switch {
	case q.failed:
		if status != rdma.WCWRFlushErr {
			q.Court.Failf("%s: wr_id %#x fails with %v after an error", q.Name, s.ID, status)
		}
	case !(s.Must | q.May).Has(status):
		q.Court.Failf("%s: wr_id %#x fails with %v without a cause; expected %v, tolerated %v",
			q.Name, s.ID, status, s.Must, q.May)
	}
	q.failed = true
}
