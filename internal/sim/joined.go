package sim

import "time"

// joinPause is after how long a stream is looked at again whose twin wanted nothing.
const joinPause = 100 * time.Microsecond

// joinTwin lets a connection whose both ends are of one NIC do without TCP, as a shell may where
// nothing of it is under way but the k bytes that are being read (ADR 0025). Some worlds do not.
func (s *sock) joinTwin(k int) {
	w, p := s.host.world, s.peer
	if s.isJoined || s.hasDeclined || p.host != s.host || p.life != s.life || !p.isOpen() {
		return
	}
	if k != len(s.inbox) || p.flying != k || s.flying != 0 || s.isBroken || s.isShut || p.isShut {
		return
	}
	if w.chance(0.3) {
		s.hasDeclined, p.hasDeclined = true, true
		return
	}
	s.isJoined, p.isJoined = true, true
	s.wire.IsLocal = true
	w.mark("stream.joined")
	w.trace.note(w.now, "%s: joined with %s", s.name, p.name)
	s.host.nic.HandleJoined(w.now, s.id, p.id)
}

// pass gives what a joined stream has to send to its twin where it lies.
func (s *sock) pass() {
	w, n, p := s.host.world, s.host.nic, s.peer
	if p.isOpen() && !n.WantsStream(p.id) {
		w.mark("stream.held_back")
		s.wasFull = true
		n.HandleSent(w.now, s.id, 0, true)
		w.at(w.now.Add(w.delay(0, joinPause)), s.goOn)
		return
	}
	v := &s.host.tcp.vector
	v.Reset()
	if !n.FillStream(w.now, s.id, v) {
		return
	}
	count := 0
	for _, b := range v.Pieces {
		w.trace.counts(w.now, "%s: passes %d of %d bytes", s.name, uint64(len(b)), uint64(v.Bytes))
		w.trace.mix(b)
		s.wire.Sent(s.direction, b)
		w.local++
		count += len(b)
		if p.isOpen() {
			n.HandleStream(w.now, p.id, b)
			s.wire.Arrived(s.direction, len(b))
		} else {
			s.flying += len(b)
			p.drop(len(b))
		}
		if !s.isOpen() || p.isOpen() && !n.WantsStream(p.id) {
			break
		}
	}
	s.sent += uint64(count)
	w.streams.bytes += uint64(count)
	n.HandleSent(w.now, s.id, count, false)
}

// goOn ends a pause of pass. A stream is told of room only where its twin wants more.
func (s *sock) goOn() {
	w, p := s.host.world, s.peer
	switch {
	case !s.isOpen() || !s.wasFull:
	case p.isOpen() && !s.host.nic.WantsStream(p.id):
		w.at(w.now.Add(joinPause), s.goOn)
	default:
		s.makeWritable()
	}
}
