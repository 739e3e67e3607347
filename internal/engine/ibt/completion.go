package ibt

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/rdma"
)

// completeHead completes the oldest request with success, and the local operations that have
// waited for it.
func (q *QP) completeHead() {
	r := &q.send
	q.completeOne()
	for r.wrs.Len() > 0 && r.wrs.At(0).isDone {
		q.completeOne()
	}
}

func (q *QP) completeOne() {
	r := &q.send
	w := r.wrs.At(0)
	if o := w.owner; o != ownerProgram {
		q.popHead()
		q.completeOwn(o, rdma.WCSuccess, abi.VendorNone)
		return
	}
	isSignaled := q.cfg.SignalAll || w.Has(rdma.SendSignaled)
	q.cqe = abi.CQE{
		WRID: w.WQE.WRID, Opcode: uint32(w.op.wc), ByteLen: w.Length,
		QPNum: uint32(q.cfg.QPN), Timestamp: uint64(q.now),
	}
	if w.op.kind == kindSend {
		q.host.Count(work.CountRDMASends, 1)
	}
	q.popHead()
	q.cqe.SQIndex = q.send.doneIndex()
	if isSignaled {
		q.releaseSlots()
		q.cfg.SendCQ.Push(&q.cqe, false)
	}
}

// popHead takes the oldest request off the books.
func (q *QP) popHead() {
	r := &q.send
	if r.wrs.At(0).owner == ownerProgram {
		r.popped++
	} else {
		r.own--
	}
	r.wrs.Pop()
	r.cur = max(r.cur-1, 0)
	q.stats.SendCompleted++
}

// doneIndex returns the index in the send queue after the last completed request. A completion
// carries it, so that the application knows which entries it may fill again.
func (r *requester) doneIndex() uint32 { return r.ring.Released() + r.popped }

// releaseSlots gives entries of completed requests back. It runs before a completion is shown: who
// sees it may post at once.
func (q *QP) releaseSlots() {
	r := &q.send
	if r.popped > 0 {
		r.ring.Release(r.popped)
		r.popped = 0
	}
}

// finishSent completes the requests of UC and UD whose last packet has left (IBTA 9.8.2, 9.8.3).
func (q *QP) finishSent() {
	if q.send.sent == 0 {
		return
	}
	for q.send.sent > 0 {
		q.send.sent--
		q.completeHead()
	}
	q.releaseSlots()
	q.noteDrained()
}

// failHead completes the oldest request with an error and puts the QP, or for UC and UD its send
// queue, into error (IBTA 10.3.1, 10.10.2.4).
func (q *QP) failHead(s rdma.WCStatus, v abi.Vendor) {
	r := &q.send
	if r.wrs.Len() == 0 {
		return
	}
	w := r.wrs.At(0)
	q.noteFailure(w, s, v)
	if o := w.owner; o != ownerProgram {
		q.popHead()
		q.completeOwn(o, s, v)
		q.enterError()
		return
	}
	q.cqe = abi.CQE{
		WRID: w.WQE.WRID, Status: uint32(s), Opcode: uint32(w.op.wc), VendorErr: uint32(v),
		QPNum: uint32(q.cfg.QPN), Timestamp: uint64(q.now),
	}
	q.popHead()
	q.cqe.SQIndex = q.send.doneIndex()
	q.releaseSlots()
	q.cfg.SendCQ.Push(&q.cqe, true)
	if q.isReliable() {
		q.enterError()
	} else {
		q.enterSendError()
	}
}

// completeReceive completes a receive with success and the fields that e holds already.
func (q *QP) completeReceive(isSolicited bool) {
	e := &q.cqe
	e.WRID = q.recv.wr.WRID
	e.QPNum = uint32(q.cfg.QPN)
	e.PKeyIndex = q.attr.PKeyIndex
	e.Timestamp = uint64(q.now)
	q.recv.hasWR = false
	q.stats.RecvCompleted++
	q.host.Count(work.CountRDMARecvs, 1)
	q.recv.target.RecvCQ.Push(e, isSolicited)
}

// failReceive completes the receive in use, if there is one, with an error.
func (q *QP) failReceive(s rdma.WCStatus, v abi.Vendor) bool {
	if !q.recv.hasWR {
		return false
	}
	q.recv.hasWR = false
	op := rdma.WCOpRecv
	if q.tagging != nil && q.forgetBuffer() {
		op = rdma.WCOpTagRecv
	}
	q.cqe = abi.CQE{
		WRID: q.recv.wr.WRID, Status: uint32(s), Opcode: uint32(op),
		VendorErr: uint32(v), QPNum: uint32(q.cfg.QPN), Timestamp: uint64(q.now),
	}
	q.stats.RecvCompleted++
	q.recv.target.RecvCQ.Push(&q.cqe, true)
	return true
}
