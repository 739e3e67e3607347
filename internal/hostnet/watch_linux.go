package hostnet

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Changes come in bursts (an interface that goes up sends a dozen messages), so a Watch waits for
// quiet, but not for ever: a host whose links flap all the time still gets its news.
const (
	watchQuiet    = 30 * time.Millisecond
	watchDelayMax = 300 * time.Millisecond
)

// Watch tells when interfaces or addresses of a Host change.
type Watch struct {
	// C delivers the state after a change. It holds one Snapshot, the newest: a slow reader
	// misses intermediate states, never the last one. It is closed by Close, or when the kernel
	// can no longer be asked; Err then says why.
	C <-chan Snapshot

	host   *Host
	socket *os.File // a nonblocking netlink socket subscribed to links and addresses
	news   chan Snapshot
	done   chan struct{}
	closed atomic.Bool // by Close; what the socket says then depends on the moment
	err    error       // set before news is closed
}

// Watch starts to watch the host. It must be called on a thread in the namespace of the Host, and
// first delivers the state at its start.
func (h *Host) Watch() (*Watch, error) {
	fd, err := unix.Socket(unix.AF_NETLINK,
		unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("hostnet: open a netlink socket to watch addresses: %w", err)
	}
	groups := uint32(unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR)
	address := &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}
	if err := unix.Bind(fd, address); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("hostnet: subscribe to address changes by netlink: %w", err)
	}
	w := &Watch{
		host:   h,
		socket: os.NewFile(uintptr(fd), "netlink"),
		news:   make(chan Snapshot, 1),
		done:   make(chan struct{}),
	}
	w.C = w.news
	go w.run()
	return w, nil
}

// Close ends the watch and waits until its goroutine is gone.
func (w *Watch) Close() {
	w.closed.Store(true)
	_ = w.socket.Close()
	<-w.done
}

// Err returns why C was closed: nil after Close.
func (w *Watch) Err() error {
	<-w.done
	return w.err
}

// run is the watch goroutine: the first listing happens after the subscription, so that no change
// can fall between them.
func (w *Watch) run() {
	defer close(w.done)
	defer close(w.news)
	var last Snapshot
	for first := true; ; first = false {
		now, err := w.host.Snapshot()
		if err != nil {
			w.err = err
			return
		}
		if first || !now.Equal(last) {
			w.publish(now)
			last = now
		}
		if err := w.awaitChange(); err != nil {
			if !w.closed.Load() {
				w.err = fmt.Errorf("hostnet: read address changes from netlink: %w", err)
			}
			return
		}
	}
}

// publish replaces a Snapshot that nobody has taken yet. Only run sends, so there is room.
func (w *Watch) publish(s Snapshot) {
	select {
	case <-w.news:
	default:
	}
	w.news <- s
}

// awaitChange blocks until a message came and then until messages stopped.
func (w *Watch) awaitChange() error {
	var buf [8192]byte // contents do not matter: the state is listed afresh
	if err := w.socket.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	if _, err := w.socket.Read(buf[:]); err != nil && !isOverrun(err) {
		return err
	}
	limit := time.Now().Add(watchDelayMax)
	for {
		deadline := time.Now().Add(watchQuiet)
		if deadline.After(limit) {
			deadline = limit
		}
		if err := w.socket.SetReadDeadline(deadline); err != nil {
			return err
		}
		_, err := w.socket.Read(buf[:])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil && !isOverrun(err) {
			return err
		}
	}
}

// isOverrun reports that the kernel dropped messages because we were slow, which is itself news
// of a change.
func isOverrun(err error) bool { return errors.Is(err, unix.ENOBUFS) }
