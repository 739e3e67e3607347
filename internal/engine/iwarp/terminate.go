package iwarp

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

// refuseSegment ends the connection for a segment that is coming in.
func (c *Conn) refuseSegment(f fault, content []byte) {
	s := &c.rx.segment
	t := iwarp.Terminate{Code: f.code, HasLength: true, SegmentLen: uint16(s.ulpdu), RDMAP: content}
	if len(s.raw) > 0 && len(s.raw) == headerLen(s.raw) {
		t.DDP = s.raw
	} else {
		t.RDMAP = nil
	}
	c.refuse(f, &t, uint8(s.header.Opcode))
}

// terminatedHeader returns the Terminated RDMA Header of a message: that of a READ or of an atomic
// is its content, and no other has one (RFC 5040 4.8, RFC 7306 5).
func terminatedHeader(o iwarp.Opcode, content []byte) []byte {
	switch info := o.Info(); info.Kind {
	case iwarp.KindReadRequest, iwarp.KindAtomicRequest:
		return content[:info.ContentLen]
	default:
		return nil
	}
}

// refuseFPDU ends the connection for an FPDU that MPA does not let through.
func (c *Conn) refuseFPDU(code iwarp.Code) {
	c.qp.recv.cause = work.Cause{}
	c.qp.host.Count(work.CountBadFPDU, 1)
	c.refuse(protocolFault(code), &iwarp.Terminate{Code: code}, 0)
}

// refuse tells the owner of the queue pair and the peer what the peer did wrong.
func (c *Conn) refuse(f fault, t *iwarp.Terminate, opcode uint8) {
	q := c.qp
	x := q.recv.cause
	x.Status, x.IsResponder, x.Opcode = f.status, true, opcode
	x.Terminate, x.HasTerminate = uint16(f.code), true
	if q.recv.hasWR {
		x.WRID, x.TookReceive = q.recv.wr.WRID, true
	}
	if x.Vendor == abi.VendorNone {
		x.Vendor = abi.VendorProtocol
	}
	q.host.Note(q, x)
	if !q.failReceive(f.status, x.Vendor) {
		q.host.Raise(q, f.event)
	}
	q.enterError()
	c.terminate(t)
}

// terminateLocally tells the peer that this side cannot go on, if it may say anything yet.
func (c *Conn) terminateLocally() {
	if (c.phase == phaseRTR || c.isHeld) && !c.wait.isWaiting {
		// The first word is the initiator's (RFC 5044 7.1.2, RFC 6581 9.2).
		c.fail(End{How: HowError, Code: iwarp.CodeRDMAPLocal}, CloseAbort)
		return
	}
	c.terminate(&iwarp.Terminate{Code: iwarp.CodeRDMAPLocal})
}

// refuseSetup ends a connection whose set-up cannot work.
func (c *Conn) refuseSetup(code iwarp.Code) {
	q := c.qp
	q.host.Note(q, work.Cause{
		Vendor: abi.VendorProtocol, Terminate: uint16(code), HasTerminate: true, IsResponder: true,
	})
	q.enterError()
	c.terminate(&iwarp.Terminate{Code: code})
}

// terminate says the last word: what is framed and not begun is dropped, then comes the Terminate,
// then the end of the stream (RFC 5040 5.1, 6.2).
func (c *Conn) terminate(t *iwarp.Terminate) {
	if !c.isReading() && c.phase != phaseReply {
		return
	}
	if c.tx.sent < c.tx.origin {
		// A peer that has not all of the MPA frame does not know what a Terminate is.
		c.fail(End{How: HowError, Code: t.Code}, CloseAbort)
		return
	}
	c.cut()
	c.message, c.wait = messageNone, waiter{}
	c.phase = phaseTerminate
	c.end = End{How: HowTerminateSent, Code: t.Code}
	c.deadline = c.now.Add(limits.TerminateTimeout)
	h := iwarp.Header{Opcode: iwarp.OpcodeTerminate, Last: true, MSN: 1}
	var b [iwarp.TerminateMax]byte
	c.frameSmall(&h, t.Append(b[:0]))
	c.qp.host.Count(work.CountSentTerminate, 1)
}

// handleTerminate takes the peer's last word.
func (c *Conn) handleTerminate(content []byte) {
	q := c.qp
	q.host.Count(work.CountRcvdTerminate, 1)
	var t iwarp.Terminate
	_ = t.Parse(content) // a cut one still tells its code
	x := work.Cause{
		Vendor: abi.VendorTerminate, Terminate: uint16(t.Code), HasTerminate: true, IsTold: true,
	}
	w := q.named(&t)
	if w != nil && w == q.send.wrs.At(0) {
		// Where one before it has no answer, that is flushed, and so is all behind (IBTA 10.3.1.7).
		w.verdict = verdictOf(t.Code, w)
	} else if w == nil {
		w = q.suspect()
	}
	if w != nil {
		x.Status = rdma.WCWRFlushErr
		if w.verdict != rdma.WCSuccess {
			x.Status = w.verdict
		}
		x.WRID, x.Opcode = w.WQE.WRID, w.WQE.Opcode
		x.Key, x.Addr, x.Length = rdma.Key(w.WQE.RKey), w.WQE.RemoteAddr, uint64(w.Length)
		x.Asked = rightOf(w.op.kind)
	}
	q.host.Note(q, x)
	c.fail(End{How: HowTerminateReceived, Code: t.Code}, CloseFIN)
}

// named returns the request that the headers in a Terminate are of; nil where they are of none that
// can be told. READs and atomics wait for their answer; others may be long complete.
func (q *QP) named(t *iwarp.Terminate) *sendWR {
	var h iwarp.Header
	if _, err := h.Parse(t.DDP); err != nil {
		return nil
	}
	wanted := kindRead
	sink, isTold := uint32(0), false
	switch h.Opcode.Info().Kind {
	case iwarp.KindReadRequest:
		x, err := iwarp.ParseReadRequest(t.RDMAP)
		sink, isTold = uint32(x.SinkSTag), err == nil
	case iwarp.KindAtomicRequest:
		x, err := iwarp.ParseAtomicRequest(t.RDMAP)
		wanted, sink, isTold = kindAtomic, x.ID, err == nil
	default:
		return nil
	}
	n := q.send.reads.Len()
	first := q.send.requestMSN - uint32(n) // those under way are the last ones
	for i := range n {
		// The request as a whole says which it is. Of its DDP header alone the number does, which
		// Soft-iWARP gets wrong where it has both.
		w := q.readAt(i)
		isIt := isTold && w.sink == sink || !isTold && h.MSN == first+uint32(i)
		if isIt && w.op.kind == wanted {
			return w
		}
	}
	return nil
}

// suspect returns the request that a Terminate is likely to be about which names none.
func (q *QP) suspect() *sendWR {
	if q.send.reads.Len() > 0 && q.send.wrs.Len() == q.send.reads.Len() {
		return q.readAt(0)
	}
	return nil
}

// verdictOf is what the requester of InfiniBand would report of a request that is refused for such
// a reason (IBTA 9.9.3, 11.6.2).
func verdictOf(code iwarp.Code, w *sendWR) rdma.WCStatus {
	const remoteProtection, taggedBuffer = iwarp.CodeProtectionSTag >> 8, iwarp.CodeTaggedSTag >> 8
	if kind := code >> 8; kind == remoteProtection || kind == taggedBuffer {
		return rdma.WCRemAccessErr
	}
	switch code {
	case iwarp.CodeOperationOther:
		if w.op.kind == kindAtomic && w.WQE.RemoteAddr%atomicBytes != 0 {
			return rdma.WCRemInvReqErr
		}
		return rdma.WCRemOpErr
	case iwarp.CodeRDMAPLocal, iwarp.CodeDDPLocal, iwarp.CodeCatastropheStream,
		iwarp.CodeCatastropheGlobal:
		return rdma.WCRemOpErr
	default:
		return rdma.WCRemInvReqErr
	}
}

// loseMemory ends a connection that has framed what it cannot send: the memory that the bytes were
// to come from is gone. A peer that has part of the FPDU cannot be told why.
func (c *Conn) loseMemory() {
	q := c.qp
	if q == nil {
		c.fail(End{How: HowError}, CloseAbort)
		return
	}
	isWhole := !c.tx.isInside()
	if w := q.sending(c.tx.sent); w != nil && !c.isAnswering() {
		w.SetFail(rdma.WCLocProtErr, abi.VendorLocalKey)
		if w == q.send.wrs.At(0) {
			q.failHead(w.Fail, w.Vendor)
		} else {
			q.noteFailure(w, w.Fail, w.Vendor)
		}
	}
	if isWhole {
		q.failLocally()
		return
	}
	c.fail(End{How: HowError}, CloseAbort)
}

// isAnswering reports that the memory that is missing is that of an answer.
func (c *Conn) isAnswering() bool {
	for i := range c.tx.pieces.Len() {
		if p := c.tx.pieces.At(i); p.chunk == nil {
			return p.isRemote
		}
	}
	return false
}

// sending returns the SEND or WRITE of which the byte at a position of the stream is, or nil.
func (q *QP) sending(position uint64) *sendWR {
	for i := range q.send.wrs.Len() {
		w := q.send.wrs.At(i)
		if w.op.isMoving() && w.isBegun && (!w.isFramed || w.end > position) {
			return w
		}
	}
	return nil
}
