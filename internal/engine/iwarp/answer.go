package iwarp

import (
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

// response is an answer that is due to the peer, in the order of its requests.
type response struct {
	isAtomic bool
	// Of a READ: what was asked for, and how many bytes of it are framed.
	request iwarp.ReadRequest
	off     uint32
	serial  uint64
	// content is the request as it came, for a Terminate.
	content [iwarp.ReadRequestLen]byte
	msn     uint32
	// Of an atomic, which is executed when its request comes.
	answer iwarp.AtomicResponse
}

// frameAnswer frames the next FPDU of the oldest answer.
func (c *Conn) frameAnswer() bool {
	r := &c.qp.recv
	if r.responses.Len() == 0 || !c.maySend() || !c.qp.canRequest() {
		return false
	}
	x := r.responses.At(0)
	if x.isAtomic {
		h := iwarp.Header{Opcode: iwarp.OpcodeAtomicResponse, Last: true, MSN: r.answerMSN}
		r.answerMSN++
		var b [iwarp.AtomicResponseLen]byte
		c.frameSmall(&h, x.answer.Append(b[:0]))
		r.responses.Pop()
		return true
	}
	c.message = messageAnswer
	n := c.segment(iwarp.TaggedLen, x.request.Length-x.off)
	h := iwarp.Header{
		Opcode: iwarp.OpcodeReadResponse, Last: x.off+n == x.request.Length,
		STag: x.request.SinkSTag, TO: x.request.SinkTO + uint64(x.off),
	}
	if f := c.frameReadData(&h, x, n); f != mem.FaultNone {
		c.message = messageNone
		c.refuseRead(x, f)
		return false
	}
	x.off += n
	if h.Last {
		c.message = messageNone
		r.responses.Pop()
	}
	return true
}

// frameReadData frames n bytes of a READ's answer. What the peer may read is checked again at each
// segment: the STag may have been taken away.
func (c *Conn) frameReadData(h *iwarp.Header, x *response, n uint32) mem.Fault {
	if n == 0 {
		c.frameCopy(h, nil)
		return mem.FaultNone
	}
	q := c.qp
	at := x.request.SourceTO + uint64(x.off)
	b, f := q.table.ViewRemote(x.request.SourceSTag, q.accessor(), at, uint64(n))
	if f != mem.FaultNone {
		return f
	}
	if b != nil && !c.tx.copies(int(n)) {
		head := h.Append(c.beginReference(h.Len(), int(n)))
		c.tx.advance(len(head))
		c.tx.push(iwarp.ULPDULenLen + len(head))
		c.tx.pushReference(piece{
			key: x.request.SourceSTag, addr: at, bytes: int(n), isRemote: true,
		})
		c.finishReference(len(head) + int(n))
		c.noteFPDU(int(n))
		return mem.FaultNone
	}
	if b == nil {
		b, f = q.cfg.Scratch.Gather(q.table, &work.Stretch{
			Serial: x.serial, Who: q.accessor(), IsRemote: true, Key: x.request.SourceSTag,
			VA: x.request.SourceTO, Offset: uint64(x.off), Bytes: uint64(n),
			Total: uint64(x.request.Length),
		})
		if f != mem.FaultNone {
			return f
		}
	}
	c.frameCopy(h, b)
	return mem.FaultNone
}

// refuseRead ends the connection in the middle of a READ's answer: the memory went away.
func (c *Conn) refuseRead(x *response, f mem.Fault) {
	q := c.qp
	q.recv.cause = work.Cause{}
	at, left := x.request.SourceTO+uint64(x.off), uint64(x.request.Length-x.off)
	q.noteRemote(f, x.request.SourceSTag, at, left, rdma.AccessRemoteRead)
	if f == mem.FaultGone {
		c.vanish()
		return
	}
	h := iwarp.Header{Opcode: iwarp.OpcodeReadRequest, Last: true, MSN: x.msn}
	var b [iwarp.HeaderMax]byte
	fault := sourceFault(f)
	c.refuse(fault, &iwarp.Terminate{
		Code: fault.code, HasLength: true, SegmentLen: iwarp.UntaggedLen + iwarp.ReadRequestLen,
		DDP: h.Append(b[:0]), RDMAP: x.content[:],
	}, uint8(h.Opcode))
}
