package iwarp

import (
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

// rtrSTag is the STag in an RTR message. It opens nothing: what has no bytes needs no key; yet some
// adapters refuse 0.
const rtrSTag rdma.Key = 1

// sendRTR frames the message that lets the responder send (RFC 6581 9.2).
func (c *Conn) sendRTR() {
	q := c.qp
	switch c.mpa.rtr {
	case RTRWrite:
		c.frameSmall(&iwarp.Header{Opcode: iwarp.OpcodeWrite, Last: true, STag: rtrSTag}, nil)
	case RTRRead:
		x := iwarp.ReadRequest{SinkSTag: rtrSTag, SourceSTag: rtrSTag}
		h := iwarp.Header{Opcode: iwarp.OpcodeReadRequest, Last: true, MSN: q.send.requestMSN}
		q.send.requestMSN++
		q.send.hasRTRRead = true
		var b [iwarp.ReadRequestLen]byte
		c.frameSmall(&h, x.Append(b[:0]))
	case RTRSend:
		h := iwarp.Header{Opcode: iwarp.OpcodeSend, Last: true, MSN: q.send.sendMSN}
		q.send.sendMSN++
		c.frameSmall(&h, nil)
	default:
		// None was agreed on.
	}
}

// beginTalking ends the silence of an initiator that has its reply.
func (c *Conn) beginTalking() {
	if !c.isShy {
		return
	}
	c.isShy, c.deadline = false, clock.Never
	c.sendRTR()
	c.beginNudging(c.now)
}

// hearInitiator notes that the initiator has sent something, so that it takes messages, too. isRTR
// is for a Send that is nothing but that: it takes no receive.
func (c *Conn) hearInitiator(h *iwarp.Header, payload int) (isRTR bool) {
	switch {
	case c.phase == phaseRTR:
		isRTR = c.mpa.rtr == RTRSend && h.Opcode.Info().Kind == iwarp.KindSend && payload == 0
		c.speak()
		return isRTR
	case c.isHeld:
		c.speak()
	}
	return false
}

// holdOn keeps a responder silent for longer while its reply is on the way: a reply that was lost
// comes again together with what is sent by then. Once it is there, the peer has as long to read.
func (c *Conn) holdOn() bool {
	isTaken := c.cfg.IsTaken == nil || c.cfg.IsTaken()
	if !c.isHeld || isTaken && !c.isLate {
		return false
	}
	c.isLate = !isTaken
	c.deadline = c.now.Add(limits.MPAHoldTime)
	c.beginNudging(c.deadline)
	return true
}

// speak lets a responder send.
func (c *Conn) speak() {
	c.phase, c.isHeld = phaseOpen, false
	c.deadline = never
	if c.tx.sent >= c.tx.origin {
		c.establish()
	}
}
