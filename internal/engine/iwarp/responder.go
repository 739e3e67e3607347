package iwarp

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

// responder is the receiving half: messages of the peer change memory, take receives, and are
// answered.
type responder struct {
	// Sequence numbers of the next message on each queue.
	sendMSN, requestMSN, atomicMSN uint32
	answerMSN                      uint32 // of the next atomic response that is sent

	// wr is the receive in use, of the Send that is coming in; mo is how much of it has come.
	wr      work.RecvWR
	hasWR   bool
	room    uint64 // bytes that its list takes
	mo      uint32
	opcode  iwarp.Opcode // of the Send
	isSwift bool         // the Send is an RTR and takes no receive

	// imm is immediate data that came for the Send behind it.
	imm    uint32
	hasImm bool
	// written counts the bytes of the WRITE that is coming in, and came last.
	written   uint64
	isWriting bool

	responses work.Deque[response]
	ird       int

	cause work.Cause // evidence of a refusal
}

func (r *responder) reset() {
	r.stop()
	r.responses = work.Deque[response]{}
	r.hasWR = false
}

// stop forgets what is under way, but for the receive in use, which is flushed.
func (r *responder) stop() {
	r.responses.Cut(0)
	r.hasImm, r.isWriting = false, false
}

// start begins on a new connection.
func (r *responder) start(ird uint16) {
	r.stop()
	r.ird = int(min(ird, limits.MaxRDAtomic))
	r.sendMSN, r.requestMSN, r.atomicMSN, r.answerMSN = 1, 1, 1, 1
	r.mo, r.room, r.written = 0, 0, 0
	r.hasWR, r.isSwift = false, false
}

// fault is why a segment is refused: what the peer is told, and the owner of the receive in use.
type fault struct {
	code   iwarp.Code
	status rdma.WCStatus
	event  rdma.EventType
}

// Faults that several checks find. The zero value is no fault.
var (
	faultNone     fault
	faultOpcode   = protocolFault(iwarp.CodeOpcode)
	faultMSN      = protocolFault(iwarp.CodeUntaggedMSN)
	faultMO       = protocolFault(iwarp.CodeUntaggedMO)
	faultNoBuffer = protocolFault(iwarp.CodeUntaggedNoBuffer)
	faultTooLong  = fault{iwarp.CodeUntaggedTooLong, rdma.WCLocLenErr, rdma.EventQPReqErr}
	faultLocal    = fault{iwarp.CodeDDPLocal, rdma.WCLocProtErr, rdma.EventQPFatal}
)

// protocolFault is one against the rules of the protocol, not about memory.
func protocolFault(code iwarp.Code) fault {
	return fault{code, rdma.WCRemInvReqErr, rdma.EventQPReqErr}
}

// accessFault is about memory of this side that the peer named.
func accessFault(code iwarp.Code) fault {
	return fault{code, rdma.WCRemAccessErr, rdma.EventQPAccessErr}
}

// taggedFault judges the access of a WRITE (RFC 5041 8.2, RFC 5040 4.8).
func taggedFault(f mem.Fault) fault {
	switch f {
	case mem.FaultKey, mem.FaultUnbound:
		return accessFault(iwarp.CodeTaggedSTag)
	case mem.FaultPD, mem.FaultQP:
		return accessFault(iwarp.CodeTaggedStream)
	case mem.FaultBounds:
		return accessFault(iwarp.CodeTaggedBounds)
	case mem.FaultMemory, mem.FaultGone:
		return faultLocal
	default:
		return accessFault(iwarp.CodeProtectionAccess)
	}
}

// sourceFault judges the access of a READ or atomic (RFC 5040 4.8).
func sourceFault(f mem.Fault) fault {
	switch f {
	case mem.FaultKey, mem.FaultUnbound:
		return accessFault(iwarp.CodeProtectionSTag)
	case mem.FaultPD, mem.FaultQP:
		return accessFault(iwarp.CodeProtectionStream)
	case mem.FaultBounds:
		return accessFault(iwarp.CodeProtectionBounds)
	case mem.FaultMemory, mem.FaultGone:
		return fault{iwarp.CodeRDMAPLocal, rdma.WCLocProtErr, rdma.EventQPFatal}
	default:
		return accessFault(iwarp.CodeProtectionAccess)
	}
}

// invalidateFault judges an STag that was to be invalidated (RFC 5040 4.8).
func invalidateFault(f mem.Fault) fault {
	switch f {
	case mem.FaultKey:
		return accessFault(iwarp.CodeProtectionSTag)
	case mem.FaultPD, mem.FaultQP:
		return accessFault(iwarp.CodeProtectionStream)
	default:
		return accessFault(iwarp.CodeProtectionInvalidate)
	}
}

// noteRemote puts a refused access of the peer into the evidence.
func (q *QP) noteRemote(f mem.Fault, key rdma.Key, addr, n uint64, asked rdma.Access) {
	c := &q.recv.cause
	c.Vendor, c.Fault, c.Key, c.Addr, c.Length = abi.VendorRemoteRights, f, key, addr, n
	c.Asked = asked
	if f == mem.FaultMemory || f == mem.FaultGone {
		c.Vendor = abi.VendorLocalFault
	}
}

// checkRemote judges what a message says about this side's memory. An access of no bytes needs no
// STag (RFC 5040 7.1).
func (q *QP) checkRemote(key rdma.Key, addr, n uint64, want rdma.Access) mem.Fault {
	if n == 0 {
		return mem.FaultNone
	}
	f := mem.FaultRights
	if q.attr.Access.Has(want) || want == rdma.AccessRemoteAtomic {
		_, _, f = q.table.CheckRemote(key, q.accessor(), addr, n, want)
	}
	if f != mem.FaultNone {
		q.noteRemote(f, key, addr, n, want)
	}
	return f
}

// takeReceive takes the receive that a message needs.
func (q *QP) takeReceive() fault {
	r := &q.recv
	switch q.cfg.RQ.Take(&r.wr) {
	case work.TakeEmpty:
		q.host.Count(work.CountResourceMissing, 1)
		r.cause.Vendor = abi.VendorRNR
		return faultNoBuffer
	case work.TakeMalformed:
		r.hasWR = true
		q.stats.RecvTaken++
		r.cause.Vendor = abi.VendorBadWQE
		return fault{iwarp.CodeDDPLocal, rdma.WCLocQPOpErr, rdma.EventQPFatal}
	case work.TakeOK:
	}
	r.hasWR = true
	q.stats.RecvTaken++
	r.room = mem.ListBytes(r.wr.List)
	return faultNone
}

// noteReceive puts a receive whose memory is not to be had into the evidence.
func (q *QP) noteReceive(f mem.Fault, off uint64) fault {
	c := &q.recv.cause
	c.Vendor, c.Fault, c.Asked = work.VendorOf(f), f, rdma.AccessLocalWrite
	for i := range q.recv.wr.List {
		s := &q.recv.wr.List[i]
		if off >= uint64(s.Length) {
			off -= uint64(s.Length)
			continue
		}
		c.Key, c.Addr, c.Length = rdma.Key(s.LKey), s.Addr, uint64(s.Length)
		break
	}
	return faultLocal
}
