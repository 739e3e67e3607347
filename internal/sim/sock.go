package sim

import (
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/sim/check"
)

// sock is one end of a TCP connection as a host's kernel has it.
type sock struct {
	host          *host
	life          int // of the host's NIC
	id            nic.StreamID
	name          string
	peer          *sock // nil until the handshake is through
	wire          *check.Wire
	direction     int
	local, remote netip.AddrPort

	flying   int    // bytes that the peer's program has not read yet
	sent     uint64 // bytes handed over in all
	inbox    []byte // arrived, not read
	lastAt   clock.Time
	wasFull  bool // the NIC was told so
	isShut   bool // no more is sent: FIN, or the socket is gone
	hasFIN   bool // the peer's FIN is behind the inbox
	isEnded  bool // the NIC was told of it
	isGone   bool // the NIC has forgotten it, or was told to
	isBroken bool // the network does not carry anything any more
	isJoined bool // bytes pass to the peer in memory
	// hasDeclined says that they might, and do not.
	hasDeclined bool
}

// isOpen reports a socket that the NIC still knows.
func (s *sock) isOpen() bool {
	return !s.isGone && !s.host.isDown && s.host.lives == s.life
}

// send takes some of what the NIC has to send, as much as there is room for.
func (s *sock) send(v *work.Vector) {
	w := s.host.world
	n := s.host.tcp
	b := n.scratch[:0]
	for _, p := range v.Pieces {
		b = append(b, p...)
	}
	n.scratch = b
	if len(b) != v.Bytes {
		w.court.Failf("%s: a vector of %d bytes says %d", s.name, len(b), v.Bytes)
	}
	k := min(len(b), max(w.streams.room-s.flying, 0))
	if k > 1 && w.chance(w.streams.partial) {
		k = w.between(1, k)
	}
	s.wasFull = k < len(b)
	if s.wasFull {
		w.mark("socket.full")
	}
	s.sent += uint64(k)
	w.trace.counts(w.now, "%s: sends %d of %d bytes", s.name, uint64(k), uint64(len(b)))
	w.trace.mix(b[:k])
	w.streams.bytes += uint64(k)
	if s.wire != nil {
		s.wire.Sent(s.direction, b[:k])
	}
	at := s.sent - uint64(k)
	for rest := b[:k]; len(rest) > 0; {
		c := min(w.between(1, w.streams.chunk), len(rest))
		s.carry(rest[:c], at)
		at += uint64(c)
		rest = rest[c:]
	}
	if s.wasFull && s.flying < w.streams.room {
		// The kernel took less than it could: it has room again at once.
		w.at(w.now.Add(w.delay(0, 20*time.Microsecond)), s.makeWritable)
	}
	s.host.nic.HandleSent(w.now, s.id, k, s.wasFull)
}

// makeWritable tells the NIC that a socket that was full has room.
func (s *sock) makeWritable() {
	w := s.host.world
	if s.wasFull && s.isOpen() && s.flying < max(w.streams.room, 1) {
		s.wasFull = false
		s.host.nic.HandleWritable(w.now, s.id)
		s.host.turn()
	}
}

// arrival says when something that is sent now gets there, behind all before it. What the network
// loses TCP sends again, which takes a while.
func (s *sock) arrival(bytes int) clock.Time {
	w := s.host.world
	p := w.streams
	d := time.Microsecond
	if s.peer.host != s.host {
		d = p.latency + w.delay(0, p.jitter)
		if w.chance(p.loss) {
			d += w.delay(200*time.Microsecond, p.again)
			w.mark("segment.again")
		}
	}
	at := w.now.Add(d)
	if p.rate > 0 {
		s.lastAt = s.lastAt.Add(time.Duration(bytes) * time.Second / time.Duration(p.rate))
	}
	s.lastAt = max(at, s.lastAt)
	return s.lastAt
}

// carry takes the bytes from position at on to the peer. In a network without a way they never get
// there.
func (s *sock) carry(b []byte, at uint64) {
	w := s.host.world
	s.flying += len(b)
	if s.peer == nil || s.isBroken {
		return
	}
	if s.peer.host == s.host {
		w.local++
	} else {
		w.packets++
	}
	b = slices.Clone(b)
	s.damage(b, at)
	if w.streams.tamper != nil {
		w.streams.tamper(s, b)
	}
	w.inFlight++
	w.at(s.arrival(len(b)), func() {
		w.inFlight--
		if s.isBroken {
			return
		}
		s.peer.take(b)
	})
}

// damage changes a bit now and then that TCP's checksum does not notice: where a CRC will.
func (s *sock) damage(b []byte, at uint64) {
	w := s.host.world
	if w.isCalm || !w.chance(w.streams.corrupt) || s.wire == nil || !s.wire.HasCRC() ||
		s.wire.Damaged[s.direction] || at < s.wire.FrameEnd(s.direction) {
		return
	}
	i := w.between(0, 8*len(b)-1)
	b[i/8] ^= 1 << (i % 8)
	s.wire.Damaged[s.direction] = true
	w.mark("stream.damaged")
	w.trace.note(w.now, "%s: a bit is damaged", s.name)
	w.spoilStream(s)
	// A damaged length may have the receiver wait for bytes that never come, and TCP has no reason
	// to end that.
	w.at(w.now.Add(100*time.Millisecond), func() { w.breakStream(s, syscall.ECONNRESET) })
}

// take has bytes arrive at this end.
func (s *sock) take(b []byte) {
	if s.isBroken {
		return
	}
	if !s.isOpen() {
		s.drop(len(b))
		return
	}
	s.inbox = append(s.inbox, b...)
	s.read()
	s.host.turnSoon()
}

// drop takes bytes that nobody will read; some kernels answer them.
func (s *sock) drop(n int) {
	w := s.host.world
	p := s.peer
	p.flying -= n
	if w.chance(0.2) && p.isOpen() {
		w.mark("stream.late_bytes")
		w.spoilStream(s)
		s.resetPeer()
		return
	}
	p.makeWritable()
}

// read has the NIC read what it wants, in pieces of any size.
func (s *sock) read() {
	w := s.host.world
	n := s.host.nic
	s.host.stir()
	for len(s.inbox) > 0 && s.isOpen() {
		if !n.WantsStream(s.id) {
			w.mark("stream.held_up")
			return
		}
		k := w.between(1, len(s.inbox))
		b := s.inbox[:k]
		s.joinTwin(k)
		if w.chance(w.streams.inPlace) {
			if c := s.readInPlace(b); c > 0 {
				s.consumed(c)
				continue
			}
		}
		// The shell's buffer is used again: what the NIC keeps has to be a copy.
		b = append([]byte(nil), b...)
		n.HandleStream(w.now, s.id, b)
		clear(b)
		s.consumed(k)
	}
	if len(s.inbox) == 0 && s.hasFIN && !s.isEnded && s.isOpen() {
		s.isEnded = true
		w.trace.note(w.now, "%s: reads the end", s.name)
		n.HandleStreamEnd(w.now, s.id, 0)
	}
}

func (s *sock) readInPlace(b []byte) int {
	w := s.host.world
	count := 0
	for _, p := range s.host.nic.ReceiveSpace(s.id) {
		c := copy(p, b)
		b, count = b[c:], count+c
	}
	if count > 0 {
		w.mark("stream.in_place")
		s.host.nic.HandleReceived(w.now, s.id, count)
	}
	return count
}

// consumed gives the sender room.
func (s *sock) consumed(n int) {
	s.inbox = s.inbox[min(n, len(s.inbox)):]
	p := s.peer
	p.flying -= n
	if s.wire != nil {
		s.wire.Arrived(p.direction, n)
	}
	if p.wasFull {
		w := s.host.world
		w.at(w.now.Add(w.delay(0, 10*time.Microsecond)), p.makeWritable)
	}
}

// shut sends FIN.
func (s *sock) shut() {
	w := s.host.world
	if s.isShut || s.peer == nil {
		return
	}
	s.isShut = true
	if s.wire != nil {
		s.wire.Ended(s.direction, s.isEnded)
	}
	if s.isBroken {
		return
	}
	w.inFlight++
	w.at(s.arrival(0), func() {
		w.inFlight--
		p := s.peer
		if p.isOpen() && !s.isBroken {
			p.hasFIN = true
			p.read()
			p.host.turnSoon()
		}
	})
}

// fail tells the NIC that the connection is no more.
func (s *sock) fail(errno syscall.Errno) {
	w := s.host.world
	if !s.isOpen() {
		return
	}
	w.trace.note(w.now, "%s: fails with errno %d", s.name, int(errno))
	s.isGone, s.isShut = true, true
	s.inbox = nil
	delete(s.host.tcp.socks, s.id)
	s.host.nic.HandleStreamEnd(w.now, s.id, errno)
	s.host.turn()
}

// resetPeer sends RST: it overtakes nothing, but what it finds unread is lost at times.
func (s *sock) resetPeer() {
	w := s.host.world
	p := s.peer
	if p == nil || s.isBroken {
		return
	}
	w.inFlight++
	w.at(s.arrival(0), func() {
		w.inFlight--
		if !s.isBroken {
			p.fail(syscall.ECONNRESET)
		}
	})
}
