package iwarp

import (
	"time"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

// waiter holds a connection up while a message has come that takes a receive, and none is posted.
// The peer is within its rights: it has no means to know, and programs that post again as fast as
// they can are sometimes a moment late. Meanwhile the stream is not read, so that TCP slows the
// peer down; after a time the peer is told (RFC 5041 7.1).
type waiter struct {
	isWaiting bool
	// look is when the queue is looked at again, until when that is given up.
	look, until clock.Time
	pause       time.Duration
	ulpdu       []byte // the segment, where FPDUs are worked on when they are all there
	late        []byte // what came behind it
	hasEnded    bool   // FIN came behind that
}

const (
	// lookFirst and lookLast bound the time between two looks. A queue pair's own receive queue
	// says when something is posted, one that queue pairs share does not.
	lookFirst = 50 * time.Microsecond
	lookLast  = time.Millisecond
	// lateMax bounds what is kept of an owner that does not heed IsWaiting.
	lateMax = 1 << 20
)

// IsWaiting reports that nothing is to be read from the stream now. HandleTimeout and the queue
// pair's doorbell end it.
func (c *Conn) IsWaiting() bool { return c.wait.isWaiting }

// mustWait judges a segment, by what begins it, that is about to be worked on.
func (c *Conn) mustWait(b []byte) bool {
	w := &c.wait
	if c.cfg.Patience == 0 || b[0]&0x80 != 0 || c.hasReceive() { // 0x80: tagged
		return false
	}
	var h iwarp.Header
	if _, err := h.Parse(b); err != nil {
		return false
	}
	r := &c.qp.recv
	isFirst := h.MSN == r.sendMSN && h.MO == 0 && !r.hasWR
	isRTR := c.phase == phaseRTR && c.mpa.rtr == RTRSend
	kind := h.Opcode.Info().Kind
	if !isFirst || isRTR || kind != iwarp.KindSend && kind != iwarp.KindImmediate {
		return false
	}
	if !w.isWaiting {
		w.isWaiting, w.pause = true, lookFirst
		w.look, w.until = c.now.Add(lookFirst), c.now.Add(c.cfg.Patience)
	}
	return true
}

// hasReceive reports a receive that can be taken, or a queue that does not tell.
func (c *Conn) hasReceive() bool {
	q, ok := c.qp.cfg.RQ.(work.CreditSource)
	return !ok || q.Available() > 0
}

// keep keeps bytes that have to wait.
func (c *Conn) keep(b []byte) {
	w := &c.wait
	w.late = append(w.late, b...)
	if len(w.late) > lateMax {
		c.goOn(true)
	}
}

// lookAgain goes on if there is a receive now, or when it is time to give up.
func (c *Conn) lookAgain() {
	w := &c.wait
	switch {
	case !w.isWaiting:
	case c.hasReceive():
		c.goOn(false)
	case c.now >= w.until:
		c.goOn(true)
	case c.now >= w.look:
		w.pause = min(2*w.pause, lookLast)
		w.look = c.now.Add(w.pause)
	}
}

// goOn works on what waited; isLast says that there is no more waiting on this connection, and the
// peer is told what is amiss.
func (c *Conn) goOn(isLast bool) {
	w := &c.wait
	late := w.late
	w.isWaiting, w.late = false, nil
	if isLast {
		c.cfg.Patience = 0
	}
	if c.rx.hasCRC || c.rx.hasMarkers {
		c.handleULPDU(w.ulpdu)
		c.handleWhole(late)
	} else {
		c.handleParts(late)
	}
	if w.hasEnded && !w.isWaiting {
		w.hasEnded = false
		c.HandleEnd(c.now, 0)
		return
	}
	c.advance()
}
