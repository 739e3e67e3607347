package ibt

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
	"github.com/softrnic/softrnic/internal/wire/tm"
)

// tagging is what a queue pair has whose receives come from a queue that matches tags
// (tag_matching.md of rdma-core). Those are SENDs like any others; what their payload begins with
// decides where they go.
type tagging struct {
	matcher work.Matcher
	arrival arrival
	// reads are the rendezvous whose data are not here; those of the first asked are being fetched,
	// in this order. fins are for those whose data are here. Either leads to requests of the queue
	// pair's own.
	reads work.Deque[rendezvous]
	asked int
	fins  work.Deque[[finBytes]byte]
}

// arrival is the message whose packets are arriving.
type arrival struct {
	buffer *work.Tagged // nil where an ordinary receive takes it
	header tm.Header
	op     rdma.WCOpcode
	flags  rdma.WCFlags // of the completion
	isTold bool         // that the buffer was found
}

// newTagging returns nil for a queue pair without tag matching.
func newTagging(m work.Matcher) *tagging {
	if m == nil {
		return nil
	}
	return &tagging{matcher: m}
}

// executeTagged puts a packet of a SEND where its tag says.
func (q *QP) executeTagged(p *Packet, info *ib.OpcodeInfo) verdict {
	r := &q.recv
	t := q.tagging
	isFirst := info.Position == ib.First || info.Position == ib.Only
	isLast := info.Position == ib.Last || info.Position == ib.Only
	payload := p.Payload
	if isFirst {
		if v := q.classify(p, info); v != verdictAccept {
			return v
		}
		if t.arrival.buffer != nil {
			if t.arrival.header.Opcode == tm.OpRendezvous {
				return q.executeRendezvous(p, info)
			}
			payload = payload[tm.HeaderLen:]
		}
		r.message = message{kind: kindSend}
	}
	if v := q.fillReceive(payload, r.message.done); v != verdictAccept {
		return v
	}
	r.message.done += uint64(len(payload))
	switch {
	case isLast:
		return q.finishTagged(p, info)
	case isFirst && t.arrival.buffer != nil:
		q.cqe = abi.CQE{}
		q.tellMatch(false)
	}
	return verdictAccept
}

// classify finds a place for a message that begins. A message whose header is cut off has no tag.
// One with a tag that the NIC cannot handle is unexpected, so that it keeps its place in the order
// of messages: the program will handle it.
func (q *QP) classify(p *Packet, info *ib.OpcodeInfo) verdict {
	a := &q.tagging.arrival
	*a = arrival{op: rdma.WCOpTagNone}
	h, err := tm.ParseHeader(p.Payload)
	if err != nil || !h.HasTag() {
		return q.takeReceive()
	}
	a.op = rdma.WCOpTagRecv
	if h.Opcode == tm.OpEager || isRendezvous(p, info) {
		if b := q.tagging.matcher.Match(h.Tag); b != nil {
			a.buffer, a.header = b, h
			q.useBuffer(b)
			return verdictAccept
		}
	}
	if v := q.takeReceive(); v != verdictAccept {
		return v
	}
	a.flags = q.tagging.matcher.NoteUnexpected()
	return verdictAccept
}

// isRendezvous reports a message that is a rendezvous request as far as its size goes.
func isRendezvous(p *Packet, info *ib.OpcodeInfo) bool {
	return info.Position == ib.Only && len(p.Payload) >= finBytes &&
		len(p.Payload) <= limits.MaxRendezvousHeader
}

// useBuffer makes a tagged buffer the receive in use.
func (q *QP) useBuffer(b *work.Tagged) {
	r := &q.recv
	r.wr.WRID, r.wr.List = b.WRID, b.List
	r.hasWR = true
	r.room = mem.ListBytes(b.List)
	q.stats.RecvTaken++
}

// tellMatch completes the first half of a message, of which q.cqe may know more: it has found its
// buffer, and the order of matches is settled. Data follow.
func (q *QP) tellMatch(isSolicited bool) {
	a := &q.tagging.arrival
	q.cqe.WRID, q.cqe.Opcode = a.buffer.WRID, uint32(rdma.WCOpTagRecv)
	q.cqe.WCFlags |= uint32(rdma.WCTagMatch)
	q.cqe.QPNum, q.cqe.PKeyIndex, q.cqe.SL = uint32(q.cfg.QPN), q.attr.PKeyIndex, q.attr.AV.SL
	q.cqe.SetTag(a.header.Tag, a.header.Context)
	a.isTold = true
	q.recv.target.RecvCQ.Push(&q.cqe, isSolicited)
}

// takeExtras does what a SEND asks for beside its data.
func (q *QP) takeExtras(p *Packet, info *ib.OpcodeInfo) verdict {
	if info.Headers.Has(ib.HasImmDt) {
		q.cqe.WCFlags |= uint32(rdma.WCWithImm)
		q.cqe.ImmOrRKey = uint32(p.Headers.Imm)
	}
	return q.invalidateFor(p, info)
}

// finishTagged completes a message whose last packet is in its place.
func (q *QP) finishTagged(p *Packet, info *ib.OpcodeInfo) verdict {
	r := &q.recv
	a := &q.tagging.arrival
	q.cqe = abi.CQE{
		ByteLen: uint32(r.message.done), Opcode: uint32(a.op), WCFlags: uint32(a.flags),
		SrcQP: uint32(q.attr.DestQPN), SL: q.attr.AV.SL,
	}
	if v := q.takeExtras(p, info); v != verdictAccept {
		return v
	}
	r.message = message{}
	if a.buffer != nil {
		q.cqe.WCFlags |= uint32(rdma.WCTagDataValid)
		if !a.isTold {
			q.cqe.WCFlags |= uint32(rdma.WCTagMatch)
			q.cqe.SetTag(a.header.Tag, a.header.Context)
		}
		q.forgetBuffer()
	}
	q.completeReceive(p.Headers.BTH.Solicited)
	return verdictAccept
}

// forgetBuffer gives the buffer of the message that is arriving back to its list and reports
// whether there was one.
func (q *QP) forgetBuffer() bool {
	a := &q.tagging.arrival
	if a.buffer == nil {
		return false
	}
	q.tagging.matcher.Release(a.buffer)
	a.buffer = nil
	return true
}
