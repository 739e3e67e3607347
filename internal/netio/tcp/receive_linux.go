package tcp

import (
	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/clock"
)

// receive takes what one call gives and returns how many bytes that was.
func (p *Port) receive(now clock.Time, s *socket) int {
	if !p.handler.WantsStream(s.id) {
		s.readable, s.unwanted = false, true
		p.pause(now, s, wantPause)
		p.counters.add(RxPaused, 1)
		return 0
	}
	if p.buffer == nil {
		p.buffer = make([]byte, receiveBytes)
	}
	inPlace := p.putSpace(s)
	room := inPlace
	var n int
	var errno unix.Errno
	if inPlace == 0 {
		room = len(p.buffer)
		n, errno = receive(s.fd, p.buffer, 0)
	} else {
		n, errno = receivePieces(s.fd, p.in.ready())
	}
	switch {
	case errno == unix.EAGAIN:
		s.readable = false
		if s.broken != 0 {
			p.fail(now, s, s.broken)
		}
	case errno == unix.EINTR:
	case errno != 0: // EFAULT: memory of the application is gone
		p.fail(now, s, errno)
	case n == 0:
		p.finish(now, s)
	default:
		// A read that leaves room has emptied the socket: what comes later makes a new event.
		// Only an end that was told of already would not.
		s.readable = n == room || s.ending
		p.heat(now, s)
		if n >= bulkMin {
			p.noteBulk(now)
		}
		p.deliver(now, s, n, min(n, inPlace))
	}
	p.in.reset()
	if errno != 0 {
		return 0
	}
	return n
}

// putSpace asks the NIC where the next bytes belong, and returns how many have a place.
func (p *Port) putSpace(s *socket) (bytes int) {
	for _, b := range p.handler.ReceiveSpace(s.id) {
		if len(p.in.iovecs) == inPlaceMax {
			break
		}
		p.in.put(b)
		bytes += len(b)
	}
	return bytes
}

// deliver gives the NIC n bytes, the first of which are in place.
func (p *Port) deliver(now clock.Time, s *socket, n, inPlace int) {
	p.counters.add(RxCalls, 1)
	p.counters.add(RxBytes, n)
	rest := p.buffer[:n-inPlace]
	p.watchReceived(s, n, inPlace, rest)
	if s.flow.Twin && s.twin == nil {
		p.join(now, s)
	}
	p.current = s
	if inPlace > 0 {
		p.counters.add(RxInPlaceBytes, inPlace)
		p.handler.HandleReceived(now, s.id, inPlace)
	}
	if len(rest) > 0 && s.state == open {
		p.handler.HandleStream(now, s.id, rest)
	}
	p.current = nil
}

// watchReceived shows what was received to the tap, and remembers the beginning of a stream.
func (p *Port) watchReceived(s *socket, n, inPlace int, rest []byte) {
	f := &s.flow
	tap := p.listener()
	if tap != nil || f.Received < FirstBytes {
		shown := p.tapped[:0]
		if inPlace > 0 {
			for i := range p.in.iovecs {
				shown = append(shown, bytesOf(&p.in.iovecs[i]))
			}
			left := inPlace
			for i := range shown {
				shown[i] = shown[i][:min(left, len(shown[i]))]
				left -= len(shown[i])
			}
		}
		if len(rest) > 0 {
			shown = append(shown, rest)
		}
		keepFirst(&f.FirstReceived, f.Received, shown, n)
		if tap != nil {
			tap.StreamReceived(f, shown, n)
		}
		clear(shown)
	}
	f.Received += uint64(n)
}

// heat lets the next turns ask the socket directly.
func (p *Port) heat(now clock.Time, s *socket) {
	s.cools = now + hotTime
	if !s.hot && len(p.hot) < hotMax {
		s.hot = true
		p.hot = append(p.hot, s)
	}
}

// ask receives from sockets that had data just now, though no event told of more.
func (p *Port) ask(now clock.Time, budget int) (worked bool) {
	kept := p.hot[:0]
	for _, s := range p.hot {
		if s.state != open || s.cools <= now || s.finished {
			s.hot = false
			continue
		}
		kept = append(kept, s)
	}
	clear(p.hot[len(kept):])
	p.hot = kept
	for _, s := range p.hot {
		if budget <= 0 || s.queued || s.state != open {
			continue
		}
		n := p.receive(now, s)
		budget -= n
		worked = worked || n > 0
		if s.readable && s.state == open {
			p.enqueue(s)
		}
	}
	return worked
}

// finish takes the peer's FIN.
func (p *Port) finish(now clock.Time, s *socket) {
	if s.broken != 0 { // the error was told by the send that failed
		p.fail(now, s, s.broken)
		return
	}
	ending := s.ending
	s.readable, s.ending = false, false
	if s.finished {
		// A reset that comes after FIN is no error to recv(2).
		if errno := errorOf(s.fd); ending && errno != 0 {
			p.fail(now, s, errno)
		}
		return
	}
	s.finished = true
	s.readable, s.ending = ending, ending // there may be such a reset
	p.counters.add(EndedByPeer, 1)
	p.ended(s, EndReceived)
	p.handler.HandleStreamEnd(now, s.id, 0)
}

// fail ends a stream that is of no use in either direction.
func (p *Port) fail(now clock.Time, s *socket, errno unix.Errno) {
	how := ResetReceived
	switch errno {
	case unix.ECONNRESET, unix.EPIPE:
		p.counters.add(ResetByPeer, 1)
	case unix.ETIMEDOUT, unix.EHOSTUNREACH, unix.ENETUNREACH:
		p.counters.add(TimedOut, 1)
		how = ResetSent // the kernel says so to whoever is there still
	default:
		p.counters.add(Broken, 1)
		how = ResetSent
	}
	p.ended(s, how)
	resetOnClose(s.fd)
	p.discard(s)
	p.handler.HandleStreamEnd(now, s.id, errno)
}

func (p *Port) ended(s *socket, how End) {
	if t := p.listener(); t != nil {
		t.StreamEnded(&s.flow, how)
	}
}
