package verbs

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
)

// recvQueue is the application's end of a receive queue, a QP's own or a shared one.
type recvQueue struct {
	ctx    *Context
	maxSGE int
	// state and wanted are nil for a shared queue, which has no QP state and no doorbell.
	state   *atomic.Uint32
	wanted  *atomic.Uint32
	bell    bell
	refused *refusals
	slots   *slots // nil for a shared queue: its slots come back when the NIC has read them

	mu     sync.Mutex
	closed bool           // guarded by mu
	ring   *ring.Producer // guarded by mu; its memory is gone once closed
}

func (q *recvQueue) post(wrs []RecvWR) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return 0, ErrClosed
	case q.ctx.isDead():
		return 0, ErrDeviceFatal
	case q.state != nil && QPState(q.state.Load()) == rdma.QPStateReset:
		err := badRecv("the QP is in state RESET; it takes receives from INIT on")
		if len(wrs) > 0 {
			q.refused.note(wrs[0].ID, uint32(rdma.WCOpRecv), err)
		}
		return 0, err
	}
	n := 0
	var err error
	for n < len(wrs) {
		if err = q.putLocked(&wrs[n]); err != nil {
			q.refused.note(wrs[n].ID, uint32(rdma.WCOpRecv), err)
			break
		}
		n++
	}
	if n > 0 {
		q.ring.Publish()
		// Nobody rings for receives, except while the QP is in error and has to flush them. The
		// NIC sets the word before it looks at the index for the last time.
		if q.wanted != nil && q.wanted.Load() != 0 {
			q.bell.ring()
		}
	}
	return n, err
}

func (q *recvQueue) putLocked(wr *RecvWR) error {
	switch {
	case len(wr.SGE) > q.maxSGE:
		return badRecv("%d scatter/gather entries; the queue has room for %d",
			len(wr.SGE), q.maxSGE)
	case q.ring.Free() == 0:
		return ErrQueueFull
	}
	slot := q.ring.Slot()
	abi.EncodeRecvWQE(slot, &abi.RecvWQE{WRID: wr.ID, NumSGE: uint32(len(wr.SGE))})
	putSGEs(slot[abi.RecvWQEBytes:], wr.SGE)
	q.ring.Push()
	return nil
}

// close ends posting; it waits for a post that is under way.
func (q *recvQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.ring = nil
}

func badRecv(format string, args ...any) error {
	return refuse("post receive", rdma.Refuse(syscall.EINVAL, fmt.Sprintf(format, args...)))
}
