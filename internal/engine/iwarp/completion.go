package iwarp

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/rdma"
)

// completeDone completes the requests at the head whose part is done: in order, for completions
// have the order of the queue.
func (q *QP) completeDone(sent uint64) {
	if q.state == rdma.QPStateError {
		return // what is left is flushed
	}
	r := &q.send
	popped := false
	for r.wrs.Len() > 0 {
		w := r.wrs.At(0)
		isSent := w.isFramed && !w.op.isAnswered() && w.end <= sent
		if !w.isDone && !isSent {
			break
		}
		q.completeOne()
		popped = true
	}
	if popped {
		r.queue.Release()
		r.isStalled = false
	}
}

func (q *QP) completeOne() {
	r := &q.send
	w := r.wrs.At(0)
	isSignaled := q.cfg.SignalAll || w.Has(rdma.SendSignaled)
	q.cqe = abi.CQE{
		WRID: w.WQE.WRID, Opcode: uint32(w.op.wc), ByteLen: w.Length,
		QPNum: uint32(q.cfg.QPN), Timestamp: uint64(q.now),
	}
	if w.op.kind == kindSend {
		q.host.Count(work.CountRDMASends, 1)
	}
	q.popHead()
	q.cqe.SQIndex = r.queue.DoneIndex()
	if isSignaled {
		r.queue.Release()
		q.cfg.SendCQ.Push(&q.cqe, false)
	}
}

// popHead takes the oldest request off the books.
func (q *QP) popHead() {
	r := &q.send
	r.wrs.Pop()
	r.queue.Pop()
	r.first++
	r.cur = max(r.cur-1, 0)
	q.stats.SendCompleted++
}

// failHead completes the oldest request with an error and puts the QP into error.
func (q *QP) failHead(s rdma.WCStatus, v abi.Vendor) {
	r := &q.send
	if r.wrs.Len() == 0 {
		return
	}
	w := r.wrs.At(0)
	q.noteFailure(w, s, v)
	q.cqe = abi.CQE{
		WRID: w.WQE.WRID, Status: uint32(s), Opcode: uint32(w.op.wc), VendorErr: uint32(v),
		QPNum: uint32(q.cfg.QPN), Timestamp: uint64(q.now),
	}
	q.popHead()
	q.cqe.SQIndex = r.queue.DoneIndex()
	r.queue.Release()
	q.cfg.SendCQ.Push(&q.cqe, true)
	q.enterError()
}

// completeReceive completes a receive with success and the fields that the CQE holds already.
func (q *QP) completeReceive(isSolicited bool) {
	e := &q.cqe
	e.WRID = q.recv.wr.WRID
	e.QPNum = uint32(q.cfg.QPN)
	e.Timestamp = uint64(q.now)
	q.recv.hasWR = false
	q.stats.RecvCompleted++
	q.host.Count(work.CountRDMARecvs, 1)
	q.cfg.RecvCQ.Push(e, isSolicited)
}

// failReceive completes the receive in use, if there is one, with an error.
func (q *QP) failReceive(s rdma.WCStatus, v abi.Vendor) bool {
	if !q.recv.hasWR {
		return false
	}
	q.recv.hasWR = false
	q.cqe = abi.CQE{
		WRID: q.recv.wr.WRID, Status: uint32(s), Opcode: uint32(rdma.WCOpRecv),
		VendorErr: uint32(v), QPNum: uint32(q.cfg.QPN), Timestamp: uint64(q.now),
	}
	q.stats.RecvCompleted++
	q.cfg.RecvCQ.Push(&q.cqe, true)
	return true
}
