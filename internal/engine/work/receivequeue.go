package work

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ring"
)

// RingReceiveQueue is a receive queue in memory that it shares with an application.
type RingReceiveQueue struct {
	ring   *ring.Consumer
	maxSGE uint32
	shared bool
}

// NewReceiveQueue makes a receive queue over a ring. shared marks an SRQ.
func NewReceiveQueue(c *ring.Consumer, maxSGE uint32, shared bool) *RingReceiveQueue {
	most := (c.Stride() - abi.RecvWQEBytes) / abi.SGEBytes
	return &RingReceiveQueue{ring: c, maxSGE: min(maxSGE, most, maxListed), shared: shared}
}

// maxListed is the length of RecvWR.Store.
const maxListed = uint32(len(RecvWR{}.Store))

// Take copies the oldest receive out of shared memory, once, and checks the copy for form.
func (r *RingReceiveQueue) Take(w *RecvWR) TakeResult {
	if n, ok := r.ring.Pending(); n == 0 || !ok {
		return TakeEmpty
	}
	slot := r.ring.Slot(0)
	var fixed [abi.RecvWQEBytes]byte
	copy(fixed[:], slot)
	var x abi.RecvWQE
	abi.DecodeRecvWQE(fixed[:], &x)
	w.WRID = x.WRID
	w.List = w.Store[:0]
	if x.NumSGE > r.maxSGE {
		r.ring.Release(1)
		return TakeMalformed
	}
	for i := range int(x.NumSGE) {
		abi.DecodeSGE(slot[abi.RecvWQEBytes:], i, &w.Store[i])
	}
	w.List = w.Store[:x.NumSGE]
	r.ring.Release(1)
	return TakeOK
}

// MoveTo goes on over another ring, which has what was posted and not taken.
func (r *RingReceiveQueue) MoveTo(c *ring.Consumer, maxSGE uint32) {
	*r = *NewReceiveQueue(c, maxSGE, r.shared)
}

// IsShared reports an SRQ.
func (r *RingReceiveQueue) IsShared() bool { return r.shared }

// Available returns how many receives are posted.
func (r *RingReceiveQueue) Available() uint32 {
	n, _ := r.ring.Pending()
	return n
}

// Skip forgets what is posted.
func (r *RingReceiveQueue) Skip() { r.ring.Skip() }
