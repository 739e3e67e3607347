package tcp

import (
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/nic"
)

const testTimeout = 10 * time.Second

var (
	lo4 = netip.MustParseAddr("127.0.0.1")
	lo6 = netip.MustParseAddr("::1")
)

// stream is what the host knows of a connection.
type stream struct {
	accepted  nic.StreamAccepted
	connected *nic.StreamConnected
	in        []byte
	drop      bool // count bytes only
	received  int
	out       []byte // to be sent
	sent      int
	full      bool
	writable  int // times it was told
	ended     bool
	ends      []syscall.Errno
	space     []byte // where received bytes belong; the rest goes to in
	inOrder   bool   // what is received in place is put into in as well
	unwilling bool   // wants nothing of the stream
}

// host is a NIC that passes bytes on, with the port and the loop of a lane.
type host struct {
	t       testing.TB
	port    *Port
	epoll   int
	origin  time.Time
	events  []unix.EpollEvent
	streams map[nic.StreamID]*stream
	order   []nic.StreamID
	lastID  nic.StreamID
	refuse  bool
	echo    bool
	// unwilling wants nothing of any stream.
	unwilling bool
	// onStream, when not nil, takes the place of what HandleStream does.
	onStream func(id nic.StreamID, b []byte)
	log      []nic.StreamID // who received, in order
	joined   [][2]nic.StreamID
	places   [2][]byte
}

var _ Handler = (*host)(nil)

func newHost(t testing.TB, c Config) *host {
	t.Helper()
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	h := &host{
		t: t, epoll: epoll, origin: time.Now(), events: make([]unix.EpollEvent, 64),
		streams: map[nic.StreamID]*stream{}, lastID: 1000,
	}
	c.Epoll, c.Now = epoll, h.now
	h.port = Open(c)
	h.port.Serve(h)
	t.Cleanup(func() {
		h.port.CloseAll()
		_ = unix.Close(epoll)
	})
	return h
}

func (h *host) now() clock.Time { return clock.Time(time.Since(h.origin)) }

func (h *host) HandleAccepted(_ clock.Time, _ nic.StreamID, a *nic.StreamAccepted) (
	nic.StreamID, bool,
) {
	if h.refuse {
		return 0, false
	}
	h.lastID++
	h.add(h.lastID, &stream{accepted: *a})
	return h.lastID, true
}

func (h *host) add(id nic.StreamID, s *stream) {
	h.streams[id] = s
	h.order = append(h.order, id)
}

func (h *host) HandleConnected(_ clock.Time, id nic.StreamID, c *nic.StreamConnected) {
	copied := *c
	h.streams[id].connected = &copied
}

func (h *host) HandleJoined(_ clock.Time, a, b nic.StreamID) {
	h.joined = append(h.joined, [2]nic.StreamID{a, b})
}

func (h *host) WantsStream(id nic.StreamID) bool {
	s := h.streams[id]
	return !h.unwilling && (s == nil || !s.unwilling)
}

func (h *host) HandleStream(_ clock.Time, id nic.StreamID, b []byte) {
	h.log = append(h.log, id)
	if h.onStream != nil {
		h.onStream(id, b)
		return
	}
	s := h.streams[id]
	s.received += len(b)
	if !s.drop {
		s.in = append(s.in, b...)
	}
	if h.echo {
		s.out = append(s.out, b...)
	}
}

func (h *host) ReceiveSpace(id nic.StreamID) [][]byte {
	s := h.streams[id]
	if len(s.space) == 0 {
		return nil
	}
	half := len(s.space) / 2
	h.places = [2][]byte{s.space[:half], s.space[half:]}
	return h.places[:]
}

func (h *host) HandleReceived(_ clock.Time, id nic.StreamID, count int) {
	s := h.streams[id]
	if s.inOrder {
		s.in = append(s.in, s.space[:count]...)
	}
	s.space = s.space[count:]
	s.received += count
}

func (h *host) HandleStreamEnd(_ clock.Time, id nic.StreamID, errno syscall.Errno) {
	s := h.streams[id]
	s.ended = true
	s.ends = append(s.ends, errno)
}

func (h *host) PollStream(_ clock.Time, id *nic.StreamID) bool {
	for i, x := range h.order {
		if s := h.streams[x]; len(s.out) > s.sent && !s.full {
			copy(h.order[i:], h.order[i+1:])
			h.order[len(h.order)-1] = x
			*id = x
			return true
		}
	}
	return false
}

func (h *host) FillStream(_ clock.Time, id nic.StreamID, v *work.Vector) bool {
	v.Reset()
	s := h.streams[id]
	for rest := s.out[s.sent:]; len(rest) > 0 && !v.IsFull(); {
		n := min(len(rest), 5000)
		v.Append(rest[:n])
		rest = rest[n:]
	}
	return v.Bytes > 0
}

func (h *host) HandleSent(_ clock.Time, id nic.StreamID, sent int, full bool) {
	s := h.streams[id]
	s.sent, s.full = s.sent+sent, full
	if s.sent == len(s.out) {
		s.out, s.sent = s.out[:0], 0
	}
}

func (h *host) HandleWritable(_ clock.Time, id nic.StreamID) {
	s := h.streams[id]
	s.full = false
	s.writable++
}

// turn is a lane's turn; it waits for at most so long, and returns how many events there were.
func (h *host) turn(wait time.Duration) int {
	if h.port.HasWork() {
		wait = 0
	}
	if at := h.port.Deadline(); at != clock.Never {
		wait = max(0, min(wait, at.Sub(h.now())+time.Millisecond))
	}
	n, err := unix.EpollWait(h.epoll, h.events, int(wait.Milliseconds()))
	if err != nil && err != unix.EINTR {
		h.t.Fatal(err)
	}
	for i := range max(n, 0) {
		if !Owns(&h.events[i]) {
			h.t.Fatalf("event %+v is nobody's", h.events[i])
		}
		h.port.HandleEvent(&h.events[i])
	}
	h.port.Receive(h.now())
	h.port.Transmit(h.now())
	return max(n, 0)
}

// until turns hosts until a condition holds.
func until(t testing.TB, what string, f func() bool, hosts ...*host) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); !f(); {
		if time.Now().After(deadline) {
			t.Fatalf("in vain: %s", what)
		}
		for _, h := range hosts {
			h.turn(2 * time.Millisecond)
		}
	}
}

// listen opens a listener on a free port.
func (h *host) listen(at netip.Addr) netip.AddrPort {
	h.t.Helper()
	return h.listenAs(1, nic.StreamListener{At: netip.AddrPortFrom(at, 0), Backlog: 16})
}

func (h *host) listenAs(id nic.StreamID, l nic.StreamListener) netip.AddrPort {
	h.t.Helper()
	if err := h.port.Listen(id, &l); err != nil {
		h.t.Fatal(err)
	}
	at, _ := localOf(h.port.byID[id].fd)
	return at
}

// connect begins to connect.
func (h *host) connect(id nic.StreamID, to netip.AddrPort) *stream {
	h.t.Helper()
	s := &stream{}
	h.add(id, s)
	if err := h.port.Connect(id, &nic.StreamRoute{Remote: to}); err != nil {
		h.t.Fatal(err)
	}
	return s
}

// latest returns the connection that was accepted last.
func (h *host) latest() (nic.StreamID, *stream) { return h.lastID, h.streams[h.lastID] }

// dialled is a connection from outside to a host with a listener.
func dialled(t testing.TB, h *host) (*net.TCPConn, nic.StreamID, *stream) {
	t.Helper()
	at := h.listen(lo4)
	c := dial(t, at)
	before := h.lastID
	until(t, "accepted", func() bool { return h.lastID != before }, h)
	id, s := h.latest()
	return c, id, s
}

func dial(t testing.TB, at netip.AddrPort) *net.TCPConn {
	t.Helper()
	c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// background runs f beside the host and returns its result.
func background(t testing.TB, h *host, f func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	var err error
	until(t, "the other side has done its part", func() bool {
		select {
		case err = <-done:
			return true
		default:
			return false
		}
	}, h)
	if err != nil {
		t.Fatal(err)
	}
}

// readAll reads to the end with a deadline.
func readAll(c *net.TCPConn) ([]byte, error) {
	_ = c.SetReadDeadline(time.Now().Add(testTimeout))
	return io.ReadAll(c)
}

func pattern(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i>>8 + i*7 + seed)
	}
	return b
}

func countFDs(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
