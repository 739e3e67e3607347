package ibt

import (
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/invariant"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

// hasReply reports that pollReply has something to send.
func (q *QP) hasReply() bool {
	r := &q.recv
	if r.active > 0 {
		return r.window.isAskDue || !r.window.isFull()
	}
	return r.isAckDue || r.nak.isDue
}

// pollReply makes the next reply packet. Replies leave in the order of their requests
// (IBTA 9.7.5.1.1), so an acknowledge or NAK waits for the READ data before it.
func (q *QP) pollReply(p *Packet) bool {
	r := &q.recv
	if r.window.isAskDue {
		q.askPeer(p)
		return true
	}
	for r.active > 0 {
		if r.window.isFull() {
			return false
		}
		x := q.nextResource()
		switch x.kind {
		case kindAtomic:
			q.sendAtomicAnswer(p, x)
			return true
		case kindPlace:
			q.sendPlacementAnswer(p, x)
			return true
		default:
			// A READ, which takes several packets.
		}
		if q.sendReadData(p, x) {
			return true
		}
	}
	switch {
	case r.nak.isDue:
		q.sendNak(p)
	case r.isAckDue:
		r.isAckDue = false
		q.startReply(p, ib.RCAcknowledge, r.ackPSN)
		p.Headers.AETH = q.ackHeader()
	default:
		return false
	}
	return true
}

// nextResource returns the oldest that has a reply in progress. Preconditions: active > 0.
func (q *QP) nextResource() *resource {
	r := &q.recv
	for ; r.firstActive < r.resources.Len(); r.firstActive++ {
		if x := r.resources.At(r.firstActive); x.isActive {
			return x
		}
	}
	invariant.Assert(false, "an active responder resource is not in the list")
	return nil
}

// startReply fills what all reply packets share.
func (q *QP) startReply(p *Packet, op ib.Opcode, psn rdma.PSN) {
	p.Address = q.attr.AV
	p.Payload = nil
	p.Headers.BTH = ib.BTH{
		Opcode: q.base | op, PSN: psn, DestQPN: q.attr.DestQPN, PKey: q.attr.PKey, MigReq: true,
	}
}

// ackHeader acknowledges with as many credits as there are receives (IBTA 9.7.7.2.4); shared
// receives belong to no QP.
func (q *QP) ackHeader() ib.AETH {
	credits := ib.CreditsInvalid
	if s, ok := q.cfg.RQ.(work.CreditSource); ok && !q.cfg.RQ.IsShared() {
		credits = ib.CreditsFor(int(s.Available()))
	}
	return ib.AETH{MSN: q.recv.msn, Syndrome: ib.ACK(credits)}
}

// sendNak sends the pending NAK; one that refuses a request for good ends the QP.
func (q *QP) sendNak(p *Packet) {
	r := &q.recv
	r.nak.isDue, r.isAckDue = false, false
	q.startReply(p, ib.RCAcknowledge, r.nak.psn)
	p.Headers.AETH = ib.AETH{MSN: r.msn, Syndrome: r.nak.syndrome}
	if r.nak.syndrome.Kind() == ib.SyndromeRNRNAK {
		q.host.Count(work.CountSentRNR, 1)
	} else {
		q.host.Count(work.CountSentNak, 1)
	}
	if r.isFailing {
		r.isFailing = false
		q.enterError()
	}
}

// sendAtomicAnswer sends the value that an atomic found (IBTA 9.4.5).
func (q *QP) sendAtomicAnswer(p *Packet, x *resource) {
	q.startReply(p, ib.RCAtomicAcknowledge, x.first)
	p.Headers.AETH = q.ackHeader()
	p.Headers.AtomicAck = ib.AtomicAckETH(x.value)
	q.finishReply(x)
}

// sendReadData sends the next packet of READ data, or reports false when the memory has become
// unreachable since the request was accepted.
func (q *QP) sendReadData(p *Packet, x *resource) bool {
	if q.sendReadRun(p, x) {
		return true
	}
	n := min(q.mtu, x.left)
	payload, f := q.readPayload(x, n)
	if f != mem.FaultNone {
		q.abandonRead(x, f)
		return false
	}
	isFirst, isLast := !x.isBegun, x.left == n
	op := ib.RCReadResponseMiddle
	switch {
	case isFirst && isLast:
		op = ib.RCReadResponseOnly
	case isFirst:
		op = ib.RCReadResponseFirst
	case isLast:
		op = ib.RCReadResponseLast
	}
	q.startReply(p, op, x.psn)
	if isFirst || isLast {
		p.Headers.AETH = q.ackHeader()
	}
	p.Payload = payload
	p.Headers.BTH.PadCount = ib.PadCount(int(n))
	x.isBegun = true
	x.psn = x.psn.Add(1)
	x.va += uint64(n)
	x.left -= n
	q.countReply(p.Headers.BTH.PSN)
	if isLast {
		q.finishReply(x)
	}
	return true
}

// sendReadRun sends as many packets from the middle of a READ as may go as one, or reports false
// where that is no more than one. A peer that is sent data by a window gets them one by one.
func (q *QP) sendReadRun(p *Packet, x *resource) bool {
	if p.RunMax < 2 || !x.isBegun || x.left <= 2*q.mtu || q.recv.window.isOn ||
		q.attr.Segment != 0 {
		return false
	}
	n := min(p.RunMax, (x.left-1)/q.mtu)
	b, f := q.table.ViewRemote(x.reth.RKey, x.who, x.va, uint64(n)*uint64(q.mtu))
	if b == nil || f != mem.FaultNone {
		return false
	}
	q.startReply(p, ib.RCReadResponseMiddle, x.psn)
	p.Payload, p.More = b, n-1
	for i := range n {
		q.countReply(x.psn.Add(i))
	}
	x.psn = x.psn.Add(n)
	x.va += uint64(n) * uint64(q.mtu)
	x.left -= n * q.mtu
	return true
}

func (q *QP) readPayload(x *resource, n uint32) ([]byte, mem.Fault) {
	if n == 0 {
		return nil, mem.FaultNone
	}
	key := x.reth.RKey
	b, f := q.table.ViewRemote(key, x.who, x.va, uint64(n))
	if b != nil || f != mem.FaultNone {
		return b, f
	}
	return q.cfg.Scratch.Gather(q.table, &work.Stretch{
		Serial: x.serial, Who: x.who, IsRemote: true, Key: key, VA: x.reth.VA,
		Offset: x.va - x.reth.VA, Bytes: uint64(n), Total: uint64(x.reth.Length),
	})
}

// finishReply takes a resource's reply off the books. What it answers needs no acknowledge.
func (q *QP) finishReply(x *resource) {
	r := &q.recv
	x.isServed = true
	q.deactivate(x)
	if r.isAckDue && r.ackPSN.Less(x.first) {
		r.isAckDue = false
	}
}

// abandonRead refuses a READ in the middle of its data: the region went away. One that was answered
// before is a late copy in the network, or the peer has lost the data; it may have revoked the key
// since, so it is not held against it (IBTA 9.7.4.1.1: a duplicate that cannot be executed again).
func (q *QP) abandonRead(x *resource, f mem.Fault) {
	r := &q.recv
	if x.isServed {
		q.deactivate(x)
		q.host.Count(work.CountDroppedSilently, 1)
		return
	}
	r.cause = work.Cause{
		IsResponder: true, PSN: x.psn, Opcode: uint8(q.base | ib.RCReadRequest),
		Asked: rdma.AccessRemoteRead,
	}
	v := q.refuseRemote(f, x.reth.RKey, x.va, uint64(x.left))
	if v == verdictGone {
		q.host.Note(q, r.cause)
		q.vanish()
		return
	}
	code, event := ib.NAKRemoteAccess, rdma.EventQPAccessErr
	if v == verdictOperational {
		code, event = ib.NAKRemoteOp, rdma.EventQPFatal
	}
	r.cause.Syndrome = uint8(ib.NAK(code))
	q.host.Note(q, r.cause)
	psn := x.psn
	r.stop()
	r.isFailing = true
	r.nak = pendingNak{isDue: true, syndrome: ib.NAK(code), psn: psn}
	if !r.hasWR {
		q.host.Raise(q, event)
	}
}
