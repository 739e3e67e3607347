package ibt

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

// execute checks and carries out the request packet that is next in sequence (IBTA 9.7.4.1).
func (q *QP) execute(p *Packet, info *ib.OpcodeInfo) verdict {
	q.recv.cause = work.Cause{}
	if !q.isInOrder(info) || !info.Payload.Allows(len(p.Payload), int(q.mtu)) {
		q.recv.cause.Vendor = abi.VendorLength
		if !q.isInOrder(info) {
			q.recv.cause.Vendor = abi.VendorOpcode
		}
		return verdictInvalid
	}
	if q.isXRCRecv() && !q.findTarget(p, info) {
		q.recv.cause.Vendor = abi.VendorSharedQueue
		return verdictInvalid
	}
	switch info.Operation {
	case ib.OperationSend:
		return q.executeSend(p, info)
	case ib.OperationWrite:
		return q.executeWrite(p, info)
	case ib.OperationReadRequest:
		return q.executeRead(p)
	case ib.OperationCompareSwap, ib.OperationFetchAdd:
		return q.executeAtomic(p, info)
	case ib.OperationAtomicWrite:
		return q.executeAtomicWrite(p)
	case ib.OperationFlush:
		return q.executeFlush(p)
	default:
		q.recv.cause.Vendor = abi.VendorOpcode
		return verdictInvalid
	}
}

// isInOrder checks the sequence of opcodes (IBTA 9.7.4.1.2): a message goes on or begins.
func (q *QP) isInOrder(info *ib.OpcodeInfo) bool {
	inside := q.recv.message.kind
	if info.Position == ib.Middle || info.Position == ib.Last {
		return inside == kindSend && info.Operation == ib.OperationSend ||
			inside == kindWrite && info.Operation == ib.OperationWrite
	}
	return inside == kindNone
}

// executeSend puts a packet of a SEND into the receive (IBTA 9.4.1).
func (q *QP) executeSend(p *Packet, info *ib.OpcodeInfo) verdict {
	if q.tagging != nil {
		return q.executeTagged(p, info)
	}
	r := &q.recv
	isFirst := info.Position == ib.First || info.Position == ib.Only
	isLast := info.Position == ib.Last || info.Position == ib.Only
	if isFirst {
		if v := q.takeReceive(); v != verdictAccept {
			return v
		}
		r.message = message{kind: kindSend}
	}
	if v := q.fillReceive(p.Payload, r.message.done); v != verdictAccept {
		return v
	}
	r.message.done += uint64(len(p.Payload))
	if !isLast {
		return verdictAccept
	}
	q.cqe = abi.CQE{ByteLen: uint32(r.message.done), Opcode: uint32(rdma.WCOpRecv)}
	if v := q.invalidateFor(p, info); v != verdictAccept {
		return v
	}
	r.message = message{}
	q.finishReceive(p, info)
	return verdictAccept
}

// finishReceive completes the receive of a connected message; the CQE has opcode and length.
func (q *QP) finishReceive(p *Packet, info *ib.OpcodeInfo) {
	if info.Headers.Has(ib.HasImmDt) {
		q.cqe.WCFlags |= uint32(rdma.WCWithImm)
		q.cqe.ImmOrRKey = uint32(p.Headers.Imm)
	}
	q.cqe.SrcQP = uint32(q.attr.DestQPN)
	q.cqe.SL = q.attr.AV.SL
	q.completeReceive(p.Headers.BTH.Solicited)
}

// fillReceive writes bytes of a message at offset off of the receive in use.
func (q *QP) fillReceive(b []byte, off uint64) verdict {
	r := &q.recv
	if off+uint64(len(b)) > r.room {
		r.cause.Vendor, r.cause.Length = abi.VendorLength, off+uint64(len(b))
		return verdictTooLong
	}
	f := q.table.Scatter(r.target.ReceivePD, r.wr.List, off, b)
	if f != mem.FaultNone {
		return q.refuseReceive(f, off)
	}
	return verdictAccept
}

// refuseReceive notes why the receive in use cannot be written from off on.
func (q *QP) refuseReceive(f mem.Fault, off uint64) verdict {
	r := &q.recv
	r.cause.Vendor, r.cause.Fault = work.VendorOf(f), f
	q.noteEntryAt(off)
	if f == mem.FaultGone {
		return verdictGone
	}
	return verdictOperational
}

// noteEntryAt puts the first entry of the receive at or after off that is refused into the
// evidence.
func (q *QP) noteEntryAt(off uint64) {
	r := &q.recv
	for i := range r.wr.List {
		s := &r.wr.List[i]
		if off >= uint64(s.Length) {
			off -= uint64(s.Length)
			continue
		}
		off = 0
		_, f := q.table.Check(rdma.Key(s.LKey), r.target.ReceivePD, s.Addr,
			uint64(s.Length), rdma.AccessLocalWrite)
		isUnreachable := r.cause.Fault == mem.FaultMemory || r.cause.Fault == mem.FaultGone
		if f != mem.FaultNone || isUnreachable {
			r.cause.Key, r.cause.Addr, r.cause.Length = rdma.Key(s.LKey), s.Addr, uint64(s.Length)
			return
		}
	}
}

// invalidateFor revokes the key that a SEND with invalidate names, and says so in the completion
// (IBTA 9.4.1.1).
func (q *QP) invalidateFor(p *Packet, info *ib.OpcodeInfo) verdict {
	if !info.Headers.Has(ib.HasIETH) {
		return verdictAccept
	}
	key := rdma.Key(p.Headers.Inv)
	f := q.table.Invalidate(q.peer(), key)
	if f == mem.FaultNone {
		q.cqe.WCFlags |= uint32(rdma.WCWithInv)
		q.cqe.ImmOrRKey = uint32(p.Headers.Inv)
		return verdictAccept
	}
	c := &q.recv.cause
	c.Vendor, c.Fault, c.Key = abi.VendorRemoteRights, f, key
	return verdictAccess
}

// executeWrite puts a packet of an RDMA WRITE into memory (IBTA 9.4.3).
func (q *QP) executeWrite(p *Packet, info *ib.OpcodeInfo) verdict {
	r := &q.recv
	isFirst := info.Position == ib.First || info.Position == ib.Only
	isLast := info.Position == ib.Last || info.Position == ib.Only
	if isFirst {
		if v := q.checkRemote(&p.Headers.RETH, rdma.AccessRemoteWrite); v != verdictAccept {
			return v
		}
	}
	m := r.message
	if isFirst {
		m = message{kind: kindWrite, reth: p.Headers.RETH}
	}
	after := m.done + uint64(len(p.Payload))
	total := uint64(m.reth.Length)
	if isLast && after != total || !isLast && after >= total {
		r.cause.Vendor, r.cause.Length = abi.VendorLength, after
		return verdictInvalid
	}
	if info.Headers.Has(ib.HasImmDt) {
		if v := q.takeReceive(); v != verdictAccept {
			return v
		}
	}
	if len(p.Payload) > 0 {
		va := m.reth.VA + m.done
		f := q.table.WriteRemote(m.reth.RKey, q.peer(), va, p.Payload)
		if f != mem.FaultNone {
			return q.refuseRemote(f, m.reth.RKey, va, uint64(len(p.Payload)))
		}
	}
	m.done = after
	r.message = m
	if !isLast {
		return verdictAccept
	}
	r.message = message{}
	if info.Headers.Has(ib.HasImmDt) {
		q.cqe = abi.CQE{ByteLen: m.reth.Length, Opcode: uint32(rdma.WCOpRecvWriteImm)}
		q.finishReceive(p, info)
	}
	return verdictAccept
}

// checkRemote judges what a request says about this side's memory (IBTA 9.7.4.1.5). An access of
// no bytes needs no key.
func (q *QP) checkRemote(h *ib.RETH, want rdma.Access) verdict {
	c := &q.recv.cause
	if h.Length > limits.MaxMessageBytes {
		c.Vendor, c.Length = abi.VendorLength, uint64(h.Length)
		return verdictInvalid
	}
	if !q.attr.Access.Has(want) {
		// Not an access error: the queue pair does not have the operation (IBTA 9.9.3, 11.6.2).
		_ = q.refuseRemote(mem.FaultRights, h.RKey, h.VA, uint64(h.Length))
		return verdictInvalid
	}
	if h.Length == 0 {
		return verdictAccept
	}
	_, _, f := q.table.CheckRemote(h.RKey, q.peer(), h.VA, uint64(h.Length), want)
	if f != mem.FaultNone {
		return q.refuseRemote(f, h.RKey, h.VA, uint64(h.Length))
	}
	return verdictAccept
}

// refuseRemote notes why a remote access is refused. Memory that its process has unmapped is this
// side's trouble, not the peer's.
func (q *QP) refuseRemote(f mem.Fault, key rdma.Key, addr, n uint64) verdict {
	c := &q.recv.cause
	c.Vendor, c.Fault, c.Key, c.Addr, c.Length = abi.VendorRemoteRights, f, key, addr, n
	switch f {
	case mem.FaultMemory:
		c.Vendor = abi.VendorLocalFault
		return verdictOperational
	case mem.FaultGone:
		c.Vendor = abi.VendorLocalFault
		return verdictGone
	default:
		// The peer is at fault.
	}
	return verdictAccess
}
