package daemon

import (
	"errors"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/hostnet"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/rdma"
)

// questionsMax bounds the questions that wait. An identifier has one at a time, but a program may
// destroy it and make another.
const questionsMax = 2 * limits.MaxCMIDs

// router answers the NIC's questions about routes on a goroutine of its own, since the host's
// routing table is a system call away that waits for locks of the network stack.
type router struct {
	find func(nic.Lookup) nic.Route
	lane *lane
	wake chan struct{} // holds one
	done chan struct{}

	mu     sync.Mutex // guards the fields below
	queue  []nic.Lookup
	closed bool
}

func newRouter(l *lane, find func(nic.Lookup) nic.Route) *router {
	return &router{find: find, lane: l, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// ask takes a question, and reports false when there are too many.
func (r *router) ask(q nic.Lookup) bool {
	r.mu.Lock()
	full := r.closed || len(r.queue) >= questionsMax
	if !full {
		r.queue = append(r.queue, q)
	}
	r.mu.Unlock()
	r.poke()
	return !full
}

func (r *router) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run answers until stop.
func (r *router) run() {
	defer close(r.done)
	for range r.wake {
		r.mu.Lock()
		questions, closed := r.queue, r.closed
		r.queue = nil
		r.mu.Unlock()
		if closed {
			return
		}
		answers := make([]nic.Route, len(questions))
		for i := range questions {
			answers[i] = r.find(questions[i])
		}
		if len(answers) > 0 {
			r.lane.do(func(now clock.Time) {
				for i := range answers {
					r.lane.nic.HandleRoute(now, &answers[i])
				}
			})
		}
	}
}

// stop ends the goroutine; questions stay without answers.
func (r *router) stop() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.poke()
	<-r.done
}

// ask lets the router find a route. Lane.
func (l *lane) ask(q nic.Lookup) {
	if l.router == nil || !l.router.ask(q) {
		l.nic.HandleRoute(l.now(), &nic.Route{ID: q.ID, Errno: unix.EAGAIN})
	}
}

// findRoute answers one question. Addresses of this NIC are not asked for.
func (d *Daemon) findRoute(q nic.Lookup) nic.Route {
	out := nic.Route{ID: q.ID}
	switch {
	case d.cfg.Wire != nil:
		out.Source, out.MTU = d.cfg.Wire.route(q.Destination), rdma.MTU4096
		if !out.Source.IsValid() {
			out.Errno = unix.ENETUNREACH
		}
	case d.host == nil, d.localOnly != "" && (!d.withoutPackets || !q.Stream):
		out.Errno = unix.ENETUNREACH
	default:
		r, err := d.host.Route(q.Destination, int(q.Interface))
		if err != nil {
			d.log.Debug("no route", "destination", q.Destination, "error", err)
			out.Errno = errnoOf(err)
			break
		}
		if r.Local {
			// The host's own, but none that this NIC may use.
			out.Errno = unix.ENODEV
			break
		}
		out.Source, out.MTU = r.Source, rdma.MTUFromBytes(r.MTU-headroom)
	}
	if d.cfg.MTU != 0 {
		out.MTU = min(out.MTU, d.cfg.MTU)
	}
	return out
}

// errnoOf is the kernel's reason in an error of hostnet.
func errnoOf(err error) syscall.Errno {
	var errno syscall.Errno
	switch {
	case errors.As(err, &errno):
		return errno
	case errors.Is(err, hostnet.ErrUnreachable):
		return unix.EHOSTUNREACH
	}
	return unix.EIO
}

// route returns the address with which packets leave for a destination.
func (w *Wire) route(dst netip.Addr) netip.Addr {
	for _, a := range w.Addresses {
		if a.Unmap().Is4() == dst.Unmap().Is4() {
			return a
		}
	}
	return netip.Addr{}
}

// portMinDefault is where unprivileged ports begin unless the host says otherwise.
const portMinDefault = 1024

// portMin is the lowest port that the program may bind, as it is for TCP.
func (s *session) portMin() uint16 {
	if s.peer.UID == 0 {
		return 0
	}
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start")
	if err != nil {
		return portMinDefault
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 16)
	if err != nil {
		return portMinDefault
	}
	return uint16(n)
}
