package ibt

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
)

const sendFlagsKnown = rdma.SendFence | rdma.SendSignaled | rdma.SendSolicited | rdma.SendInline

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
	q.copyWQE(w, slot)
	return q.admit(w)
}

// pushWR begins a request at the end of wrs.
func (q *QP) pushWR(o owner) *sendWR {
	r := &q.send
	w := r.wrs.Push()
	w.fail, w.vendor, w.fault, w.bad = rdma.WCSuccess, abi.VendorNone, mem.FaultNone, 0
	w.owner, w.isDone = o, false
	if o != ownerProgram {
		r.own++
	}
	w.length, w.packets, w.first = 0, 0, r.next
	w.serial = q.cfg.Scratch.NewSerial()
	return w
}

// admit checks a request that pushWR has begun and gives it its place in the sequence.
func (q *QP) admit(w *sendWR) *sendWR {
	r := &q.send
	w.op = operationOf(w.wqe.Opcode)
	q.checkWQE(w)
	if w.op.takesReceive && w.fail == rdma.WCSuccess {
		r.receives++
	}
	w.receives = r.receives
	if w.fail == rdma.WCSuccess && w.op.kind != kindLocal {
		w.packets = packetsOf(w.length, q.mtu)
	}
	r.next = w.end()
	q.stats.SendFetched++
	return w
}

// copyWQE makes the private copy. Every byte of the slot is read once: the application may change
// it at any instant.
func (q *QP) copyWQE(w *sendWR, slot []byte) {
	var fixed [abi.SendWQEBytes]byte
	copy(fixed[:], slot)
	abi.DecodeSendWQE(fixed[:], &w.wqe)
	tail := slot[abi.SendWQEBytes:]
	n := int(w.wqe.NumSGE)
	if w.has(rdma.SendInline) {
		length := w.wqe.InlineLen
		if n != 0 || length > q.cfg.MaxInline || int(length) > len(tail) {
			w.wqe.NumSGE = 0
			w.setFail(rdma.WCLocQPOpErr, abi.VendorBadWQE)
			return
		}
		w.inline = append(w.inline[:0], tail[:length]...)
		w.length = length
		return
	}
	if n > int(q.cfg.MaxSGE) || n*abi.SGEBytes > len(tail) {
		w.wqe.NumSGE = 0
		w.setFail(rdma.WCLocQPOpErr, abi.VendorBadWQE)
		return
	}
	if n > 1 {
		w.many = w.many[:0]
		for i := range n {
			var s abi.SGE
			abi.DecodeSGE(tail, i, &s)
			w.many = append(w.many, s)
		}
	} else if n == 1 {
		abi.DecodeSGE(tail, 0, &w.one[0])
	}
}

// checkWQE judges a copied work request (IBTA 10.8.2, 11.4.1.1); what is wrong fails it in its
// turn.
func (q *QP) checkWQE(w *sendWR) {
	if w.fail != rdma.WCSuccess {
		return
	}
	flags := rdma.SendFlags(w.wqe.Flags)
	isMoving := w.op.isMoving
	switch {
	case w.op.kind == kindNone || !w.op.types.has(q.cfg.Type):
		w.setFail(rdma.WCLocQPOpErr, abi.VendorOpcode)
	case flags&^sendFlagsKnown != 0, flags&rdma.SendInline != 0 && !isMoving:
		w.setFail(rdma.WCLocQPOpErr, abi.VendorBadWQE)
	case w.op.kind == kindLocal:
		if w.wqe.NumSGE != 0 {
			w.setFail(rdma.WCLocQPOpErr, abi.VendorBadWQE)
		}
	case w.op.isAnswered() && q.attr.MaxRdAtomic == 0:
		w.setFail(rdma.WCLocQPOpErr, abi.VendorRDAtomic)
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
	total := uint64(w.length)
	if !w.has(rdma.SendInline) {
		total = mem.ListBytes(w.list())
	}
	switch {
	case total > limits.MaxMessageBytes, q.isUD() && total > uint64(q.mtu),
		!w.op.allows(total):
		w.setFail(rdma.WCLocLenErr, abi.VendorLength)
	default:
		w.length = uint32(total)
	}
}

func (q *QP) checkWQEList(w *sendWR) {
	var want rdma.Access
	if w.op.isAnswered() && !w.op.isMoving {
		want = rdma.AccessLocalWrite
	}
	list := w.list()
	for i := range list {
		s := &list[i]
		if s.Length == 0 {
			continue // IBTA 10.6.3.3 asks for no key there
		}
		_, f := q.table.Check(rdma.Key(s.LKey), q.cfg.PD, s.Addr, uint64(s.Length), want)
		if f != mem.FaultNone {
			w.setFault(f)
			w.bad = uint8(i)
			return
		}
	}
}

// setFault lets the request fail by a local access (IBTA 11.6.2: local protection error).
func (w *sendWR) setFault(f mem.Fault) {
	w.setFail(rdma.WCLocProtErr, vendorOf(f))
	w.fault = f
}

// vendorOf tells the evidence of a refused local access.
func vendorOf(f mem.Fault) abi.Vendor {
	switch f {
	case mem.FaultBounds:
		return abi.VendorLocalBounds
	case mem.FaultMemory, mem.FaultGone:
		return abi.VendorLocalFault
	default:
		return abi.VendorLocalKey
	}
}
