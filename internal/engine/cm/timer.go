package cm

import (
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/limits"
)

// noTimer is the index of a connection without a deadline.
const noTimer = -1

// timers is a heap of connections, the one whose deadline comes first on top.
type timers []*conn

// set gives a connection a deadline in place of what it had.
func (t *timers) set(c *conn, deadline clock.Time) {
	if c.timer == noTimer {
		c.timer = len(*t)
		*t = append(*t, c)
	}
	c.deadline = deadline
	t.up(c.timer)
	t.down(c.timer)
}

// stop takes a connection's deadline away.
func (t *timers) stop(c *conn) {
	if c.timer == noTimer {
		return
	}
	i, last := c.timer, len(*t)-1
	t.swap(i, last)
	(*t)[last] = nil
	*t = (*t)[:last]
	c.timer = noTimer
	if i < last {
		t.up(i)
		t.down(i)
	}
}

func (t timers) swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].timer, t[j].timer = i, j
}

func (t timers) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if t[parent].deadline <= t[i].deadline {
			return
		}
		t.swap(i, parent)
		i = parent
	}
}

func (t timers) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(t) {
			return
		}
		if child+1 < len(t) && t[child+1].deadline < t[child].deadline {
			child++
		}
		if t[i].deadline <= t[child].deadline {
			return
		}
		t.swap(i, child)
		i = child
	}
}

// PollTimeout returns when HandleTimeout is due.
func (e *Engine) PollTimeout() clock.Time {
	if len(e.timers) == 0 {
		return clock.Never
	}
	return e.timers[0].deadline
}

// HandleTimeout does what is due. What one call leaves over keeps PollTimeout in the past.
func (e *Engine) HandleTimeout(now clock.Time) {
	for range limits.CMTimeoutsPerCall {
		if len(e.timers) == 0 || e.timers[0].deadline > now {
			return
		}
		e.expire(now, e.timers[0])
	}
}

// expire serves a connection whose deadline has come.
func (e *Engine) expire(now clock.Time, c *conn) {
	switch c.state {
	case StateTimewait:
		e.close(c)
		e.raise(c, &Event{Kind: EventTimewaitExit})
	case StateRejected, StateQueryAnswered:
		e.close(c)
	default: // an answer is due
		if c.triesLeft > 0 {
			c.triesLeft--
			e.stats.Resent.addMAD(c.sent[:])
			e.transmit(c)
			e.timers.set(c, now.Add(duration(c.timeout)))
			return
		}
		e.giveUp(now, c)
	}
}

// giveUp ends what the peer does not answer.
func (e *Engine) giveUp(now clock.Time, c *conn) {
	switch c.state {
	case StateDisconnectSent:
		e.disconnected(now, c, &Event{How: DisconnectedByTimeout})
	case StateQuerySent:
		e.close(c)
		e.raise(c, &Event{Kind: EventUnreachable})
	default:
		e.sendTimeout(c)
		e.close(c)
		e.raise(c, &Event{Kind: EventUnreachable})
	}
}

// await sends what c holds and waits for the answer.
func (e *Engine) await(now clock.Time, c *conn, state State) {
	c.state, c.delayed = state, false
	c.triesLeft = c.triesMax
	e.timers.set(c, now.Add(duration(c.timeout)))
	e.transmit(c)
}
