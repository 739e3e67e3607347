package iwarp

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
	q.state = rdma.QPStateError
	q.send.stop()
	q.recv.stop()
	q.startFlush()
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
	if q.flushSends(&budget) && q.flushReceives(&budget) {
		q.flush.isActive = false
	}
}

// flushSends reports whether the send queue is empty.
func (q *QP) flushSends(budget *int) bool {
	r := &q.send
	for r.wrs.Len() > 0 {
		if *budget == 0 {
			return false
		}
		*budget--
		w := r.wrs.At(0)
		id, code, verdict := w.WQE.WRID, w.op.wc, w.verdict
		q.popHead()
		if verdict == rdma.WCSuccess {
			q.pushFlushed(id, code)
		} else {
			q.pushEnded(id, code, verdict, abi.VendorTerminate)
		}
	}
	for ; *budget > 0; *budget-- {
		var x abi.SendWQE
		if !r.queue.Drop(&x) {
			return true
		}
		q.stats.SendFetched++
		q.stats.SendCompleted++
		q.pushFlushed(x.WRID, operationOf(x.Opcode).wc)
	}
	return false
}

// pushFlushed completes a send work request that is off the books as flushed.
func (q *QP) pushFlushed(id uint64, code rdma.WCOpcode) {
	q.host.Count(work.CountFlushed, 1)
	q.pushEnded(id, code, rdma.WCWRFlushErr, abi.VendorFlushed)
}

func (q *QP) pushEnded(id uint64, code rdma.WCOpcode, s rdma.WCStatus, v abi.Vendor) {
	q.send.queue.Release()
	q.cqe = abi.CQE{
		WRID: id, Status: uint32(s), Opcode: uint32(code), VendorErr: uint32(v),
		QPNum: uint32(q.cfg.QPN), Timestamp: uint64(q.now),
		SQIndex: q.send.queue.DoneIndex(),
	}
	q.cfg.SendCQ.Push(&q.cqe, true)
}

// flushReceives reports whether the receive queue is empty. Receives that QPs share stay; their
// users learn instead that this QP takes no more (IBTA 11.6.3.2).
func (q *QP) flushReceives(budget *int) bool {
	if q.failReceive(rdma.WCWRFlushErr, abi.VendorFlushed) {
		q.host.Count(work.CountFlushed, 1)
	}
	if q.cfg.RQ.IsShared() {
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
		q.stats.RecvTaken++
		q.recv.hasWR = true
		q.failReceive(rdma.WCWRFlushErr, abi.VendorFlushed)
		q.host.Count(work.CountFlushed, 1)
	}
	return false
}
