package ibt

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

// handleAcknowledge takes an ACK or a NAK (IBTA 9.7.5.1, 9.9.2).
func (q *QP) handleAcknowledge(p *Packet) {
	h := &p.Headers
	psn := h.BTH.PSN
	if !q.send.isOutstanding(psn) {
		q.handleStaleAcknowledge(h)
		return
	}
	switch h.AETH.Syndrome.Kind() {
	case ib.SyndromeACK:
		isAnswer := q.hearReplies(psn.Add(1)) || q.hearProbe()
		if q.acknowledge(psn.Add(1)) {
			q.learnCredit(h.AETH)
		} else if !isAnswer {
			q.handleImpliedNak(psn.Add(1))
		}
	case ib.SyndromeRNRNAK:
		q.host.Count(work.CountRcvdRNR, 1)
		q.noteNak(h.AETH.Syndrome, psn)
		if !q.acknowledge(psn) {
			q.handleImpliedNak(psn)
			q.holdBack(psn, h.AETH.Syndrome.RNRTimer())
		} else {
			q.waitForReceiver(h.AETH.Syndrome.RNRTimer())
		}
	case ib.SyndromeNAK:
		q.noteNak(h.AETH.Syndrome, psn)
		if q.acknowledge(psn) {
			q.handleNak(h.AETH.Syndrome)
		} else {
			q.handleImpliedNak(psn)
		}
	case ib.SyndromeReserved:
		q.host.Count(work.CountDroppedSilently, 1)
	}
}

// handleStaleAcknowledge takes one that acknowledges nothing new. A repetition of the last may
// bring credits; anything else is a ghost (IBTA 9.7.5.1.4).
func (q *QP) handleStaleAcknowledge(h *ib.Headers) {
	// Whatever it acknowledges, no request asked for it.
	isAnswer := q.hearReplies(q.recv.window.askPSN)
	isACK := h.AETH.Syndrome.Kind() == ib.SyndromeACK
	isLast := isACK && h.BTH.PSN.Add(1) == q.send.una
	if isLast {
		q.learnCredit(h.AETH)
	}
	if isACK && (isAnswer || q.hearProbe()) || isLast {
		return
	}
	q.host.Count(work.CountDroppedSilently, 1)
}

// learnCredit takes the credits of an acknowledge for everything before una.
func (q *QP) learnCredit(a ib.AETH) {
	r := &q.send
	n, ok := a.Syndrome.Credits().Decode()
	if !ok && !r.credit.isKnown {
		return
	}
	r.learnCredit(q.receivesAcknowledged(), n, ok)
}

// receivesAcknowledged counts the requests needing a receive that the peer has begun, as far as
// acknowledges tell.
func (q *QP) receivesAcknowledged() uint32 {
	r := &q.send
	if r.wrs.Len() == 0 {
		return r.receives
	}
	w := r.wrs.At(0)
	isBegun := w.op.kind == kindSend && w.index(r.una) > 0 && w.packets > 0
	if w.op.takesReceive && w.Fail == rdma.WCSuccess && !isBegun {
		return w.receives - 1
	}
	return w.receives
}

// acknowledge moves una to end, as far as the requests before need no data, and completes what is
// done. It reports false when a READ or atomic is missing its answer: then the acknowledge implies
// a NAK for it (IBTA 9.7.5.1.5).
//
// Preconditions: end is at most high.
func (q *QP) acknowledge(end rdma.PSN) bool {
	r := &q.send
	old := r.una
	isLimited := distance(old, r.high) >= r.window.size/2
	isImplied := false
	for r.una != end {
		w := r.wrs.At(0)
		if w.op.isAnswered() {
			isImplied = true
			break
		}
		if left := distance(r.una, w.end()); left > distance(r.una, end) {
			r.una = end
			break
		}
		r.una = w.end()
		q.completeHead()
	}
	q.releaseSlots()
	q.advance(old, isLimited)
	return !isImplied
}

// advance does what progress from old to una asks for.
func (q *QP) advance(old rdma.PSN, isLimited bool) {
	r := &q.send
	if r.una == old {
		return
	}
	if distance(r.una, r.psn) > distance(r.una, r.high) {
		r.psn, r.cur = r.una, 0 // the peer has more than was sent again
		r.window.restore()
	}
	for r.reads.Len() > 0 {
		x := r.reads.At(0)
		if distance(old, x.first.Add(x.packets)) > distance(old, r.una) {
			break
		}
		r.reads.Pop()
	}
	r.window.timed(r.una, q.now)
	r.window.grow(distance(old, r.una), r.una, isLimited)
	q.noteProgress()
	q.hearReplies(r.una)
	q.noteDrained()
}

// handleImpliedNak repeats from a missing READ response or atomic answer on. stray is the answer
// that gave it away: more of them follow from the same loss and say nothing new, until one is not
// later than the one before.
func (q *QP) handleImpliedNak(stray rdma.PSN) {
	s := &q.send.retry
	isNews := !s.wentBack || distance(q.send.una, stray) <= distance(q.send.una, s.strayPSN)
	s.strayPSN = stray
	if !isNews || q.hasJustGoneBack() {
		return
	}
	q.host.Count(work.CountCompleterSched, 1)
	q.retryLoss()
}

// noteNak remembers the last NAK for people.
func (q *QP) noteNak(s ib.Syndrome, psn rdma.PSN) {
	q.stats.LastNak, q.stats.LastNakPSN, q.stats.Naks = uint8(s), psn, q.stats.Naks+1
}

// handleNak takes a NAK for the packet una (IBTA 9.7.5.2).
func (q *QP) handleNak(s ib.Syndrome) {
	v := abi.VendorNak | abi.Vendor(s)<<8
	switch s.NAKCode() {
	case ib.NAKSequence:
		q.handleSequenceNak()
	case ib.NAKInvalidRequest:
		q.failHead(rdma.WCRemInvReqErr, v)
	case ib.NAKRemoteAccess:
		q.failHead(rdma.WCRemAccessErr, v)
	case ib.NAKRemoteOp:
		q.failHead(rdma.WCRemOpErr, v)
	default:
		q.failHead(rdma.WCBadRespErr, v)
	}
}

func (q *QP) handleSequenceNak() {
	s := &q.send.retry
	q.host.Count(work.CountRcvdSeqErr, 1)
	if s.isWaiting() {
		return // some peers send one after a receiver-not-ready NAK; the wait still holds
	}
	if q.hasJustGoneBack() {
		return
	}
	q.retryLoss()
}

// retryLoss goes back after a sign of loss. Reordering shows the same loss several times within a
// round trip, and a host without a processor loses what is repeated, too: of signs that come sooner
// than a timeout would, one costs one of retry_cnt, else a burst of them would end the connection.
func (q *QP) retryLoss() {
	r := &q.send
	r.window.cut(r.high)
	apart := max(limits.RetransmitInterval, r.window.rtt)
	if r.window.rtt == 0 {
		apart = 10 * limits.RetransmitInterval
	}
	apart = max(apart, q.ackTimeout())
	if r.retry.retries > 0 && q.now.Sub(r.retry.countedAt) < apart {
		q.stats.Retries++
		q.goBack()
		return
	}
	q.retry(abi.VendorSequence)
}

// hasJustGoneBack reports that what was sent again cannot have been answered yet, so that a sign
// of loss is an old one.
func (q *QP) hasJustGoneBack() bool {
	r := &q.send
	return r.retry.wentBack && q.now.Sub(r.retry.wentBackAt) < r.window.rttMin
}
