package ibt

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
)

// fetch copies the next work request out of the ring and checks the copy; nil when there is none.
// The ring's entry stays the requester's until the request completes, so the application can have
// no more requests under way than its queue has entries.
func (q *QP) fetch() *sendWR {
	r := &q.send
	if q.hasOwnRequest() {
		return q.fetchOwn()
	}
	if r.unfetched == 0 {
		q.loadSendRing()
		if r.unfetched == 0 || !q.canRequest() {
			return nil
		}
	}
	slot := r.ring.Slot(r.used())
	r.unfetched--
	w := q.pushWR(ownerProgram)
	w.Copy(slot, work.SendLimits{MaxSGE: q.cfg.MaxSGE, MaxInline: q.cfg.MaxInline})
	return q.admit(w)
}

// pushWR begins a request at the end of wrs.
func (q *QP) pushWR(o owner) *sendWR {
	r := &q.send
	w := r.wrs.Push()
	w.Reset()
	w.owner, w.isDone = o, false
	if o != ownerProgram {
		r.own++
	}
	w.packets, w.first = 0, r.next
	w.serial = q.cfg.Scratch.NewSerial()
	return w
}

// admit checks a request that pushWR has begun and gives it its place in the sequence.
func (q *QP) admit(w *sendWR) *sendWR {
	r := &q.send
	w.op = operationOf(w.WQE.Opcode)
	q.checkWQE(w)
	if w.op.takesReceive && w.Fail == rdma.WCSuccess {
		r.receives++
	}
	w.receives = r.receives
	if w.Fail == rdma.WCSuccess && w.op.kind != kindLocal {
		w.packets = packetsOf(w.Length, q.mtu)
	}
	r.next = w.end()
	q.stats.SendFetched++
	return w
}

// checkWQE judges a copied work request (IBTA 10.8.2, 11.4.1.1); what is wrong fails it in its
// turn.
func (q *QP) checkWQE(w *sendWR) {
	if w.Fail != rdma.WCSuccess {
		return
	}
	flags := rdma.SendFlags(w.WQE.Flags)
	isMoving := w.op.isMoving
	switch {
	case w.op.kind == kindNone || !w.op.types.has(q.cfg.Type):
		w.SetFail(rdma.WCLocQPOpErr, abi.VendorOpcode)
	case flags&^work.SendFlagsKnown != 0:
		w.SetFail(rdma.WCLocQPOpErr, abi.VendorBadWQE)
	case flags&rdma.SendInline != 0 && !isMoving:
		w.SetFail(rdma.WCLocQPOpErr, abi.VendorInline)
	case w.op.kind == kindLocal:
		if w.WQE.NumSGE != 0 {
			w.SetFail(rdma.WCLocQPOpErr, abi.VendorBadWQE)
		}
	case w.op.isAnswered() && q.attr.MaxRdAtomic == 0:
		w.SetFail(rdma.WCLocQPOpErr, abi.VendorRDAtomic)
	case flags&rdma.SendInline == 0:
		q.checkWQELength(w)
		q.checkWQEList(w)
	default:
		q.checkWQELength(w)
	}
}

// checkWQELength finds messages that are too long. Of a datagram longer than the port's MTU the
// standard says two things: that it is dropped without an error (IBTA C10-93.1.1, as rxe does), and
// that it is a local length error (IBTA 11.6.2). Adapters report the error, programs expect it, and
// a message that vanishes with success helps nobody.
func (q *QP) checkWQELength(w *sendWR) {
	total := uint64(w.Length)
	if !w.Has(rdma.SendInline) {
		total = mem.ListBytes(w.List())
	}
	switch {
	case total > limits.MaxMessageBytes, q.isUD() && total > uint64(q.mtu),
		!w.op.allows(total):
		w.SetFail(rdma.WCLocLenErr, abi.VendorLength)
	default:
		w.Length = uint32(total)
	}
}

func (q *QP) checkWQEList(w *sendWR) {
	var want rdma.Access
	if w.op.isAnswered() && !w.op.isMoving {
		want = rdma.AccessLocalWrite
	}
	w.CheckList(q.table, q.listPD(w), want)
}
