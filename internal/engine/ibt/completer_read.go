package ibt

import (
	"encoding/binary"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
)

// catchUp acknowledges what comes before an answer to the READ or atomic that holds psn, and
// returns that request when the answer is the next one that it waits for.
func (q *QP) catchUp(psn rdma.PSN, k kind) *sendWR {
	r := &q.send
	if !r.isOutstanding(psn) {
		q.host.Count(work.CountDroppedSilently, 1)
		return nil
	}
	w := q.findWR(psn)
	if w == nil || w.op.kind != k && (k != kindRead || w.op.kind != kindPlace) {
		// Neither a repetition nor an answer to any question.
		q.failHead(rdma.WCBadRespErr, abi.VendorBadResponse)
		return nil
	}
	if w != r.wrs.At(0) {
		if !q.acknowledge(w.first) {
			q.handleImpliedNak(w.first)
			return nil
		}
		w = r.wrs.At(0) // completing may have moved the array's start
	}
	if psn != r.una {
		q.handleImpliedNak(psn)
		return nil
	}
	return w
}

// handleReadResponse takes one packet of READ data (IBTA 9.7.5.1.3).
func (q *QP) handleReadResponse(p *Packet) {
	psn := p.Headers.BTH.PSN
	w := q.catchUp(psn, kindRead)
	if w == nil {
		return
	}
	if w.op.kind == kindPlace {
		q.finishPlacement(p, w)
		return
	}
	off := w.index(psn) * q.mtu
	if uint32(len(p.Payload)) != min(q.mtu, w.Length-off) {
		q.failHead(rdma.WCBadRespErr, abi.VendorBadResponse)
		return
	}
	f := q.table.Scatter(q.listPD(w), w.List(), uint64(off), p.Payload)
	if f != mem.FaultNone {
		w.Fault = f
		q.failHead(rdma.WCLocProtErr, work.VendorOf(f))
		return
	}
	q.answered(w)
	if p.Headers.BTH.Opcode.HasAETH() {
		q.learnCredit(p.Headers.AETH)
	}
}

// handleAtomicAcknowledge takes the value that an atomic found; it is stored in host order
// (IBTA 9.4.5).
func (q *QP) handleAtomicAcknowledge(p *Packet) {
	w := q.catchUp(p.Headers.BTH.PSN, kindAtomic)
	if w == nil {
		return
	}
	b := &q.word
	binary.NativeEndian.PutUint64(b[:], uint64(p.Headers.AtomicAck))
	if f := q.table.Scatter(q.listPD(w), w.List(), 0, b[:]); f != mem.FaultNone {
		w.Fault = f
		q.failHead(rdma.WCLocProtErr, work.VendorOf(f))
		return
	}
	q.answered(w)
	q.learnCredit(p.Headers.AETH)
}

// answered moves una over the packet that was just answered.
func (q *QP) answered(w *sendWR) {
	r := &q.send
	old := r.una
	isLimited := distance(old, r.high) >= r.window.size/2
	r.una = r.una.Add(1)
	if r.una == w.end() {
		q.completeHead()
		q.releaseSlots()
	}
	q.advance(old, isLimited)
}
