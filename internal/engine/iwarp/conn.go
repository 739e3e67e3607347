package iwarp

import (
	"syscall"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

// phase is where a connection is in its life.
type phase uint8

const (
	phaseIdle    phase = iota // initiator: before Request
	phaseRequest              // responder: the peer's request is coming in
	phaseDecide               // responder: EventRequest is out, Accept or Reject is due
	phaseReply                // initiator: the peer's reply is coming in
	phaseReject               // responder: a refusal is going out
	phaseRTR                  // responder: the reply is out, the peer has the first word
	phaseOpen
	phaseDrain     // open, until what was posted before Disconnect is done
	phaseTerminate // a Terminate is going out
	phaseClosed
)

// Conn is one MPA connection over a TCP stream. It has no lock: one thread owns it.
type Conn struct {
	cfg     ConnConfig
	buffers *Buffers
	now     clock.Time
	phase   phase
	qp      *QP
	events  work.Deque[Event]
	// deadline is when the phase ends by itself.
	deadline clock.Time
	end      End
	closing  Closing

	mpa setup
	tx  transmitter
	rx  receiver
	// mulpdu is the longest ULPDU to send.
	mulpdu int
	// message says whose message is framed in part; isRequestTurn alternates between the two.
	message       message
	isRequestTurn bool
	// isHeld keeps a responder that waits for no RTR silent until the initiator has sent something
	// (RFC 5044 7.1.2), or until the time has come that it takes for one that never will.
	isHeld bool
	// isLate says that the reply had not reached the peer when it was looked at last.
	isLate bool
	// isLocal says that both ends are connections of this NIC, see KeepLocal.
	isLocal bool
	// isShy keeps an initiator silent for a moment after the reply, see ConnConfig.Shyness.
	isShy bool
	wait  waiter
	nudge nudger
	stats ConnStats
	offer offer
}

// NewConn makes a connection over a stream that TCP has just established.
func NewConn(cfg ConnConfig) *Conn {
	if cfg.Revision == 0 {
		cfg.Revision = iwarp.Revision2
	}
	if cfg.MSS == 0 {
		cfg.MSS = limits.StreamMSSDefault
	}
	c := &Conn{cfg: cfg, buffers: cfg.Buffers, now: cfg.Now, deadline: clock.Never}
	if c.buffers == nil {
		c.buffers = NewBuffers()
	}
	if !cfg.Initiator {
		c.phase = phaseRequest
		c.deadline = c.now.Add(limits.MPARequestTimeout)
	}
	return c
}

// KeepLocal says, to both ends and before MPA is through, that the stream stays in memory of this
// NIC. FPDUs are then as long as can be, since there are no segments to fit, and without markers a
// CRC that was agreed on is neither computed nor checked: its field is 0 (ADR 0025).
func (c *Conn) KeepLocal() { c.isLocal = !c.mpa.isDone }

// QP returns the queue pair that the connection is attached to, or nil.
func (c *Conn) QP() *QP { return c.qp }

// IsOpen reports that MPA is through and the connection is not over.
func (c *Conn) IsOpen() bool { return c.phase == phaseOpen || c.phase == phaseDrain }

// IsSteady reports that both directions are open with nothing special about them: requests are
// framed as they are posted, no RTR is due or under way at this end, nobody has begun to end the
// connection, and there are no markers, with which all is as on a wire.
func (c *Conn) IsSteady() bool {
	return c.phase == phaseOpen && c.maySend() && !c.tx.hasMarkers && !c.rx.hasMarkers &&
		c.qp != nil && !c.qp.send.hasRTRRead
}

// IsClosed reports that EventClosed was queued.
func (c *Conn) IsClosed() bool { return c.phase == phaseClosed }

// Closing says what is to be done with the stream; CloseNone before EventClosed, or where the
// stream is gone.
func (c *Conn) Closing() Closing { return c.closing }

// End says how the connection has come to its end.
func (c *Conn) End() End { return c.end }

// PollEvent takes the oldest event.
func (c *Conn) PollEvent(e *Event) bool {
	if c.events.Len() == 0 {
		return false
	}
	*e = *c.events.At(0)
	c.events.Pop()
	return true
}

func (c *Conn) emit(e Event) { *c.events.Push() = e }

// PollTimeout returns when HandleTimeout wants to be called.
func (c *Conn) PollTimeout() clock.Time {
	t := min(c.deadline, c.nudgeTime())
	if c.wait.isWaiting {
		t = min(t, c.wait.look)
	}
	return t
}

// HandleTimeout does what is due.
func (c *Conn) HandleTimeout(now clock.Time) {
	c.enter(now)
	c.lookAgain()
	c.nudgePeer()
	if now < c.deadline || c.phase == phaseClosed {
		return
	}
	c.deadline = clock.Never
	switch c.phase {
	case phaseOpen:
		if c.holdOn() {
			return
		}
		c.isHeld = false
		c.beginTalking()
	case phaseRequest, phaseReply, phaseReject, phaseRTR, phaseDrain:
		c.fail(End{How: HowTimeout}, CloseAbort)
	case phaseTerminate:
		c.close(c.end, CloseAbort)
	case phaseIdle, phaseDecide, phaseClosed:
	}
}

// maySend reports that messages may be framed.
func (c *Conn) maySend() bool { return c.IsOpen() && !c.isHeld && !c.isShy }

// HasWork reports that Fill has something to do now.
func (c *Conn) HasWork() bool {
	if c.phase == phaseClosed {
		return false
	}
	return c.tx.ahead() > 0 || c.hasMessage()
}

// hasMessage reports that frameNext may have something to frame.
func (c *Conn) hasMessage() bool {
	q := c.qp
	if q == nil || !c.maySend() || !q.canRequest() {
		return false
	}
	switch c.message {
	case messageRequest:
		return q.hasRequest()
	case messageAnswer:
		return true
	case messageNone:
	}
	return q.recv.responses.Len() > 0 || q.hasRequest()
}

// Fill fills v with the next bytes to send, and reports whether there are any. They are valid until
// the next call into the engine, which says by HandleSent how many of them are on their way.
func (c *Conn) Fill(now clock.Time, v *work.Vector) bool {
	c.enter(now)
	v.Reset()
	if c.phase == phaseClosed {
		return false
	}
	for range framesPerFill {
		if c.tx.ahead() >= aheadBytes || c.tx.pieces.Len() >= piecesAhead || !c.frameNext() {
			break
		}
	}
	if c.phase == phaseClosed {
		return false
	}
	if !c.list(v) {
		c.loseMemory()
		v.Reset()
		return c.phase != phaseClosed && c.list(v) && v.Bytes > 0 // the Terminate
	}
	if v.Bytes == 0 {
		c.advance() // local operations may have been the last
	}
	return v.Bytes > 0
}

const (
	// piecesAhead bounds the pieces that are framed and not sent.
	piecesAhead = 2 * work.VectorPieces
	// framesPerFill bounds the FPDUs that a call frames, of which each may complete a request.
	framesPerFill = 512
)

// enter begins a call.
func (c *Conn) enter(now clock.Time) {
	c.now = now
	if c.qp != nil {
		c.qp.now = now
	}
}

// HandleSent says that TCP has taken the next n bytes of what Fill returned.
func (c *Conn) HandleSent(now clock.Time, n int) {
	c.enter(now)
	if c.phase == phaseClosed {
		return
	}
	c.take(n)
	if c.qp != nil {
		c.qp.completeDone(c.tx.sent)
	}
	if c.IsOpen() && c.tx.sent >= c.tx.origin {
		c.establish()
	}
	c.advance()
}

// advance goes on where all that was framed is sent.
func (c *Conn) advance() {
	if c.tx.ahead() > 0 {
		return
	}
	switch c.phase {
	case phaseReject:
		c.close(End{How: HowLocal}, CloseFIN)
	case phaseTerminate:
		c.close(c.end, CloseFIN)
	case phaseDrain:
		q := c.qp
		if q == nil || q.isFinished() && q.recv.responses.Len() == 0 {
			c.fail(End{How: HowLocal}, CloseFIN)
		}
	case phaseIdle, phaseRequest, phaseDecide, phaseReply, phaseRTR, phaseOpen, phaseClosed:
	}
}

// Disconnect ends the connection in order: what was posted before is done, then the stream ends.
func (c *Conn) Disconnect(now clock.Time) {
	c.enter(now)
	switch c.phase {
	case phaseOpen:
		c.phase = phaseDrain
		c.isHeld = false
		c.beginTalking()
		c.deadline = now.Add(limits.StreamDrainTimeout)
		if c.qp != nil {
			c.qp.finishQueue()
		}
		if c.phase == phaseDrain {
			c.advance()
		}
	case phaseDrain, phaseTerminate, phaseReject, phaseClosed:
	case phaseIdle, phaseRequest, phaseDecide, phaseReply, phaseRTR:
		c.fail(End{How: HowLocal}, CloseAbort)
	}
}

// HandleEnd says that the peer's direction of the stream ended: in order (0), or because the
// connection broke.
func (c *Conn) HandleEnd(now clock.Time, errno syscall.Errno) {
	c.enter(now)
	switch {
	case c.phase == phaseClosed:
	case errno == 0 && c.wait.isWaiting:
		c.wait.hasEnded = true
	case errno != 0:
		end := End{How: HowReset, Errno: errno}
		if c.phase == phaseTerminate {
			end = c.end
		}
		c.fail(end, CloseNone)
	case c.phase == phaseTerminate, c.phase == phaseReject:
		// What is on its way out is still worth saying.
	case c.rx.isInside(), !c.IsOpen():
		c.fail(End{How: HowPeer}, CloseAbort)
	default:
		c.fail(End{How: HowPeer}, CloseFIN)
	}
}

// abandon ends the connection for its queue pair's owner. What is not sent yet is not sent.
func (c *Conn) abandon(end End) {
	if c.phase == phaseClosed {
		return
	}
	if c.phase == phaseTerminate || c.phase == phaseReject {
		c.detach() // what is on its way out is still worth saying
		return
	}
	how := CloseFIN
	if c.tx.isInside() || !c.IsOpen() {
		how = CloseAbort
	}
	c.fail(end, how)
}

// fail puts the queue pair into error, if MPA has brought it to life, and closes.
func (c *Conn) fail(end End, how Closing) {
	if q := c.qp; q != nil && c.mpa.isDone {
		q.noteEnd(end.How)
		q.enterError()
	}
	c.close(end, how)
}

// close ends the connection.
func (c *Conn) close(end End, how Closing) {
	if c.phase == phaseClosed {
		return
	}
	c.phase, c.end, c.closing = phaseClosed, end, how
	c.deadline = clock.Never
	c.release()
	c.rx.release(c.buffers)
	c.wait, c.nudge = waiter{}, nudger{}
	c.detach()
	c.emit(Event{Kind: EventClosed, End: end})
}

// detach parts from the queue pair.
func (c *Conn) detach() {
	if c.qp != nil {
		c.qp.conn = nil
		c.qp = nil
	}
}
