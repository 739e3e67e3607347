package tcp

import (
	"github.com/softrnic/softrnic/internal/clock"
)

// join lets a connection whose both ends are sockets of this port do without TCP, as far as bytes
// are concerned: what one end has to send is given to the other where it lies. The sockets remain
// for what else a connection is: its ports, its place in what ss(8) lists, and its end.
//
// It waits for a moment at which nothing is under way in either direction, so that no byte can
// overtake another: what either socket was given has come out of the other. The request of MPA,
// which its sender lets nothing follow, makes one. That it has come through also proves that the
// two are what their addresses say they are, whatever the host's rules do with packets.
func (p *Port) join(now clock.Time, s *socket) {
	t := p.ends[ends{s.flow.Remote, s.flow.Local}]
	if p.config.DisableJoin || t == nil || !s.isWhole() || !t.isWhole() || s.zone != t.zone {
		return
	}
	if s.flow.Received != t.flow.Sent || s.flow.Sent != t.flow.Received ||
		s.flow.FirstReceived != t.flow.FirstSent {
		return
	}
	s.twin, t.twin = t, s
	s.flow.Joined, t.flow.Joined = true, true
	p.counters.add(Joined, 1)
	p.handler.HandleJoined(now, s.id, t.id)
}

// isWhole reports a connection of which neither direction has ended.
func (s *socket) isWhole() bool {
	return s.state == open && s.broken == 0 && !s.ending && !s.finished
}

// part ends what join began, with the first of the two sockets that is closed. What the other still
// wants to send goes to its own socket, where the kernel says what has become of the peer.
func (s *socket) part() {
	if s.twin != nil {
		s.twin.twin, s.twin = nil, nil
	}
}

// move gives what a stream has to send to its twin and returns how many bytes that were. Nothing
// is asked of the stream while the twin wants nothing, which is what a full socket is otherwise.
//
// Preconditions: s.twin is not nil.
func (p *Port) move(now clock.Time, s *socket) int {
	t := s.twin
	if !p.wants(t) {
		p.counters.add(RxPaused, 1)
		s.full = true
		p.pause(now, s, wantPause)
		p.handler.HandleSent(now, s.id, 0, true)
		return 0
	}
	if !p.fill(now, s) {
		return 0
	}
	n := 0
	for _, b := range p.vector.Pieces {
		p.watchMoved(s, t, b)
		n += len(b)
		if t.state == open { // one that is closed drops what comes until its peer follows
			p.current = t
			p.handler.HandleStream(now, t.id, b)
			p.current = nil
		}
		// The NIC may have ended either, and has, where it failed, other bytes in their place.
		if s.state != open || s.twin == nil || !p.wants(t) {
			break
		}
	}
	p.vector.Reset()
	p.counters.add(JoinedBytes, n)
	p.current = s
	p.handler.HandleSent(now, s.id, n, false)
	p.current = nil
	return n
}

// wants reports that a twin takes bytes, if only to drop them.
func (p *Port) wants(t *socket) bool {
	return t.state != open || p.handler.WantsStream(t.id)
}

// isWantedAgain ends the pause of a stream that had to wait for its twin.
func (p *Port) isWantedAgain(s *socket) bool {
	return s.full && s.twin != nil && p.wants(s.twin)
}

// watchMoved shows bytes to the tap before their receiver acts on them, and counts them.
func (p *Port) watchMoved(s, t *socket, b []byte) {
	from, to := &s.flow, &t.flow
	tap := p.listener()
	if tap != nil || from.Sent < FirstBytes {
		p.tapped[0] = b
		shown := p.tapped[:1]
		keepFirst(&from.FirstSent, from.Sent, shown, len(b))
		keepFirst(&to.FirstReceived, to.Received, shown, len(b))
		if tap != nil {
			tap.StreamSent(from, shown, len(b))
			tap.StreamReceived(to, shown, len(b))
		}
		clear(shown)
	}
	from.Sent += uint64(len(b))
	to.Received += uint64(len(b))
}
