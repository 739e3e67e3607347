package tcp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/invariant"
	"github.com/softrnic/softrnic/internal/nic"
)

// Handler is what the port tells of its sockets, and asks what to send: a *nic.NIC.
type Handler interface {
	HandleAccepted(now clock.Time, listener nic.StreamID, a *nic.StreamAccepted) (nic.StreamID, bool)
	HandleConnected(now clock.Time, id nic.StreamID, c *nic.StreamConnected)
	HandleJoined(now clock.Time, a, b nic.StreamID)
	WantsStream(id nic.StreamID) bool
	HandleStream(now clock.Time, id nic.StreamID, b []byte)
	ReceiveSpace(id nic.StreamID) [][]byte
	HandleReceived(now clock.Time, id nic.StreamID, count int)
	HandleStreamEnd(now clock.Time, id nic.StreamID, errno syscall.Errno)
	PollStream(now clock.Time, id *nic.StreamID) bool
	FillStream(now clock.Time, id nic.StreamID, v *work.Vector) bool
	HandleSent(now clock.Time, id nic.StreamID, sent int, full bool)
	HandleWritable(now clock.Time, id nic.StreamID)
}

var _ Handler = (*nic.NIC)(nil)

// Config says how to open a port.
type Config struct {
	// Epoll is the owner's epoll set.
	Epoll int
	// Now is the owner's clock, which also gives the now of the calls into the port.
	Now func() clock.Time
	// DescriptorMax bounds the numbers of descriptors that streams may take, so that the owner
	// keeps some for other purposes; 0 is without a bound but the process's.
	DescriptorMax int
	// Admits, when not nil, says which hosts connections may come from and go to.
	Admits func(peer netip.Addr) bool
	// Warn, when not nil, takes what people should know. It must not block.
	Warn func(what string, err error)
	// Tap, when not nil, is shown what passes.
	Tap Tap
	// DisableJoin leaves also those bytes to TCP whose sender and receiver are both here; so does
	// RNIC_DISABLE_JOIN=1.
	DisableJoin bool
	// HostCongestion leaves every connection to the host's congestion control.
	HostCongestion bool
	// ShortPath is the round trip below which connections do without the host's congestion control
	// where that is BBR; 0 means shortPathDefault.
	ShortPath time.Duration

	// KeepAliveIdle, KeepAliveInterval and KeepAliveCount find peers that are gone while nothing
	// is sent; zero values mean keepAlive…Default.
	KeepAliveIdle, KeepAliveInterval time.Duration
	KeepAliveCount                   int
	// UserTimeout is how long bytes that were sent may go without an acknowledgement
	// (RFC 5482), and a connection attempt without an answer; 0 means userTimeoutDefault.
	UserTimeout time.Duration
	// Linger is how long a stream that was closed waits for its peer's FIN; 0 means lingerDefault.
	Linger time.Duration
}

const (
	// A peer that vanished while a connection is idle is noticed after a minute and a half; a
	// program that minds sooner sends something.
	keepAliveIdleDefault     = 60 * time.Second
	keepAliveIntervalDefault = 5 * time.Second
	keepAliveCountDefault    = 6
	userTimeoutDefault       = 30 * time.Second
	// lingerDefault gives the last bytes, say a Terminate, three retransmissions.
	lingerDefault = 2 * time.Second

	// receiveBytes is the buffer of one receive: large, because each call costs, and small enough
	// to stay in the processor's cache until the NIC has copied from it.
	receiveBytes = 256 << 10
	// Bounds of one turn. What costs no bytes counts as callCost.
	receiveBytesPerTurn  = 1 << 20
	transmitBytesPerTurn = 1 << 20
	callCost             = 8 << 10
	acceptsPerServe      = 16
	// hotMax sockets are asked without an event for hotTime after they had data.
	hotMax  = 4
	hotTime = clock.Time(200 * time.Microsecond)
	// bulkMin is what one receive of bulk data gives at least, bulkTime how soon the next follows.
	bulkMin  = 8 << 10
	bulkTime = clock.Time(50 * time.Microsecond)
	// acceptPause is for how long a listener does without what accept was short of, sendPause for
	// how long a sender does without memory of the kernel.
	acceptPause = clock.Time(20 * time.Millisecond)
	sendPause   = clock.Time(time.Millisecond)
	// wantPause is for how long a stream is left alone that the NIC wants nothing of.
	wantPause = clock.Time(100 * time.Microsecond)
	// lingeringMax bounds streams that are closed but for the peer's FIN.
	lingeringMax = 1024
	// inPlaceMax bounds the pieces of one receive.
	inPlaceMax = 16
)

// state is what a socket is.
type state uint8

const (
	listening state = iota
	connecting
	open
	lingering // closed by the NIC; we wait for the peer's FIN
	gone      // the descriptor is closed
)

// socket is one descriptor.
type socket struct {
	fd    int
	tag   int32 // tells it from others that have had the same number
	id    nic.StreamID
	state state

	queued   bool // in the ready queue
	readable bool // there may be something to receive or accept
	writable bool // an event told of room
	full     bool // the last send was short
	ending   bool // an event told of the end: read until it comes
	finished bool // the peer's FIN was read
	unwanted bool // the NIC wanted nothing of what there is to receive
	hot      bool // in Port.hot

	broken   unix.Errno // a send failed with it: tell when what was received is read
	cools    clock.Time // when it stops to be hot
	until    clock.Time // when it stops to pause or to linger
	isPaused bool
	isShort  bool   // a listener that lacks descriptors or memory; told once
	zone     uint32 // interface of link-local addresses
	// twin is the other end of the connection, if it is here and takes bytes without TCP (join).
	twin *socket
	flow Flow
}

// Port is the streams of one lane. It implements nic.StreamPort.
type Port struct {
	config  Config
	handler Handler
	off     error // why no socket can be opened; nil where it can
	isBlind bool  // the kernel does not find all peers that are gone; told once
	// hostCongestion is the host's congestion control where sockets begin with another.
	hostCongestion string

	byID map[nic.StreamID]*socket
	byFD []*socket
	// ends has the connections by their local and remote addresses.
	ends map[ends]*socket
	tag  int32

	ready queue
	hot   []*socket
	// bulk is when much came in last, isSteady that it had done so shortly before.
	bulk     clock.Time
	isSteady bool
	paused   []*socket
	linger   queue // in the order of their ends
	// current is the stream whose bytes the NIC has in hand; it stays when a fault in memory of an
	// application cuts that short.
	current *socket

	buffer   []byte
	in, out  *pieces
	vector   work.Vector
	polled   nic.StreamID           // what PollStream has named
	tapped   [inPlaceMax + 1][]byte // scratch
	counters Counters
}

var (
	_ nic.StreamPort = (*Port)(nil)
	_ nic.StreamAcks = (*Port)(nil)
)

// Open makes a port without sockets. It takes part once Serve has given it its NIC.
func Open(c Config) *Port {
	invariant.Assert(c.Now != nil, "a port of streams without a clock")
	return &Port{
		config: c.withDefaults(), byID: map[nic.StreamID]*socket{}, ends: map[ends]*socket{},
		in: newPieces(inPlaceMax + 1), out: newPieces(work.VectorPieces),
	}
}

func (c Config) withDefaults() Config {
	c.KeepAliveIdle = nonZero(c.KeepAliveIdle, keepAliveIdleDefault)
	c.KeepAliveInterval = nonZero(c.KeepAliveInterval, keepAliveIntervalDefault)
	c.KeepAliveCount = nonZero(c.KeepAliveCount, keepAliveCountDefault)
	c.UserTimeout = nonZero(c.UserTimeout, userTimeoutDefault)
	c.ShortPath = nonZero(c.ShortPath, shortPathDefault)
	c.Linger = nonZero(c.Linger, lingerDefault)
	c.DisableJoin = c.DisableJoin || os.Getenv("RNIC_DISABLE_JOIN") == "1"
	return c
}

func nonZero[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

// Serve gives the port its NIC, before any other call.
func (p *Port) Serve(h Handler) { p.handler = h }

// Disable lets Listen and Connect fail from now on.
func (p *Port) Disable(why error) { p.off = why }

func (p *Port) admits(peer netip.AddrPort) bool {
	return p.config.Admits == nil || p.config.Admits(peer.Addr().Unmap())
}

// Counters returns the counters, which belong to the port's thread.
func (p *Port) Counters() *Counters { return &p.counters }

// Census counts the sockets by what they are.
type Census struct {
	Listeners, Connecting, Open, Lingering int
}

// Census counts.
func (p *Port) Census() Census {
	c := Census{}
	for _, s := range p.byFD {
		if s == nil {
			continue
		}
		switch s.state {
		case listening:
			c.Listeners++
		case connecting:
			c.Connecting++
		case open:
			c.Open++
		case lingering:
			c.Lingering++
		case gone:
		}
	}
	return c
}

// IsIdle reports a port without sockets, which needs no attention at all.
func (p *Port) IsIdle() bool { return len(p.byID) == 0 && p.linger.len() == 0 }

// HasWork reports that Receive has something to do at once.
func (p *Port) HasWork() bool { return p.ready.len() > 0 || p.current != nil }

// Awaits reports that bulk data comes in and more of it is on its way: the owner then looks again
// instead of going to sleep. To be woken takes longer than to wait and, where the sender is on the
// same machine, costs the sender more than to send.
func (p *Port) Awaits(now clock.Time) bool { return p.isSteady && now-p.bulk < bulkTime }

// noteBulk remembers that much has come in. Where the time between two such receives is long, the
// network is slow, and waiting for it would take a processor from others.
func (p *Port) noteBulk(now clock.Time) {
	p.isSteady = now-p.bulk < bulkTime
	p.bulk = now
}

// Deadline returns when Receive wants to be called next though no event comes, or clock.Never.
func (p *Port) Deadline() clock.Time {
	at := clock.Never
	for _, s := range p.paused {
		at = min(at, s.until)
	}
	if s := p.linger.first(); s != nil {
		at = min(at, s.until)
	}
	return at
}

// admit puts a new socket into the tables and into the epoll set.
func (p *Port) admit(s *socket, events uint32) error {
	if p.byID[s.id] != nil {
		return fmt.Errorf("tcp: stream %d exists: %w", s.id, unix.EEXIST)
	}
	p.tag = max(p.tag+1, 1) // also after an overflow
	s.tag = p.tag
	e := unix.EpollEvent{Events: events | unix.EPOLLET, Fd: int32(s.fd), Pad: s.tag}
	if err := unix.EpollCtl(p.config.Epoll, unix.EPOLL_CTL_ADD, s.fd, &e); err != nil {
		return fmt.Errorf("tcp: watch a socket: %w", err)
	}
	for s.fd >= len(p.byFD) {
		p.byFD = append(p.byFD, nil)
	}
	invariant.Assert(p.byFD[s.fd] == nil, "a descriptor belongs to two streams")
	p.byFD[s.fd] = s
	p.byID[s.id] = s
	return nil
}

// streamEvents are watched on connections; EPOLLERR and EPOLLHUP always are.
const streamEvents = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP

// Owns reports whether an event of the owner's epoll set is for HandleEvent: owners leave Pad 0 for
// descriptors of their own.
func Owns(e *unix.EpollEvent) bool { return e.Pad != 0 }

// HandleEvent takes what epoll says of a socket. The NIC is told later, by Receive.
func (p *Port) HandleEvent(e *unix.EpollEvent) {
	if e.Fd < 0 || int(e.Fd) >= len(p.byFD) {
		return
	}
	s := p.byFD[e.Fd]
	if s == nil || s.tag != e.Pad {
		return // of a socket that was closed since
	}
	const failed = unix.EPOLLHUP | unix.EPOLLERR
	if e.Events&(unix.EPOLLIN|unix.EPOLLRDHUP|failed) != 0 {
		s.readable = true
	}
	if e.Events&(unix.EPOLLRDHUP|failed) != 0 {
		s.ending = true
	}
	if e.Events&(unix.EPOLLOUT|failed) != 0 && (s.full || s.state == connecting) {
		s.writable = true
	}
	if s.readable || s.writable {
		p.enqueue(s)
	}
}

func (p *Port) enqueue(s *socket) {
	if !s.queued {
		s.queued = true
		p.ready.push(s)
	}
}

// pause lets a socket rest for a while.
func (p *Port) pause(now clock.Time, s *socket, d clock.Time) {
	s.until = now + d
	if !s.isPaused {
		s.isPaused = true
		p.paused = append(p.paused, s)
	}
}

// wake ends the pauses that are over.
func (p *Port) wake(now clock.Time) {
	kept := p.paused[:0]
	for _, s := range p.paused {
		switch {
		case !s.isPaused: // closed, or lingers
		case s.until > now && !p.isWantedAgain(s):
			kept = append(kept, s)
		default:
			s.isPaused = false
			s.readable = s.readable || s.state == listening || s.unwanted
			s.unwanted = false
			s.writable = s.writable || s.state == open && s.full
			p.enqueue(s)
		}
	}
	clear(p.paused[len(kept):])
	p.paused = kept
}

// Receive serves sockets that have something: it accepts, completes connections, receives, and
// tells the NIC. It does a bounded piece of work, and reports whether there was any.
func (p *Port) Receive(now clock.Time) bool {
	worked := p.recover(now)
	if len(p.paused) > 0 {
		p.wake(now)
	}
	p.bury(now)
	budget := receiveBytesPerTurn
	for n := p.ready.len(); n > 0 && budget > 0; n-- {
		s := p.ready.pop()
		s.queued = false
		budget -= p.serve(now, s)
		worked = true
	}
	if len(p.hot) > 0 && p.ask(now, budget) {
		worked = true
	}
	return worked
}

// serve does one step with a socket and returns what that cost.
func (p *Port) serve(now clock.Time, s *socket) (cost int) {
	switch s.state {
	case listening:
		cost = p.accept(now, s)
	case connecting:
		p.complete(now, s)
		cost = callCost
	case open:
		if s.writable {
			s.writable = false
			p.drained(now, s)
		}
		if s.readable && s.state == open {
			cost = p.receive(now, s)
		}
	case lingering:
		cost = p.discardBytes(now, s)
	case gone:
		return 0
	}
	if s.readable && s.state != gone && (!s.isPaused || s.state != listening) {
		p.enqueue(s)
	}
	return cost + callCost
}

// recover ends the stream in whose bytes a fault in memory of an application was met: the NIC has
// seen a part of them, and the rest cannot follow.
func (p *Port) recover(now clock.Time) bool {
	s := p.current
	if s == nil {
		return false
	}
	p.current = nil
	p.out.reset()
	p.in.reset()
	p.vector.Reset()
	if s.state != open { // the NIC has ended it, with whoever had the memory
		return false
	}
	p.fail(now, s, unix.EFAULT)
	return true
}

// discard closes the descriptor and takes the socket out of the tables.
func (p *Port) discard(s *socket) {
	p.byFD[s.fd] = nil
	if own := endsOf(&s.flow); p.ends[own] == s {
		delete(p.ends, own)
	}
	if p.byID[s.id] == s {
		delete(p.byID, s.id)
	}
	s.state, s.isPaused = gone, false
	s.part()
	// A child that was forked but has not called exec yet may hold a copy, and with it the file
	// would stay in the set.
	_ = unix.EpollCtl(p.config.Epoll, unix.EPOLL_CTL_DEL, s.fd, nil)
	_ = unix.Close(s.fd)
	s.fd = -1
}

// ends names a connection as one of its sockets sees it.
type ends struct{ local, remote netip.AddrPort }

func endsOf(f *Flow) ends { return ends{f.Local, f.Remote} }

// pair remembers the addresses of a connection, and finds its other end if that is here as well.
func (p *Port) pair(s *socket) {
	f := &s.flow
	p.ends[endsOf(f)] = s
	if twin := p.ends[ends{f.Remote, f.Local}]; twin != nil && twin != s {
		f.Twin, f.TwinID = true, twin.id
		twin.flow.Twin, twin.flow.TwinID = true, s.id
	}
}

// listener returns the tap, if it listens.
func (p *Port) listener() Tap {
	t := p.config.Tap
	if t == nil || !t.IsOn() {
		return nil
	}
	return t
}

// CloseAll closes all sockets: listeners stop, connections end in order as far as their peers have
// nothing on the way to us. The port is of no use after that.
func (p *Port) CloseAll() {
	for _, s := range p.byFD {
		if s != nil {
			p.discard(s)
		}
	}
	p.ready, p.linger, p.paused, p.hot = queue{}, queue{}, nil, nil
}

// errnoOf returns the errno in an error of package unix.
func errnoOf(err error) unix.Errno {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return unix.EIO
}
