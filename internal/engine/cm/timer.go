package cm

import (
	"time"

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
	case StateQueryAnswered:
		e.close(c)
	default: // an answer is due, or a rejection may have been lost
		if c.triesLeft > 0 {
			c.triesLeft--
			e.stats.Resent.addMAD(c.sent[:])
			e.transmit(c)
			e.timers.set(c, now.Add(c.interval(now)))
			return
		}
		e.giveUp(now, c)
	}
}

// giveUp ends what the peer does not answer.
func (e *Engine) giveUp(now clock.Time, c *conn) {
	switch c.state {
	case StateRejected:
		e.close(c)
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

// await sends what c holds and waits for the answer: in all as long as the timeout and the count of
// repetitions ask for.
func (e *Engine) await(now clock.Time, c *conn, state State) {
	c.state = state
	c.triesLeft, c.step = c.triesMax, limits.CMRepeatFirst
	c.patience = now.Add(time.Duration(c.triesMax+1) * duration(c.timeout))
	e.timers.set(c, now.Add(c.interval(now)))
	e.transmit(c)
}

// interval is how long to wait for an answer now. The timeout is what the peer may take at most
// (IBTA 12.7.4); most answers come in a thousandth of it, and a message that was lost would cost
// all of it. So the first repetitions come early, each after twice the time of the one before; the
// others, two at least, share the time that is left. There are as many as without, and a peer that
// is merely slow knows duplicates.
func (c *conn) interval(now clock.Time) time.Duration {
	left := max(c.patience.Sub(now), duration(limits.CMTimeoutMin))
	if c.triesLeft == 0 {
		return left
	}
	if early := duration(c.step); early < duration(c.timeout) && c.triesLeft > 2 {
		c.step++
		return early
	}
	return left / time.Duration(c.triesLeft+1)
}

// waitFor puts the end of all patience off: the peer says that its answer takes that much longer.
// It is alive, so that this costs no repetition.
func (e *Engine) waitFor(now clock.Time, c *conn, d time.Duration) {
	d += duration(c.timeout)
	c.step = limits.CMTimeoutMax
	c.patience = now.Add(d + time.Duration(c.triesLeft)*duration(c.timeout))
	e.timers.set(c, now.Add(d))
}
