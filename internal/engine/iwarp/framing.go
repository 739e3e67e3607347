package iwarp

import (
	"encoding/binary"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

// frameNext frames the next FPDU and reports whether there was one. The segments of a message are
// not mixed with those of another (RFC 5041 5.1), so requests and answers take turns by messages.
func (c *Conn) frameNext() bool {
	q := c.qp
	if q == nil {
		return false
	}
	switch c.message {
	case messageRequest:
		return c.frameRequest()
	case messageAnswer:
		return c.frameAnswer()
	case messageNone:
	}
	c.isRequestTurn = !c.isRequestTurn
	if c.isRequestTurn {
		return c.frameRequest() || c.frameAnswer()
	}
	return c.frameAnswer() || c.frameRequest()
}

// message says whose message is framed in part.
type message uint8

const (
	messageNone message = iota
	messageRequest
	messageAnswer
)

// frameRequest frames the next FPDU of the send queue.
func (c *Conn) frameRequest() bool {
	q := c.qp
	if !c.maySend() || !q.hasRequest() {
		return false
	}
	w := q.nextWR()
	if w == nil {
		return false
	}
	c.message = messageRequest
	isFirst := !w.isBegun
	w.isBegun = true
	ok := true
	switch w.op.kind {
	case kindSend:
		ok = c.frameSend(w)
	case kindWrite:
		ok = c.frameWrite(w)
	case kindRead:
		c.frameReadRequest(w)
	case kindAtomic:
		c.frameAtomicRequest(w)
	case kindNone, kindLocal:
	}
	if !ok {
		if isFirst {
			w.isBegun, c.message = false, messageNone
		}
		// It fails in its turn. Of a message in the middle nothing else can follow what is framed,
		// but for the Terminate.
		return c.frameRequest()
	}
	if w.isFramed {
		w.end = c.tx.made
		q.send.cur++
		c.message = messageNone
	}
	return true
}

// segment returns how many of left bytes the next FPDU carries behind a header.
func (c *Conn) segment(header int, left uint32) uint32 {
	return min(left, uint32(c.mulpdu-header))
}

// frameSend frames a segment of a SEND (RFC 5040 5.3), or the immediate data that goes with it,
// which travels in front: its receiver then has it when the message completes a receive.
func (c *Conn) frameSend(w *sendWR) bool {
	r := &c.qp.send
	if w.op.hasImm && !w.isImmDone {
		c.frameImmediate(w, iwarp.OpcodeImmediate, immOfSend)
		return true
	}
	n := c.segment(iwarp.UntaggedLen, w.Length-w.off)
	isLast := w.off+n == w.Length
	h := iwarp.Header{
		Opcode: w.op.sendOpcode(w.Has(rdma.SendSolicited)), Last: isLast,
		STag: rdma.Key(w.WQE.ImmOrRKey), MSN: r.sendMSN, MO: w.off,
	}
	if !c.framePayload(&h, w, n) {
		return false
	}
	w.off += n
	if isLast {
		r.sendMSN++
		w.isFramed = true
	}
	return true
}

// frameWrite frames a segment of a WRITE (RFC 5040 5.2), or the immediate data behind it.
func (c *Conn) frameWrite(w *sendWR) bool {
	if w.off == w.Length && w.isWritten {
		op := iwarp.OpcodeImmediate
		if w.Has(rdma.SendSolicited) {
			op = iwarp.OpcodeImmediateSolicited
		}
		c.frameImmediate(w, op, 0)
		w.isFramed = true
		return true
	}
	n := c.segment(iwarp.TaggedLen, w.Length-w.off)
	isLast := w.off+n == w.Length
	h := iwarp.Header{
		Opcode: iwarp.OpcodeWrite, Last: isLast,
		STag: rdma.Key(w.WQE.RKey), TO: w.WQE.RemoteAddr + uint64(w.off),
	}
	if !c.framePayload(&h, w, n) {
		return false
	}
	w.off += n
	w.isWritten = isLast
	w.isFramed = isLast && !w.op.hasImm
	return true
}

// immOfSend in the second half of eight bytes of immediate data says that they belong to the Send
// that follows, and take no receive of their own. RFC 7306 has immediate data only as a message
// that takes one; a receiver that knows nothing of this gets both.
const immOfSend = 0x53454e44

// frameImmediate frames an Immediate Data message (RFC 7306 6). Verbs have four bytes, which come
// first.
func (c *Conn) frameImmediate(w *sendWR, op iwarp.Opcode, tag uint32) {
	r := &c.qp.send
	var imm iwarp.Immediate
	binary.NativeEndian.PutUint32(imm[:], w.WQE.ImmOrRKey)
	binary.BigEndian.PutUint32(imm[4:], tag)
	h := iwarp.Header{Opcode: op, Last: true, MSN: r.sendMSN}
	r.sendMSN++
	w.isImmDone = true
	c.frameSmall(&h, imm[:])
}

// frameReadRequest asks for the bytes of a READ (RFC 5040 5.4). The STag that the answer will name
// means nothing but this request: no memory is opened to the peer.
func (c *Conn) frameReadRequest(w *sendWR) {
	x := iwarp.ReadRequest{
		SinkSTag: rdma.Key(c.beginAnswered(w)), Length: w.Length,
		SourceSTag: rdma.Key(w.WQE.RKey), SourceTO: w.WQE.RemoteAddr,
	}
	h := iwarp.Header{Opcode: iwarp.OpcodeReadRequest, Last: true, MSN: c.qp.send.requestMSN}
	c.qp.send.requestMSN++
	var b [iwarp.ReadRequestLen]byte
	c.frameSmall(&h, x.Append(b[:0]))
}

// beginAnswered enters a READ or atomic among those on their way and returns its identifier.
func (c *Conn) beginAnswered(w *sendWR) uint32 {
	r := &c.qp.send
	r.sink++
	if r.sink == 0 {
		r.sink = 1
	}
	w.sink, w.isFramed = r.sink, true
	*r.reads.Push() = r.first + uint32(r.cur)
	return w.sink
}

// frameAtomicRequest asks for a compare-and-swap or an addition (RFC 7306 5.2) of all 64 bits.
func (c *Conn) frameAtomicRequest(w *sendWR) {
	x := iwarp.AtomicRequest{
		ID: c.beginAnswered(w), STag: rdma.Key(w.WQE.RKey), TO: w.WQE.RemoteAddr,
		Op: iwarp.AtomicFetchAdd, Data: w.WQE.CompareAdd,
	}
	if w.op.wc == rdma.WCOpCompareSwap {
		x.Op = iwarp.AtomicCompareSwap
		x.Data, x.DataMask = w.WQE.Swap, ^uint64(0)
		x.Compare, x.CompareMask = w.WQE.CompareAdd, ^uint64(0)
	}
	h := iwarp.Header{Opcode: iwarp.OpcodeAtomicRequest, Last: true, MSN: c.qp.send.requestMSN}
	c.qp.send.requestMSN++
	var b [iwarp.AtomicRequestLen]byte
	c.frameSmall(&h, x.Append(b[:0]))
}

// frameSmall frames a message whose content is at hand.
func (c *Conn) frameSmall(h *iwarp.Header, content []byte) {
	b := c.begin(h.Len(), len(content))
	b = append(h.Append(b), content...)
	c.tx.advance(len(b))
	c.finish(len(b))
	c.noteFPDU(len(content))
}

func (c *Conn) noteFPDU(payload int) {
	c.stats.FPDUsSent++
	c.qp.host.Count(work.CountSentPackets, 1)
	c.qp.host.Count(work.CountSentBytes, uint64(payload))
}

// framePayload frames n bytes of a work request's message from w.off on. It reports false when its
// memory is not to be had; then w says why.
func (c *Conn) framePayload(h *iwarp.Header, w *sendWR, n uint32) bool {
	q := c.qp
	if !c.tx.copies(int(n)) && !w.Has(rdma.SendInline) {
		if ok, f := c.frameReferences(h, w, n); ok || f != mem.FaultNone {
			return ok || c.noFault(w, f)
		}
	}
	var b []byte
	switch {
	case n == 0:
	case w.Has(rdma.SendInline):
		b = w.Inline[w.off : w.off+n]
	default:
		list, off := w.List(), uint64(w.off)
		v, f := q.table.ViewList(q.cfg.PD, list, off, uint64(n))
		if v == nil && f == mem.FaultNone {
			v, f = q.cfg.Scratch.Gather(q.table, &work.Stretch{
				Serial: w.serial, Who: q.accessor(), List: list, Offset: off, Bytes: uint64(n),
				Total: uint64(w.Length),
			})
		}
		if f != mem.FaultNone {
			return c.noFault(w, f)
		}
		b = v
	}
	c.frameCopy(h, b)
	return true
}

func (c *Conn) noFault(w *sendWR, f mem.Fault) bool {
	w.SetFault(f)
	return false
}

// frameCopy frames payload by copying it behind its header.
func (c *Conn) frameCopy(h *iwarp.Header, payload []byte) {
	b := h.Append(c.begin(h.Len(), len(payload)))
	n := len(b)
	c.tx.advance(n)
	mem.Copy(c.tx.filling.buf[c.tx.filling.used:], payload)
	c.tx.advance(len(payload))
	c.finish(n + len(payload))
	c.noteFPDU(len(payload))
}

// frameReferences frames payload without touching it, where all of it is mapped. It reports false
// where it is not, or a fault.
func (c *Conn) frameReferences(h *iwarp.Header, w *sendWR, n uint32) (bool, mem.Fault) {
	q := c.qp
	if ok, f := q.eachEntry(w.List(), w.off, n, func(abi.SGE) {}); !ok {
		return false, f
	}
	b := h.Append(c.beginReference(h.Len(), int(n)))
	c.tx.advance(len(b))
	c.tx.push(iwarp.ULPDULenLen + len(b))
	_, _ = q.eachEntry(w.List(), w.off, n, func(s abi.SGE) {
		c.tx.pushReference(piece{key: rdma.Key(s.LKey), addr: s.Addr, bytes: int(s.Length)})
	})
	c.finishReference(len(b) + int(n))
	c.noteFPDU(int(n))
	return true, mem.FaultNone
}

// eachEntry calls f with the parts of a list that n bytes from off on are in, and reports whether
// each of them is mapped in one piece.
func (q *QP) eachEntry(list []abi.SGE, off, n uint32, f func(abi.SGE)) (bool, mem.Fault) {
	for i := range list {
		s := list[i]
		if off >= s.Length {
			off -= s.Length
			continue
		}
		s.Addr, s.Length = s.Addr+uint64(off), min(s.Length-off, n)
		b, fault := q.table.View(rdma.Key(s.LKey), q.cfg.PD, s.Addr, uint64(s.Length), 0)
		if b == nil {
			return false, fault
		}
		f(s)
		n -= s.Length
		off = 0
		if n == 0 {
			return true, mem.FaultNone
		}
	}
	return false, mem.FaultNone
}
