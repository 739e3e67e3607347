package ibt

import (
	"time"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

const (
	// replyWindowMax is less than a requester's window: interfaces queue 1000 packets or so.
	replyWindowMax = limits.WindowPacketsMax / 2
	// replySilenceMin is the shortest time after which a question about READ data is taken for
	// lost, and replySilenceFirst the one before any was answered.
	replySilenceMin   = 4 * time.Millisecond
	replySilenceFirst = 20 * time.Millisecond
	// replySilencesMax is how many questions in a row a peer may leave unanswered that never has
	// answered one.
	replySilencesMax = 8
	// replyTick stands for the answer where no question can be asked.
	replyTick = time.Millisecond
)

// replyWindow bounds the READ data on the wire (ADR 0017). A requester that asks for no more at a
// time than it can take is left alone. To one that asks for megabytes, as adapters do, a window of
// packets is sent, and a question after every half of it: a repetition of a request that the peer
// has executed long ago, which it has to acknowledge (IBTA 9.7.4.1.1). Since packets of a queue
// pair do not overtake each other, the answer says that what was sent before has left the path.
// Where no question can be asked, a tick of the clock replaces the answer.
type replyWindow struct {
	window window
	// isGreedy: the peer has asked for more at a time than one that bounds itself would.
	isGreedy bool
	// Twice free is how many packets may be asked for at a time without a window. Losses halve it
	// and success adds to it, as to a requester's window: one that bounds what it asks for by such
	// a window stays within.
	free, freed uint32
	// hasLost: READ data were lost once at least, the last time at begun.
	hasLost bool
	// isOn: the replies in progress are bounded by the window; wasOn: so was the last packet sent.
	isOn, wasOn bool
	// isTuned: data were lost although a blind window bounded them.
	isTuned bool
	// sent counts packets, modulo 2^32; up to heard they have left the path, and the question in
	// hand is about those up to asked. The round that ends with the next loss began at begun.
	sent, asked, heard, begun uint32
	next                      rdma.PSN // after the last packet sent
	isAskDue                  bool
	isAsking                  bool
	isTicking                 bool     // the question in hand is a tick
	isAnswerDue               bool     // to a question of this round or an earlier one
	hasAnswered               bool     // one question at least
	askPSN                    rdma.PSN // an answer that acknowledges so much came after the question
	askDeadline               clock.Time
	silences                  uint32 // questions in a row without an answer
}

func (w *replyWindow) reset() {
	*w = replyWindow{askDeadline: clock.Never, free: limits.WindowPacketsMax / 2}
	w.window.reset()
}

// stop ends the present round: nothing more is waited for.
func (w *replyWindow) stop() {
	w.isOn = false
	w.forget()
}

// forget takes all that was sent for gone from the path, with or without success.
func (w *replyWindow) forget() {
	w.asked, w.heard = w.sent, w.sent
	w.isAskDue, w.isAsking, w.askDeadline = false, false, clock.Never
	w.window.isTiming = false
}

// isFull reports that no READ data may be sent now.
func (w *replyWindow) isFull() bool { return w.isOn && w.sent-w.heard >= w.window.size }

// mark is a place in the count of packets, as window wants it.
func mark(n uint32) rdma.PSN { return rdma.PSN(n) & rdma.PSNMask }

// watchReplies turns the window on when the peer has asked for much at a time. One that has never
// asked for more than our own requesters do is taken for one of them: it asks for less after a
// loss by itself, and a second bound, which does not know when losses were none, only slows it.
func (q *QP) watchReplies() {
	r := &q.recv
	w := &r.window
	if w.isOn || q.attr.Segment != 0 {
		return // inside a NIC no packet is lost
	}
	var owed uint32
	for i := r.firstActive; i < r.resources.Len(); i++ {
		if x := r.resources.At(i); x.isActive && x.kind == kindRead {
			owed += packetsOf(x.left, q.mtu)
			w.isGreedy = w.isGreedy || packetsOf(x.reth.Length, q.mtu) > limits.WindowPacketsMax
		}
	}
	// A window's worth, and as much that is sent again without need.
	w.isGreedy = w.isGreedy || owed >= 2*limits.WindowPacketsMax
	if w.isGreedy && owed > 2*w.free {
		w.isOn = true
		w.begun = w.sent
		w.forget()
	}
}

// countReply takes the packet psn of READ data that is being sent.
func (q *QP) countReply(psn rdma.PSN) {
	w := &q.recv.window
	w.sent++
	w.next = psn.Add(1)
	w.wasOn = w.isOn
	if w.isOn {
		q.planQuestion()
		return
	}
	if w.freed++; w.freed >= w.free {
		w.freed = 0
		w.free = min(w.free+1, limits.WindowPacketsMax/2)
	}
}

// planQuestion has half a window's worth of packets followed by a question.
func (q *QP) planQuestion() {
	w := &q.recv.window
	switch {
	case w.isAsking || w.sent-w.heard < (w.window.size+1)/2:
	case q.canAskPeer():
		w.isAskDue = true
	default:
		w.isAsking, w.isTicking = true, true
		w.asked = w.sent
		w.askDeadline = q.now.Add(replyTick)
	}
}

// canAskPeer reports that a question would be understood: the QP has a sequence for requests, and
// the peer is not known to be deaf to questions.
func (q *QP) canAskPeer() bool {
	w := &q.recv.window
	return q.state != rdma.QPStateRTR && !q.isXRCRecv() &&
		(w.hasAnswered || w.silences < replySilencesMax)
}

// askPeer makes the question: an empty WRITE with the number of the last request acknowledged. The
// responder at the other end only acknowledges it, whatever that request was.
func (q *QP) askPeer(p *Packet) {
	r := &q.send
	w := &q.recv.window
	w.isAskDue, w.isAsking, w.isTicking, w.isAnswerDue = false, true, false, true
	w.asked = w.sent
	w.askPSN = r.high
	w.window.time(mark(w.asked), q.now)
	wait := replySilenceFirst
	if w.window.rtt != 0 {
		wait = max(replySilenceMin, 2*w.window.rtt)
	}
	w.askDeadline = q.now.Add(wait << min(w.silences, 3))
	q.sendQuestion(p)
}

func (q *QP) sendQuestion(p *Packet) {
	r := &q.send
	var about sendWR
	w := &about // nothing is under way
	if r.wrs.Len() > 0 {
		w = r.wrs.At(0)
	}
	q.startRequest(p, w, ib.RCWriteOnly, r.una.Add(rdma.PSNMask))
	p.Headers.BTH.AckReq = true
	p.Headers.RETH = ib.RETH{}
	q.stats.Questions++
}

// hearReplies takes an acknowledge of everything before end and reports whether it answers a
// question. One that covers less than was sent before the question is about earlier requests. The
// answer says nothing about READ data for ourselves, which may have been asked for again meanwhile.
func (q *QP) hearReplies(end rdma.PSN) bool {
	w := &q.recv.window
	if !w.isAnswerDue || !w.askPSN.LessEq(end) {
		return false
	}
	w.isAnswerDue = false
	if !w.isAsking || w.isTicking {
		return true // too late
	}
	n := w.asked - w.heard
	w.heard = w.asked
	w.isAsking, w.askDeadline = false, clock.Never
	w.hasAnswered, w.silences = true, 0
	if d := w.window.timed(mark(w.asked+1), q.now); d > 2*w.window.rttMin+rttSlack {
		// A queue grows somewhere. It must not come to a loss, which many a peer finds out by a
		// timeout only.
		w.window.size = max(w.window.size-w.window.size/8, limits.WindowPacketsMin)
	} else {
		w.window.grow(n, mark(w.heard), true)
	}
	w.window.size = min(w.window.size, replyWindowMax)
	q.planQuestion()
	return true
}

// handleReplySilence goes on without an answer: question or answer was lost, and with it perhaps
// data; or it was time that had to pass.
func (q *QP) handleReplySilence() {
	w := &q.recv.window
	if w.isTicking {
		n := w.asked - w.heard
		w.heard = w.asked
		w.isAsking, w.askDeadline = false, clock.Never
		w.window.growBlind(n, w.isTuned)
		w.window.size = min(w.window.size, replyWindowMax)
		q.planQuestion()
		return
	}
	w.silences++
	w.window.cut(mark(w.sent))
	w.forget()
}

// noteReplyLoss takes a repeated READ request, for data from psn on that were sent, as the news of
// their loss. Those for other requests that follow it say the same.
func (q *QP) noteReplyLoss(psn rdma.PSN) {
	w := &q.recv.window
	if w.hasLost && w.sent == w.begun {
		return
	}
	switch {
	case !w.wasOn:
		w.free, w.freed = max(w.free/2, limits.WindowPacketsMin), 0
	case q.canAskPeer():
		w.window.cut(mark(w.sent))
	default:
		count := w.sent - w.begun
		w.window.cutBlind(count - min(count, distance(psn, w.next)))
		w.isTuned = true
	}
	w.hasLost = true
	w.forget()
	w.begun = w.sent
}
