package tcp

import (
	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/nic"
)

// Transmit sends what the NIC has, a bounded piece of it, and reports whether there was anything.
func (p *Port) Transmit(now clock.Time) bool {
	worked := p.recover(now)
	for budget := transmitBytesPerTurn; budget > 0 && p.handler.PollStream(now, &p.polled); {
		budget -= p.send(now, p.polled) + callCost
		worked = true
	}
	return worked
}

// send does one send of a stream and returns how many bytes it took.
func (p *Port) send(now clock.Time, id nic.StreamID) int {
	s := p.byID[id]
	if s == nil || s.state != open || s.broken != 0 {
		// Its end is on the way to the NIC; until then it asks us not again.
		p.handler.HandleSent(now, id, 0, true)
		return 0
	}
	if s.twin != nil {
		return p.move(now, s)
	}
	if !p.fill(now, s) {
		return 0
	}
	for _, b := range p.vector.Pieces {
		if !p.out.put(b) {
			break
		}
	}
	n, errno := sendPieces(s.fd, p.out.ready())
	p.out.reset()
	if errno != 0 {
		p.sendFailed(now, s, errno)
		return 0
	}
	p.watchSent(s, n)
	p.counters.add(TxCalls, 1)
	p.counters.add(TxBytes, n)
	// A call that takes a part leaves the socket in want of room, of which the kernel then tells
	// by an event.
	s.full = n < p.vector.Bytes
	if s.full {
		p.counters.add(TxPartial, 1)
	}
	p.vector.Reset()
	p.current = s
	p.handler.HandleSent(now, id, n, s.full)
	p.current = nil
	return n
}

// fill asks the NIC for bytes of a stream, and reports whether there are any to send.
func (p *Port) fill(now clock.Time, s *socket) bool {
	p.current = s
	filled := p.handler.FillStream(now, s.id, &p.vector)
	p.current = nil
	if !filled || p.vector.Bytes == 0 || s.state != open {
		p.vector.Reset()
		return false
	}
	return true
}

// sendFailed deals with a send that took nothing.
func (p *Port) sendFailed(now clock.Time, s *socket, errno unix.Errno) {
	p.vector.Reset()
	switch errno {
	case unix.EINTR:
		p.handler.HandleSent(now, s.id, 0, false)
		return
	case unix.EAGAIN:
		p.counters.add(TxFull, 1)
	case unix.ENOBUFS, unix.ENOMEM:
		// No event tells when the kernel has memory again.
		p.counters.add(TxFull, 1)
		p.pause(now, s, sendPause)
	case unix.EFAULT: // memory of the application is gone
		p.fail(now, s, errno)
		return
	default:
		// The peer may have said why before it broke the connection: read that first.
		s.broken, s.readable, s.ending = errno, true, true
		p.enqueue(s)
	}
	s.full = true
	p.handler.HandleSent(now, s.id, 0, true)
}

// drained tells the NIC that a socket that was full takes more.
func (p *Port) drained(now clock.Time, s *socket) {
	if s.full && s.broken == 0 {
		s.full = false
		p.handler.HandleWritable(now, s.id)
	}
}

// watchSent shows the first n bytes of the vector to the tap, and remembers the beginning of a
// stream.
func (p *Port) watchSent(s *socket, n int) {
	f := &s.flow
	if f.Sent < FirstBytes {
		keepFirst(&f.FirstSent, f.Sent, p.vector.Pieces, n)
	}
	if t := p.listener(); t != nil {
		t.StreamSent(f, p.vector.Pieces, n)
	}
	f.Sent += uint64(n)
}
