package ibt

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

// resource is a READ or atomic of the peer (IBTA 9.7.5.1.3, 9.7.5.1.4: responder resources). It is
// kept after the reply, because the reply may be lost.
type resource struct {
	kind     kind
	isServed bool // replied to whole at least once
	isActive bool
	first    rdma.PSN
	packets  uint32
	reth     ib.RETH      // READ
	who      mem.Accessor // READ: of its memory
	value    uint64       // atomic: what was there before

	// The reply in progress of a READ: left bytes from va on, in packets from psn on.
	psn     rdma.PSN
	va      uint64
	left    uint32
	isBegun bool
	serial  uint64 // in scratch memory
}

// replyEnd returns the PSN after the reply in progress.
func (x *resource) replyEnd(mtu uint32) rdma.PSN { return x.psn.Add(packetsOf(x.left, mtu)) }

// executeRead accepts an RDMA READ; its data follow when replies are polled (IBTA 9.4.4).
func (q *QP) executeRead(p *Packet) verdict {
	r := &q.recv
	h := &p.Headers.RETH
	if v := q.checkRemote(h, rdma.AccessRemoteRead); v != verdictAccept {
		return v
	}
	x := q.newResource()
	if x == nil {
		return verdictInvalid
	}
	*x = resource{
		kind: kindRead, first: r.expected, packets: packetsOf(h.Length, q.mtu), reth: *h, who: q.peer(),
	}
	q.beginReply(r.resources.Len()-1, h, r.expected)
	q.watchReplies()
	r.expected = r.expected.Add(x.packets)
	r.msn = r.msn.Add(1)
	return verdictAccept
}

// executeAtomic carries out a CmpSwap or FetchAdd and keeps the answer (IBTA 9.4.5).
func (q *QP) executeAtomic(p *Packet, info *ib.OpcodeInfo) verdict {
	r := &q.recv
	h := &p.Headers.Atomic
	if h.VA%8 != 0 {
		r.cause.Vendor, r.cause.Key = abi.VendorAlignment, h.RKey
		r.cause.Addr, r.cause.Length = h.VA, 8
		return verdictInvalid
	}
	reth := ib.RETH{VA: h.VA, RKey: h.RKey, Length: 8}
	if v := q.checkRemote(&reth, rdma.AccessRemoteAtomic); v != verdictAccept {
		return v
	}
	x := q.newResource()
	if x == nil {
		return verdictInvalid
	}
	var old uint64
	var f mem.Fault
	if info.Operation == ib.OperationFetchAdd {
		old, f = q.table.FetchAdd(h.RKey, q.peer(), h.VA, h.SwapAdd)
	} else {
		old, f = q.table.CompareSwap(h.RKey, q.peer(), h.VA, h.Compare, h.SwapAdd)
	}
	if f != mem.FaultNone {
		r.resources.Cut(r.resources.Len() - 1)
		return q.refuseRemote(f, h.RKey, h.VA, 8)
	}
	*x = resource{kind: kindAtomic, first: r.expected, packets: 1, value: old}
	q.activate(r.resources.Len() - 1)
	r.expected = r.expected.Add(1)
	r.msn = r.msn.Add(1)
	return verdictAccept
}

// newResource makes room for one more, or returns nil when the peer exceeds what was agreed
// (IBTA 9.7.4.1.4: too many READs or atomics). The oldest gives way: a peer within the limit has
// all its answer.
func (q *QP) newResource() *resource {
	r := &q.recv
	most := min(int(q.attr.MaxDestRdAtomic), limits.MaxRDAtomic)
	if r.resources.Len() >= most {
		if most == 0 || !r.resources.At(0).isServed {
			r.cause.Vendor = abi.VendorRDAtomic
			return nil
		}
		q.deactivate(r.resources.At(0))
		r.resources.Pop()
		r.firstActive = max(r.firstActive-1, 0)
	}
	x := r.resources.Push()
	x.isActive = false
	return x
}

// activate lets the reply of resource i be sent when it is its turn.
func (q *QP) activate(i int) {
	r := &q.recv
	x := r.resources.At(i)
	if x.isActive {
		return
	}
	x.isActive = true
	r.active++
	if r.active == 1 || i < r.firstActive {
		r.firstActive = i
	}
}

func (q *QP) deactivate(x *resource) {
	if x.isActive {
		x.isActive = false
		q.recv.active--
		if q.recv.active == 0 {
			q.recv.window.stop()
		}
	}
}

// beginReply starts the reply of READ i at psn with the memory in h.
func (q *QP) beginReply(i int, h *ib.RETH, psn rdma.PSN) {
	x := q.recv.resources.At(i)
	x.psn, x.va, x.left, x.isBegun = psn, h.VA, h.Length, false
	x.serial = q.cfg.Scratch.NewSerial()
	q.activate(i)
}

// findResource returns the index of the one that a PSN belongs to, or −1.
func (q *QP) findResource(psn rdma.PSN, k kind) int {
	r := &q.recv
	for i := range r.resources.Len() {
		x := r.resources.At(i)
		if x.kind == k && distance(x.first, psn) < x.packets {
			return i
		}
	}
	return -1
}

// handleDuplicate takes a request that was executed before (IBTA 9.7.4.1.1): nothing but READs is
// done again, and the message in progress is not touched.
func (q *QP) handleDuplicate(p *Packet, info *ib.OpcodeInfo) {
	q.host.Count(work.CountDuplicateRequest, 1)
	psn := p.Headers.BTH.PSN
	switch info.Operation {
	case ib.OperationSend, ib.OperationWrite:
		q.deferAck()
	case ib.OperationReadRequest:
		q.repeatRead(&p.Headers.RETH, psn)
	case ib.OperationCompareSwap, ib.OperationFetchAdd:
		q.repeatAnswer(psn, kindAtomic)
	case ib.OperationAtomicWrite, ib.OperationFlush:
		q.repeatAnswer(psn, kindPlace)
	default:
		q.host.Count(work.CountDroppedSilently, 1)
	}
}

// repeatAnswer sends an answer of one packet again, without doing again what it answers.
func (q *QP) repeatAnswer(psn rdma.PSN, k kind) {
	if i := q.findResource(psn, k); i >= 0 {
		q.activate(i)
	}
}

// repeatRead executes a READ, or the rest of one, again. It must be what was asked for the first
// time; rights are checked anew as the data are read (IBTA 9.7.5.1.3).
func (q *QP) repeatRead(h *ib.RETH, psn rdma.PSN) {
	i := q.findResource(psn, kindRead)
	if i < 0 {
		q.host.Count(work.CountDroppedSilently, 1)
		return
	}
	x := q.recv.resources.At(i)
	off := uint64(distance(x.first, psn)) * uint64(q.mtu)
	if h.RKey != x.reth.RKey || h.VA != x.reth.VA+off ||
		off+uint64(h.Length) > uint64(x.reth.Length) {
		q.host.Count(work.CountDroppedSilently, 1)
		return
	}
	at := distance(x.first, psn)
	switch {
	case !x.isActive || at < distance(x.first, x.psn):
		q.noteReplyLoss(psn)
		q.beginReply(i, h, psn)
		q.watchReplies()
	case at <= distance(x.first, x.replyEnd(q.mtu)):
		// The reply has not got there yet: at most it becomes longer.
		x.left = max(x.left, uint32(h.VA+uint64(h.Length)-x.va))
	}
}
