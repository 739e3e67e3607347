package ibt

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
)

// flusher completes what can no longer be done, each work request once: those fetched, those still
// in the send queue, the receive in use, those still in the receive queue. A call does a bounded
// number; isActive says that more is to do.
type flusher struct {
	isActive   bool
	isLastSaid bool // the last-WQE event of this stay in the error state was raised
}

// enterError puts the QP into ERR and flushes (IBTA 10.3.1.7).
func (q *QP) enterError() {
	if q.state == rdma.QPStateError {
		return
	}
	q.finishSent()
	q.state = rdma.QPStateError
	q.stopRequests()
	q.recv.stop()
	q.recv.nak.isDue = q.recv.nak.isDue && q.recv.isFailing // the peer still learns why
	q.startFlush()
}

// enterSendError puts UC and UD into SQE, where only the send queue is flushed (IBTA 10.3.1.5).
func (q *QP) enterSendError() {
	if q.state == rdma.QPStateError {
		return
	}
	q.finishSent()
	q.state = rdma.QPStateSQE
	q.stopRequests()
	q.startFlush()
}

func (q *QP) stopRequests() {
	q.send.retry.reset()
	q.send.reads.Cut(0)
	q.send.sent = 0
}

// startFlush flushes what is there now.
func (q *QP) startFlush() {
	q.flush.isActive = true
	q.flushSome()
}

// flushSome flushes as much as one call may.
func (q *QP) flushSome() {
	if !q.flush.isActive {
		return
	}
	budget := limits.WQEsPerDoorbell
	if q.flushSends(&budget) && (q.state == rdma.QPStateSQE || q.flushReceives(&budget)) {
		q.flush.isActive = false
	}
}

// flushSends reports whether the send queue is empty.
func (q *QP) flushSends(budget *int) bool {
	r := &q.send
	if r.ring == nil {
		return true
	}
	r.cur = 0
	for r.wrs.Len() > 0 {
		if *budget == 0 {
			return false
		}
		*budget--
		w := r.wrs.At(0)
		id, code, o := w.WQE.WRID, w.op.wc, w.owner
		q.popHead()
		if o != ownerProgram {
			q.host.Count(work.CountFlushed, 1)
			q.completeOwn(o, rdma.WCWRFlushErr, abi.VendorFlushed)
			continue
		}
		q.pushFlushed(id, code)
	}
	if !q.flushTagged(budget) {
		return false
	}
	n, ok := r.ring.Pending()
	if !ok {
		r.ring.Skip()
		return true
	}
	for ; n > 0; n-- {
		if *budget == 0 {
			return false
		}
		*budget--
		var fixed [abi.SendWQEBytes]byte
		copy(fixed[:], r.ring.Slot(0))
		var x abi.SendWQE
		abi.DecodeSendWQE(fixed[:], &x)
		q.stats.SendFetched++
		q.stats.SendCompleted++
		r.popped++
		q.pushFlushed(x.WRID, operationOf(x.Opcode).wc)
	}
	return true
}

// pushFlushed completes a send work request that is off the books as flushed.
func (q *QP) pushFlushed(id uint64, code rdma.WCOpcode) {
	q.releaseSlots()
	q.host.Count(work.CountFlushed, 1)
	q.cqe = abi.CQE{
		WRID: id, Status: uint32(rdma.WCWRFlushErr), Opcode: uint32(code),
		VendorErr: uint32(abi.VendorFlushed), QPNum: uint32(q.cfg.QPN), Timestamp: uint64(q.now),
		SQIndex: q.send.doneIndex(),
	}
	q.cfg.SendCQ.Push(&q.cqe, true)
}

// flushReceives reports whether the receive queue is empty. Receives that QPs share stay; their
// users learn instead that this QP takes no more (IBTA 11.6.3.2).
func (q *QP) flushReceives(budget *int) bool {
	if q.cfg.RQ == nil && !q.isXRCRecv() {
		return true
	}
	if q.failReceive(rdma.WCWRFlushErr, abi.VendorFlushed) {
		q.host.Count(work.CountFlushed, 1)
	}
	if q.isXRCRecv() || q.cfg.RQ.IsShared() {
		if !q.flush.isLastSaid {
			q.flush.isLastSaid = true
			q.host.Raise(q, rdma.EventQPLastWQEReached)
		}
		return true
	}
	for ; *budget > 0; *budget-- {
		if q.cfg.RQ.Take(&q.recv.wr) == work.TakeEmpty {
			return true
		}
		q.recv.hasWR = true
		q.failReceive(rdma.WCWRFlushErr, abi.VendorFlushed)
		q.host.Count(work.CountFlushed, 1)
	}
	return false
}
