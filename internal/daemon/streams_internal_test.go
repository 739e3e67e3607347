package daemon

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/netio/pcap"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/test/netnstest"
)

// echo takes the NIC's place towards the streams of a lane, and sends back what comes.
type echo struct {
	last    nic.StreamID
	waiting map[nic.StreamID][]byte
	full    map[nic.StreamID]bool
	ended   atomic.Int32
	reached atomic.Int32
	errno   syscall.Errno // of the last Connect; after reached
}

func (e *echo) HandleAccepted(clock.Time, nic.StreamID, *nic.StreamAccepted) (nic.StreamID, bool) {
	e.last++
	e.waiting[e.last] = nil
	return e.last, true
}

func (e *echo) HandleConnected(_ clock.Time, id nic.StreamID, c *nic.StreamConnected) {
	e.waiting[id] = []byte("hello")
	e.errno = c.Errno
	e.reached.Add(1)
}

func (e *echo) HandleJoined(clock.Time, nic.StreamID, nic.StreamID) {}

func (e *echo) WantsStream(nic.StreamID) bool { return true }

func (e *echo) HandleStream(_ clock.Time, id nic.StreamID, b []byte) {
	e.waiting[id] = append(e.waiting[id], b...)
}
func (e *echo) ReceiveSpace(nic.StreamID) [][]byte { return nil }

func (e *echo) HandleReceived(clock.Time, nic.StreamID, int) {}

func (e *echo) HandleStreamEnd(clock.Time, nic.StreamID, syscall.Errno) { e.ended.Add(1) }

func (e *echo) PollStream(_ clock.Time, id *nic.StreamID) bool {
	for x, b := range e.waiting {
		if len(b) > 0 && !e.full[x] {
			*id = x
			return true
		}
	}
	return false
}

func (e *echo) FillStream(_ clock.Time, id nic.StreamID, v *work.Vector) bool {
	v.Reset()
	v.Append(e.waiting[id])
	return v.Bytes > 0
}

func (e *echo) HandleSent(_ clock.Time, id nic.StreamID, sent int, full bool) {
	e.waiting[id], e.full[id] = e.waiting[id][sent:], full
}

func (e *echo) HandleWritable(_ clock.Time, id nic.StreamID) { e.full[id] = false }

// startEcho starts a NIC whose streams lead to an echo, and lets it listen.
func startEcho(t *testing.T, at netip.Addr, c Config) (*Daemon, *echo, netip.AddrPort) {
	t.Helper()
	c.Embedded, c.Devices = true, []string{"rnic0", "iwarp0=iwarp"}
	c.Logger = slog.New(slog.DiscardHandler)
	d, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	e := &echo{last: 100, waiting: map[nic.StreamID][]byte{}, full: map[nic.StreamID]bool{}}
	port := uint16(20000 + os.Getpid()%10000)
	for range 100 {
		d.lane.do(func(clock.Time) {
			d.lane.streams.Serve(e)
			err = d.lane.streams.Listen(1, &nic.StreamListener{At: netip.AddrPortFrom(at, port)})
		})
		if !errors.Is(err, unix.EADDRINUSE) {
			break
		}
		port++
	}
	if err != nil {
		t.Fatal(err)
	}
	return d, e, netip.AddrPortFrom(at, port)
}

var loopback4 = netip.MustParseAddr("127.0.0.1")

func TestLane_Streams_CarryBytesWhileItRuns(t *testing.T) {
	d, e, at := startEcho(t, loopback4, Config{NoNetwork: true})
	c, err := net.Dial("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<17)
	go func() { _, _ = c.Write(want) }()
	got := make([]byte, len(want))
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%v, or other bytes", err)
	}
	status, _ := d.Status()
	s := status.Streams
	if s == nil || s.Listeners != 1 || s.Connections != 1 || s.Counters["accepted"] != 1 ||
		s.Counters["rx_bytes"] != uint64(len(want)) || s.Counters["tx_bytes"] != uint64(len(want)) {
		t.Errorf("status: %+v", s)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(got); err == nil {
		t.Error("a connection lives longer than its NIC")
	}
	if e.ended.Load() != 0 {
		t.Error("the NIC was told of ends that it had made")
	}
}

func TestLane_IdleStreams_LetItSleep(t *testing.T) {
	d, _, at := startEcho(t, loopback4, Config{NoNetwork: true})
	const many = 1000
	for range many {
		c, err := net.Dial("tcp", at.String())
		if err != nil {
			t.Skipf("not enough descriptors: %v", err)
		}
		defer func() { _ = c.Close() }()
	}
	census := func() (s StreamStatus, turns uint64) {
		d.lane.do(func(clock.Time) { s, turns = *d.lane.streamStatus(), d.lane.stats.turns })
		return s, turns
	}
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		s, _ := census()
		if s.Connections == many {
			break
		}
		if time.Since(begin) > 20*time.Second {
			t.Fatalf("%+v", s)
		}
	}
	time.Sleep(20 * time.Millisecond)
	_, before := census()
	time.Sleep(500 * time.Millisecond)
	if _, after := census(); after-before > 50 {
		t.Errorf("%d turns in half a second with nothing to do", after-before)
	}
}

func TestLane_WithoutNetwork_StreamsStayOnThisHost(t *testing.T) {
	d, e, at := startEcho(t, loopback4, Config{NoNetwork: true})
	connect := func(id nic.StreamID, to netip.AddrPort) (err error) {
		d.lane.do(func(clock.Time) {
			err = d.lane.streams.Connect(id, &nic.StreamRoute{Remote: to})
		})
		return err
	}
	err := connect(2, netip.MustParseAddrPort("192.0.2.1:9"))
	if !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("to elsewhere: %v", err)
	}
	if err := connect(3, at); err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); e.reached.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Since(begin) > 20*time.Second {
			t.Fatal("no connection within the host")
		}
	}
	d.lane.do(func(clock.Time) { err = e.errno })
	if !errors.Is(err, syscall.Errno(0)) {
		t.Errorf("within: %v", err)
	}
	// A peer with an address that is not ours.
	d.lane.do(func(clock.Time) {
		if d.lane.admitsStream(netip.MustParseAddr("192.0.2.1")) {
			t.Error("a peer from elsewhere is let in")
		}
		d.lane.isAlone = false
		if !d.lane.admitsStream(netip.MustParseAddr("192.0.2.1")) {
			t.Error("a NIC with a network lets nobody in")
		}
	})
}

func TestLane_Streams_BelongToTheNamespaceOfStart(t *testing.T) {
	a, b := netnstest.Pair(t, 1500)
	var at netip.AddrPort
	a.Do(func() { _, _, at = startEcho(t, a.V4, Config{}) })
	b.Do(func() {
		c, err := net.DialTimeout("tcp", at.String(), 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		got := make([]byte, 3)
		_, err1 := c.Write([]byte("abc"))
		_, err2 := io.ReadFull(c, got)
		if err := errors.Join(err1, err2); err != nil || string(got) != "abc" {
			t.Fatalf("%q, %v", got, err)
		}
	})
}

// file takes a capture.
type file struct {
	bytes.Buffer
	closed chan struct{}
}

func (f *file) Close() error {
	select {
	case <-f.closed:
	default:
		close(f.closed)
	}
	return nil
}

func TestLane_Streams_AreShownToCaptures(t *testing.T) {
	d, _, at := startEcho(t, loopback4, Config{NoNetwork: true})
	all, none := &file{closed: make(chan struct{})}, &file{closed: make(chan struct{})}
	start := func(f *file, req abi.CaptureReq) *pcap.Capture {
		c := pcap.NewCapture(pcap.CaptureConfig{
			Writer: f, Device: "iwarp0", Stream: d.lane.streamFilter(&req),
		})
		d.lane.do(func(clock.Time) { d.lane.taps.Add(c) })
		return c
	}
	first := start(all, abi.CaptureReq{Address: rdma.GIDFromAddr(loopback4)})
	second := start(none, abi.CaptureReq{
		Address: rdma.GIDFromAddr(netip.MustParseAddr("192.0.2.1")),
	})
	c, err := net.Dial("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	got := make([]byte, 20)
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	_, err1 := c.Write([]byte("certainly not an FPDU")[:20])
	_, err2 := io.ReadFull(c, got)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		if s, _ := d.Status(); s.Streams.Counters["ended_by_peer"] == 1 {
			break
		}
		if time.Since(begin) > 20*time.Second {
			t.Fatal("the end is not noticed")
		}
	}
	// The handshake, one segment each way, FIN of the peer.
	if taken, dropped := first.End(); taken != 6 || dropped != 0 {
		t.Errorf("%d segments, %d dropped", taken, dropped)
	}
	if taken, _ := second.End(); taken != 0 {
		t.Errorf("%d segments of another host", taken)
	}
	<-all.closed
	if n := bytes.Count(all.Bytes(), got); n != 2 {
		t.Errorf("what was sent and echoed is in the file %d times", n)
	}
	first.Close()
	second.Close()
}

func TestDaemon_WithoutStreams_HasNone(t *testing.T) {
	d, err := Start(t.Context(), Config{Embedded: true, NoNetwork: true, Devices: []string{
		"rnic0", "iwarp0=none",
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	if s, _ := d.Status(); s.Streams != nil || d.lane.streams != nil || d.lane.home != nil {
		t.Errorf("%+v", s.Streams)
	}
}
