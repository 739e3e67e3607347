package sim

import (
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/sim/check"
)

// network is a host's TCP: nic.StreamPort.
type network struct {
	host      *host
	listeners map[nic.StreamID]nic.StreamListener
	socks     map[nic.StreamID]*sock
	port      uint16 // the last that was chosen
	scratch   []byte
	vector    work.Vector
}

func newNetwork(h *host) *network {
	return &network{
		host: h, listeners: map[nic.StreamID]nic.StreamListener{}, socks: map[nic.StreamID]*sock{},
		port: 40000,
	}
}

// Listen implements nic.StreamPort.
func (n *network) Listen(id nic.StreamID, l *nic.StreamListener) error {
	for _, o := range n.listeners {
		if o.At.Port() == l.At.Port() {
			return fmt.Errorf("bind %v: %w", l.At, syscall.EADDRINUSE)
		}
	}
	n.listeners[id] = *l
	return nil
}

// Connect implements nic.StreamPort.
func (n *network) Connect(id nic.StreamID, r *nic.StreamRoute) error {
	h := n.host
	w := h.world
	local := r.Local
	if local.Port() == 0 {
		n.port++
		local = netip.AddrPortFrom(local.Addr(), n.port)
	}
	w.inFlight++
	s := &sock{
		host: h, life: h.lives, id: id, local: local, remote: r.Remote,
		name: fmt.Sprintf("%s.tcp%d", h.name, id),
	}
	n.socks[id] = s
	to := w.hostAt(r.Remote.Addr())
	d := 2 * w.streams.latency
	if to == nil || to.isDown && w.chance(0.5) {
		d = w.streams.timeout // nobody answers
	}
	w.at(w.now.Add(d+w.delay(0, 10*time.Microsecond)), func() {
		w.inFlight--
		s.shake(to)
	})
	return nil
}

func (w *World) hostAt(a netip.Addr) *host {
	return w.hostOf(rdma.GIDFromAddr(a))
}

// shake ends the handshake of a connection that a NIC asked for.
func (s *sock) shake(to *host) {
	if !s.isOpen() {
		return
	}
	w, n := s.host.world, s.host.nic
	errno := syscall.ECONNREFUSED
	switch {
	case to == nil || to.isDown && w.chance(0.5):
		errno = syscall.ETIMEDOUT
	case to.isDown:
	case w.chance(w.streams.refuses) && !w.isCalm:
	default:
		if p := to.tcp.answer(s); p != nil {
			s.join(p)
			n.HandleConnected(w.now, s.id, &nic.StreamConnected{Local: s.local, MSS: w.streams.mss})
			s.host.turn()
			to.turn()
			return
		}
	}
	w.mark("tcp." + errno.Error())
	s.isGone = true
	delete(s.host.tcp.socks, s.id)
	n.HandleConnected(w.now, s.id, &nic.StreamConnected{Errno: errno})
	s.host.turn()
}

// answer hands a connection to who listens; nil where nobody does, or does not want it.
func (n *network) answer(from *sock) *sock {
	h := n.host
	for _, id := range sortedKeys(n.listeners) {
		if n.listeners[id].At.Port() != from.remote.Port() {
			continue
		}
		sid, ok := h.nic.HandleAccepted(h.world.now, id, &nic.StreamAccepted{
			Local: from.remote, Remote: from.local, MSS: h.world.streams.mss,
		})
		if !ok {
			return nil
		}
		s := &sock{
			host: h, life: h.lives, id: sid, local: from.remote, remote: from.local,
			name: fmt.Sprintf("%s.tcp%d", h.name, sid),
		}
		n.socks[sid] = s
		return s
	}
	return nil
}

// join makes two sockets a connection.
func (s *sock) join(p *sock) {
	w := s.host.world
	s.peer, p.peer, p.direction = p, s, 1
	var most [2]int
	for i, h := range [2]*host{s.host, p.host} {
		if h.stream.FPDU == nic.FPDUMSS {
			most[i] = w.streams.mss
			if most[i] == 0 {
				most[i] = limits.StreamMSSDefault
			}
		}
	}
	s.wire = check.NewWire(&w.court, s.name+" → "+p.name, w.mark, most)
	p.wire = s.wire
	w.streams.socks = append(w.streams.socks, s, p)
	w.mark("tcp.connected")
	w.trace.note(w.now, "%s: connected with %s", s.name, p.name)
}

// Close implements nic.StreamPort.
func (n *network) Close(id nic.StreamID) {
	w := n.host.world
	if _, ok := n.listeners[id]; ok {
		delete(n.listeners, id)
		return
	}
	s := n.socks[id]
	if s == nil {
		w.court.Failf("%s: Close of stream %d, which is not there", n.host.name, id)
		return
	}
	w.trace.note(w.now, "%s: closed", s.name)
	delete(n.socks, id)
	s.shut()
	s.isGone = true
	if s.peer != nil && len(s.inbox) > 0 {
		n := len(s.inbox)
		w.at(w.now, func() { s.drop(n) })
	}
	s.inbox = nil
}

// Abort implements nic.StreamPort.
func (n *network) Abort(id nic.StreamID) {
	w := n.host.world
	s := n.socks[id]
	if s == nil {
		w.court.Failf("%s: Abort of stream %d, which is not there", n.host.name, id)
		return
	}
	w.trace.note(w.now, "%s: aborted", s.name)
	w.mark("stream.aborted")
	delete(n.socks, id)
	s.isGone, s.isShut, s.inbox = true, true, nil
	s.resetPeer()
}

// turnStreams does what a host does about streams and connections after each stimulus.
func (h *host) turnStreams() {
	w := h.world
	if h.tcp == nil {
		return
	}
	for _, id := range sortedKeys(h.tcp.socks) {
		if s := h.tcp.socks[id]; s != nil && len(s.inbox) > 0 && h.nic.WantsStream(id) {
			s.read()
		}
	}
	h.isBusy = true
	var id nic.StreamID
	v := &h.tcp.vector
	for range w.plan.burst {
		if !h.nic.PollStream(w.now, &id) {
			break
		}
		h.stir() // what this completes is told by the next turn
		s := h.tcp.socks[id]
		if s != nil && s.isJoined {
			s.pass()
			continue
		}
		v.Reset()
		if !h.nic.FillStream(w.now, id, v) {
			continue
		}
		if s = h.tcp.socks[id]; s == nil {
			w.court.Failf("%s: stream %d, which is not there, has %d bytes to send", h.name, id, v.Bytes)
			break
		}
		s.send(v)
	}
	h.isBusy = false
	h.tellCalls()
	var k nic.Lookup
	for h.nic.PollLookup(&k) {
		h.route(k)
	}
}

// tellCalls hands events of connections to programs.
func (h *host) tellCalls() {
	var e nic.ConnectionEvent
	for h.nic.PollConnectionEvent(&e) {
		e.Session.Owner().(hearer).hear(&e)
	}
}

// route answers how another host is reached.
func (h *host) route(k nic.Lookup) {
	w, life := h.world, h.lives
	r := nic.Route{ID: k.ID, MTU: h.mtu, Source: h.gids[1].Addr()}
	if k.Destination.Is4() {
		r.Source = h.gids[0].Addr()
	}
	w.inFlight++
	w.at(w.now.Add(w.delay(0, 100*time.Microsecond)), func() {
		w.inFlight--
		if h.lives == life && !h.isDown {
			h.nic.HandleRoute(w.now, &r)
			h.turn()
		}
	})
}

// loseStreams ends the sockets of a NIC that is gone: its host's kernel resets them, or nobody is
// there to.
func (h *host) loseStreams() {
	if h.tcp == nil {
		return
	}
	w := h.world
	isSilent := w.chance(0.5)
	for _, id := range sortedKeys(h.tcp.socks) {
		s := h.tcp.socks[id]
		s.isGone, s.isShut, s.inbox = true, true, nil
		w.spoilStream(s)
		switch p := s.peer; {
		case p == nil:
		case isSilent:
			w.mark("stream.half_open")
			w.muteStream(s)
		default:
			s.resetPeer()
		}
	}
	h.tcp = newNetwork(h)
}

// muteStream lets the network carry nothing of a connection any more: each end learns by itself,
// some time later.
func (w *World) muteStream(s *sock) {
	for _, x := range []*sock{s, s.peer} {
		if x == nil {
			continue
		}
		x.isBroken = true
		w.inFlight++
		w.at(w.now.Add(w.delay(w.streams.timeout/2, 2*w.streams.timeout)), func() {
			w.inFlight--
			x.fail(syscall.ETIMEDOUT)
		})
	}
}

// breakStream resets a connection in the middle of the network.
func (w *World) breakStream(s *sock, errno syscall.Errno) {
	if !s.isOpen() && !s.peer.isOpen() {
		return
	}
	w.spoilStream(s)
	for _, x := range []*sock{s, s.peer} {
		w.inFlight++
		w.at(w.now.Add(w.delay(0, 2*w.streams.latency)), func() {
			w.inFlight--
			x.isBroken = true
			x.fail(errno)
		})
	}
}

// spoilStream tolerates what the end of a connection does to the queue pairs at its ends.
func (w *World) spoilStream(s *sock) {
	if s.wire == nil {
		return
	}
	if p := w.pairOf(s.wire.Private); p != nil {
		p.spoil()
	}
}

// hasUnread reports bytes that a program has to post a receive for, or the NIC has to send.
func (h *host) hasUnread() bool {
	if h.isDown {
		return false
	}
	for id, s := range h.tcp.socks {
		if len(s.inbox) > 0 || s.wasFull && !s.isBroken || !h.nic.WantsStream(id) {
			return true
		}
	}
	return false
}
