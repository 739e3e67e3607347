package nic

import (
	"slices"
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/engine/iwarp"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
)

// streamHost is what the engine of iWARP sees of the NIC around a queue pair. It implements
// iwarp.Host.
type streamHost struct{ *qp }

// Raise implements iwarp.Host.
func (h streamHost) Raise(_ *iwarp.QP, e rdma.EventType) { h.qp.Raise(nil, e) }

// Note implements iwarp.Host.
func (h streamHost) Note(_ *iwarp.QP, e work.Cause) { h.qp.Note(nil, e) }

// newStreamed gives a queue pair the engine of iWARP. cfg is what both engines need.
func (q *qp) newStreamed(cfg *ibt.Config) {
	q.iwarp = iwarp.New(iwarp.Config{
		Host: streamHost{q}, QPN: cfg.QPN, PD: cfg.PD, SQ: cfg.SQ, RQ: cfg.RQ, SendCQ: cfg.SendCQ,
		RecvCQ: cfg.RecvCQ, MaxSGE: cfg.MaxSGE, MaxInline: cfg.MaxInline, SignalAll: cfg.SignalAll,
		Scratch: cfg.Scratch, ReceivePD: cfg.ReceivePD,
	})
	q.engine = q.iwarp
}

// settleStreamed is settle for a queue pair of iWARP: what it has to send goes with its stream.
func (n *NIC) settleStreamed(q *qp) {
	n.show(q)
	if q.iwarp.HasWork() && !q.isFlushing {
		q.isFlushing = true
		n.streams.flushing = append(n.streams.flushing, q)
	}
	if q.stream != nil {
		n.streams.settle(q.stream)
	}
}

// awaitReceive lets receives ring the doorbell while a message waits for one.
func (q *qp) awaitReceive(isWaiting bool) {
	if isWaiting == q.isAwaiting {
		return
	}
	q.isAwaiting = isWaiting
	if q.shown != sError { // there they ring in any case
		q.rqDoorbell.Store(uint32(flag(isWaiting)))
	}
}

// releaseStreamed ends what a queue pair of iWARP that is destroyed has with others.
func (n *NIC) releaseStreamed(q *qp) {
	t := n.streams
	if q.isFlushing {
		q.isFlushing = false
		t.flushing = slices.DeleteFunc(t.flushing, func(o *qp) bool { return o == q })
	}
	if s := q.stream; s != nil {
		q.stream, s.qp = nil, nil
		t.settle(s)
	}
}

// modifyStreamed is ModifyQP for a queue pair of iWARP. As with the Linux kernel's siw, most
// attributes mean nothing to it, and what leads to a connection is the connection manager's.
func (q *qp) modifyStreamed(now clock.Time, a *abi.QPAttr, mask rdma.QPAttrMask) *rdma.Refusal {
	if mask == 0 {
		return nil // what rdma_init_qp_attr gives for RTR and RTS
	}
	if unknown := mask &^ rdma.QPAttrAll; unknown != 0 {
		return refusef(syscall.EINVAL, "modify_qp: unknown attribute bits %#x", uint32(unknown))
	}
	from := q.state()
	to := from
	if mask&rdma.QPAttrState != 0 {
		to = rdma.QPState(a.State)
	}
	if to == sInit && (from == sRTS || from == sSQD) {
		to = from // programs come here when they are connected, on the way that RoCE needs
	}
	if r := checkStreamed(from, to); r != nil {
		return r
	}
	attr := *q.iwarp.Attr()
	for _, s := range setters {
		if mask&s.bit != 0 && !s.ok(a) {
			return refusef(syscall.EINVAL, "modify_qp: %v has a value out of range", s.bit)
		}
	}
	attr.Access = rdma.Access(a.AccessFlags) & accessQP
	attr.MaxRdAtomic, attr.MaxDestRdAtomic = a.MaxRdAtomic, a.MaxDestRdAtomic
	if from > sInit {
		mask &^= rdma.QPAttrMaxQPRdAtomic | rdma.QPAttrMaxDestRdAtomic // MPA has agreed on them
	}
	q.noteModified(to)
	q.iwarp.Modify(now, &attr, mask, to)
	return nil
}

// checkStreamed says whether a program may move a queue pair of iWARP from one state to another.
func checkStreamed(from, to rdma.QPState) *rdma.Refusal {
	switch {
	case to == from, to == sReset, to == sError:
		return nil
	case to == sSQD: // the end of a connection; where there is none, there is none
		return nil
	case to == sInit && from == sReset:
		return nil
	case to == sRTR, to == sRTS:
		return refusef(syscall.EINVAL, "modify_qp: %v→%v: iWARP connections are made by rdma_cm"+
			" (rdma_connect and rdma_accept), not by hand", from, to)
	}
	return refusef(syscall.EINVAL, "modify_qp: a queue pair of iWARP cannot go from %v to %v",
		from, to)
}

// queryStreamed is query for a queue pair of iWARP.
func (q *qp) queryStreamed() abi.QPAttr {
	t, s := q.iwarp.Attr(), q.state()
	out := abi.QPAttr{
		State: uint32(s), CurState: uint32(s), PathMTU: uint32(q.context.device.port.MTU),
		PathMigState: uint32(rdma.MigrationMigrated), AccessFlags: uint32(t.Access),
		MaxSendWR: q.init.MaxSendWR, MaxRecvWR: q.init.MaxRecvWR, MaxSendSGE: q.init.MaxSendSGE,
		MaxRecvSGE: q.init.MaxRecvSGE, MaxInline: q.init.MaxInline, Port: thePort,
		MaxRdAtomic:     min(t.MaxRdAtomic, limits.MaxRDAtomic),
		MaxDestRdAtomic: min(t.MaxDestRdAtomic, limits.MaxRDAtomic),
	}
	if q.iwarp.IsDraining() {
		out.SQDraining = 1
	}
	return out
}
