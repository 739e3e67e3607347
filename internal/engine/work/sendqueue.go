package work

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ring"
)

// SendQueue is a send queue in memory that an application shares. An entry stays the engine's until
// its request is complete and a completion was shown, so the application can have no more requests
// under way than its queue has entries.
//
//	released          popped          held            unfetched
//	 |--- complete, not ---|--- fetched ---|--- published, not ---|
//	        given back                             fetched
type SendQueue struct {
	ring      *ring.Consumer
	held      uint32
	popped    uint32
	unfetched uint32
}

// NewSendQueue makes a send queue over a ring.
func NewSendQueue(c *ring.Consumer) SendQueue { return SendQueue{ring: c} }

// Load counts what the application has published. It reports false for an index that no library of
// ours writes: then what lies in the ring means nothing.
func (s *SendQueue) Load() bool {
	n, ok := s.ring.Pending()
	if !ok || n < s.popped+s.held {
		return false
	}
	s.unfetched = n - s.popped - s.held
	return true
}

// Unfetched returns how many entries Load saw and Fetch has not returned.
func (s *SendQueue) Unfetched() uint32 { return s.unfetched }

// Fetch returns the next entry. Preconditions: Unfetched() > 0.
func (s *SendQueue) Fetch() []byte {
	slot := s.ring.Slot(s.popped + s.held)
	s.unfetched--
	s.held++
	return slot
}

// Pop takes the oldest fetched request off the books. Preconditions: one is fetched.
func (s *SendQueue) Pop() {
	s.held--
	s.popped++
}

// Release gives the entries of complete requests back. It runs before a completion is shown: who
// sees it may post at once.
func (s *SendQueue) Release() {
	if s.popped > 0 {
		s.ring.Release(s.popped)
		s.popped = 0
	}
}

// DoneIndex returns the index in the send queue after the last completed request. A completion
// carries it, so that the application knows which entries it may fill again.
func (s *SendQueue) DoneIndex() uint32 { return s.ring.Released() + s.popped }

// Drop takes one entry that was never fetched off the books, and says what it was. It reports
// false when there is none. Preconditions: none is fetched.
func (s *SendQueue) Drop(x *abi.SendWQE) bool {
	n, ok := s.ring.Pending()
	if !ok {
		s.ring.Skip()
		s.popped, s.unfetched = 0, 0
		return false
	}
	if n <= s.popped {
		return false
	}
	var fixed [abi.SendWQEBytes]byte
	copy(fixed[:], s.ring.Slot(s.popped))
	abi.DecodeSendWQE(fixed[:], x)
	s.popped++
	s.unfetched = 0
	return true
}

// Reset forgets everything that is posted.
func (s *SendQueue) Reset() {
	s.held, s.popped, s.unfetched = 0, 0, 0
	s.ring.Skip()
}
