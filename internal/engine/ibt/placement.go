package ibt

import (
	"encoding/binary"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

// atomicWriteBytes is how much an ATOMIC WRITE writes at once (IBTA A19.4.4).
const atomicWriteBytes = 8

// sendPlacement makes an ATOMIC WRITE or FLUSH request (IBTA A19.4.1). It reports false when w
// failed instead.
func (q *QP) sendPlacement(p *Packet, w *sendWR) bool {
	payload, f := q.payload(w, 0, w.Length)
	if f != mem.FaultNone {
		w.SetFault(f)
		return false
	}
	q.startRequest(p, w, w.op.only, w.first)
	p.Payload = payload
	x := &w.WQE
	p.Headers.RETH = ib.RETH{VA: x.RemoteAddr, RKey: rdma.Key(x.RKey), Length: w.Length}
	if w.op.wc == rdma.WCOpFlush {
		p.Headers.RETH.Length = uint32(x.Swap)
		p.Headers.Flush = ib.FETH{
			Placement: ib.FlushPlacement(x.CompareAdd & 0xf),
			Select:    ib.FlushSelect(x.CompareAdd >> 4 & 0xf),
		}
	}
	return true
}

// finishPlacement takes the READ response without data that answers an ATOMIC WRITE or a FLUSH.
func (q *QP) finishPlacement(p *Packet, w *sendWR) {
	if len(p.Payload) != 0 {
		q.failHead(rdma.WCBadRespErr, abi.VendorBadResponse)
		return
	}
	q.answered(w)
	if p.Headers.BTH.Opcode.HasAETH() {
		q.learnCredit(p.Headers.AETH)
	}
}

// executeAtomicWrite stores eight bytes so that no reader sees half of them (IBTA A19.4.4).
func (q *QP) executeAtomicWrite(p *Packet) verdict {
	r := &q.recv
	h := &p.Headers.RETH
	if h.VA%atomicWriteBytes != 0 || h.Length != atomicWriteBytes ||
		len(p.Payload) != atomicWriteBytes {
		r.cause.Vendor = abi.VendorLength
		if h.VA%atomicWriteBytes != 0 {
			r.cause.Vendor = abi.VendorAlignment
		}
		r.cause.Key, r.cause.Addr, r.cause.Length = h.RKey, h.VA, uint64(h.Length)
		return verdictInvalid
	}
	if v := q.checkRemote(h, rdma.AccessRemoteWrite); v != verdictAccept {
		return v
	}
	return q.place(func() mem.Fault {
		return q.table.Store(h.RKey, q.peer(), h.VA, binary.NativeEndian.Uint64(p.Payload))
	}, h)
}

// executeFlush makes earlier WRITEs visible. They are in the application's memory as soon as they
// are executed, so what is left is to judge the request (IBTA A19.4.3).
func (q *QP) executeFlush(p *Packet) verdict {
	r := &q.recv
	h, x := p.Headers.RETH, p.Headers.Flush
	var want rdma.Access
	if x.Placement&ib.FlushGlobal != 0 {
		want |= rdma.AccessFlushGlobal
	}
	if x.Placement&ib.FlushPersistent != 0 {
		want |= rdma.AccessFlushPersist
	}
	if want == 0 || x.Select > ib.FlushMemoryRegion {
		r.cause.Vendor = abi.VendorOpcode
		return verdictInvalid
	}
	if x.Select == ib.FlushMemoryRegion {
		h.VA, h.Length = 0, 0 // what they say is not looked at
	}
	if v := q.checkFlush(&h, x.Select, want); v != verdictAccept {
		return v
	}
	return q.place(func() mem.Fault { return mem.FaultNone }, &h)
}

// checkFlush is checkRemote for a FLUSH, whose key is checked for no bytes too.
func (q *QP) checkFlush(h *ib.RETH, level ib.FlushSelect, want rdma.Access) verdict {
	c := &q.recv.cause
	if h.Length > limits.MaxMessageBytes {
		c.Vendor, c.Length = abi.VendorLength, uint64(h.Length)
		return verdictInvalid
	}
	if !q.attr.Access.Has(want) { // as for other operations
		_ = q.refuseRemote(mem.FaultRights, h.RKey, h.VA, uint64(h.Length))
		return verdictInvalid
	}
	f := q.table.CheckFlush(h.RKey, q.peer(), want)
	if f == mem.FaultNone && level == ib.FlushRange && h.Length > 0 {
		_, _, f = q.table.CheckRemote(h.RKey, q.peer(), h.VA, uint64(h.Length), want)
	}
	if f != mem.FaultNone {
		return q.refuseRemote(f, h.RKey, h.VA, uint64(h.Length))
	}
	return verdictAccept
}

// place executes what a request asks for and keeps its answer, which may be lost.
func (q *QP) place(do func() mem.Fault, h *ib.RETH) verdict {
	r := &q.recv
	x := q.newResource()
	if x == nil {
		return verdictInvalid
	}
	if f := do(); f != mem.FaultNone {
		r.resources.Cut(r.resources.Len() - 1)
		return q.refuseRemote(f, h.RKey, h.VA, uint64(h.Length))
	}
	*x = resource{kind: kindPlace, first: r.expected, packets: 1}
	q.activate(r.resources.Len() - 1)
	r.expected = r.expected.Add(1)
	r.msn = r.msn.Add(1)
	return verdictAccept
}

// sendPlacementAnswer answers with a READ response that carries no data (IBTA A19.4.2).
func (q *QP) sendPlacementAnswer(p *Packet, x *resource) {
	q.startReply(p, ib.RCReadResponseOnly, x.first)
	p.Headers.AETH = q.ackHeader()
	q.finishReply(x)
}
