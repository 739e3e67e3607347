package iwarp

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
)

// noteFailure hands people the evidence of a request that failed on this side.
func (q *QP) noteFailure(w *sendWR, s rdma.WCStatus, v abi.Vendor) {
	c := work.Cause{
		Status: s, Vendor: v, WRID: w.WQE.WRID, Fault: w.Fault, Opcode: w.WQE.Opcode,
	}
	switch {
	case v == abi.VendorLength:
		c.Length, c.Room, c.HasRoom = mem.ListBytes(w.List()), roomFor(w.op.kind), true
	case w.Fault != mem.FaultNone && int(w.Bad) < len(w.List()):
		x := w.List()[w.Bad]
		c.Key, c.Addr, c.Length = rdma.Key(x.LKey), x.Addr, uint64(x.Length)
		if w.op.isAnswered() {
			c.Asked = rdma.AccessLocalWrite
		}
	case w.op.wc == rdma.WCOpLocalInvalidate:
		c.Key = rdma.Key(w.WQE.ImmOrRKey)
	case w.op.wc == rdma.WCOpBindMW:
		c.Key, c.Addr, c.Length = rdma.Key(w.WQE.RKey), w.WQE.RemoteAddr, w.WQE.CompareAdd
		c.Asked, c.Region = rdma.Access(w.WQE.Swap), rdma.Key(w.WQE.Extra)
	case w.op.kind != kindSend:
		c.Key, c.Addr, c.Length = rdma.Key(w.WQE.RKey), w.WQE.RemoteAddr, uint64(w.Length)
		c.Asked = rightOf(w.op.kind)
	}
	q.host.Note(q, c)
}

// noteEnd leaves word that the connection ended from outside, so that flushed requests can say so.
// With a request under way that is a failure of the oldest, else the way a connection ends.
func (q *QP) noteEnd(how How) {
	c := work.Cause{Vendor: abi.VendorStreamLost}
	switch how {
	case HowPeer:
		c.Vendor = abi.VendorPeerEnded
	case HowReset, HowTimeout:
	default:
		return // this end knows why
	}
	if !q.canRequest() {
		return // it failed before, and that is noted
	}
	if w := q.oldest(); w != nil {
		c.Status, c.WRID, c.Opcode = rdma.WCWRFlushErr, w.WQE.WRID, w.WQE.Opcode
		if w.op.kind != kindSend && w.op.kind != kindLocal {
			c.Key, c.Addr, c.Length = rdma.Key(w.WQE.RKey), w.WQE.RemoteAddr, uint64(w.Length)
			c.Asked = rightOf(w.op.kind)
		}
	}
	q.host.Note(q, c)
}

// oldest returns the first request that is not done, or nil where none is posted.
func (q *QP) oldest() *sendWR {
	r := &q.send
	if r.wrs.Len() == 0 {
		isMore := r.hasUnfetched() || !r.isLast && r.queue.Load() && r.hasUnfetched()
		if !isMore || q.fetch() == nil {
			return nil
		}
	}
	return r.wrs.At(0)
}

// roomFor is the longest message that a request may have.
func roomFor(k kind) uint64 {
	if k == kindAtomic {
		return atomicBytes
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
