package verbs

import (
	"sync/atomic"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
)

// slots says how far the completions of a queue pair's send or receive queue were polled: below
// this index, slots may be filled again. Adapters count like that, so that a program that posts
// until ErrQueueFull cannot overrun a completion queue as deep as the queues that complete there.
type slots struct {
	polled atomic.Uint32 // written under the completion queue's mu
	pushed *atomic.Uint32
}

// newSlots begins where the NIC's index is.
func newSlots(memory []byte, producer, consumer int) *slots {
	s := &slots{pushed: ring.Word(memory, producer)}
	s.polled.Store(ring.Word(memory, consumer).Load())
	return s
}

// giveBack moves the index. One that is not between the old one and what was posted is of before
// a reset, which has given everything back.
func (s *slots) giveBack(index uint32) {
	polled := s.polled.Load()
	if index-polled <= s.pushed.Load()-polled {
		s.polled.Store(index)
	}
}

// reset gives everything back.
func (s *slots) reset() { s.polled.Store(s.pushed.Load()) }

// slotKey names a queue of a queue pair.
type slotKey struct {
	qpn    uint32
	isRecv bool
}

func slotKeyOf(e *abi.CQE) slotKey {
	return slotKey{e.QPNum, e.Opcode&uint32(rdma.WCOpRecv) != 0}
}

// credit gathers what completions of one queue, polled in a row, give back to it.
type credit struct {
	key   slotKey
	slots *slots
	index uint32
}

func (c *credit) grant() {
	if c.slots != nil {
		c.slots.giveBack(c.index)
	}
}

// countLocked counts a completion, the taken-th of this poll; done is how many of them the ring
// has got back. The ring comes first: whoever posts into the slots completes into its entries.
func (q *CQ) countLocked(c *credit, e *abi.CQE, taken, done uint32) uint32 {
	key := slotKeyOf(e)
	if c.slots == nil || c.key != key {
		s := q.slots.get(key)
		if s == nil {
			return done // a shared receive queue has its own rule
		}
		if c.slots != nil {
			q.ring.Release(taken - done)
			done = taken
			c.grant()
		}
		*c = credit{key: key, slots: s, index: s.polled.Load()}
	}
	if key.isRecv {
		c.index++ // each has its completion; of sends not all do
	} else {
		c.index = e.SQIndex
	}
	return done
}

// slotsPerPage is how many queue pairs share a page of a slotTable.
const slotsPerPage = 64

// slotTable finds the queues that complete into a completion queue. Numbers of queue pairs that
// were made one after the other lie side by side: a table with a place of its own for each, such as
// a map, misses the caches at every look-up once there are thousands.
type slotTable map[uint32]*slotPage

type slotPage [slotsPerPage]struct{ send, recv *slots }

func (p *slotPage) at(key slotKey) **slots {
	e := &p[key.qpn%slotsPerPage]
	if key.isRecv {
		return &e.recv
	}
	return &e.send
}

func (t slotTable) get(key slotKey) *slots {
	if p := t[key.qpn/slotsPerPage]; p != nil {
		return *p.at(key)
	}
	return nil
}

func (t slotTable) set(key slotKey, s *slots) {
	p := t[key.qpn/slotsPerPage]
	if p == nil {
		p = new(slotPage)
		t[key.qpn/slotsPerPage] = p
	}
	*p.at(key) = s
}

func (t slotTable) remove(key slotKey) {
	p := t[key.qpn/slotsPerPage]
	if p == nil {
		return
	}
	*p.at(key) = nil
	if *p == (slotPage{}) {
		delete(t, key.qpn/slotsPerPage)
	}
}

// join lets polls give slots of a queue back.
func (q *CQ) join(key slotKey, s *slots) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.slots.set(key, s)
}

// serve lets polls find the evidence of a queue pair's errors.
func (q *CQ) serve(user *QP) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.users[user.qpn] = user
}

// leave ends both.
func (q *CQ) leave(n QPN) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.slots.remove(slotKey{uint32(n), false})
	q.slots.remove(slotKey{uint32(n), true})
	delete(q.users, n)
}
