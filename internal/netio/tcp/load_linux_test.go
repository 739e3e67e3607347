package tcp

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/test/netnstest"
)

// TestPort_ManyConnections_EachGetsItsTurn lets one stream bring all it can while others bring a
// little: theirs must not wait for the end of it.
func TestPort_ManyConnections_EachGetsItsTurn(t *testing.T) {
	const many = 200
	server, client := newHost(t, Config{}), newHost(t, Config{})
	at := server.listen(lo4)
	for i := range nic.StreamID(many) {
		client.connect(i+1, at)
	}
	until(t, "all connected", func() bool {
		return server.port.Census().Open == many && client.port.Census().Open == many
	}, client, server)
	flood := client.streams[1]
	flood.out = make([]byte, 64<<20)
	small := pattern(100, 1)
	for i := range nic.StreamID(many - 1) {
		client.streams[i+2].out = bytes.Clone(small)
	}
	for _, s := range server.streams {
		s.drop = true
	}
	got := func() (whole, flooded int) {
		for _, s := range server.streams {
			if s.received == len(small) {
				whole++
			}
			flooded = max(flooded, s.received)
		}
		return whole, flooded
	}
	until(t, "the small ones are through", func() bool {
		whole, _ := got()
		return whole == many-1
	}, client, server)
	if _, flooded := got(); flooded > 16<<20 {
		t.Errorf("small messages waited until %d bytes of another stream were through", flooded)
	}
}

// TestPort_TurnIsBounded_HasWorkSaysSo holds that no turn takes all that comes.
func TestPort_TurnIsBounded_HasWorkSaysSo(t *testing.T) {
	h := newHost(t, Config{})
	_, _, s := dialled(t, h)
	s.drop = true
	for i := range 8 {
		c := dial(t, s.accepted.Local)
		_ = c.SetWriteBuffer(4 << 20)
		_ = c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
		_, _ = c.Write(make([]byte, 3<<20)) // as far as there is room
		_ = i
	}
	until(t, "all accepted", func() bool { return h.port.Census().Open == 9 }, h)
	for _, s := range h.streams {
		s.drop = true
	}
	total := func() (n int) {
		for _, s := range h.streams {
			n += s.received
		}
		return n
	}
	for range 1000 {
		before := total()
		h.turn(time.Millisecond)
		if n := total() - before; n > receiveBytesPerTurn+receiveBytes {
			t.Fatalf("%d bytes in one turn", n)
		} else if n == 0 && !h.port.HasWork() {
			break
		}
	}
	if total() < 2<<20 {
		t.Fatalf("only %d bytes: the test shows nothing", total())
	}
}

func TestPort_IdleConnections_LetTheOwnerSleep(t *testing.T) {
	const many = 300
	server, client := newHost(t, Config{}), newHost(t, Config{})
	at := server.listen(lo4)
	for i := range nic.StreamID(many) {
		client.connect(i+1, at)
	}
	until(t, "all connected", func() bool {
		return server.port.Census().Open == many && client.port.Census().Open == many
	}, client, server)
	for range 10 {
		server.turn(0)
		client.turn(0)
	}
	for _, h := range []*host{server, client} {
		if n := h.turn(20 * time.Millisecond); n != 0 || h.port.HasWork() ||
			h.port.Deadline() != clock.Never || h.port.Receive(h.now()) {
			t.Errorf("%d events of idle connections, deadline %v", n, h.port.Deadline())
		}
	}
}

// What the NIC does not want stays with TCP, which slows the peer down, and comes when it does.
func TestPort_Unwanted_IsLeftWithTCP(t *testing.T) {
	server, client := newHost(t, Config{}), newHost(t, Config{})
	at := server.listen(lo4)
	c := client.connect(7, at)
	until(t, "connected", func() bool {
		return c.connected != nil && server.lastID != 1000
	}, client, server)
	_, s := server.latest()
	server.unwilling = true
	c.out = pattern(32<<20, 1)
	until(t, "TCP is full", func() bool {
		return c.full && server.port.Counters().Get(RxPaused) > 3
	}, client, server)
	if s.received != 0 || server.port.HasWork() {
		t.Errorf("%d bytes were read, work: %v", s.received, server.port.HasWork())
	}
	server.unwilling = false
	s.drop = true
	until(t, "all bytes arrive", func() bool { return s.received == 32<<20 }, client, server)
}

// TestPort_OutOfDescriptors_WhoWaitsIsServedLater lowers the limit of this process, so nothing else
// may run beside it.
func TestPort_OutOfDescriptors_WhoWaitsIsServedLater(t *testing.T) {
	var warnings []error
	h := newHost(t, Config{Warn: func(_ string, err error) { warnings = append(warnings, err) }})
	c, id, _ := dialled(t, h)
	at := h.streams[id].accepted.Local
	waiting := dial(t, at)
	restore := lowerLimit(t)
	until(t, "a pause", func() bool { return h.port.Counters().Get(AcceptPaused) > 0 }, h)
	turns := 0
	for begin := time.Now(); time.Since(begin) < 100*time.Millisecond; turns++ {
		h.turn(time.Second)
	}
	if turns > 20 {
		t.Errorf("%d turns in 100 ms: a listener without descriptors spins", turns)
	}
	if err := h.port.Connect(9, &nic.StreamRoute{Remote: at}); !errors.Is(err, unix.EMFILE) {
		t.Errorf("connect: %v", err)
	}
	restore()
	until(t, "who waited is served", func() bool { return h.lastID == id+1 }, h)
	_, s := h.latest()
	if _, err := waiting.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	until(t, "bytes arrive", func() bool { return string(s.in) == "hello" }, h)
	if len(warnings) != 1 || !errors.Is(warnings[0], unix.EMFILE) {
		t.Errorf("warnings: %v", warnings)
	}
	_ = c.Close()
}

func TestPort_OutOfDescriptors_LingeringStreamsGoFirst(t *testing.T) {
	h := newHost(t, Config{Linger: time.Hour})
	_, id, s := dialled(t, h)
	_ = dial(t, s.accepted.Local)
	h.port.Close(id)
	restore := lowerLimit(t)
	until(t, "accepted", func() bool { return h.lastID == id+1 }, h)
	restore()
	if c := h.port.Census(); c.Lingering != 0 || c.Open != 1 ||
		h.port.Counters().Get(AcceptPaused) != 0 {
		t.Errorf("%+v", c)
	}
}

// lowerLimit leaves the process no descriptor above those that are open.
func lowerLimit(t *testing.T) (restore func()) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	// The lowest number that is free; all below are in use.
	fd, err := unix.Dup(0)
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(fd)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{
		Cur: uint64(fd), Max: old.Max,
	}); err != nil {
		t.Skipf("the limit cannot be lowered here: %v", err)
	}
	restored := false
	restore = func() {
		if !restored {
			restored = true
			_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &old)
		}
	}
	t.Cleanup(restore)
	return restore
}

func TestPort_DescriptorMax_KeepsSomeForOthers(t *testing.T) {
	h := newHost(t, Config{})
	c, id, s := dialled(t, h)
	h.port.config.DescriptorMax = h.port.byID[id].fd + 1
	more := dial(t, s.accepted.Local)
	until(t, "refused", func() bool { return h.port.Counters().Get(AcceptRefused) == 1 }, h)
	if _, err := readAll(more); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the peer sees %v", err)
	}
	err := h.port.Connect(9, &nic.StreamRoute{Remote: s.accepted.Local})
	if !errors.Is(err, unix.EMFILE) {
		t.Errorf("connect: %v", err)
	}
	_ = c.Close()
}

func TestPort_SilentPeer_IsFoundByProbesAndByUnansweredBytes(t *testing.T) {
	a, b := netnstest.Pair(t, 1500)
	var idle, busy, server *host
	fast := Config{
		KeepAliveIdle: time.Second, KeepAliveInterval: time.Second, KeepAliveCount: 1,
		UserTimeout: time.Second,
	}
	a.Do(func() { idle, busy = newHost(t, fast), newHost(t, Config{UserTimeout: time.Second}) })
	b.Do(func() { server = newHost(t, Config{}) })
	var at netip.AddrPort
	b.Do(func() { at = server.listen(b.V4) })
	var s1, s2, s3 *stream
	a.Do(func() { s1, s2 = idle.connect(1, at), busy.connect(1, at) })
	until(t, "connected", func() bool {
		return s1.connected != nil && s2.connected != nil
	}, idle, busy, server)
	b.Do(func() { linkDown(t, b.Link) })
	a.Do(func() { s3 = busy.connect(2, at) })
	s2.out = pattern(100_000, 0)
	until(t, "all are given up", func() bool {
		return s1.ended && s2.ended && s3.connected != nil
	}, idle, busy)
	for i, errno := range []error{s1.ends[0], s2.ends[0], s3.connected.Errno} {
		if !errors.Is(errno, unix.ETIMEDOUT) && !errors.Is(errno, unix.EHOSTUNREACH) {
			t.Errorf("stream %d ends with %v", i+1, errno)
		}
	}
	if idle.port.Counters().Get(TimedOut) != 1 || !idle.port.IsIdle() || !busy.port.IsIdle() {
		t.Error("not counted, or sockets are left")
	}
}

func TestPort_LinkLocal_NeedsAndTellsTheInterface(t *testing.T) {
	a, b := netnstest.Pair(t, 1500)
	var fromA, toB netip.Addr
	var ifA, ifB uint32
	a.Do(func() { fromA, ifA = linkLocal(t, a.Link) })
	b.Do(func() { toB, ifB = linkLocal(t, b.Link) })
	var client, server *host
	var at netip.AddrPort
	var c *stream
	b.Do(func() {
		server = newHost(t, Config{})
		at = server.listenAs(1, nic.StreamListener{
			At: netip.AddrPortFrom(toB, 0), Interface: ifB,
		})
	})
	a.Do(func() {
		client = newHost(t, Config{})
		c = &stream{}
		client.add(1, c)
		if err := client.port.Connect(1, &nic.StreamRoute{
			Local: netip.AddrPortFrom(fromA, 0), Remote: at, Interface: ifA, TOS: 0x28,
		}); err != nil {
			t.Fatal(err)
		}
		if tos, err := unix.GetsockoptInt(client.port.byID[1].fd, unix.IPPROTO_IPV6,
			unix.IPV6_TCLASS); err != nil || tos != 0x28 {
			t.Errorf("traffic class %#x, %v", tos, err)
		}
	})
	until(t, "connected", func() bool {
		return c.connected != nil && server.lastID != 1000
	}, client, server)
	_, s := server.latest()
	if c.connected.Errno != 0 || c.connected.Local.Addr() != fromA ||
		s.accepted.Remote != c.connected.Local || s.accepted.Interface != ifB {
		t.Fatalf("connected %+v, accepted %+v", c.connected, s.accepted)
	}
}

func TestPort_DataPath_AllocatesNothing(t *testing.T) {
	server, client := newHost(t, Config{}), newHost(t, Config{})
	at := server.listen(lo4)
	c := client.connect(1, at)
	until(t, "connected", func() bool { return server.lastID != 1000 && c.connected != nil },
		client, server)
	_, s := server.latest()
	s.drop = true
	server.onStream = func(nic.StreamID, []byte) {}
	block := make([]byte, 60_000)
	place := make([]byte, 10_000)
	round := func() {
		c.out, c.sent = block, 0
		s.space = place
		client.port.Transmit(0)
		server.turn(10 * time.Millisecond)
		client.turn(0)
	}
	for range 100 {
		round()
	}
	server.log = make([]nic.StreamID, 0, 1<<16)
	if n := testing.AllocsPerRun(200, round); n != 0 {
		t.Errorf("%v allocations for each send and receive", n)
	}
	if server.port.Counters().Get(RxInPlaceBytes) < 300*10_000 {
		t.Error("the test does not receive in place")
	}
}

func TestQueue_PushPop_OrderAndNoGrowth(t *testing.T) {
	var q queue
	var list [40]socket
	next, first := 0, 0
	for round := range 1000 {
		for range 1 + round%7 {
			list[next%40].id = nic.StreamID(next)
			q.push(&list[next%40])
			next++
		}
		for q.len() > round%11 {
			if got := q.first(); got.id != nic.StreamID(first) || q.pop() != got {
				t.Fatalf("%d instead of %d", got.id, first)
			}
			first++
		}
	}
	if cap(q.list) > 64 {
		t.Errorf("an array of %d for a row of at most 20", cap(q.list))
	}
	if (&queue{}).first() != nil {
		t.Error("an empty queue has a first")
	}
}
