package iwarp

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

// beginEmpty takes an FPDU without an ULPDU, which carries nothing.
func (c *Conn) beginEmpty() {
	s := &c.rx.segment
	s.header = iwarp.Header{Opcode: emptyFPDU}
	s.raw, s.bytes, s.placed = s.raw[:0], 0, 0
	_ = c.hearInitiator(&s.header, 0)
}

// emptyFPDU stands for no message at all.
const emptyFPDU iwarp.Opcode = 0xf

// beginSegment judges a DDP segment by its header, at the start of b, before a byte of its payload
// is placed. ulpdu is the length of both.
func (c *Conn) beginSegment(b []byte, ulpdu int) bool {
	s := &c.rx.segment
	s.ulpdu, s.placed, s.bytes = ulpdu, 0, 0
	s.raw = append(s.raw[:0], b[:min(len(b), headerLen(b))]...)
	c.qp.recv.cause = work.Cause{}
	s.header.Opcode = emptyFPDU // what the evidence says of a header that is none
	_, err := s.header.Parse(b)
	if code, ok := iwarp.CodeOf(err); ok {
		c.refuseSegment(protocolFault(code), nil)
		return false
	}
	s.bytes = ulpdu - s.header.Len()
	c.qp.host.Count(work.CountRcvdPackets, 1)
	c.qp.host.Count(work.CountRcvdBytes, uint64(s.bytes))
	isRTR := c.hearInitiator(&s.header, s.bytes)
	if f := c.checkSegment(isRTR); f != faultNone {
		c.refuseSegment(f, nil)
		return false
	}
	return true
}

// headerLen returns how long the DDP header at the start of b is. Preconditions: len(b) > 0.
func headerLen(b []byte) int {
	if b[0]&0x80 != 0 {
		return iwarp.TaggedLen
	}
	return iwarp.UntaggedLen
}

// checkSegment is beginSegment for a header that is sound in itself.
func (c *Conn) checkSegment(isRTR bool) fault {
	s := &c.rx.segment
	h := &s.header
	r := &c.qp.recv
	info := h.Opcode.Info()
	if info.ContentLen > 0 {
		switch {
		case h.MO != 0:
			return faultMO
		case s.bytes > info.ContentLen:
			r.cause.Vendor = abi.VendorLength
			return faultTooLong
		case s.bytes < info.ContentLen:
			r.cause.Vendor = abi.VendorLength
			return protocolFault(iwarp.CodeOperationOther)
		case !h.Last:
			return protocolFault(iwarp.CodeOperationOther)
		}
	}
	switch info.Kind {
	case iwarp.KindWrite:
		return c.checkWrite()
	case iwarp.KindReadResponse:
		return c.checkReadResponse()
	case iwarp.KindSend:
		return c.checkSend(isRTR)
	case iwarp.KindImmediate:
		if h.MSN != r.sendMSN || r.hasWR || r.mo > 0 {
			return faultMSN
		}
	case iwarp.KindReadRequest, iwarp.KindAtomicRequest:
		switch {
		case h.MSN != r.requestMSN:
			return faultMSN
		case r.responses.Len() >= r.ird:
			r.cause.Vendor = abi.VendorRDAtomic
			return faultNoBuffer
		}
	case iwarp.KindAtomicResponse:
		if h.MSN != r.atomicMSN {
			return faultMSN
		}
	case iwarp.KindTerminate, iwarp.KindUnknown:
	}
	return faultNone
}

// checkWrite judges a segment of a WRITE (RFC 5040 5.2).
func (c *Conn) checkWrite() fault {
	s := &c.rx.segment
	h := &s.header
	n := uint64(s.bytes)
	if h.TO+n < h.TO {
		c.qp.noteRemote(mem.FaultBounds, h.STag, h.TO, n, rdma.AccessRemoteWrite)
		return accessFault(iwarp.CodeTaggedWrap)
	}
	if f := c.qp.checkRemote(h.STag, h.TO, n, rdma.AccessRemoteWrite); f != mem.FaultNone {
		return taggedFault(f)
	}
	r := &c.qp.recv
	if !r.isWriting {
		r.isWriting, r.written = true, 0
	}
	r.written += n
	return faultNone
}

// checkReadResponse judges a segment of the answer to the oldest READ (RFC 5040 5.4).
func (c *Conn) checkReadResponse() fault {
	s := &c.rx.segment
	h := &s.header
	q := c.qp
	if q.send.hasRTRRead {
		if h.STag != rtrSTag || s.bytes != 0 || !h.Last {
			return protocolFault(iwarp.CodeTaggedSTag)
		}
		return faultNone
	}
	if q.send.reads.Len() == 0 {
		return faultOpcode
	}
	w := q.readAt(0)
	left := uint64(w.Length - w.got)
	switch n := uint64(s.bytes); {
	case w.op.kind != kindRead:
		return faultOpcode
	case h.STag != rdma.Key(w.sink):
		return protocolFault(iwarp.CodeTaggedSTag)
	case h.TO != uint64(w.got), n > left, h.Last && n < left:
		return protocolFault(iwarp.CodeTaggedBounds)
	}
	return faultNone
}

// checkSend judges a segment of a Send (RFC 5041 5.3, RFC 5040 5.3).
func (c *Conn) checkSend(isRTR bool) fault {
	s := &c.rx.segment
	h := &s.header
	r := &c.qp.recv
	r.isSwift = isRTR
	switch {
	case h.MSN != r.sendMSN:
		return faultMSN
	case h.MO != r.mo:
		return faultMO
	case isRTR:
		return faultNone
	case r.hasWR && h.Opcode != r.opcode:
		return faultOpcode
	}
	if !r.hasWR {
		r.opcode = h.Opcode
		if f := c.qp.takeReceive(); f != faultNone {
			return f
		}
	}
	if after := uint64(r.mo) + uint64(s.bytes); after > r.room {
		r.cause.Vendor, r.cause.Length = abi.VendorLength, after
		r.cause.Room, r.cause.HasRoom = r.room, true
		return faultTooLong
	}
	return faultNone
}

// place puts payload where it belongs. It reports false when the connection is over for it.
func (c *Conn) place(b []byte) bool {
	s := &c.rx.segment
	q := c.qp
	r := &q.recv
	f, mf := faultNone, mem.FaultNone
	at := uint64(s.placed)
	switch s.header.Opcode.Info().Kind {
	case iwarp.KindWrite:
		to := s.header.TO + at
		mf = q.table.WriteRemote(s.header.STag, q.accessor(), to, b)
		if mf != mem.FaultNone {
			q.noteRemote(mf, s.header.STag, to, uint64(len(b)), rdma.AccessRemoteWrite)
			f = taggedFault(mf)
		}
	case iwarp.KindReadResponse:
		w := q.readAt(0)
		mf = q.table.Scatter(q.cfg.PD, w.List(), uint64(w.got)+at, b)
		if mf != mem.FaultNone {
			c.failSink(w, mf)
			return false
		}
	case iwarp.KindSend:
		mf = q.table.Scatter(q.cfg.ReceivePD, r.wr.List, uint64(r.mo)+at, b)
		if mf != mem.FaultNone {
			f = q.noteReceive(mf, uint64(r.mo)+at)
		}
	default:
		if s.placed < len(s.content) {
			copy(s.content[s.placed:], b)
		}
	}
	switch {
	case mf == mem.FaultGone:
		c.vanish()
		return false
	case f != faultNone:
		c.refuseSegment(f, nil)
		return false
	}
	s.placed += len(b)
	return true
}

// failSink ends the QP because the memory that a READ's answer goes to is not to be had.
func (c *Conn) failSink(w *sendWR, f mem.Fault) {
	if f == mem.FaultGone {
		c.vanish()
		return
	}
	q := c.qp
	w.SetFault(f)
	if q.readAt(0) == q.send.wrs.At(0) {
		q.failHead(w.Fail, w.Vendor)
	} else {
		q.noteFailure(w, w.Fail, w.Vendor)
	}
	q.failLocally()
}

// vanish ends the connection of a process that has ended: the peer sees what it sees when a host
// closes the streams of a process, and no Terminate that tells of memory.
func (c *Conn) vanish() {
	c.qp.host.Note(c.qp, c.qp.recv.cause)
	c.fail(End{How: HowError}, CloseAbort)
}

// endSegment carries a segment out that is all placed.
func (c *Conn) endSegment() {
	s := &c.rx.segment
	h := &s.header
	if h.Opcode == emptyFPDU {
		return
	}
	q := c.qp
	r := &q.recv
	f := faultNone
	switch h.Opcode.Info().Kind {
	case iwarp.KindWrite:
		r.isWriting = !h.Last
	case iwarp.KindReadResponse:
		c.endReadResponse()
	case iwarp.KindSend:
		f = c.endSend()
	case iwarp.KindImmediate:
		f = c.endImmediate()
	case iwarp.KindReadRequest:
		r.requestMSN++
		f = c.endReadRequest()
	case iwarp.KindAtomicRequest:
		r.requestMSN++
		f = c.endAtomicRequest()
	case iwarp.KindAtomicResponse:
		r.atomicMSN++
		f = c.endAtomicResponse()
	case iwarp.KindTerminate:
		c.handleTerminate(s.content[:min(s.bytes, len(s.content))])
	case iwarp.KindUnknown:
	}
	if f != faultNone {
		c.refuseSegment(f, terminatedHeader(h.Opcode, s.content[:]))
	}
}

// endReadResponse counts bytes of a READ.
func (c *Conn) endReadResponse() {
	s := &c.rx.segment
	q := c.qp
	if q.send.hasRTRRead {
		q.send.hasRTRRead = false
		q.send.isStalled = false
		return
	}
	w := q.readAt(0)
	w.got += uint32(s.bytes)
	if s.header.Last {
		q.answered()
	}
}

// endSend completes the receive of a Send after its last segment.
func (c *Conn) endSend() fault {
	s := &c.rx.segment
	q := c.qp
	r := &q.recv
	r.mo += uint32(s.bytes)
	if !s.header.Last {
		return faultNone
	}
	length := r.mo
	r.mo = 0
	r.sendMSN++
	if r.isSwift {
		return faultNone
	}
	q.cqe = abi.CQE{ByteLen: length, Opcode: uint32(rdma.WCOpRecv)}
	info := s.header.Opcode.Info()
	if info.Invalidate {
		key := s.header.STag
		if f := q.table.Invalidate(q.accessor(), key); f != mem.FaultNone {
			q.noteRemote(f, key, 0, 0, 0)
			return invalidateFault(f)
		}
		q.cqe.WCFlags |= uint32(rdma.WCWithInv)
		q.cqe.ImmOrRKey = uint32(key)
	}
	if r.hasImm {
		r.hasImm = false
		q.cqe.WCFlags |= uint32(rdma.WCWithImm)
		q.cqe.ImmOrRKey = r.imm
	}
	q.completeReceive(info.Solicited)
	return faultNone
}
