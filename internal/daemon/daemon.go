package daemon

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/hostnet"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/netio"
	"github.com/softrnic/softrnic/internal/netio/faulty"
	"github.com/softrnic/softrnic/internal/nic"
)

// connectionsMax bounds connections; only limits.MaxContexts of them can open the device.
const connectionsMax = 2 * limits.MaxContexts

// Daemon is a NIC that serves.
type Daemon struct {
	cfg     Config
	devices []nic.DeviceConfig
	mac     hostnet.MAC // of devices that need one on a host that has none
	profile faulty.Profile
	log     *slog.Logger
	pid     int
	started time.Time

	lane     *lane
	listener *ctl.Listener // nil when embedded
	host     *hostnet.Host // nil without one
	watch    *hostnet.Watch
	journal  *journal

	misbehaviour atomic.Uint64 // breaches of the protocol by programs
	census       census

	localOnly string // why there is no network; empty when there is one
	// withoutPackets says that only UDP is missing, and TCP has the network.
	withoutPackets bool

	closing context.Context // done when Close was called
	cancel  context.CancelFunc
	closed  chan struct{} // closed when everything is gone
	once    sync.Once
	workers sync.WaitGroup // accept, watch
	served  sync.WaitGroup // sessions

	mu       sync.Mutex // guards the fields below
	sessions map[*session]struct{}
	shut     bool // no new sessions
	idle     *time.Timer
	err      error
}

// Start makes a NIC in the network namespace of the calling thread and lets it serve. When it
// returns, addresses are in the GID table and applications can connect. The NIC ends with ctx, by
// Close, or by itself after Config.IdleExit.
//
// The error wraps ctl.ErrRunning when a NIC serves the socket already. A NIC that cannot have UDP
// port 4791 serves its own programs only and says so in its log and its status.
func Start(ctx context.Context, c Config) (*Daemon, error) {
	c, profile, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	d := &Daemon{
		cfg: c, profile: profile, log: c.Logger, pid: os.Getpid(), started: time.Now(),
		closed: make(chan struct{}), sessions: map[*session]struct{}{},
	}
	d.devices, _ = c.devices() // withDefaults has accepted them
	d.closing, d.cancel = context.WithCancel(ctx)
	if err := d.assemble(); err != nil {
		d.cancel()
		d.disassemble()
		return nil, err
	}
	d.run()
	return d, nil
}

// localSegmentBytes is the payload of a packet between QPs of this NIC. It is what one system call
// moves between the NIC and a program's unmapped memory, so it is a good deal more than the
// largest path MTU; and little enough that one QP does not hold the lane for long.
const localSegmentBytes = 32 << 10

const (
	// ampleBuffer is a receive buffer, in the kernel's counting, that needs no care: it takes more
	// than the fastest sender makes while a busy host keeps a NIC waiting for a processor.
	ampleBuffer = 32 << 20
	// stall is for how long a receive buffer has to take what comes.
	stall = 10 * time.Millisecond
)

// unreliableRate is what UC and UD may send to other hosts, in bytes per second. A NIC that got a
// small buffer itself is that of an ordinary user, and so are, most likely, those that it talks
// to. The kernel counts about twice a packet's bytes.
func unreliableRate(wire netio.Port) uint64 {
	if wire == nil {
		return 0
	}
	size := wire.Features().ReceiveBuffer
	if size == 0 || size >= ampleBuffer {
		return 0
	}
	return uint64(size) / 2 * uint64(time.Second/stall)
}

// localSegment returns 0, for the path MTU, where packets between own QPs travel as datagrams.
func (d *Daemon) localSegment() uint32 {
	if d.profile.IsZero() {
		return localSegmentBytes
	}
	return 0
}

// assemble makes the parts. The socket comes first, since of several starts only one may go on to
// take the UDP port, and appears under its name at once: early clients wait in its backlog.
func (d *Daemon) assemble() error {
	if err := d.listen(); err != nil {
		return err
	}
	found, err := d.survey()
	if err != nil {
		return err
	}
	wire, err := d.openWire()
	if err != nil {
		return err
	}
	var secret [8]byte
	_, _ = rand.Read(secret[:]) // it never fails
	guid := d.guid(found)
	d.mac = macOf(guid)
	d.lane, err = newLane(nic.Config{
		Devices: d.devices, NodeGUID: guid, Version: d.cfg.Version,
		Secret: binary.NativeEndian.Uint64(secret[:]), LocalSegment: d.localSegment(),
		NoPackets: d.withoutPackets, UnreliableRate: unreliableRate(wire), Client: d.cfg.client(),
		HoldCompletions: d.profile.Completions,
	}, laneConfig{
		spin: d.cfg.Spin, direct: d.goesDirect(), quiet: !d.cfg.Embedded && canBeQuiet(),
	})
	if err != nil {
		if wire != nil {
			_ = wire.Close()
		}
		return err
	}
	d.journal = newJournal(d.log)
	d.lane.notify = d.journal.causes
	d.lane.warn = func(what string, err error) { d.journal.warn(what, err) }
	d.lane.router = newRouter(d.lane, d.findRoute)
	if err := d.connect(wire); err != nil {
		return err
	}
	d.lane.gids.layout, d.lane.isAlone = layouts[d.cfg.Layout], d.cfg.NoNetwork
	d.setPorts(d.lane.now(), found.sources)
	return nil
}

// listen makes the socket, unless the NIC is embedded.
func (d *Daemon) listen() error {
	if d.cfg.Embedded {
		return nil
	}
	path := d.cfg.SocketPath
	if path == "" {
		var err error
		if path, err = ctl.SocketPath(); err != nil {
			return err
		}
		if os.Getenv(ctl.SocketEnv) == "" {
			if err := ctl.EnsureRuntimeDir(); err != nil {
				return err
			}
		}
	}
	listener, err := ctl.Listen(ctl.ListenConfig{Path: path, Group: d.cfg.Group})
	if err != nil {
		return err
	}
	d.listener = listener
	return nil
}

// found is what a survey of the host brings.
type found struct {
	sources  []gidSource
	snapshot hostnet.Snapshot
	identity []byte // of the host; nil where it has none
}

// survey finds the addresses and what a node GUID is made of.
func (d *Daemon) survey() (found, error) {
	if d.cfg.Wire != nil {
		return found{sources: d.cfg.Wire.sources()}, nil
	}
	host, err := hostnet.Open()
	if err != nil {
		d.withoutHost(err)
		return found{sources: loopbackSources()}, nil
	}
	d.host = host
	if d.watch, err = host.Watch(); err != nil {
		d.withoutHost(err)
		return found{sources: loopbackSources(), identity: host.Identity()}, nil
	}
	snapshot, ok := <-d.watch.C
	if !ok {
		d.withoutHost(d.watch.Err())
		return found{sources: loopbackSources(), identity: host.Identity()}, nil
	}
	sources := d.sourcesOf(snapshot)
	if len(sources) == 0 {
		return found{}, fmt.Errorf("daemon: no address of this host is among the addresses %v and"+
			" interfaces %v asked for", d.cfg.Addresses, d.cfg.Interfaces)
	}
	return found{sources: sources, snapshot: snapshot, identity: host.Identity()}, nil
}

// withoutHost goes on where a sandbox hides the network.
func (d *Daemon) withoutHost(err error) {
	d.localOnly = "the addresses of this host cannot be read: " + err.Error()
}

// sourcesOf falls back on loopback addresses on a host that has none, unless some were asked for.
func (d *Daemon) sourcesOf(s hostnet.Snapshot) []gidSource {
	sources := d.cfg.sourcesOf(s)
	if len(sources) == 0 && len(d.cfg.Addresses) == 0 && len(d.cfg.Interfaces) == 0 {
		return loopbackSources()
	}
	return sources
}

// processorsMin is how many goroutines have to run at once. The lane takes part of one processor
// nearly always, and seems to when it sleeps (lane.waitsQuietly); with a single one besides,
// requests would wait for each other.
const processorsMin = 3

// run starts the goroutines.
func (d *Daemon) run() {
	if runtime.GOMAXPROCS(0) < processorsMin {
		runtime.GOMAXPROCS(processorsMin)
	}
	d.journal.start()
	go d.lane.run()
	go d.lane.router.run()
	if d.listener != nil {
		d.workers.Go(d.accept)
	}
	if d.watch != nil {
		d.workers.Go(d.follow)
	}
	context.AfterFunc(d.closing, func() { d.finish() })
	d.mu.Lock()
	d.armIdleLocked()
	d.mu.Unlock()
	d.log.Info("NIC ready", "devices", d.DeviceNames(), "socket", d.SocketPath(),
		"network", d.localOnly == "")
}

// SocketPath returns where applications connect; empty when embedded.
func (d *Daemon) SocketPath() string {
	if d.listener == nil {
		return ""
	}
	return d.listener.Path()
}

// LocalOnly says why the NIC has no network; empty when it has one.
func (d *Daemon) LocalOnly() string { return d.localOnly }

// follow keeps the GID table in step with the host.
func (d *Daemon) follow() {
	for snapshot := range d.watch.C {
		sources := d.sourcesOf(snapshot)
		d.log.Info("addresses changed", "gids", len(sources))
		d.lane.do(func(now clock.Time) { d.setPorts(now, sources) })
	}
	if err := d.watch.Err(); err != nil {
		d.log.Error("the GID table does not follow addresses any more", "error", err)
	}
}

// accept lets applications in.
func (d *Daemon) accept() {
	for {
		conn, err := d.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			// Out of descriptors, most likely: they come back when programs end.
			d.journal.warn("no program can connect", err)
			select {
			case <-time.After(acceptPause):
			case <-d.closing.Done():
			}
			continue
		}
		d.admit(conn)
	}
}

const acceptPause = 50 * time.Millisecond

// admit starts the session of a connection, or closes it. It reports which.
func (d *Daemon) admit(conn *ctl.Conn) bool {
	s, err := newSession(d, conn)
	if err != nil {
		d.journal.warn("a connection without credentials", err)
		_ = conn.Close()
		return false
	}
	d.mu.Lock()
	refused := d.shut || len(d.sessions) >= connectionsMax
	if !refused {
		d.sessions[s] = struct{}{}
		d.served.Add(1)
		d.armIdleLocked()
	}
	d.mu.Unlock()
	if refused {
		s.discard()
		return false
	}
	go s.serve()
	return true
}

// forget takes a session that has ended off the list.
func (d *Daemon) forget(s *session) {
	d.mu.Lock()
	delete(d.sessions, s)
	d.armIdleLocked()
	d.mu.Unlock()
	d.served.Done()
}

// armIdleLocked starts or stops the clock of IdleExit.
func (d *Daemon) armIdleLocked() {
	if d.idle != nil {
		d.idle.Stop()
		d.idle = nil
	}
	if d.cfg.IdleExit > 0 && len(d.sessions) == 0 && !d.shut {
		d.idle = time.AfterFunc(d.cfg.IdleExit, d.exitIdle)
	}
}

// exitIdle ends the NIC unless somebody came after the timer had fired.
func (d *Daemon) exitIdle() {
	d.mu.Lock()
	idle := len(d.sessions) == 0
	d.shut = d.shut || idle
	d.mu.Unlock()
	if idle {
		d.log.Info("no program left", "after", d.cfg.IdleExit)
		d.cancel()
	}
}

// Connect returns an application's end of a new connection within this process.
func (d *Daemon) Connect() (*net.UnixConn, error) {
	client, own, err := ctl.Pair()
	if err != nil {
		return nil, err
	}
	if !d.admit(ctl.NewServerConn(own)) {
		_ = client.Close()
		return nil, fmt.Errorf("daemon: connect: %w", ctl.ErrGone)
	}
	return client, nil
}

// Close ends the NIC and waits until everything is gone: applications see their connections and
// event pipes end. Twice is once.
func (d *Daemon) Close() error {
	d.cancel()
	return d.Wait()
}

// Wait returns when the NIC has ended.
func (d *Daemon) Wait() error {
	<-d.closed
	return d.err
}

// finish takes the NIC down: doors first, then sessions, then the lane.
func (d *Daemon) finish() {
	d.once.Do(func() {
		defer close(d.closed)
		d.mu.Lock()
		d.shut = true
		d.armIdleLocked()
		d.lane.do(d.lane.announceEnd)
		if d.listener != nil {
			d.err = d.listener.Close()
		}
		for s := range d.sessions {
			_ = s.conn.Close()
		}
		d.mu.Unlock()
		if d.watch != nil {
			d.watch.Close()
		}
		d.workers.Wait()
		d.served.Wait()
		d.lane.router.stop()
		d.lane.stop()
		d.watch = nil
		d.disassemble()
		d.log.Info("NIC ended", "devices", d.DeviceNames())
	})
}

// disassemble releases the parts, as far as there are any. No goroutine uses them.
func (d *Daemon) disassemble() {
	if d.watch != nil {
		d.watch.Close()
	}
	if d.host != nil {
		d.host.Close()
	}
	if d.journal != nil {
		d.journal.stop()
	}
	if d.lane != nil {
		d.lane.release()
	}
	if d.listener != nil {
		_ = d.listener.Close()
	}
}
