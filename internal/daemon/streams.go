package daemon

import (
	"fmt"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/netio"
	"github.com/softrnic/softrnic/internal/netio/tcp"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/rdma"
)

// openStreams gives the lane TCP where a device is to have it, and tells the NIC's configuration.
// It runs on the thread whose network namespace the NIC is for.
func (l *lane) openStreams(cfg *nic.Config) {
	at := slices.IndexFunc(cfg.Devices, func(d nic.DeviceConfig) bool {
		return d.Transport == nic.TransportIWARP
	})
	if at < 0 {
		return
	}
	l.streams = tcp.Open(tcp.Config{
		Epoll: l.epoll, Now: l.now, DescriptorMax: streamDescriptorMax(), Admits: l.admitsStream,
		HostCongestion: cfg.Devices[at].Stream.HostCongestion,
		Tap:            l.taps.Streams(), Warn: func(what string, err error) {
			if l.warn != nil {
				go l.warn(what, err) // a log may be slow
			}
		},
	})
	cfg.Streams = l.streams
	// Without /proc the thread of the lane has to be in the right namespace already, which it is
	// in a process that has never changed that of a thread.
	l.home, _ = os.Open(namespaceFile)
}

// admitsStream keeps a NIC that was started without a network to itself.
func (l *lane) admitsStream(peer netip.Addr) bool {
	return !l.isAlone || peer.IsLoopback() || slices.Contains(l.own, peer)
}

// keepOwn remembers the addresses of the host.
func (l *lane) keepOwn(sources []gidSource) {
	l.own = l.own[:0]
	for i := range sources {
		l.own = append(l.own, sources[i].addr.WithZone(""))
	}
}

// streamFilter is what a capture wants of TCP; nil for everything. The filter runs on the lane.
func (l *lane) streamFilter(req *abi.CaptureReq) func(*tcp.Flow) bool {
	qpn, gid := rdma.QPN(req.QPN), rdma.GID(req.Address)
	if qpn == 0 && gid.IsZero() {
		return nil
	}
	var known nic.StreamID // what it last was serves for the rest after the QP's end
	return func(f *tcp.Flow) bool {
		if qpn != 0 {
			if id, ok := l.nic.StreamOf(qpn); ok {
				known = id
			}
		}
		if addr := gid.Addr(); !gid.IsZero() && f.Local.Addr() != addr && f.Remote.Addr() != addr {
			return false
		}
		return qpn == 0 || known != 0 && (f.ID == known || f.TwinID == known)
	}
}

// namespaceFile names the network namespace of the calling thread.
const namespaceFile = "/proc/thread-self/ns/net"

// enterHome moves the lane's thread to the network namespace that the NIC was made in: unlike
// those for packets, sockets of TCP are opened while the lane runs.
func (l *lane) enterHome() {
	if l.home == nil {
		return
	}
	var home, here unix.Stat_t
	err := unix.Fstat(int(l.home.Fd()), &home)
	if err == nil {
		err = unix.Stat(namespaceFile, &here)
	}
	if err == nil && (home.Dev != here.Dev || home.Ino != here.Ino) {
		err = unix.Setns(int(l.home.Fd()), unix.CLONE_NEWNET)
	}
	if err != nil {
		l.streams.Disable(fmt.Errorf("daemon: enter the NIC's network namespace: %w", err))
	}
}

// hasStreams reports whether there is any socket of TCP to look after.
func (l *lane) hasStreams() bool { return l.streams != nil && !l.streams.IsIdle() }

// awaitsStreams reports that it pays to look for more from TCP before the lane sleeps.
func (l *lane) awaitsStreams(now clock.Time) bool {
	return l.hasStreams() && l.streams.Awaits(now)
}

// closeStreams closes all sockets. The lane does not run (any more).
func (l *lane) closeStreams() {
	if l.streams != nil {
		l.streams.CloseAll()
	}
	if l.home != nil {
		_ = l.home.Close()
	}
}

// StreamStatus describes the sockets of TCP.
type StreamStatus struct {
	Listeners   int `json:"listeners"`
	Connecting  int `json:"connecting"`
	Connections int `json:"connections"`
	// Closing counts connections that are closed and wait for their peers to follow.
	Closing  int               `json:"closing"`
	Counters map[string]uint64 `json:"counters"`
}

// streamStatus takes a snapshot; nil without TCP. Lane.
func (l *lane) streamStatus() *StreamStatus {
	if l.streams == nil {
		return nil
	}
	c := l.streams.Census()
	s := &StreamStatus{
		Listeners: c.Listeners, Connecting: c.Connecting, Connections: c.Open,
		Closing: c.Lingering, Counters: map[string]uint64{},
	}
	l.streams.Counters().Each(func(info netio.CounterInfo, value uint64) {
		s.Counters[info.Name] = value
	})
	return s
}
