package ibt

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

// staleWindow is how far back a UC packet counts as a late or doubled one and not as a peer that
// begins anew.
const staleWindow = 1024

// handleUnreliable takes a packet of UC: what is lost or wrong is dropped in silence with the rest
// of its message, and the next message begins anew (IBTA 9.8.2.2).
func (q *QP) handleUnreliable(p *Packet, info *ib.OpcodeInfo) {
	r := &q.recv
	psn := p.Headers.BTH.PSN
	d := psn.Sub(r.expected)
	if d < 0 && d >= -staleWindow {
		q.host.Count(work.CountDuplicateRequest, 1)
		return
	}
	isFirst := info.Position == ib.First || info.Position == ib.Only
	if d != 0 {
		q.host.Count(work.CountOutOfSequence, 1)
	}
	if d != 0 || isFirst {
		r.message = message{} // whatever was in progress is not complete, and its receive is free
	}
	r.expected = psn.Add(1)
	if !isFirst && r.message.kind == kindNone {
		q.host.Count(work.CountDroppedSilently, 1)
		return
	}
	switch v := q.execute(p, info); v {
	case verdictAccept:
	case verdictOperational, verdictTooLong, verdictGone:
		q.settle(p, info, v) // an error of this side
	default:
		r.message = message{}
		q.host.Count(work.CountDroppedSilently, 1)
	}
}

// handleDatagram takes a packet of UD (IBTA 9.8.3). The sender never learns what became of it.
func (q *QP) handleDatagram(p *Packet) {
	r := &q.recv
	h := &p.Headers
	r.cause = work.Cause{}
	if h.DETH.QKey != q.attr.QKey {
		q.host.Count(work.CountBadQKey, 1)
	}
	if h.DETH.QKey != q.attr.QKey || len(p.Payload) > int(q.mtu) || r.isGone {
		q.host.Count(work.CountDroppedSilently, 1)
		return
	}
	switch v := q.takeReceive(); v {
	case verdictAccept:
	case verdictOperational:
		q.refuse(p, v)
		return
	default:
		q.host.Count(work.CountDroppedSilently, 1)
		return
	}
	if GRHBytes+uint64(len(p.Payload)) > r.room {
		// The receive stays for the next datagram: strangers cannot use it up.
		q.host.Count(work.CountResourceMissing, 1)
		return
	}
	if v := q.fillDatagram(p); v != verdictAccept {
		q.settle(p, h.BTH.Opcode.Info(), v)
		return
	}
	q.cqe = abi.CQE{
		ByteLen: GRHBytes + uint32(len(p.Payload)), Opcode: uint32(rdma.WCOpRecv),
		SrcQP: uint32(h.DETH.SrcQPN), WCFlags: uint32(rdma.WCGRH), SL: q.host.ServiceLevel(p),
	}
	if h.BTH.Opcode.HasImm() {
		q.cqe.WCFlags |= uint32(rdma.WCWithImm)
		q.cqe.ImmOrRKey = uint32(h.Imm)
	}
	q.completeReceive(h.BTH.Solicited)
}

// fillDatagram writes the network header and the payload into the receive (IBTA 11.4.1.2).
func (q *QP) fillDatagram(p *Packet) verdict {
	r := &q.recv
	q.host.NetworkHeader(p, &q.grh)
	f := q.table.Scatter(r.target.ReceivePD, r.wr.List, 0, q.grh[:])
	if f == mem.FaultNone {
		f = q.table.Scatter(r.target.ReceivePD, r.wr.List, GRHBytes, p.Payload)
	}
	if f != mem.FaultNone {
		return q.refuseReceive(f, 0)
	}
	return verdictAccept
}
