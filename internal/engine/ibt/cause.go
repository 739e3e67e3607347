package ibt

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

// noteFailure hands people the evidence of a failed request.
func (q *QP) noteFailure(w *sendWR, s rdma.WCStatus, v abi.Vendor) {
	t := &q.send.retry
	c := work.Cause{
		Status: s, Vendor: v, WRID: w.WQE.WRID, PSN: q.send.una, Fault: w.Fault,
		Retries: t.retries, RNRTries: t.rnrTries, Timeouts: t.timeouts, Opcode: w.WQE.Opcode,
	}
	if v&0xff == abi.VendorNak {
		c.Syndrome = uint8(v >> 8)
	}
	switch {
	case v&0xff == abi.VendorLength:
		c.Length, c.Room, c.HasRoom = mem.ListBytes(w.List()), q.roomFor(w), true
	case w.Fault != mem.FaultNone && int(w.Bad) < len(w.List()):
		x := w.List()[w.Bad]
		c.Key, c.Addr, c.Length = rdma.Key(x.LKey), x.Addr, uint64(x.Length)
		if w.op.kind == kindRead || w.op.kind == kindAtomic {
			c.Asked = rdma.AccessLocalWrite
		}
	case w.op.wc == rdma.WCOpLocalInvalidate:
		c.Key = rdma.Key(w.WQE.ImmOrRKey)
	case w.op.wc == rdma.WCOpBindMW:
		c.Key, c.Addr, c.Length = rdma.Key(w.WQE.RKey), w.WQE.RemoteAddr, w.WQE.CompareAdd
		c.Asked, c.Region = rdma.Access(w.WQE.Swap), rdma.Key(w.WQE.Extra)
	case v == abi.VendorAddressHandle:
		c.Key = rdma.Key(w.WQE.AH)
	case w.op.kind != kindSend:
		c.Key, c.Addr, c.Length = rdma.Key(w.WQE.RKey), w.WQE.RemoteAddr, uint64(w.Length)
		c.Asked = rightOf(w.op.kind)
	}
	q.host.Note(q, c)
}

// roomFor is the longest message that a request may have.
func (q *QP) roomFor(w *sendWR) uint64 {
	switch {
	case w.op.kind == kindAtomic, w.op.wc == rdma.WCOpAtomicWrite:
		return 8
	case w.op.kind == kindPlace:
		return 0
	case q.isUD():
		return uint64(q.mtu)
	}
	return limits.MaxMessageBytes
}

// rightOf is what a request needs of the memory that it names at the responder.
func rightOf(k kind) rdma.Access {
	switch k {
	case kindRead:
		return rdma.AccessRemoteRead
	case kindAtomic:
		return rdma.AccessRemoteAtomic
	case kindWrite:
		return rdma.AccessRemoteWrite
	default:
		return rdma.AccessLocalWrite // a receive
	}
}

// noteRefusal completes the evidence of a request that was refused, and hands it to people.
func (q *QP) noteRefusal(p *Packet, s rdma.WCStatus, syndrome ib.Syndrome) {
	r := &q.recv
	c := &r.cause
	c.Status, c.Syndrome, c.IsResponder = s, uint8(syndrome), true
	c.PSN, c.Opcode = p.Headers.BTH.PSN, uint8(p.Headers.BTH.Opcode)
	if r.hasWR {
		c.WRID, c.TookReceive = r.wr.WRID, true
	}
	if s == rdma.WCLocLenErr {
		c.Room, c.HasRoom = r.room, true
	}
	c.Asked = accessAsked(p.Headers.BTH.Opcode)
	if !q.isReliable() {
		c.Syndrome = 0 // unreliable services answer nothing
	}
	q.host.Note(q, *c)
}

// accessAsked is what a request packet needs of memory.
func accessAsked(op ib.Opcode) rdma.Access {
	switch op.Info().Operation {
	case ib.OperationReadRequest:
		return rdma.AccessRemoteRead
	case ib.OperationCompareSwap, ib.OperationFetchAdd:
		return rdma.AccessRemoteAtomic
	case ib.OperationWrite:
		return rdma.AccessRemoteWrite
	default:
		return rdma.AccessLocalWrite
	}
}
