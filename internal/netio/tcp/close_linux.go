package tcp

import (
	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/nic"
)

// Close implements nic.StreamPort. A connection whose peer has not sent FIN yet is kept for a
// while and what still comes is dropped: were it closed with bytes unread, the kernel would reset
// it, and the peer might lose the last that we sent, which says why.
func (p *Port) Close(id nic.StreamID) {
	s := p.byID[id]
	if s == nil {
		return
	}
	if s.state != open {
		p.discard(s)
		return
	}
	p.counters.add(ClosedHere, 1)
	p.ended(s, EndSent)
	err := unix.Shutdown(s.fd, unix.SHUT_WR)
	if s.finished || s.broken != 0 || err != nil {
		p.discard(s)
		return
	}
	delete(p.byID, id)
	s.state = lingering
	s.isPaused = false
	s.until = p.config.Now().Add(p.config.Linger)
	p.linger.push(s)
	s.readable = true
	p.enqueue(s)
	for p.linger.len() > lingeringMax {
		p.discardFirst()
	}
}

// Abort implements nic.StreamPort.
func (p *Port) Abort(id nic.StreamID) {
	s := p.byID[id]
	if s == nil {
		return
	}
	if s.state == open {
		p.counters.add(ResetHere, 1)
		p.ended(s, ResetSent)
	}
	resetOnClose(s.fd)
	p.discard(s)
}

// discardBytes drops what a closed connection still receives, and ends it with the peer's FIN.
func (p *Port) discardBytes(_ clock.Time, s *socket) int {
	if p.buffer == nil {
		p.buffer = make([]byte, receiveBytes)
	}
	// With MSG_TRUNC TCP copies nothing (tcp(7)).
	n, errno := receive(s.fd, p.buffer, unix.MSG_TRUNC)
	switch {
	case errno == unix.EINTR:
		return 0
	case errno == unix.EAGAIN:
		s.readable = false
		return 0
	case errno != 0:
		p.ended(s, ResetReceived)
		p.discard(s)
		return 0
	case n == 0:
		p.ended(s, EndReceived)
		p.discard(s)
		return 0
	}
	s.readable = n == len(p.buffer) || s.ending
	return n
}

// bury closes streams that have lingered long enough, and forgets those that are closed.
func (p *Port) bury(now clock.Time) {
	for {
		s := p.linger.first()
		switch {
		case s == nil:
			return
		case s.state == gone:
			p.linger.pop()
		case s.until <= now:
			p.counters.add(LingerExpired, 1)
			p.discardFirst()
		default:
			return
		}
	}
}

// discardFirst closes the stream that has lingered longest.
func (p *Port) discardFirst() {
	if s := p.linger.pop(); s.state == lingering {
		p.ended(s, Forgotten)
		p.discard(s)
	}
}

// sacrifice closes a lingering stream, where there is one, for its descriptor.
func (p *Port) sacrifice() bool {
	for p.linger.len() > 0 {
		if s := p.linger.pop(); s.state == lingering {
			p.ended(s, Forgotten)
			p.discard(s)
			return true
		}
	}
	return false
}
