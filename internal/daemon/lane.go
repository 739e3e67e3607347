package daemon

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/netio"
	"github.com/softrnic/softrnic/internal/netio/pcap"
	"github.com/softrnic/softrnic/internal/netio/tcp"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/ring"
	"github.com/softrnic/softrnic/internal/shm"
)

// Bounds of one turn, so that every source of work gets its share.
const (
	tasksPerTurn    = 2   // requests; one that makes a queue takes some 20 µs
	batchesPerTurn  = 4   // of datagrams received, per port
	transmitPerTurn = 512 // packets
	datagramBatch   = 64
	eventsPerWait   = 64
	turnsOfLeave    = 8
	turnsToCatchUp  = 4
	// hotTime is how long after a packet the ports are asked directly instead of by epoll.
	hotTime = 200 * time.Microsecond
)

// lane is the thread that owns the NIC. Fields without another remark belong to it alone.
type lane struct {
	nic      *nic.NIC
	memory   *queueAllocator
	budget   *budget // any thread
	gids     gidTable
	sessions map[*session]struct{}

	origin time.Time
	spin   clock.Time
	rested clock.Time // when the last work was found
	looked clock.Time // when epoll was asked last
	hot    clock.Time // until when ports are asked in each turn
	owed   bool       // the wire was not emptied in the last turn: ask it in any case
	mute   bool       // epoll has just said that nothing has come
	sleepy clock.Time // until when yielding does not pay
	rival  bool       // the last yield let another thread run
	streak int        // sleeps, one after the other, that something has ended
	slack  clock.Time // of timers

	isQuiet bool // see waitsQuietly

	wire   netio.Port // nil: this NIC has no network
	mirror netio.Port // nil unless packets between own QPs are to meet faults
	in     []netio.Datagram
	out    [2]outgoing // to wire and mirror
	rx, tx ibt.Packet
	paths  paths
	event  nic.Event
	// connection is the event in hand, router finds routes; it is nil until there is one.
	connection nic.ConnectionEvent
	router     *router
	gone       []lostPeer // unreachable peers to report after the packets
	stats      laneStats
	mover      mover
	taps       pcap.Taps
	// streams is TCP; nil without a device that needs it. home is the network namespace that its
	// sockets belong to.
	streams *tcp.Port
	home    *os.File
	own     []netip.Addr // of this host
	isAlone bool         // streams do not leave this host
	// notices are the features that ports have lost so far; they tell each once.
	notices map[netio.Port][]string

	epoll   int
	events  []unix.EpollEvent
	watches map[int32]watch
	wakeBuf [8]byte

	// tickets is nil where no program goes direct, held while a capture keeps them from it.
	tickets  *shm.Memory
	held     bool
	page     *shm.Memory
	sleeping *atomic.Uint32 // in page; read by applications
	place    *atomic.Uint32 // the same: which processor the lane runs on
	placed   uint32         // what place says

	wake    int // eventfd; written by any goroutine
	stopped chan struct{}
	notify  func([]nic.CauseRecord)
	warn    func(what string, err error) // nil: nobody listens
	caused  uint64

	mu      sync.Mutex // guards queue and closed
	queue   []*task
	closed  bool
	pending atomic.Bool // queue may not be empty

	waiters atomic.Int32 // goroutines in do
}

// task is a piece of work for the lane.
type task struct {
	run     func(now clock.Time)
	latch   latch
	garbage []*shm.Memory // unmapped by who asked, which may take long
}

// laneConfig is what a lane needs beside the NIC's own configuration.
type laneConfig struct {
	spin   time.Duration
	direct bool // programs may go direct
	quiet  bool // see lane.waitsQuietly
}

func newLane(cfg nic.Config, own laneConfig) (*lane, error) {
	// Read before the lane's own origin, so that no completion is stamped later than the clock that
	// an application reads after it.
	origin := monotonic()
	l := &lane{
		sessions: map[*session]struct{}{}, origin: time.Now(), spin: clock.Time(own.spin),
		isQuiet: own.quiet,
		in:      make([]netio.Datagram, datagramBatch),
		events:  make([]unix.EpollEvent, eventsPerWait), watches: map[int32]watch{},
		epoll: -1, wake: -1, stopped: make(chan struct{}), notices: map[netio.Port][]string{},
	}
	l.out[0].init()
	l.out[1].init()
	l.memory, l.budget = &queueAllocator{lane: l}, newBudget()
	l.memory.most = int64(cfg.Client.WithDefaults().QueueMemory)
	cfg.Memory, cfg.Groups = l.memory, l
	var err error
	if l.page, err = shm.CreateReadOnly("rnic-lane", abi.LanePageBytes); err != nil {
		return nil, err
	}
	l.sleeping = ring.Word(l.page.Bytes(), abi.OffLaneSleeping)
	l.place = ring.Word(l.page.Bytes(), abi.OffLaneProcessor)
	ring.Word64(l.page.Bytes(), abi.OffLaneOrigin).Store(origin)
	if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		l.release()
		return nil, fmt.Errorf("daemon: make an epoll set: %w", err)
	}
	l.openStreams(&cfg)
	if l.openTickets(own.direct); l.tickets != nil {
		cfg.Tickets = l.tickets.Bytes()
	}
	l.nic = nic.New(cfg)
	if l.streams != nil {
		l.streams.Serve(l.nic)
	}
	if l.wake, err = shm.EventFD(); err != nil {
		l.release()
		return nil, err
	}
	if err := l.addWatch(l.wake, unix.EPOLLIN, watch{kind: watchWake}); err != nil {
		l.release()
		return nil, err
	}
	return l, nil
}

// attach gives the lane a port before it runs.
func (l *lane) attach(port netio.Port, which *netio.Port) error {
	*which = port
	for _, fd := range port.FDs() {
		// EPOLLERR is always watched.
		if err := l.addWatch(fd, unix.EPOLLIN, watch{kind: watchPort, port: port}); err != nil {
			return err
		}
	}
	return nil
}

// release closes what newLane and attach opened. The lane does not run (any more).
func (l *lane) release() {
	for _, p := range []netio.Port{l.wire, l.mirror} {
		if p != nil {
			_ = p.Close()
		}
	}
	l.closeStreams()
	for _, fd := range []int{l.epoll, l.wake} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	l.page.Release()
	if l.tickets != nil {
		l.tickets.Release()
	}
}

// do lets the lane run f and waits for it. It reports false when the lane has ended; then f did
// not run.
func (l *lane) do(f func(now clock.Time)) bool {
	t := &task{run: f}
	if l.waiters.Add(1) > waitersMax {
		t.latch.done = make(chan struct{})
	}
	defer l.waiters.Add(-1)
	if !l.submit(t) {
		return false
	}
	t.latch.wait()
	for _, m := range t.garbage {
		m.Release()
	}
	return true
}

func (l *lane) submit(t *task) bool {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return false
	}
	l.queue = append(l.queue, t)
	l.pending.Store(true)
	l.mu.Unlock()
	// As with a doorbell: the lane announces its sleep before it looks at pending once more.
	if l.sleeping.Load() != 0 {
		_ = shm.Kick(l.wake)
	}
	return true
}

// monotonic returns what CLOCK_MONOTONIC says, in nanoseconds.
func monotonic() uint64 {
	var at unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &at) // a clock that every Linux has
	return uint64(at.Nano())
}

// now is the NIC's clock: nanoseconds since the lane was made.
func (l *lane) now() clock.Time { return clock.Time(time.Since(l.origin)) }

// run is the lane's goroutine. It ends after stop.
func (l *lane) run() {
	// Never unlocked: the thread, with its priority and its namespace, ends here.
	runtime.LockOSThread()
	defer close(l.stopped)
	l.enterHome()
	l.stats.prioritised = hurry()
	l.mover.start()
	debug.SetPanicOnFault(true)
	for l.isOpen() {
		l.turnUntilFault()
	}
	l.takeLeave()
}

// takeLeave sends what the end of the last programs left: their peers shall know.
func (l *lane) takeLeave() {
	defer func() { _ = recover() }() // a fault in memory of a program that is gone
	for range turnsOfLeave {
		now := l.now()
		more := l.transmit(now)
		more = l.hasStreams() && l.streams.Transmit(now) || more
		if !more {
			return
		}
	}
}

// stop ends the lane; tasks that wait are run before.
func (l *lane) stop() {
	l.mu.Lock()
	l.closed = true
	l.pending.Store(true)
	l.mu.Unlock()
	_ = shm.Kick(l.wake)
	<-l.stopped
}

func (l *lane) isOpen() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.closed || len(l.queue) > 0
}

// turnUntilFault runs turns. A fault in mapped memory of an application ends that application's
// session and no more: seals keep it from truncating its memory, but the kernel can still run out
// of pages for it.
func (l *lane) turnUntilFault() {
	defer func() {
		if x := recover(); x != nil {
			l.survive(x)
		}
	}()
	for {
		if l.pending.Load() {
			l.runTasks()
			if !l.isOpen() {
				return
			}
		}
		now := l.now()
		if l.turn(now) {
			l.rested = now
			if l.mover.look(now, l.stats.sleeps) {
				l.stats.moves++
			}
			if now-l.looked > clock.Time(glance) {
				l.wait(now, 0)
			}
			continue
		}
		l.idle(now)
	}
}

// runTasks executes waiting requests in order.
func (l *lane) runTasks() {
	for range tasksPerTurn {
		l.mu.Lock()
		if len(l.queue) == 0 {
			l.pending.Store(l.closed)
			l.mu.Unlock()
			return
		}
		t := l.queue[0]
		l.queue = l.queue[1:]
		l.mu.Unlock()
		l.runTask(t)
	}
}

func (l *lane) runTask(t *task) {
	defer func() { // also when a fault ends it
		t.garbage, l.memory.garbage = l.memory.garbage, nil
		t.latch.release()
	}()
	t.run(l.now())
}

// turn does a bounded piece of everything and reports whether there was anything to do.
func (l *lane) turn(now clock.Time) bool {
	l.stats.turns++
	if l.held && !l.taps.IsOn() {
		l.holdDirect(false)
	}
	worked := l.receive(now)
	if l.hasStreams() && l.streams.Receive(now) {
		worked = true
	}
	if l.nic.HandleDoorbells(now) {
		worked = true
	}
	if l.nic.PollTimeout() <= now {
		l.nic.HandleTimeout(now)
		worked = true
	}
	if l.transmit(now) {
		worked = true
	}
	if l.hasStreams() && l.streams.Transmit(now) {
		worked = true
	}
	l.deliverEvents()
	l.reportCauses()
	return worked
}

// catchUp does what programs have asked for up to now, as far as that takes no waiting: a request
// that counts completions finds those of work that was posted before it.
func (l *lane) catchUp(now clock.Time) {
	for range turnsToCatchUp {
		if !l.turn(now) {
			return
		}
	}
}

// reportCauses hands new errors of QPs to the log.
func (l *lane) reportCauses() {
	records := l.nic.Causes(l.caused)
	if len(records) == 0 {
		return
	}
	l.caused = records[len(records)-1].Number
	l.notify(records)
}
