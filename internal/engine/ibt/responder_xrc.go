package ibt

import (
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

// peer is the other end as the protection table knows users of remote keys: this QP, in the
// protection domain that its requests are judged in.
func (q *QP) peer() mem.Accessor { return mem.Accessor{PD: q.recv.target.PD, QP: q.cfg.QPN} }

// findTarget takes up the shared receive queue that an XRC request names. All packets of a message
// name the same (IBTA A14.4.2).
func (q *QP) findTarget(p *Packet, info *ib.OpcodeInfo) bool {
	r := &q.recv
	t := q.cfg.Domain.Target(uint32(p.Headers.XRC))
	isBegin := info.Position == ib.First || info.Position == ib.Only
	switch {
	case t == nil:
		return false
	case !isBegin || r.hasWR:
		// A receive that an earlier packet took came from there.
		return t.RQ == r.target.RQ
	}
	r.target = *t
	return true
}

// DropTarget forgets a shared receive queue that is going away, and the message that was filling a
// receive of it: the rest of that message finds no beginning.
func (q *QP) DropTarget(rq work.ReceiveQueue) {
	r := &q.recv
	if !q.isXRCRecv() || r.target.RQ != rq {
		return
	}
	r.hasWR, r.message = false, message{}
	r.target = Target{}
}
