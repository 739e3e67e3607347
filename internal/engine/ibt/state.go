package ibt

import (
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/rdma"
)

// mtuUnset is the path MTU of a QP whose owner set none, as verbs set none for UD: a datagram is
// one packet, and the port judges its size.
const mtuUnset = rdma.MTU4096

// Modify takes the attributes in mask from a and enters state to, which may be the present one.
// The NIC has checked that the transition is legal (IBTA 10.3.1, 11.2.5.2).
func (q *QP) Modify(now clock.Time, a *Attr, mask rdma.QPAttrMask, to rdma.QPState) {
	q.now = now
	if to == rdma.QPStateReset {
		q.reset()
		return
	}
	q.setAttr(a, mask)
	q.enter(to)
}

func (q *QP) setAttr(a *Attr, mask rdma.QPAttrMask) {
	has := func(m rdma.QPAttrMask) bool { return mask&m != 0 }
	if has(rdma.QPAttrAV) {
		q.attr.AV, q.attr.Segment = a.AV, a.Segment
	}
	if has(rdma.QPAttrPathMTU) {
		q.attr.PathMTU = a.PathMTU
	}
	if has(rdma.QPAttrPKeyIndex) {
		q.attr.PKey, q.attr.PKeyIndex = a.PKey, a.PKeyIndex
	}
	if has(rdma.QPAttrQKey) {
		q.attr.QKey = a.QKey
	}
	if has(rdma.QPAttrDestQPN) {
		q.attr.DestQPN = a.DestQPN
	}
	if has(rdma.QPAttrAccessFlags) {
		q.attr.Access = a.Access
	}
	if has(rdma.QPAttrMinRNRTimer) {
		q.attr.MinRNRTimer = a.MinRNRTimer
	}
	if has(rdma.QPAttrMaxQPRdAtomic) {
		q.attr.MaxRdAtomic = a.MaxRdAtomic
	}
	if has(rdma.QPAttrMaxDestRdAtomic) {
		q.attr.MaxDestRdAtomic = a.MaxDestRdAtomic
	}
	if has(rdma.QPAttrEnSQDAsyncNotify) {
		q.attr.SQDAsyncNotify = a.SQDAsyncNotify
	}
	q.setRetryAttr(a, mask)
	q.setPSNAttr(a, mask)
	q.mtu = uint32(q.attr.PathMTU.Bytes())
	switch {
	case q.attr.Segment != 0:
		q.mtu = q.attr.Segment
	case q.mtu == 0:
		q.mtu = uint32(mtuUnset.Bytes())
	}
}

func (q *QP) setRetryAttr(a *Attr, mask rdma.QPAttrMask) {
	if mask&rdma.QPAttrTimeout != 0 {
		q.attr.Timeout = a.Timeout
	}
	if mask&rdma.QPAttrRetryCnt != 0 {
		q.attr.RetryCnt = a.RetryCnt
	}
	if mask&rdma.QPAttrRNRRetry != 0 {
		q.attr.RNRRetry = a.RNRRetry
	}
}

func (q *QP) setPSNAttr(a *Attr, mask rdma.QPAttrMask) {
	if mask&rdma.QPAttrSQPSN != 0 {
		q.attr.SQPSN = a.SQPSN & rdma.PSNMask
		q.send.restartAt(q.attr.SQPSN)
	}
	if mask&rdma.QPAttrRQPSN != 0 {
		q.attr.RQPSN = a.RQPSN & rdma.PSNMask
		q.recv.restartAt(q.attr.RQPSN)
	}
}

func (q *QP) enter(to rdma.QPState) {
	from := q.state
	switch to {
	case rdma.QPStateError:
		q.enterError()
	case rdma.QPStateSQE:
		q.enterSendError()
	case rdma.QPStateSQD:
		q.state = to
		q.send.isDrainNoted = from == rdma.QPStateSQD && q.send.isDrainNoted
		q.noteDrained()
	case rdma.QPStateRTS:
		q.state = to
		if from == rdma.QPStateSQE {
			q.send.restartAt(q.send.next)
		}
		q.send.isStalled = false
		q.loadSendRing()
	default:
		q.state = to
	}
}

// reset drops everything in silence: work requests, replies, timers (IBTA 10.3.1.1).
func (q *QP) reset() {
	q.state = rdma.QPStateReset
	q.attr = Attr{}
	q.mtu = 0
	q.flush = flusher{}
	q.cnp = notifier{}
	q.isRequestTurn = false
	q.releaseTagged()
	q.send.reset()
	q.recv.reset()
	q.stats = Stats{}
	if q.send.ring != nil {
		q.send.ring.Skip()
	}
	if rq, ok := q.cfg.RQ.(skipper); ok && !q.cfg.RQ.IsShared() {
		rq.Skip()
	}
}

// Release drops what the QP holds; it is not used afterwards.
func (q *QP) Release() { q.reset() }

// skipper is a receive queue that can forget what is posted.
type skipper interface{ Skip() }

// isDrained reports that no request is under way.
func (q *QP) isDrained() bool {
	r := &q.send
	if r.una != r.high || r.sent > 0 {
		return false
	}
	// Between two packets of a message the head has begun.
	return r.wrs.Len() == 0 || r.wrs.At(0).index(r.psn) == 0 || r.wrs.At(0).packets == 0
}

// noteDrained raises the event that a drain asked for, once (IBTA 10.3.1.6).
func (q *QP) noteDrained() {
	if q.state != rdma.QPStateSQD || q.send.isDrainNoted || !q.isDrained() {
		return
	}
	q.send.isDrainNoted = true
	if q.attr.SQDAsyncNotify {
		q.host.Raise(q, rdma.EventSQDrained)
	}
}
