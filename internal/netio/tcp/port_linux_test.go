package tcp

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"regexp"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/netio"
	"github.com/softrnic/softrnic/internal/nic"
)

func TestPort_ConnectAndAccept_BytesGoBothWays(t *testing.T) {
	for _, address := range []netip.Addr{lo4, lo6} {
		server, client := newHost(t, Config{}), newHost(t, Config{})
		at := server.listen(address)
		c := client.connect(7, at)
		until(t, "connected", func() bool {
			return c.connected != nil && server.lastID != 1000
		}, client, server)
		id, s := server.latest()
		switch {
		case c.connected.Errno != 0, c.connected.MSS < 500, s.accepted.MSS < 500:
			t.Fatalf("connected %+v, accepted %+v", c.connected, s.accepted)
		case s.accepted.Remote != c.connected.Local, s.accepted.Local != at:
			t.Fatalf("connected %+v, accepted %+v at %v", c.connected, s.accepted, at)
		}
		there, back := pattern(3<<20, 1), pattern(2<<20, 2)
		c.out, s.out = bytes.Clone(there), bytes.Clone(back)
		until(t, "all bytes arrive", func() bool {
			return len(s.in) == len(there) && len(c.in) == len(back)
		}, client, server)
		if !bytes.Equal(s.in, there) || !bytes.Equal(c.in, back) {
			t.Fatal("bytes were changed on the way")
		}
		client.port.Close(7)
		until(t, "the end arrives", func() bool { return s.ended }, client, server)
		server.port.Close(id)
		until(t, "nothing lingers", func() bool {
			return client.port.IsIdle() && server.port.Census() == Census{Listeners: 1}
		}, client, server)
		if len(s.ends) != 1 || s.ends[0] != 0 || c.ended {
			t.Fatalf("ends %v, %v", s.ends, c.ends)
		}
	}
}

func TestPort_Refused_IsToldByErrno(t *testing.T) {
	h := newHost(t, Config{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().(*net.TCPAddr).AddrPort()
	_ = l.Close()
	s := h.connect(1, at)
	until(t, "the outcome", func() bool { return s.connected != nil }, h)
	if s.connected.Errno != unix.ECONNREFUSED || !h.port.IsIdle() || s.ended {
		t.Fatalf("%+v, idle %v", s.connected, h.port.IsIdle())
	}
	if h.port.Counters().Get(ConnectFailed) != 1 {
		t.Error("not counted")
	}
}

func TestPort_ConnectToNowhere_IsAnErrnoAtOnce(t *testing.T) {
	h := newHost(t, Config{})
	before := countFDs(t)
	err := h.port.Connect(1, &nic.StreamRoute{
		Local:  netip.MustParseAddrPort("192.0.2.1:0"), // documentation: nobody's
		Remote: netip.AddrPortFrom(lo4, 9),
	})
	if !errors.Is(err, unix.EADDRNOTAVAIL) || !h.port.IsIdle() || countFDs(t) != before {
		t.Fatalf("%v, %d descriptors of %d", err, countFDs(t), before)
	}
}

func TestPort_SocketThatIsItsOwnPeer_IsRefused(t *testing.T) {
	h := newHost(t, Config{})
	own := netip.AddrPortFrom(lo4, 31999)
	s := &stream{}
	h.add(1, s)
	if err := h.port.Connect(1, &nic.StreamRoute{Local: own, Remote: own}); err != nil {
		t.Fatal(err)
	}
	until(t, "the outcome", func() bool { return s.connected != nil }, h)
	if s.connected.Errno != unix.ECONNREFUSED || !h.port.IsIdle() {
		t.Fatalf("%+v", s.connected)
	}
}

func TestPort_PortInUse_IsEADDRINUSE(t *testing.T) {
	h := newHost(t, Config{})
	at := h.listen(lo4)
	before := countFDs(t)
	err := h.port.Listen(2, &nic.StreamListener{At: at, Backlog: 1})
	if !errors.Is(err, unix.EADDRINUSE) || countFDs(t) != before {
		t.Fatalf("%v", err)
	}
	// Where, the NIC says in front of it.
	if text := err.Error(); text != "tcp: bind: address already in use" {
		t.Errorf("%q", text)
	}
	// A program outside has it as well.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	taken := l.Addr().(*net.TCPAddr).AddrPort()
	for _, address := range []netip.Addr{lo4, netip.IPv4Unspecified()} {
		err = h.port.Listen(2, &nic.StreamListener{At: netip.AddrPortFrom(address, taken.Port())})
		if !errors.Is(err, unix.EADDRINUSE) {
			t.Fatalf("%v: %v", address, err)
		}
	}
	// A number that is in use is our owner's bug, and costs nobody the stream that has it.
	if err := h.port.Listen(1, &nic.StreamListener{At: netip.AddrPortFrom(lo4, 0)}); !errors.Is(
		err, unix.EEXIST) || countFDs(t) != before+1 {
		t.Fatalf("%v", err)
	}
	// The port is free again once its listener is closed.
	h.port.Close(1)
	if err := h.port.Listen(2, &nic.StreamListener{At: at}); err != nil {
		t.Fatal(err)
	}
}

func TestPort_ListenAgain_AfterConnectionsOfTheLastOne(t *testing.T) {
	h := newHost(t, Config{})
	c, id, s := dialled(t, h)
	at := s.accepted.Local
	h.port.Close(id) // this side first, so that TIME-WAIT is here
	if _, err := readAll(c); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	until(t, "closed", func() bool { return h.port.Census().Lingering == 0 }, h)
	h.port.Close(1)
	h.listenAs(2, nic.StreamListener{At: at})
}

func TestPort_WildcardListeners_TakeTheFamiliesAskedFor(t *testing.T) {
	v6 := netip.IPv6Unspecified()
	reaches := func(h *host, at netip.AddrPort) bool {
		c, err := net.DialTimeout("tcp", at.String(), time.Second)
		if err != nil {
			return false
		}
		_ = c.Close()
		before := h.lastID
		until(t, "accepted", func() bool { return h.lastID != before }, h)
		return true
	}
	h := newHost(t, Config{})
	at := h.listenAs(1, nic.StreamListener{At: netip.AddrPortFrom(v6, 0)})
	if !reaches(h, netip.AddrPortFrom(lo4, at.Port())) {
		t.Error("a listener on [::] does not take IPv4")
	}
	if _, s := h.latest(); s.accepted.Local != netip.AddrPortFrom(lo4, at.Port()) ||
		!s.accepted.Remote.Addr().Is4() {
		t.Errorf("addresses %v of IPv4 are not such", s.accepted)
	}
	if !reaches(h, netip.AddrPortFrom(lo6, at.Port())) {
		t.Error("a listener on [::] does not take IPv6")
	}
	only := newHost(t, Config{})
	at = only.listenAs(1, nic.StreamListener{At: netip.AddrPortFrom(v6, 0), OnlyIPv6: true})
	if reaches(only, netip.AddrPortFrom(lo4, at.Port())) {
		t.Error("a listener for IPv6 only takes IPv4")
	}
	// So another may have the port for IPv4.
	only.listenAs(2, nic.StreamListener{At: netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port())})
	if !reaches(only, netip.AddrPortFrom(lo4, at.Port())) ||
		!reaches(only, netip.AddrPortFrom(lo6, at.Port())) {
		t.Error("two listeners do not take both")
	}
}

func TestPort_NICDoesNotWant_PeerIsReset(t *testing.T) {
	h := newHost(t, Config{})
	h.refuse = true
	before := countFDs(t)
	at := h.listen(lo4)
	c := dial(t, at)
	until(t, "refused", func() bool { return h.port.Counters().Get(AcceptRefused) == 1 }, h)
	if _, err := readAll(c); !errors.Is(err, unix.ECONNRESET) {
		t.Fatalf("the peer sees %v", err)
	}
	_ = c.Close()
	h.port.Close(1)
	if after := countFDs(t); after != before {
		t.Fatalf("%d descriptors, %d before", after, before)
	}
}

func TestPort_Abort_PeerIsReset(t *testing.T) {
	h := newHost(t, Config{})
	c, id, s := dialled(t, h)
	h.port.Abort(id)
	if _, err := readAll(c); !errors.Is(err, unix.ECONNRESET) {
		t.Fatalf("the peer sees %v", err)
	}
	h.turn(0)
	if s.ended {
		t.Error("the NIC was told of an end that it had made")
	}
	h.port.Abort(id)
	h.port.Close(id)
	h.port.Close(4711)
}

func TestPort_PeerResets_WhatItSentBeforeArrives(t *testing.T) {
	h := newHost(t, Config{})
	c, _, s := dialled(t, h)
	until(t, "the goodbye is on its way", func() bool {
		n, err := c.Write([]byte("why"))
		return n == 3 && err == nil
	}, h)
	_ = c.SetLinger(0)
	_ = c.Close()
	// Nothing is read until a send has met the reset.
	s.out = make([]byte, 100)
	h.port.Transmit(h.now())
	until(t, "the end", func() bool { return s.ended }, h)
	if string(s.in) != "why" || len(s.ends) != 1 ||
		s.ends[0] != unix.ECONNRESET && s.ends[0] != unix.EPIPE {
		t.Fatalf("%q, ends %v", s.in, s.ends)
	}
	if h.port.Census().Open != 0 || h.port.Counters().Get(ResetByPeer) != 1 {
		t.Error("the stream is there still, or was not counted")
	}
}

func TestPort_ResetAfterFIN_IsTold(t *testing.T) {
	h := newHost(t, Config{})
	c, _, s := dialled(t, h)
	_ = c.CloseWrite()
	until(t, "FIN", func() bool { return s.ended }, h)
	if s.ends[0] != 0 {
		t.Fatalf("ends %v", s.ends)
	}
	_ = c.SetLinger(0)
	_ = c.Close()
	until(t, "reset", func() bool { return len(s.ends) == 2 }, h)
	if s.ends[1] == 0 || h.port.Census().Open != 0 {
		t.Fatalf("ends %v", s.ends)
	}
}

func TestPort_FullSocket_GoesOnWhenThePeerReads(t *testing.T) {
	h := newHost(t, Config{})
	c, id, s := dialled(t, h)
	if !h.port.IsTaken(id) || !h.port.IsTaken(id+1) {
		t.Error("what was never sent is on its way")
	}
	want := pattern(32<<20, 3)
	s.out = bytes.Clone(want)
	until(t, "the socket is full", func() bool { return s.full }, h)
	if h.port.IsTaken(id) {
		t.Error("the peer's TCP has all of it")
	}
	for range 20 {
		h.turn(time.Millisecond)
	}
	if !s.full || s.sent == 0 || s.sent == len(want) {
		t.Fatalf("full %v after %d bytes", s.full, s.sent)
	}
	got := make([]byte, len(want))
	background(t, h, func() error {
		_, err := io.ReadFull(c, got)
		return err
	})
	if !bytes.Equal(got, want) || s.writable == 0 {
		t.Fatalf("bytes differ, or nobody told of room (%d)", s.writable)
	}
	until(t, "the last is acknowledged", func() bool { return h.port.IsTaken(id) }, h)
	if p := h.port.Counters(); p.Get(TxBytes) != uint64(len(want)) || p.Get(TxPartial) == 0 {
		t.Errorf("counted %d bytes, %d partial sends", p.Get(TxBytes), p.Get(TxPartial))
	}
}

func TestPort_Close_LastBytesArriveThoughThePeerStillSends(t *testing.T) {
	h := newHost(t, Config{})
	c, id, s := dialled(t, h)
	if _, err := c.Write(pattern(300_000, 1)); err != nil {
		t.Fatal(err)
	}
	s.out = []byte("terminate")
	h.port.Transmit(h.now()) // nothing was received yet
	h.port.Close(id)
	if len(s.in) != 0 {
		t.Fatal("the test is too late")
	}
	background(t, h, func() error {
		got, err := readAll(c)
		if string(got) != "terminate" {
			return errors.Join(err, errors.New("got "+string(got)))
		}
		_, err = c.Write(make([]byte, 100_000)) // still no reset
		return errors.Join(err, c.Close())
	})
	until(t, "the end", func() bool { return h.port.Census().Lingering == 0 }, h)
	if s.ended || len(s.in) > 0 || h.port.Counters().Get(LingerExpired) != 0 {
		t.Errorf("the NIC was told of a stream that it had closed: %v", s.ends)
	}
}

func TestPort_PeerStaysAfterClose_LingersNotForEver(t *testing.T) {
	h := newHost(t, Config{Linger: 50 * time.Millisecond})
	_, id, _ := dialled(t, h)
	h.port.Close(id)
	if h.port.Census().Lingering != 1 || h.port.Deadline() == clock.Never {
		t.Fatalf("%+v, deadline %v", h.port.Census(), h.port.Deadline())
	}
	until(t, "it is given up", func() bool { return h.port.Census().Lingering == 0 }, h)
	if h.port.Counters().Get(LingerExpired) != 1 || h.port.Deadline() != clock.Never {
		t.Error("not counted, or its deadline is there still")
	}
}

func TestPort_InPlace_FillsMemoryFirst(t *testing.T) {
	h := newHost(t, Config{})
	c, _, s := dialled(t, h)
	place := make([]byte, 100_000)
	s.space = place
	want := pattern(150_000, 5)
	background(t, h, func() error {
		_, err := c.Write(want)
		return err
	})
	until(t, "all there", func() bool { return s.received == len(want) }, h)
	if !bytes.Equal(append(bytes.Clone(place), s.in...), want) {
		t.Fatal("bytes are in the wrong place")
	}
	if h.port.Counters().Get(RxInPlaceBytes) != 100_000 {
		t.Errorf("%d bytes in place", h.port.Counters().Get(RxInPlaceBytes))
	}
}

func TestPort_BulkData_IsAwaitedWhereItComesFast(t *testing.T) {
	h := newHost(t, Config{})
	c, id, s := dialled(t, h)
	const start = 10 * clock.Time(time.Second)
	if h.port.Awaits(start) {
		t.Error("data is awaited before there was any")
	}
	var expected int
	for _, x := range []struct {
		bytes    int
		at       clock.Time
		isSteady bool
	}{
		{bulkMin, 0, false},
		{bulkMin, bulkTime / 2, true},
		{bulkMin, bulkTime, true},
		{bulkMin - 1, bulkTime + 1, true}, // the last that counts is recent still
		{bulkMin, 3 * bulkTime, false},    // a slow network
		{bulkMin, 5 * bulkTime, false},
		{bulkMin - 1, 7 * bulkTime, false},
		{bulkMin - 1, 7*bulkTime + 1, false},
	} {
		if _, err := c.Write(make([]byte, x.bytes)); err != nil {
			t.Fatal(err)
		}
		expected += x.bytes
		at := start + x.at
		for deadline := time.Now().Add(testTimeout); inSocket(h, id) < x.bytes; {
			if time.Now().After(deadline) {
				t.Fatal("the bytes do not come")
			}
		}
		n, _ := unix.EpollWait(h.epoll, h.events, 0)
		for i := range max(n, 0) {
			h.port.HandleEvent(&h.events[i])
		}
		h.port.Receive(at)
		if s.received != expected {
			t.Fatalf("%d bytes were received, want %d", s.received, expected)
		}
		if got := h.port.Awaits(at + 1); got != x.isSteady {
			t.Errorf("%d bytes at %v: awaits more: %v", x.bytes, x.at, got)
		}
		if h.port.Awaits(at + bulkTime) {
			t.Errorf("%d bytes at %v: awaits more for ever", x.bytes, x.at)
		}
	}
}

// inSocket returns how many bytes wait to be received.
func inSocket(h *host, id nic.StreamID) int {
	n, _ := unix.IoctlGetInt(h.port.byID[id].fd, unix.TIOCINQ)
	return n
}

func TestPort_NICEndsStreamWhileItIsBeingTold_NothingMoreIsTold(t *testing.T) {
	for _, abort := range []bool{false, true} {
		h := newHost(t, Config{})
		c, id, s := dialled(t, h)
		calls := 0
		h.onStream = func(nic.StreamID, []byte) {
			calls++
			if abort {
				h.port.Abort(id)
			} else {
				h.port.Close(id)
			}
			h.port.Close(1)
		}
		if _, err := c.Write(make([]byte, 600_000)); err != nil {
			t.Fatal(err)
		}
		_ = c.CloseWrite()
		until(t, "the stream is gone", func() bool { return calls > 0 && h.port.IsIdle() }, h)
		if calls != 1 || s.ended {
			t.Fatalf("abort %v: %d calls, ends %v", abort, calls, s.ends)
		}
	}
}

func TestPort_FaultInMemory_EndsThatStreamOnly(t *testing.T) {
	h := newHost(t, Config{})
	c, id, s := dialled(t, h)
	other := dial(t, s.accepted.Local)
	until(t, "accepted", func() bool { return h.lastID == id+1 }, h)
	_, o := h.latest()
	h.onStream = func(got nic.StreamID, b []byte) {
		if got == id {
			panic("fault")
		}
		o.in = append(o.in, b...)
	}
	_, err1 := c.Write([]byte("bad"))
	_, err2 := other.Write([]byte("good"))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	survived := func() { // as a lane does
		defer func() { _ = recover() }()
		until(t, "both", func() bool { return s.ended && len(o.in) > 0 }, h)
	}
	survived()
	survived()
	if len(s.ends) != 1 || s.ends[0] != unix.EFAULT || string(o.in) != "good" {
		t.Fatalf("ends %v, the other has %q", s.ends, o.in)
	}
	if _, err := readAll(c); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the peer sees %v", err)
	}
}

func TestPort_MemoryGone_EFAULTEndsTheStream(t *testing.T) {
	bad, err := unix.Mmap(-1, 0, 1<<16, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(bad) }()
	h := newHost(t, Config{})
	c, _, s := dialled(t, h)
	s.space = bad
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	until(t, "the end", func() bool { return s.ended }, h)
	if s.ends[0] != unix.EFAULT {
		t.Fatalf("receive: %v", s.ends)
	}
	_, _, s = dialledAgain(t, h)
	s.out = bad
	until(t, "the end", func() bool { return s.ended }, h)
	if s.ends[0] != unix.EFAULT || h.port.Census().Open != 0 {
		t.Fatalf("send: %v", s.ends)
	}
}

func dialledAgain(t *testing.T, h *host) (*net.TCPConn, nic.StreamID, *stream) {
	t.Helper()
	h.port.Close(1)
	return dialled(t, h)
}

func TestPort_EventOfAnotherLife_IsIgnored(t *testing.T) {
	h := newHost(t, Config{})
	_, id, _ := dialled(t, h)
	old := *h.port.byID[id]
	h.port.Abort(id)
	_, again, s := dialledAgain(t, h)
	now := h.port.byID[again]
	if now.fd != old.fd {
		t.Skip("the kernel gave another number")
	}
	for _, e := range []unix.EpollEvent{
		{Events: unix.EPOLLHUP, Fd: int32(old.fd), Pad: old.tag},
		{Events: unix.EPOLLHUP, Fd: 1 << 20, Pad: old.tag},
		{Events: unix.EPOLLHUP, Fd: -1, Pad: old.tag},
	} {
		h.port.HandleEvent(&e)
	}
	if h.turn(0); now.ending || s.ended || h.port.HasWork() {
		t.Error("an event of a socket that was closed is taken for one of its successor")
	}
}

func TestPort_CloseAll_LeavesNoDescriptor(t *testing.T) {
	before := countFDs(t)
	h := newHost(t, Config{})
	at := h.listen(lo4)
	var list []*net.TCPConn
	for range 10 {
		list = append(list, dial(t, at))
	}
	until(t, "accepted", func() bool { return h.port.Census().Open == 10 }, h)
	h.port.Close(h.lastID)
	h.connect(5, at)
	h.port.CloseAll()
	for _, c := range list {
		_ = c.SetReadDeadline(time.Now().Add(testTimeout))
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Fatal("a connection lives on")
		}
		_ = c.Close()
	}
	if after := countFDs(t); after != before+1 { // the epoll set
		t.Fatalf("%d descriptors, %d before", after, before)
	}
	if h.port.HasWork() || !h.port.IsIdle() || h.port.Receive(h.now()) {
		t.Error("a closed port has work")
	}
}

func TestPort_OptionUnknown_GoesOnAndWarnsOnce(t *testing.T) {
	var warnings []error
	h := newHost(t, Config{
		KeepAliveCount: 100_000, // more than TCP takes
		Warn:           func(_ string, err error) { warnings = append(warnings, err) },
	})
	c, _, s := dialled(t, h)
	if _, err := c.Write([]byte("all the same")); err != nil {
		t.Fatal(err)
	}
	until(t, "bytes arrive", func() bool { return string(s.in) == "all the same" }, h)
	h.connect(5, s.accepted.Local)
	if len(warnings) != 1 || !errors.Is(warnings[0], unix.EINVAL) {
		t.Errorf("warnings: %v", warnings)
	}
}

func TestPort_Disabled_OpensNothing(t *testing.T) {
	h := newHost(t, Config{})
	h.port.Disable(unix.EPERM)
	at := netip.AddrPortFrom(lo4, 9)
	err1 := h.port.Listen(1, &nic.StreamListener{At: at})
	err2 := h.port.Connect(2, &nic.StreamRoute{Remote: at})
	if !errors.Is(err1, unix.EPERM) || !errors.Is(err2, unix.EPERM) || !h.port.IsIdle() {
		t.Errorf("%v, %v", err1, err2)
	}
}

func TestCounters_Table_NamesAreUniqueAndStableForm(t *testing.T) {
	form := regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
	seen := map[string]bool{}
	var c Counters
	for i := range counterCount {
		c.add(i, int(i)+1)
	}
	want := uint64(0)
	c.Each(func(info netio.CounterInfo, value uint64) {
		want++
		if !form.MatchString(info.Name) || seen[info.Name] || info.Help == "" || value != want {
			t.Errorf("counter %q: %q = %d", info.Name, info.Help, value)
		}
		seen[info.Name] = true
	})
	if want != uint64(counterCount) || TxFull.String() != "tx_full" {
		t.Errorf("%d counters of %d", want, counterCount)
	}
}

func TestKeepFirst_Pieces_UpToTheEnd(t *testing.T) {
	b := pattern(64, 0)
	var first [FirstBytes]byte
	keepFirst(&first, 0, [][]byte{b[:3], b[3:9]}, 7)
	keepFirst(&first, 7, [][]byte{b[7:8], b[8:40]}, 33)
	keepFirst(&first, 40, [][]byte{b[50:]}, 10)
	if !bytes.Equal(first[:], b[:FirstBytes]) {
		t.Fatalf("% x", first)
	}
}

func TestPort_Accepted_InheritsWhatItsListenerHas(t *testing.T) {
	h := newHost(t, Config{KeepAliveIdle: 7 * time.Second, UserTimeout: 5 * time.Second})
	_, id, _ := dialled(t, h)
	for _, o := range []struct{ level, name, want int }{
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 7},
		{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 5000},
	} {
		got, err := unix.GetsockoptInt(h.port.byID[id].fd, o.level, o.name)
		if err != nil || got != o.want {
			t.Errorf("option %d/%d: %d, %v; want %d", o.level, o.name, got, err, o.want)
		}
	}
}
