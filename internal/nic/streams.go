package nic

import (
	"net/netip"
	"slices"
	"syscall"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/iwarp"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/limits"
)

// streams is the part of a NIC that iWARP runs over: TCP connections and listeners. A connection
// belongs to nobody before it has asked for something, then to an identifier and to a queue pair,
// and again to nobody while it says its last words.
type streams struct {
	nic    *NIC
	byID   map[StreamID]*stream
	last   StreamID
	run    line[*stream]
	timers timerHeap[*stream]
	// unasked came in and have said nothing that makes sense yet, or wait for room in the backlog of
	// their listener; oldest first.
	unasked []*stream
	// flushing are the queue pairs whose queues hold more than one call flushes.
	flushing []*qp
	buffers  *iwarp.Buffers
	event    iwarp.Event
}

// stream is a TCP connection or a listener.
type stream struct {
	id     StreamID
	device *device
	conn   *iwarp.Conn // nil: of listeners, and until TCP is connected
	// owner is whose connection it is: an identifier that has this stream, or the listener of one
	// that is unasked.
	owner *identifier
	qp    *qp // that is, or is to be, at this end
	// local and remote are the TCP addresses; where is the interface of link-local ones.
	local, remote netip.AddrPort
	where         uint32
	mss           int
	params        iwarp.Params // for the MPA request, until TCP is connected
	isDialing     bool         // the shell connects
	patience      clock.Time   // until when a refusal is not the last word; 0 before the first

	isListener bool
	isUnasked  bool
	// request is one that waits for room in its listener's backlog.
	request  *iwarp.Event
	isFull   bool // the socket takes no more now
	isGone   bool
	isJoined bool // the other end is a stream of this NIC as well, and TCP is not asked
	isSteady bool // as the connection was when the direct path was last told
	// twin is the other end of one that is joined, while both are there.
	twin *stream

	// Run queue and timer heap.
	turn  turn[*stream]
	timer timer[*stream]
}

func newStreams(n *NIC) *streams {
	return &streams{nic: n, byID: make(map[StreamID]*stream), buffers: iwarp.NewBuffers()}
}

// add names a new stream, or returns nil where there are too many.
func (t *streams) add(s *stream) *stream {
	if len(t.byID) >= limits.MaxStreams {
		return nil
	}
	for {
		t.last++
		if t.last != 0 && t.byID[t.last] == nil {
			s.id = t.last
			s.turn.owner, s.timer.owner, s.timer.order = s, s, uint32(s.id)
			t.byID[s.id] = s
			return s
		}
	}
}

// forget takes a stream out of everything. What the shell has of it is the caller's to end.
func (t *streams) forget(s *stream) {
	s.isGone = true
	delete(t.byID, s.id)
	t.setAsked(s)
	t.run.remove(&s.turn)
	t.timers.remove(&s.timer)
	if s.twin != nil {
		s.twin.twin, s.twin = nil, nil
	}
	if q := s.qp; q != nil && q.stream == s {
		q.stream = nil
		t.nic.direct.follow(q)
	}
	if i := s.owner; i != nil && i.stream == s {
		i.stream = nil
	}
}

// abort ends a stream at once.
func (t *streams) abort(s *stream) {
	t.forget(s)
	t.port().Abort(s.id)
}

func (t *streams) port() StreamPort { return t.nic.cfg.Streams }

// setAsked says that a stream need not be given up for others any more.
func (t *streams) setAsked(s *stream) {
	if s.isUnasked {
		s.isUnasked = false
		t.unasked = slices.DeleteFunc(t.unasked, func(o *stream) bool { return o == s })
	}
}

// accept takes a connection that came in to a listener, or returns nil.
func (t *streams) accept(listener StreamID, a *StreamAccepted) *stream {
	l := t.byID[listener]
	if l == nil || !l.isListener {
		return nil
	}
	here := sockaddr{addr: a.Local.Addr().Unmap(), scope: a.Interface}
	device, _, ok := l.owner.ownStream(here)
	if !ok {
		return nil // the host has the address, the NIC was told not to use it
	}
	if len(t.unasked) >= limits.MaxStreamsUnasked {
		t.nic.counters.StreamsDisplaced++
		t.abort(t.unasked[max(t.silent(), 0)])
	}
	s := t.add(&stream{
		device: device, owner: l.owner, isUnasked: true, mss: a.MSS, where: a.Interface,
		local: unmapped(a.Local), remote: unmapped(a.Remote),
	})
	if s == nil {
		return nil
	}
	t.unasked = append(t.unasked, s)
	s.conn = t.newConn(s, false)
	t.nic.counters.StreamsAccepted++
	return s
}

// silent finds the oldest connection that came in and has not asked for anything; -1 for none.
func (t *streams) silent() int {
	return slices.IndexFunc(t.unasked, func(s *stream) bool { return s.request == nil })
}

func (t *streams) newConn(s *stream, isInitiator bool) *iwarp.Conn {
	o := &s.device.stream
	var isTaken func() bool
	if port, ok := t.port().(StreamAcks); ok {
		isTaken = func() bool { return port.IsTaken(s.id) }
	}
	return iwarp.NewConn(iwarp.ConnConfig{
		Now: t.nic.now, Initiator: isInitiator, Revision: o.Revision, CRC: !o.NoCRC,
		Markers: o.Markers, MSS: s.mss, FPDU: fpduPolicies[o.FPDU], Buffers: t.buffers,
		Seed: t.nic.random(), Patience: limits.ReceivePatience,
		Shyness: limits.MPAShyTime, IsTaken: isTaken,
	})
}

var fpduPolicies = map[FPDUSize]iwarp.FPDUPolicy{
	FPDUAuto: iwarp.FPDUAuto, FPDUMSS: iwarp.FPDUMSS, FPDULarge: iwarp.FPDULarge,
}

// connected begins with MPA where TCP is connected, and tells the program where it is not.
func (t *streams) connected(s *stream, c *StreamConnected) {
	i := s.owner
	s.isDialing = false
	switch {
	case c.Errno == syscall.ECONNREFUSED && t.isPatient(s):
		t.timers.update(&s.timer, t.nic.now.Add(limits.RefusedPause))
		return
	case c.Errno != 0:
		t.forget(s)
		t.nic.cm.failStream(i, c.Errno)
		return
	case s.qp == nil: // destroyed meanwhile
		t.abort(s)
		t.nic.cm.failStream(i, syscall.EINVAL)
		return
	}
	t.nic.counters.StreamsConnected++
	if c.Local.IsValid() {
		s.local = unmapped(c.Local)
	}
	s.mss = c.MSS
	s.conn = t.newConn(s, true)
	s.conn.Request(t.nic.now, s.qp.iwarp, &s.params)
	s.params.PrivateData = nil
	t.settle(s)
}

// isPatient reports whether a connection that was refused is to be asked for again.
func (t *streams) isPatient(s *stream) bool {
	if s.patience == 0 {
		s.patience = t.nic.now.Add(limits.RefusedPatience)
	}
	return t.nic.now < s.patience
}

// redial asks once more for a connection.
func (t *streams) redial(s *stream) {
	i := s.owner
	err := t.connect(s, i)
	if err == nil {
		return
	}
	t.forget(s)
	t.nic.cm.failStream(i, refusalOf(err, "connect").Errno)
}

// settle follows a stream after a call into its engine: events, the queue pair's state, run queue
// and timer.
func (t *streams) settle(s *stream) {
	if s.isGone || s.conn == nil {
		return
	}
	for s.conn.PollEvent(&t.event) {
		t.react(s, &t.event)
		if s.isGone {
			return
		}
	}
	if q := s.qp; q != nil {
		t.nic.show(q)
		q.awaitReceive(s.conn.IsWaiting())
		t.followDirect(s, q)
	}
	if !s.isFull && s.conn.HasWork() {
		t.run.push(&s.turn)
	}
	if at := s.conn.PollTimeout(); at != clock.Never {
		t.timers.update(&s.timer, at)
	} else { // as a connection has it that is set up: to sleep without a deadline costs less
		t.timers.remove(&s.timer)
	}
}

// react moves a stream by one event of its engine.
func (t *streams) react(s *stream, e *iwarp.Event) {
	c, i := t.nic.cm, s.owner
	switch e.Kind {
	case iwarp.EventRequest:
		if i.untaken < i.backlog {
			t.ask(s, e)
			return
		}
		x := *e
		x.PrivateData = slices.Clone(e.PrivateData)
		s.request = &x
	case iwarp.EventClosed:
		t.closed(s, e)
	default:
		if i != nil {
			c.reactToStream(i, e)
		}
	}
}

// ask hands the request of a connection that came in to its listener.
func (t *streams) ask(s *stream, e *iwarp.Event) {
	l := s.owner
	t.setAsked(s)
	s.owner, s.request = nil, nil
	t.nic.cm.handleStreamRequest(s, l, e)
}

// admit lets requests in for which a listener's backlog has room now, the oldest first. As a peer
// of RoCE asks again until there is room, one of iWARP, which asks once, has to wait for it: a
// program that is busy for a moment is no reason to turn its clients away.
func (t *streams) admit(l *identifier) {
	for l.untaken < l.backlog {
		at := slices.IndexFunc(t.unasked, func(s *stream) bool {
			return s.owner == l && s.request != nil
		})
		if at < 0 {
			return
		}
		s := t.unasked[at]
		t.ask(s, s.request)
		t.settle(s)
	}
}

// closed ends a stream of which its engine has nothing more to say.
func (t *streams) closed(s *stream, e *iwarp.Event) {
	i, q, closing := s.owner, s.qp, s.conn.Closing()
	wasAsked := !s.isUnasked
	if how := e.End.How; !wasAsked && (how == iwarp.HowProtocol || how == iwarp.HowTimeout) {
		t.nic.counters.StreamsNoMPA++
	}
	t.forget(s)
	switch closing {
	case iwarp.CloseNone: // the shell has forgotten it
	case iwarp.CloseAbort:
		t.port().Abort(s.id)
	case iwarp.CloseFIN:
		t.port().Close(s.id)
	}
	if q != nil {
		t.nic.settle(q)
	}
	if i != nil && wasAsked {
		t.nic.cm.endStream(i, &e.End)
	}
}

// handleTimeout runs the timers that are due.
func (t *streams) handleTimeout(now clock.Time) {
	for range limits.StreamTimeoutsPerCall {
		s := t.timers.due(now)
		if s == nil {
			return
		}
		switch {
		case s.conn == nil:
			t.redial(s)
			continue
		case s.conn.PollTimeout() <= now:
			s.conn.HandleTimeout(now)
		}
		t.settle(s)
	}
}

// flush goes on flushing the queues of failed queue pairs.
func (t *streams) flush(now clock.Time) {
	for range t.flushing {
		q := t.flushing[0]
		t.flushing = slices.Delete(t.flushing, 0, 1)
		q.isFlushing = false
		q.iwarp.Work(now)
		t.nic.settle(q)
	}
}

// hasWork reports something to send, or to flush.
func (t *streams) hasWork() bool { return t.run.head != nil || len(t.flushing) > 0 }

// conn finds the connection behind an ID; nil where the shell is late, or MPA has not begun.
func (t *streams) conn(id StreamID) *stream {
	if s := t.byID[id]; s != nil && s.conn != nil {
		return s
	}
	return nil
}

// unmapped is an address in the family that it is of.
func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// HandleAccepted takes a connection that came in. It returns false for one that the NIC does not
// want; the shell resets it.
func (n *NIC) HandleAccepted(now clock.Time, listener StreamID, a *StreamAccepted) (
	StreamID, bool,
) {
	n.now = now
	s := n.streams.accept(listener, a)
	if s == nil {
		n.counters.StreamsRefused++
		return 0, false
	}
	n.streams.settle(s)
	return s.id, true
}

// HandleConnected takes the outcome of a Connect. With an errno the stream is gone.
func (n *NIC) HandleConnected(now clock.Time, id StreamID, c *StreamConnected) {
	n.now = now
	s := n.streams.byID[id]
	if s == nil || !s.isDialing {
		return
	}
	n.streams.connected(s, c)
	n.failDoomed()
}

// HandleStream takes bytes that arrived, in order. b is the shell's and valid during the call.
func (n *NIC) HandleStream(now clock.Time, id StreamID, b []byte) {
	n.now = now
	s := n.streams.conn(id)
	if s == nil {
		return
	}
	s.conn.HandleStream(now, b)
	n.streams.settle(s)
	n.failDoomed()
}

// ReceiveSpace returns where the next bytes of a stream belong in memory of an application, for
// the shell to receive them there without a copy; nil where they have to go through HandleStream.
// What it returns is valid until the next call into the NIC.
func (n *NIC) ReceiveSpace(id StreamID) [][]byte {
	s := n.streams.conn(id)
	if s == nil {
		return nil
	}
	return s.conn.ReceiveSpace()
}

// HandleReceived says that the first count bytes of ReceiveSpace, which was called just before, are
// filled.
func (n *NIC) HandleReceived(now clock.Time, id StreamID, count int) {
	n.now = now
	s := n.streams.conn(id)
	if s == nil {
		return
	}
	s.conn.HandleReceived(now, count)
	n.streams.settle(s)
	n.failDoomed()
}

// WantsStream reports whether the NIC wants more of a stream now. Where it does not, the shell
// leaves the bytes with TCP, which slows the peer down, and asks again later.
func (n *NIC) WantsStream(id StreamID) bool {
	s := n.streams.byID[id]
	return s == nil || s.conn == nil || !s.conn.IsWaiting()
}

// HandleStreamEnd says that the peer will send nothing more: errno is 0 for an orderly end (FIN),
// else what broke the connection, which is then gone in both directions.
func (n *NIC) HandleStreamEnd(now clock.Time, id StreamID, errno syscall.Errno) {
	n.now = now
	s := n.streams.conn(id)
	if s == nil {
		return
	}
	s.conn.HandleEnd(now, errno)
	n.streams.settle(s)
	n.failDoomed()
}

// PollStream names the next stream that has something to send and whose socket is not full.
// Streams take turns.
func (n *NIC) PollStream(now clock.Time, id *StreamID) bool {
	n.now = now
	t := n.streams
	for t.run.head != nil {
		s := t.run.head.owner
		if s.isFull || !s.conn.HasWork() {
			t.run.pop()
			continue
		}
		t.run.rotate()
		*id = s.id
		return true
	}
	return false
}

// FillStream fills v with the next bytes to send. They are valid until the next call into the NIC,
// which is HandleSent. It returns false when there is nothing to send.
func (n *NIC) FillStream(now clock.Time, id StreamID, v *work.Vector) bool {
	n.now = now
	s := n.streams.conn(id)
	if s == nil || s.isFull {
		return false
	}
	if s.conn.Fill(now, v) {
		return true
	}
	n.streams.settle(s) // it may have failed, or ended
	n.failDoomed()
	return false
}

// HandleSent says that the socket took the first sent bytes of what FillStream filled last. full
// says that it takes no more now: HandleWritable follows when it does.
func (n *NIC) HandleSent(now clock.Time, id StreamID, sent int, full bool) {
	n.now = now
	s := n.streams.conn(id)
	if s == nil {
		return
	}
	s.isFull = full
	s.conn.HandleSent(now, sent)
	n.streams.settle(s)
	n.failDoomed()
}

// HandleWritable says that a socket that was full takes more.
func (n *NIC) HandleWritable(now clock.Time, id StreamID) {
	n.now = now
	if s := n.streams.conn(id); s != nil {
		s.isFull = false
		n.streams.settle(s)
	}
}
