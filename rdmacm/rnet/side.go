package rnet

import (
	"runtime"
	"time"
)

// side is one direction of a connection as its callers see it: what ends their waiting. All fields
// but wake are guarded by the connection's mu.
type side struct {
	wake   chan struct{} // has a token when there is something to look at
	asleep bool

	at      time.Time // deadline; zero is none
	expired bool
	timer   *time.Timer
}

// signal wakes who waits; also one that is about to.
func (s *side) signal() {
	s.asleep = false
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// setDeadlineLocked changes when calls in one direction end.
func (c *Conn) setDeadlineLocked(s *side, t time.Time) {
	wait := time.Until(t)
	s.at, s.expired = t, !t.IsZero() && wait <= 0
	switch {
	case t.IsZero() || s.expired:
		if s.timer != nil {
			s.timer.Stop()
		}
	case s.timer == nil:
		s.timer = time.AfterFunc(wait, func() { c.expire(s) })
	default:
		s.timer.Reset(wait)
	}
	s.signal()
}

// expire runs when a timer fires, perhaps one of a deadline that was changed meanwhile.
func (c *Conn) expire(s *side) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !s.at.IsZero() && !time.Now().Before(s.at) {
		s.expired = true
		s.signal()
	}
}

// looksBeforeSleep is how often a waiting call looks at the completion queue, each time after
// others could run, before it sleeps: an answer from this host comes within that time.
const looksBeforeSleep = 16

// waitLocked returns when something may have changed. It gives mu up meanwhile.
func (c *Conn) waitLocked(s *side) {
	for range looksBeforeSleep {
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
		if c.drainLocked() || s.expired {
			return
		}
	}
	s.asleep = true
	if !c.armLocked() {
		s.asleep = false
		return
	}
	c.mu.Unlock()
	<-s.wake
	c.mu.Lock()
	s.asleep = false
}

// armLocked asks for an event unless one is on its way. It reports false if there is news already.
func (c *Conn) armLocked() bool {
	if c.armed {
		return c.err == nil
	}
	if err := c.cq.RequestNotify(false); err != nil {
		c.failLocked(err)
		return false
	}
	c.armed = true
	return !c.drainLocked()
}

// handleEvent runs in the pump's goroutine.
func (c *Conn) handleEvent() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = false
	c.drainLocked()
	// What came may be of no interest to who sleeps.
	for (c.reads.asleep || c.writes.asleep) && !c.armLocked() {
		if c.err != nil {
			return
		}
	}
}
