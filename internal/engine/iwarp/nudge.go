package iwarp

import (
	"time"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

// nudger sends a peer that says nothing a WRITE of no bytes now and then. Linux's Soft-iWARP may
// overlook what comes right behind the MPA exchange, however long a moment it was given, and looks
// again only when more comes. To any other peer such a WRITE means nothing.
type nudger struct {
	due   clock.Time
	pause time.Duration
	left  int
}

const (
	nudges     = 5
	nudgeFirst = 50 * time.Millisecond
	nudgeMore  = 3 // times as long a pause each time
)

// beginNudging watches whether a peer that may be in need of it says something, once this end may
// speak at the time given.
func (c *Conn) beginNudging(at clock.Time) {
	if c.cfg.Shyness > 0 && !c.mpa.peer.LargeFPDU { // which no driver that needs it says
		c.nudge = nudger{due: at.Add(nudgeFirst), pause: nudgeFirst, left: nudges}
	}
}

// nudgeTime returns when the next one is due.
func (c *Conn) nudgeTime() clock.Time {
	if c.nudge.left == 0 {
		return clock.Never
	}
	return c.nudge.due
}

// nudgePeer sends one that is due. A peer that has spoken needs none, nor does one that has been
// told nothing yet; between the segments of a message there is no place for one, and while TCP is
// full no need.
func (c *Conn) nudgePeer() {
	n := &c.nudge
	if n.left == 0 || c.now < n.due {
		return
	}
	if c.stats.FPDUsReceived > 0 || c.rx.isInside() || c.phase != phaseOpen {
		n.left = 0
		return
	}
	n.left--
	n.pause *= nudgeMore
	n.due = c.now.Add(n.pause)
	if c.stats.FPDUsSent > 0 && c.message == messageNone && c.tx.ahead() == 0 && c.maySend() {
		c.frameSmall(&iwarp.Header{Opcode: iwarp.OpcodeWrite, Last: true, STag: rtrSTag}, nil)
	}
}
