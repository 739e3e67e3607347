package ibt

import (
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

const (
	// ackTimeoutMin is the shortest local ACK timeout in use. IBTA 9.7.6.1.3 lets a timer run up to
	// four times its nominal length and adds the adapter's own delay, which here is a time slice.
	ackTimeoutMin = 4 * time.Millisecond
	// unreachableWait is how long a peer without a NIC gets to come back, per retry.
	unreachableWait = time.Millisecond
	// probeMin and probesMax bound the probes for a lost tail.
	probeMin  = time.Millisecond
	probesMax = 5
	// rnrRetryForever is the rnr_retry that never ends (IBTA 9.7.5.2.8).
	rnrRetryForever = 7
)

// retryState is what the requester remembers about trouble. Progress clears it.
type retryState struct {
	retries   uint32     // against retry_cnt
	countedAt clock.Time // when the last of them was
	rnrTries  uint32     // against rnr_retry
	timeouts  uint32     // local ACK timeouts
	probes    uint32
	// isProbing: the next packet is a probe.
	isProbing bool
	// isQuestioned: a probe asked whether the data of the READ at una have left the path.
	isQuestioned bool
	// isUnreachable: an ICMP message says that nobody listens at the peer.
	isUnreachable bool
	// wentBack says that the sender has gone back since the last progress, at wentBackAt, and
	// strayPSN is the last answer that came out of turn since.
	wentBack   bool
	wentBackAt clock.Time
	strayPSN   rdma.PSN

	// heldPSN and what follows is not sent before heldTill: its receiver was not ready, although
	// data are missing that come before it. 0 is the past.
	heldPSN  rdma.PSN
	heldTill clock.Time

	ackDeadline   clock.Time // local ACK timeout (IBTA 9.7.6.1.3)
	rnrDeadline   clock.Time // end of a receiver-not-ready wait
	probeDeadline clock.Time
}

func (s *retryState) reset() {
	*s = retryState{
		ackDeadline: clock.Never, rnrDeadline: clock.Never, probeDeadline: clock.Never,
	}
}

func (s *retryState) isWaiting() bool { return s.rnrDeadline != clock.Never }

// ackTimeout returns the local ACK timeout, or 0 for none. A path that is slower than what was set
// gets the time that it takes: else every packet would be sent twice.
func (q *QP) ackTimeout() time.Duration {
	if q.attr.Timeout == 0 {
		return 0
	}
	return max(4096*time.Nanosecond<<(q.attr.Timeout&0x1f), ackTimeoutMin, 2*q.send.window.span)
}

// startTimers starts the timers that are not running, after a packet was sent.
func (q *QP) startTimers() {
	s := &q.send.retry
	t := q.ackTimeout()
	if t == 0 {
		return
	}
	if s.ackDeadline == clock.Never {
		s.ackDeadline = q.now.Add(t)
	}
	// The probe waits for silence after the last packet.
	q.startProbeTimer(t)
}

// startProbeTimer plans the question whether the last packet has arrived, well before the timeout
// t: where it has not, nobody else would notice soon.
func (q *QP) startProbeTimer(t time.Duration) {
	s := &q.send.retry
	wait := max(probeMin, 2*q.send.window.rtt) << s.probes
	if q.send.window.rtt == 0 {
		wait = max(wait, 10*time.Millisecond)
	}
	s.probeDeadline = clock.Never
	if s.probes < probesMax && wait < t/2 {
		s.probeDeadline = q.now.Add(wait)
	}
}

// noteProgress clears the memory of trouble after una has moved, and restarts the timers.
func (q *QP) noteProgress() {
	r := &q.send
	s := &r.retry
	heldPSN, heldTill := s.heldPSN, s.heldTill
	s.reset()
	r.isStalled = false
	if r.una == r.high {
		return
	}
	if heldTill > q.now && r.isOutstanding(heldPSN) {
		if heldPSN == r.una {
			s.rnrTries, s.rnrDeadline = 1, heldTill
			return
		}
		s.heldPSN, s.heldTill = heldPSN, heldTill
	}
	if t := q.ackTimeout(); t != 0 {
		s.ackDeadline = q.now.Add(t)
		q.startProbeTimer(t)
	}
}

// goBack sends again from una on (IBTA 9.7.3.1). una lies in the first request.
func (q *QP) goBack() {
	r := &q.send
	s := &r.retry
	r.psn, r.cur = r.una, 0
	r.window.isTiming = false
	r.isStalled = false
	s.isQuestioned = false
	s.wentBack, s.wentBackAt = true, q.now
	s.ackDeadline, s.probeDeadline, s.isProbing = clock.Never, clock.Never, false
	q.startTimers()
}

// retry goes back, or fails the oldest request when retry_cnt is used up (IBTA 9.9.2.4.2).
func (q *QP) retry(v abi.Vendor) {
	r := &q.send
	if r.wrs.Len() == 0 {
		return
	}
	r.retry.retries++
	r.retry.countedAt = q.now
	q.stats.Retries++
	if r.retry.retries > uint32(q.attr.RetryCnt) {
		if r.retry.isUnreachable {
			v = abi.VendorNoNIC
		}
		q.host.Count(work.CountRetryExceeded, 1)
		q.failHead(rdma.WCRetryExcErr, v)
		return
	}
	q.goBack()
}

// HandleTimeout does what is due at now.
func (q *QP) HandleTimeout(now clock.Time) {
	q.now = now
	s := &q.send.retry
	if q.recv.window.askDeadline <= now {
		q.handleReplySilence()
	}
	if !q.canRequest() {
		return
	}
	if s.rnrDeadline <= now {
		s.rnrDeadline = clock.Never
		q.goBack()
	}
	if s.heldTill != 0 && s.heldTill <= now {
		s.heldTill = 0
		q.send.isStalled = false
	}
	if s.ackDeadline <= now {
		q.handleAckTimeout()
	}
	if s.probeDeadline <= now {
		s.probeDeadline = clock.Never
		s.isProbing = true
		s.probes++
		q.send.isStalled = false
	}
}

func (q *QP) handleAckTimeout() {
	r := &q.send
	r.retry.ackDeadline = clock.Never
	if r.una == r.high {
		return
	}
	q.host.Count(work.CountAckTimeout, 1)
	q.stats.Timeouts++
	r.retry.timeouts++
	r.window.collapse(r.high)
	q.retry(abi.VendorAckTimeout)
}

// PollTimeout returns when HandleTimeout is due, clock.Never for not at all.
func (q *QP) PollTimeout() clock.Time {
	replies := q.recv.window.askDeadline
	if !q.canRequest() {
		return replies
	}
	s := &q.send.retry
	at := min(replies, s.ackDeadline, s.rnrDeadline, s.probeDeadline)
	if s.heldTill != 0 {
		at = min(at, s.heldTill)
	}
	return at
}

// HandleUnreachable takes the news that nobody listens at the peer's address. It may be a NIC that
// starts again, so the retries are spent, but quickly.
func (q *QP) HandleUnreachable(now clock.Time) {
	q.now = now
	r := &q.send
	if !q.isReliable() || !q.canRequest() || r.una == r.high || r.retry.isWaiting() {
		return
	}
	r.retry.isUnreachable = true
	r.retry.ackDeadline = min(r.retry.ackDeadline, now.Add(unreachableWait))
}

// waitForReceiver begins the wait that a receiver-not-ready NAK asks for.
func (q *QP) waitForReceiver(t ib.RNRTimer) {
	r := &q.send
	s := &r.retry
	if s.isWaiting() {
		return
	}
	s.rnrTries++
	if q.attr.RNRRetry < rnrRetryForever && s.rnrTries > uint32(q.attr.RNRRetry) {
		q.host.Count(work.CountRNRExceeded, 1)
		q.failHead(rdma.WCRNRRetryExcErr, abi.VendorRNR)
		return
	}
	s.ackDeadline, s.probeDeadline, s.isProbing = clock.Never, clock.Never, false
	s.rnrDeadline = q.now.Add(receiverWait(t))
	r.window.isTiming, r.window.isSpanning = false, false
}

// receiverWait is how long a receiver that is not ready is left alone. Waiting longer than asked
// is always right; much shorter waits only starve it.
func receiverWait(t ib.RNRTimer) time.Duration {
	return max(t.Duration(), limits.RetransmitInterval)
}

// holdBack keeps the packet psn, whose receiver is not ready, from being repeated together with
// the READ or atomic before it, whose answer is missing and is asked for again at once.
func (q *QP) holdBack(psn rdma.PSN, t ib.RNRTimer) {
	s := &q.send.retry
	if q.canRequest() && q.send.isOutstanding(psn) {
		s.heldPSN, s.heldTill = psn, q.now.Add(receiverWait(t))
	}
}

// isHeld reports that the next packet is held back.
func (q *QP) isHeld() bool {
	r := &q.send
	return r.retry.heldTill > q.now &&
		distance(r.una, r.psn) >= distance(r.una, r.retry.heldPSN)
}

// sendProbe sends the last packet once more, asking for an answer: an acknowledge when all has
// arrived, a sequence NAK when not. It costs nothing of retry_cnt.
//
// A READ is not asked for again before it is known that its data are missing: they may be many and
// on their way, and the kernel's driver, once asked for a part of a READ, refuses one for what
// precedes that part. A question is asked instead, whose answer comes after the data.
func (q *QP) sendProbe(p *Packet) bool {
	r := &q.send
	last := r.psn.Add(rdma.PSNMask) // psn−1
	w := q.findWR(last)
	if r.psn == r.una || w == nil || w.Fail != rdma.WCSuccess {
		return false
	}
	if w.op.kind == kindRead || w.op.kind == kindAtomic {
		last, w = r.una, r.wrs.At(0)
	}
	switch w.op.kind {
	case kindRead:
		q.sendQuestion(p)
		r.retry.isQuestioned = true
	case kindAtomic:
		q.sendAtomicRequest(p, w)
	case kindPlace:
		if !q.sendPlacement(p, w) {
			return false
		}
	default:
		if !q.sendSegment(p, w, w.index(last)) {
			return false
		}
		p.Headers.BTH.AckReq = true
	}
	r.window.isTiming = false // what is repaired now says nothing about the path
	q.stats.Probes++
	q.startTimers()
	return true
}

// hearProbe takes an acknowledge that answers the probe of a READ: its data would have come before.
func (q *QP) hearProbe() bool {
	s := &q.send.retry
	if !s.isQuestioned {
		return false
	}
	s.isQuestioned = false
	q.host.Count(work.CountCompleterSched, 1)
	q.send.window.cut(q.send.high)
	q.goBack()
	return true
}

// findWR returns the request that an outstanding PSN belongs to.
func (q *QP) findWR(p rdma.PSN) *sendWR {
	r := &q.send
	for i := range r.wrs.Len() {
		if w := r.wrs.At(i); w.index(p) < w.packets {
			return w
		}
	}
	return nil
}
