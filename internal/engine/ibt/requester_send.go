package ibt

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

// sendPacket makes the packet for psn, which belongs to w, and moves on. It reports false when w
// failed instead.
func (q *QP) sendPacket(p *Packet, w *sendWR) bool {
	r := &q.send
	n := uint32(1)
	switch w.op.kind {
	case kindRead:
		n = q.readPackets(w)
		q.sendReadRequest(p, w, n)
	case kindAtomic:
		q.sendAtomicRequest(p, w)
	case kindPlace:
		if !q.sendPlacement(p, w) {
			return false
		}
	default:
		k := w.index(r.psn)
		if n = q.sendRun(p, w, k); n > 0 {
			break
		}
		n = 1
		if !q.sendSegment(p, w, k) {
			return false
		}
	}
	if q.isReliable() {
		q.noteRequest(p, w, n)
		return true
	}
	r.psn = r.psn.Add(1)
	r.una, r.high = r.psn, r.psn
	if r.psn == w.end() {
		r.cur++
		r.sent++
	}
	return true
}

// noteRequest keeps the books of a reliable packet that takes n PSNs: window, timers, requests for
// acknowledges.
func (q *QP) noteRequest(p *Packet, w *sendWR, n uint32) {
	r := &q.send
	if r.isFresh() {
		if w.op.isAnswered() {
			*r.reads.Push() = readRange{first: r.psn, packets: n}
		}
	} else {
		q.stats.Retransmitted += 1 + uint64(p.More)
	}
	last := r.psn.Add(n)
	r.sinceAck += 1 + p.More
	isFull := distance(r.una, last) >= r.window.size
	if last == w.end() || isFull || r.sinceAck >= r.window.size/2 || r.isLimited(w) ||
		r.retry.rnrTries > 0 {
		p.Headers.BTH.AckReq = true
		r.sinceAck = 0
	}
	if r.isFresh() {
		r.high = last
		if p.Headers.BTH.AckReq {
			r.window.time(r.psn, q.now)
		}
	}
	r.psn = last
	if r.psn == w.end() {
		r.cur++
	}
	q.startTimers()
}

// startRequest fills what all request packets share (IBTA 9.2).
func (q *QP) startRequest(p *Packet, w *sendWR, op ib.Opcode, psn rdma.PSN) {
	p.Headers.XRC = ib.XRCETH(w.WQE.Extra)
	p.Address = q.attr.AV
	p.Payload = nil
	p.Headers.BTH = ib.BTH{
		Opcode: q.base | op, PSN: psn, DestQPN: q.attr.DestQPN, PKey: q.attr.PKey, MigReq: true,
	}
}

// sendSegment makes packet k of a SEND or WRITE (IBTA 9.4.1, 9.4.3).
func (q *QP) sendSegment(p *Packet, w *sendWR, k uint32) bool {
	off := k * q.mtu
	n := min(q.mtu, w.Length-off)
	payload, f := q.payload(w, off, n)
	if f != mem.FaultNone {
		w.SetFault(f)
		return false
	}
	isFirst, isLast := k == 0, k+1 == w.packets
	q.startRequest(p, w, w.op.at(isFirst, isLast), w.first.Add(k))
	p.Payload = payload
	p.Headers.BTH.PadCount = ib.PadCount(int(n))
	if isFirst && w.op.kind == kindWrite {
		p.Headers.RETH = ib.RETH{
			VA: w.WQE.RemoteAddr, RKey: rdma.Key(w.WQE.RKey), Length: w.Length,
		}
	}
	if isLast {
		p.Headers.BTH.Solicited = w.Has(rdma.SendSolicited) && w.op.takesReceive
		p.Headers.Imm = ib.ImmDt(w.WQE.ImmOrRKey)
		p.Headers.Inv = ib.IETH(w.WQE.ImmOrRKey)
	}
	return !q.isUD() || q.addressDatagram(p, w)
}

// sendRun makes as many packets as may go as one, from k on, and returns how many; 0 where there is
// no more than one. They are from the middle of a message that lies in one piece of memory; none of
// them asks for an acknowledge.
func (q *QP) sendRun(p *Packet, w *sendWR, k uint32) uint32 {
	n := q.runLength(p, w, k)
	if n < 2 {
		return 0
	}
	mtu := uint64(q.mtu)
	b, f := q.table.ViewList(q.cfg.PD, w.List(), uint64(k)*mtu, uint64(n)*mtu)
	if b == nil || f != mem.FaultNone {
		return 0
	}
	q.startRequest(p, w, w.op.middle, q.send.psn)
	p.Payload, p.More = b, n-1
	return n
}

// runLength returns how many packets from k on are alike.
func (q *QP) runLength(p *Packet, w *sendWR, k uint32) uint32 {
	r := &q.send
	if p.RunMax < 2 || k == 0 || k+1 >= w.packets || !q.isReliable() || q.attr.Segment != 0 ||
		w.Has(rdma.SendInline) || r.retry.rnrTries > 0 || r.retry.heldTill != 0 || r.isLimited(w) {
		return 1
	}
	n := min(p.RunMax, w.packets-1-k)
	if !r.isFresh() {
		n = min(n, distance(r.psn, r.high))
	}
	// The packets that fill the window, or half of it, ask for an acknowledge.
	half := r.window.size / 2
	return min(n, half-min(half, r.sinceAck+1), r.window.size-min(r.window.size, r.inFlight()+1))
}

// at returns the opcode for a place in the message.
func (o *operation) at(isFirst, isLast bool) ib.Opcode {
	switch {
	case isFirst && isLast:
		return o.only
	case isFirst:
		return o.first
	case isLast:
		return o.last
	}
	return o.middle
}

// addressDatagram adds what UD takes from the work request: destination and Q_Key. A controlled
// Q_Key in it stands for the QP's own (IBTA 10.2.5).
func (q *QP) addressDatagram(p *Packet, w *sendWR) bool {
	if w.WQE.AH == 0 {
		w.SetFail(rdma.WCLocQPOpErr, abi.VendorNoAddress)
		return false
	}
	ah := q.host.AddressHandle(w.WQE.AH, q.cfg.PD)
	if ah == nil {
		w.SetFail(rdma.WCLocQPOpErr, abi.VendorAddressHandle)
		return false
	}
	p.Address = *ah
	key := rdma.QKey(w.WQE.RemoteQKey)
	if key.IsControlled() {
		key = q.attr.QKey
	}
	p.Headers.BTH.DestQPN = rdma.QPN(w.WQE.RemoteQPN) & rdma.QPNMask
	p.Headers.DETH = ib.DETH{QKey: key, SrcQPN: q.cfg.QPN}
	return true
}

// payload returns n bytes of a message from off on: the work request's own copy, the application's
// memory by reference, or the NIC's scratch.
func (q *QP) payload(w *sendWR, off, n uint32) ([]byte, mem.Fault) {
	if n == 0 {
		return nil, mem.FaultNone
	}
	if w.Has(rdma.SendInline) {
		return w.Inline[off : off+n], mem.FaultNone
	}
	list := w.List()
	b, f := q.table.ViewList(q.cfg.PD, list, uint64(off), uint64(n))
	if b != nil || f != mem.FaultNone {
		return b, f
	}
	return q.cfg.Scratch.Gather(q.table, &work.Stretch{
		Serial: w.serial, Who: q.accessor(), List: list, Offset: uint64(off), Bytes: uint64(n),
		Total: uint64(w.Length),
	})
}

// readPackets returns how many response packets the next READ request of w asks for; 0 where it
// had better wait for a wider window. A repeated request stays inside the range of the first time,
// because that is what the responder remembers (IBTA 9.7.5.1.3).
func (q *QP) readPackets(w *sendWR) uint32 {
	r := &q.send
	if w.op.kind != kindRead {
		return 1
	}
	left := w.packets - w.index(r.psn)
	if !r.isFresh() {
		x := r.rangeOf(r.psn)
		left = x.packets - distance(x.first, r.psn)
		if distance(x.first, r.una) == 0 || distance(x.first, r.una) >= x.packets {
			// Not a byte of it has come, so the responder may not know the range yet: a shorter one
			// would end where no range of it ends.
			return left
		}
	}
	room := r.window.size - min(r.window.size, r.inFlight())
	if left <= room {
		return left
	}
	if room < r.window.size/2 {
		return 0
	}
	return room
}

// rangeOf returns the READ or atomic request on the wire that p belongs to.
func (r *requester) rangeOf(p rdma.PSN) readRange {
	for i := range r.reads.Len() {
		if x := r.reads.At(i); distance(x.first, p) < x.packets {
			return *x
		}
	}
	return readRange{first: p, packets: 1}
}

func (q *QP) sendReadRequest(p *Packet, w *sendWR, n uint32) {
	q.readRequest(p, w, q.send.psn, n)
}

// readRequest asks for n packets of a READ from the one with PSN psn on (IBTA 9.4.4).
func (q *QP) readRequest(p *Packet, w *sendWR, psn rdma.PSN, n uint32) {
	k := w.index(psn)
	off := uint64(k) * uint64(q.mtu)
	length := min(uint64(n)*uint64(q.mtu), uint64(w.Length)-off)
	q.startRequest(p, w, w.op.only, psn)
	p.Headers.RETH = ib.RETH{
		VA: w.WQE.RemoteAddr + off, RKey: rdma.Key(w.WQE.RKey), Length: uint32(length),
	}
}

// sendAtomicRequest makes a CmpSwap or FetchAdd (IBTA 9.4.5).
func (q *QP) sendAtomicRequest(p *Packet, w *sendWR) {
	q.startRequest(p, w, w.op.only, w.first)
	x := ib.AtomicETH{
		VA: w.WQE.RemoteAddr, RKey: rdma.Key(w.WQE.RKey), SwapAdd: w.WQE.CompareAdd,
	}
	if w.op.wc == rdma.WCOpCompareSwap {
		x.SwapAdd, x.Compare = w.WQE.Swap, w.WQE.CompareAdd
	}
	p.Headers.Atomic = x
}
