package iwarp

import (
	"encoding/binary"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

// endImmediate takes immediate data (RFC 7306 6): those of a WRITE complete a receive, those of a
// Send wait for it.
func (c *Conn) endImmediate() fault {
	s := &c.rx.segment
	q := c.qp
	r := &q.recv
	r.sendMSN++
	value := binary.NativeEndian.Uint32(s.content[:])
	if binary.BigEndian.Uint32(s.content[4:]) == immOfSend {
		r.imm, r.hasImm = value, true
		return faultNone
	}
	if f := q.takeReceive(); f != faultNone {
		return f
	}
	q.cqe = abi.CQE{
		ByteLen: uint32(r.written), Opcode: uint32(rdma.WCOpRecvWriteImm),
		WCFlags: uint32(rdma.WCWithImm), ImmOrRKey: value,
	}
	r.written = 0
	q.completeReceive(s.header.Opcode.Info().Solicited)
	return faultNone
}

// endReadRequest judges a READ request and enters its answer (RFC 5040 5.4).
func (c *Conn) endReadRequest() fault {
	s := &c.rx.segment
	q := c.qp
	x, _ := iwarp.ParseReadRequest(s.content[:])
	n := uint64(x.Length)
	switch {
	case x.SourceTO+n < x.SourceTO, x.SinkTO+n < x.SinkTO:
		q.noteRemote(mem.FaultBounds, x.SourceSTag, x.SourceTO, n, rdma.AccessRemoteRead)
		return accessFault(iwarp.CodeProtectionWrap)
	case n > limits.MaxMessageBytes:
		q.noteRemote(mem.FaultBounds, x.SourceSTag, x.SourceTO, n, rdma.AccessRemoteRead)
		return accessFault(iwarp.CodeProtectionBounds)
	}
	f := q.checkRemote(x.SourceSTag, x.SourceTO, n, rdma.AccessRemoteRead)
	if f == mem.FaultGone {
		c.vanish()
		return faultNone
	}
	if f != mem.FaultNone {
		return sourceFault(f)
	}
	y := q.recv.responses.Push()
	y.isAtomic, y.request, y.off, y.msn = false, x, 0, s.header.MSN
	y.serial = q.cfg.Scratch.NewSerial()
	copy(y.content[:], s.content[:])
	return faultNone
}

// endAtomicRequest executes an atomic and enters its answer (RFC 7306 5).
func (c *Conn) endAtomicRequest() fault {
	s := &c.rx.segment
	q := c.qp
	x, _ := iwarp.ParseAtomicRequest(s.content[:])
	if x.TO%atomicBytes != 0 || x.Op != iwarp.AtomicFetchAdd && x.Op != iwarp.AtomicCompareSwap {
		q.noteRemote(mem.FaultNone, x.STag, x.TO, atomicBytes, rdma.AccessRemoteAtomic)
		q.recv.cause.Vendor = abi.VendorOpcode
		if x.TO%atomicBytes != 0 {
			q.recv.cause.Vendor = abi.VendorAlignment
		}
		return protocolFault(iwarp.CodeOperationOther)
	}
	f := q.checkRemote(x.STag, x.TO, atomicBytes, rdma.AccessRemoteAtomic)
	var old uint64
	if f == mem.FaultNone {
		old, f = q.table.UpdateRemote(x.STag, q.accessor(), x.TO, x.Apply)
		if f != mem.FaultNone {
			q.noteRemote(f, x.STag, x.TO, atomicBytes, rdma.AccessRemoteAtomic)
		}
	}
	switch f {
	case mem.FaultNone:
	case mem.FaultGone:
		c.vanish()
		return faultNone
	default:
		return sourceFault(f)
	}
	y := q.recv.responses.Push()
	y.isAtomic, y.answer = true, iwarp.AtomicResponse{ID: x.ID, Original: old}
	return faultNone
}

// endAtomicResponse takes the answer to the oldest atomic.
func (c *Conn) endAtomicResponse() fault {
	s := &c.rx.segment
	q := c.qp
	x, _ := iwarp.ParseAtomicResponse(s.content[:])
	if q.send.reads.Len() == 0 || q.readAt(0).op.kind != kindAtomic {
		return faultOpcode
	}
	w := q.readAt(0)
	if x.ID != w.sink {
		return protocolFault(iwarp.CodeOperationOther)
	}
	b := q.word[:]
	binary.NativeEndian.PutUint64(b, x.Original)
	if f := q.table.Scatter(q.cfg.PD, w.List(), 0, b); f != mem.FaultNone {
		c.failSink(w, f)
		return faultNone
	}
	q.answered()
	return faultNone
}
