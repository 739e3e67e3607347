package daemon

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/netio"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/shm"
)

func newTestLane(t *testing.T) *lane {
	t.Helper()
	l, err := newLane(nic.Config{
		Devices: []nic.DeviceConfig{{Name: "rnic0"}}, NodeGUID: 1,
	}, laneConfig{spin: time.Microsecond})
	if err != nil {
		t.Fatal(err)
	}
	l.notify = func([]nic.CauseRecord) {}
	t.Cleanup(l.release)
	return l
}

// newTestOutbox has the smallest pipe there is.
func newTestOutbox(t *testing.T, l *lane) (o *outbox, read, room int) {
	t.Helper()
	read, write, err := shm.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	size, err := unix.FcntlInt(uintptr(write), unix.F_SETPIPE_SZ, 4096)
	if err != nil {
		t.Fatal(err)
	}
	o = &outbox{lane: l, fd: write}
	t.Cleanup(func() { o.close() })
	return o, read, size / recordBytes
}

func drain(t *testing.T, fd, n int) []byte {
	t.Helper()
	buf := make([]byte, n*recordBytes)
	got, err := unix.Read(fd, buf)
	if err != nil {
		t.Fatal(err)
	}
	return buf[:got]
}

func TestOutbox_FullPipe_KeepsEventsAndGoesOnWhenRead(t *testing.T) {
	l := newTestLane(t)
	o, read, room := newTestOutbox(t, l)
	defer func() { _ = unix.Close(read) }()
	for i := range room + 10 {
		o.sendCompletion(uint32(i + 1))
	}
	for range 100 { // each queue needs one wake-up only
		o.sendCompletion(uint32(room + 10))
	}
	if len(o.backlog) != 10 || !o.watched {
		t.Fatalf("%d records wait, watched %v", len(o.backlog), o.watched)
	}
	l.wait(0, 0)
	if len(o.backlog) != 10 {
		t.Fatalf("%d records wait although nothing was read", len(o.backlog))
	}
	drain(t, read, room)
	l.wait(0, clock.Time(time.Second))
	if len(o.backlog) != 0 || o.watched {
		t.Fatalf("%d records wait after the pipe was read, watched %v", len(o.backlog), o.watched)
	}
	if rest := drain(t, read, room); len(rest) != 10*recordBytes {
		t.Errorf("%d bytes came later", len(rest))
	}
	o.sendCompletion(uint32(room + 10))
	if rest := drain(t, read, 4); len(rest) != recordBytes {
		t.Errorf("after the jam: %d bytes", len(rest))
	}
}

func TestOutbox_NobodyReads_IsBounded(t *testing.T) {
	l := newTestLane(t)
	o, read, room := newTestOutbox(t, l)
	for i := range room + 3*asyncBacklogMax {
		o.sendAsync(abi.AsyncEvent{Type: 1, Handle: uint32(i)})
	}
	if len(o.backlog) > asyncBacklogMax || l.stats.lostEvents != 2*asyncBacklogMax {
		t.Errorf("%d wait, %d lost", len(o.backlog), l.stats.lostEvents)
	}
	_ = unix.Close(read)
	o.flush()
	if !o.dead || len(o.backlog) != 0 {
		t.Errorf("reader gone: dead %v, %d wait", o.dead, len(o.backlog))
	}
	o.sendAsync(abi.AsyncEvent{})
	o.sendCompletion(1)
	if len(o.backlog) != 0 {
		t.Error("events for nobody are kept")
	}
}

func source(text string) gidSource {
	return gidSource{addr: netip.MustParseAddr(text), ifIndex: 2, ifName: "eth0", ifMTU: 1500}
}

func TestGIDTable_Update_KeepsPlacesAndFillsGaps(t *testing.T) {
	var table gidTable
	indices := func() string {
		s := ""
		for _, e := range table.entries() {
			s += fmt.Sprintf("%d:%v ", e.Index, rdma.GID(e.GID).Addr())
		}
		return s
	}
	check := func(want string, list ...string) {
		t.Helper()
		var sources []gidSource
		for _, text := range list {
			sources = append(sources, source(text))
		}
		if left := table.update(sources); left != 0 {
			t.Errorf("%d left out", left)
		}
		if got := indices(); got != want {
			t.Errorf("table %q, want %q", got, want)
		}
	}
	check("0:10.0.0.1 1:10.0.0.2 2:2001:db8::1 ", "10.0.0.1", "10.0.0.2", "2001:db8::1")
	check("0:10.0.0.1 2:2001:db8::1 ", "2001:db8::1", "10.0.0.1")
	check("0:10.0.0.1 1:10.0.0.9 2:2001:db8::1 3:10.0.0.8 ",
		"10.0.0.9", "10.0.0.8", "2001:db8::1", "10.0.0.1")
	check("", []string{}...)
	check("0:10.0.0.7 ", "10.0.0.7", "10.0.0.7")
}

func TestGIDTable_MoreAddressesThanRoom_RestIsLeftOut(t *testing.T) {
	var table gidTable
	var sources []gidSource
	for i := range limits.MaxGIDs + 5 {
		sources = append(sources, source(fmt.Sprintf("10.1.%d.%d", i/256, i%256)))
	}
	if left := table.update(sources); left != 5 || len(table.entries()) != limits.MaxGIDs {
		t.Errorf("%d left out, %d in the table", left, len(table.entries()))
	}
}

func TestEpollWait_Timeout_IsExactEnough(t *testing.T) {
	l := newTestLane(t)
	begin := time.Now()
	const wait = clock.Time(200 * time.Microsecond)
	for range 10 {
		if n, err := epollWait(l.epoll, l.events, wait, false); n != 0 || err != nil {
			t.Fatalf("%d events, %v", n, err)
		}
	}
	took := time.Since(begin)
	if took < 2*time.Millisecond {
		t.Errorf("ten times 200 µs took %v", took)
	}
	if !withoutPwait2.Load() && took > 200*time.Millisecond {
		t.Errorf("ten times 200 µs took %v", took)
	}
	withoutPwait2.Store(true)
	defer withoutPwait2.Store(false)
	begin = time.Now()
	if _, err := epollWait(l.epoll, l.events, wait, false); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took < 200*time.Microsecond {
		t.Errorf("on an old kernel: woke after %v, before its time", took)
	}
}

// A turn of a lane with nothing to do costs no allocation: it happens all the time.
func TestLane_EmptyTurn_DoesNotAllocate(t *testing.T) {
	l := newTestLane(t)
	if n := testing.AllocsPerRun(100, func() {
		l.turn(l.now())
		l.wait(0, 0)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestBudget_UsedUp_RefusesUntilGivenBack(t *testing.T) {
	b := &budget{mapsMax: 2, bytesMax: 100}
	for _, step := range []struct {
		bytes int64
		ok    bool
	}{{101, false}, {60, true}, {41, false}, {1 << 62, false}, {40, true}, {0, false}} {
		if err := b.take(step.bytes); (err == nil) != step.ok {
			t.Errorf("take %d: %v", step.bytes, err)
		}
	}
	b.give(40)
	if err := b.take(40); err != nil {
		t.Errorf("after giving back: %v", err)
	}
	if got := newBudget(); got.mapsMax <= 0 || got.mapsMax > 1<<40 {
		t.Errorf("mappings allowed: %d", got.mapsMax)
	}
}

// A sparse memfd as large as the address space must not use it up; it is served as process memory.
func TestForeignMaps_SparseGiant_IsNotMapped(t *testing.T) {
	l := newTestLane(t)
	maps := newForeignMaps(l.budget)
	fd, err := unix.MemfdCreate("rnic-test", unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Ftruncate(fd, 1<<46); err != nil {
		t.Skip(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		t.Fatal(err)
	}
	file, err := shm.CheckForeign(fd)
	if err != nil {
		t.Fatal(err)
	}
	if maps.get(&file, true) != nil {
		t.Error("mapped 64 TiB")
	}
	if n := l.budget.maps.Load() + l.budget.bytes.Load(); n != 0 {
		t.Errorf("%d left reserved", n)
	}
}

func TestWithoutUDP_SaysThePortOnce(t *testing.T) {
	for _, err := range []error{
		fmt.Errorf("udp: %w: %w", netio.ErrPortTaken, unix.EADDRINUSE),
		fmt.Errorf("udp: bind to UDP port 4791: %w", unix.EACCES),
	} {
		if text := withoutUDP(err); strings.Count(text, "4791") != 1 ||
			strings.Contains(text, "udp:") {
			t.Errorf("%v: %q", err, text)
		}
	}
}
