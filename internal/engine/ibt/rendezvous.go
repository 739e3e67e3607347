package ibt

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
	"github.com/softrnic/softrnic/internal/wire/tm"
)

// finBytes is the length of a FIN, and of the headers of the request that it answers.
const finBytes = tm.HeaderLen + tm.RendezvousLen

// rendezvous is a request that was matched and whose data are not here yet.
type rendezvous struct {
	buffer      *work.Tagged
	header      [finBytes]byte
	rvh         tm.Rendezvous
	isSolicited bool
}

// owner says whose a send work request is.
type owner uint8

const (
	ownerProgram owner = iota
	ownerRead          // the queue pair itself: it fetches the data of a rendezvous
	ownerFin           // the queue pair itself: it tells the peer that they are here
)

// executeRendezvous takes a request that has found its buffer. Its data are fetched by a READ of
// this queue pair, or by the program where the buffer is too short for them; then it gets what
// came, since the match stands.
func (q *QP) executeRendezvous(p *Packet, info *ib.OpcodeInfo) verdict {
	r := &q.recv
	a := &q.tagging.arrival
	rvh, _ := tm.ParseRendezvous(p.Payload[tm.HeaderLen:]) // isRendezvous has seen its length
	q.cqe = abi.CQE{Opcode: uint32(a.op)}
	if v := q.takeExtras(p, info); v != verdictAccept {
		return v
	}
	if uint64(rvh.Length) > r.room || rvh.Length > limits.MaxMessageBytes {
		return q.leaveRendezvous(p)
	}
	x := q.tagging.reads.Push()
	*x = rendezvous{
		buffer: a.buffer, header: [finBytes]byte(p.Payload), rvh: rvh,
		isSolicited: p.Headers.BTH.Solicited,
	}
	r.hasWR = false
	q.tellMatch(p.Headers.BTH.Solicited)
	a.buffer = nil
	return verdictAccept
}

// leaveRendezvous gives a request to the program, in the buffer that it has found.
func (q *QP) leaveRendezvous(p *Packet) verdict {
	r := &q.recv
	a := &q.tagging.arrival
	n := min(uint64(len(p.Payload)), max(r.room, finBytes))
	if v := q.fillReceive(p.Payload[:n], 0); v != verdictAccept {
		return v
	}
	q.cqe.Status, q.cqe.ByteLen = uint32(rdma.WCTagIncomplete), uint32(n)
	q.cqe.WCFlags |= uint32(rdma.WCTagMatch | rdma.WCTagDataValid)
	q.cqe.SL = q.attr.AV.SL
	q.cqe.SetTag(a.header.Tag, a.header.Context)
	q.forgetBuffer()
	q.completeReceive(p.Headers.BTH.Solicited)
	return verdictAccept
}

// hasOwnRequest reports that fetchOwn has something.
func (q *QP) hasOwnRequest() bool {
	t := q.tagging
	return t != nil && (t.reads.Len() > t.asked || t.fins.Len() > 0)
}

// fetchOwn makes the next request of the queue pair's own. Who waits for a FIN goes first.
func (q *QP) fetchOwn() *sendWR {
	t := q.tagging
	switch {
	case t.fins.Len() > 0:
		w := q.pushWR(ownerFin)
		w.WQE = abi.SendWQE{
			Opcode: uint8(rdma.WRSend), Flags: uint8(rdma.SendInline), InlineLen: finBytes,
		}
		w.Inline = append(w.Inline[:0], t.fins.At(0)[:]...)
		w.Length = finBytes
		t.fins.Pop()
		return q.admit(w)
	case t.reads.Len() > t.asked:
		w := q.pushWR(ownerRead)
		q.aimRead(w, t.reads.At(t.asked))
		t.asked++
		return q.admit(w)
	}
	return nil
}

// aimRead makes w fetch the data of a rendezvous, which may be shorter than the buffer.
func (q *QP) aimRead(w *sendWR, x *rendezvous) {
	w.WQE = abi.SendWQE{
		WRID: x.buffer.WRID, Opcode: uint8(rdma.WRRead), RemoteAddr: x.rvh.VA,
		RKey: uint32(x.rvh.RKey),
	}
	// The list has room for all, as was seen when it was matched.
	w.SetList(x.buffer.List, x.rvh.Length)
}

// completeOwn takes a request of the queue pair's own that is off the books. The end of a READ is
// that of its message, for which the peer gets a FIN: the headers of its request, with another
// opcode. That of a FIN is nobody's business, but a failure is more than that of a connection that
// its program uses.
func (q *QP) completeOwn(o owner, s rdma.WCStatus, v abi.Vendor) {
	t := q.tagging
	if o == ownerFin {
		if s != rdma.WCSuccess && s != rdma.WCWRFlushErr {
			q.host.Raise(q, rdma.EventQPFatal)
		}
		return
	}
	if s == rdma.WCSuccess {
		fin := t.fins.Push()
		*fin = t.reads.At(0).header
		fin[0] = byte(tm.OpFin)
		q.host.Count(work.CountRDMARecvs, 1)
	}
	t.asked--
	q.endRendezvous(s, v)
}

// endRendezvous completes the second half of the oldest one.
func (q *QP) endRendezvous(s rdma.WCStatus, v abi.Vendor) {
	x := q.tagging.reads.At(0)
	q.tagging.reads.Pop()
	q.cqe = abi.CQE{
		WRID: x.buffer.WRID, Status: uint32(s), Opcode: uint32(rdma.WCOpTagRecv),
		VendorErr: uint32(v), QPNum: uint32(q.cfg.QPN), Timestamp: uint64(q.now),
		PKeyIndex: q.attr.PKeyIndex, SL: q.attr.AV.SL,
	}
	if s == rdma.WCSuccess {
		q.cqe.ByteLen = x.rvh.Length
		q.cqe.WCFlags = uint32(rdma.WCTagDataValid)
	}
	q.stats.RecvCompleted++
	q.tagging.matcher.Release(x.buffer)
	q.recv.target.RecvCQ.Push(&q.cqe, x.isSolicited || s != rdma.WCSuccess)
}

// flushTagged completes the rendezvous whose data were not asked for yet, and reports whether those
// were all. Nobody is told any more that data are here.
func (q *QP) flushTagged(budget *int) bool {
	t := q.tagging
	if t == nil {
		return true
	}
	t.fins.Cut(0)
	for t.reads.Len() > 0 {
		if *budget == 0 {
			return false
		}
		*budget--
		q.host.Count(work.CountFlushed, 1)
		q.endRendezvous(rdma.WCWRFlushErr, abi.VendorFlushed)
	}
	return true
}

// releaseTagged gives all buffers back without completions.
func (q *QP) releaseTagged() {
	t := q.tagging
	if t == nil {
		return
	}
	q.forgetBuffer()
	for ; t.reads.Len() > 0; t.reads.Pop() {
		t.matcher.Release(t.reads.At(0).buffer)
	}
	*t = tagging{matcher: t.matcher}
}
