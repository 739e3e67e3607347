package ibt

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
)

// requester is the sending half: work requests from the send queue become request packets.
//
//	una            psn             high              next
//	 |--- on the wire ---|--- sent before, again ---|--- unsent ---|
//
// una ≤ psn ≤ high ≤ next in the order of sequence numbers. psn runs ahead of high in normal
// times and falls back after a loss. Completed requests have left wrs, so una lies in its first.
type requester struct {
	ring      *ring.Consumer
	unfetched uint32 // published entries that are not in wrs yet
	popped    uint32 // completed requests whose entries the application has not got back yet
	own       uint32 // requests in wrs that are not the program's, and have no entry in the ring
	wrs       work.Deque[sendWR]
	cur       int // the request of wrs that psn belongs to; wrs.Len(): one not fetched yet
	reads     work.Deque[readRange]

	psn  rdma.PSN // of the next packet
	una  rdma.PSN // oldest packet not acknowledged
	high rdma.PSN // after the newest packet sent
	next rdma.PSN // after the last request fetched

	// sent counts requests at the head of wrs of UC and UD that are on their way; they complete
	// at the next call, when the last packet's payload is not needed any more.
	sent     int
	receives uint32 // fetched requests that need a receive at the peer, modulo 2^32
	sinceAck uint32 // packets since one that asked for an acknowledge
	// isStalled says that nothing can be sent until something happens.
	isStalled    bool
	isDrainNoted bool

	window window
	credit creditLimit
	retry  retryState
}

// readRange is one READ or atomic request on the wire: the PSNs that its answer takes. A long READ
// is asked for in several, so that the answer to one is not larger than the window.
type readRange struct {
	first   rdma.PSN
	packets uint32
}

// creditLimit is the end-to-end flow control of IBTA 9.7.7.2, counted in requests that need a
// receive instead of all messages.
type creditLimit struct {
	isKnown bool
	// last is the number of the last such request that may be sent freely.
	last uint32
}

func (r *requester) reset() {
	r.unfetched, r.popped, r.own = 0, 0, 0
	r.wrs = work.Deque[sendWR]{} // with the copies, which may be large
	r.receives = 0
	r.isStalled, r.isDrainNoted = false, false
	r.restartAt(0)
}

// restartAt begins the sequence at p with nothing on the wire.
func (r *requester) restartAt(p rdma.PSN) {
	r.psn, r.una, r.high, r.next = p, p, p, p
	r.cur, r.sent, r.sinceAck = 0, 0, 0
	r.reads.Cut(0)
	r.credit = creditLimit{}
	r.window.reset()
	r.retry.reset()
}

// inFlight returns the packets sent since the oldest one that is not acknowledged.
func (r *requester) inFlight() uint32 { return distance(r.una, r.psn) }

// isFresh reports that psn is not a repetition.
func (r *requester) isFresh() bool { return r.psn == r.high }

// isOutstanding reports that p was sent and is not acknowledged.
func (r *requester) isOutstanding(p rdma.PSN) bool {
	return distance(r.una, p) < distance(r.una, r.high)
}

// HandleDoorbell looks for posted work. Before RTS it stays in the queue; in error it is flushed.
func (q *QP) HandleDoorbell(now clock.Time) {
	q.now = now
	switch q.state {
	case rdma.QPStateRTS, rdma.QPStateSQD:
		q.loadSendRing()
		q.send.isStalled = false
	case rdma.QPStateSQE, rdma.QPStateError:
		q.startFlush()
	default:
		// The work waits.
	}
}

// loadSendRing counts what the application has published. An index that no library of ours writes
// is the end of the QP: what else lies in the ring means nothing.
func (q *QP) loadSendRing() {
	r := &q.send
	if r.ring == nil {
		return
	}
	n, ok := r.ring.Pending()
	used := r.used()
	if !ok || n < used {
		q.stats.CorruptRings++
		q.host.Note(q, work.Cause{Vendor: abi.VendorBadWQE})
		q.host.Raise(q, rdma.EventQPFatal)
		q.enterError()
		return
	}
	r.unfetched = n - used
}

// used returns how many entries of the ring belong to requests that were fetched.
func (r *requester) used() uint32 { return r.popped + uint32(r.wrs.Len()) - r.own }

// hasRequest reports that pollRequest may have something to send or to fetch.
func (q *QP) hasRequest() bool {
	r := &q.send
	if r.sent > 0 {
		return true
	}
	if !q.canRequest() || r.isStalled || r.retry.isWaiting() {
		return false
	}
	if q.state == rdma.QPStateSQD && q.isDrained() {
		return false
	}
	return r.retry.isProbing || r.cur < r.wrs.Len() || r.unfetched > 0 || q.hasOwnRequest()
}

// pollRequest makes the next request packet.
func (q *QP) pollRequest(p *Packet) bool {
	q.finishSent()
	r := &q.send
	for range limits.WQEsPerDoorbell {
		if !q.hasRequest() {
			return false
		}
		if r.retry.isProbing {
			r.retry.isProbing = false
			if q.sendProbe(p) {
				return true
			}
			continue
		}
		w := q.currentWR()
		if w == nil {
			// A draining QP leaves what it has not begun; else the ring is empty.
			r.isStalled = q.state == rdma.QPStateSQD
			return false
		}
		if w.Fail != rdma.WCSuccess {
			if r.cur > 0 {
				r.isStalled = true // those before it complete first
				return false
			}
			q.failHead(w.Fail, w.Vendor)
			continue
		}
		if !w.isDone && !q.maySend(w) {
			r.isStalled = true
			return false
		}
		if w.op.kind == kindLocal {
			q.executeLocal(w)
			continue
		}
		if q.sendPacket(p, w) {
			return true
		}
	}
	return false
}

// currentWR returns the request that psn belongs to and fetches it if need be. A draining QP
// begins none.
func (q *QP) currentWR() *sendWR {
	r := &q.send
	if r.cur < r.wrs.Len() {
		w := r.wrs.At(r.cur)
		if q.state == rdma.QPStateSQD && r.isFresh() && w.index(r.psn) == 0 {
			return nil
		}
		return w
	}
	if q.state == rdma.QPStateSQD {
		return nil
	}
	return q.fetch()
}

// maySend asks everything that can hold back the next packet of w.
func (q *QP) maySend(w *sendWR) bool {
	if !q.isReliable() {
		return true
	}
	r := &q.send
	if r.inFlight() >= r.window.size || r.isProbingReceiver() || q.isHeld() {
		return false
	}
	if w.op.takesReceive && !q.hasCredit(w) {
		return false
	}
	if w.op.kind == kindRead && q.readPackets(w) == 0 {
		return false
	}
	if !r.isFresh() || w.index(r.psn) > 0 && w.op.kind != kindRead {
		return true
	}
	if w.Has(rdma.SendFence) && w.index(r.psn) == 0 && r.reads.Len() > 0 {
		return false // IBTA 10.8.3.3
	}
	if w.op.isAnswered() {
		return r.reads.Len() < int(q.attr.MaxRdAtomic)
	}
	return true
}

// isProbingReceiver keeps a single packet on the wire after a receiver-not-ready NAK, until the
// receiver has shown that it is ready.
func (r *requester) isProbingReceiver() bool { return r.retry.rnrTries > 0 && r.psn != r.una }

// hasCredit applies IBTA 9.7.7.2.5. Without credits a message may send one packet and wait for its
// acknowledge; once that is here the message has its receive.
func (q *QP) hasCredit(w *sendWR) bool {
	r := &q.send
	if !r.credit.isKnown || int32(w.receives-r.credit.last) <= 0 {
		return true
	}
	if w.op.kind == kindWrite && w.index(r.psn)+1 < w.packets {
		return true // the receive belongs to the immediate data in the last packet
	}
	if w.op.kind == kindSend && w.index(r.psn) > 0 {
		if acked := w.index(r.una); acked > 0 && acked <= w.index(r.psn) {
			return true
		}
	}
	return r.psn == r.una
}

// isLimited reports that w goes out without credit, so that its packet has to ask for an answer.
func (r *requester) isLimited(w *sendWR) bool {
	return r.credit.isKnown && w.op.takesReceive && int32(w.receives-r.credit.last) > 0
}

// learnCredit takes the credits of an acknowledge for the request numbered upTo (IBTA 9.7.7.2).
func (r *requester) learnCredit(upTo uint32, n int, ok bool) {
	if !ok {
		r.isStalled = r.isStalled && !r.credit.isKnown
		r.credit = creditLimit{}
		return
	}
	last := upTo + uint32(n)
	if !r.credit.isKnown || int32(last-r.credit.last) > 0 {
		r.credit = creditLimit{isKnown: true, last: last}
		r.isStalled = false
	}
}
