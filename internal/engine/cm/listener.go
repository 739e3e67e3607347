package cm

import (
	"slices"
	"syscall"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
)

// listener is a range of services that somebody serves.
type listener struct {
	service, mask uint64
	backlog       int
	pending       int // requests that the application has not taken
	cookie        uint32
	// Since the application last took a request: whether one had no room, and when the first.
	isFull    bool
	fullSince clock.Time
}

// exact is the mask of a listener to one service.
const exact = ^uint64(0)

// listeners finds the listener of a service.
type listeners struct {
	exact  map[uint64]*listener
	ranges []*listener // in the order of their coming
}

func newListeners() listeners { return listeners{exact: map[uint64]*listener{}} }

// find prefers the listener to this service alone.
func (l *listeners) find(service uint64) *listener {
	if found := l.exact[service]; found != nil {
		return found
	}
	for _, r := range l.ranges {
		if service&r.mask == r.service {
			return r
		}
	}
	return nil
}

// Listen makes requests and queries for services s with s&mask == service&mask events with this
// cookie. At most backlog requests wait to be taken. Those beyond get no answer, so that their
// peers ask again; when none has been taken for limits.CMBacklogPatience, they are rejected with
// reason 3. A backlog of 0 or less, or too large a one, stands for limits.MaxCMBacklog. Errors:
// EADDRINUSE, ENOMEM.
func (e *Engine) Listen(service, mask uint64, backlog int, cookie uint32) *rdma.Refusal {
	l := &e.listeners
	if backlog <= 0 || backlog > limits.MaxCMBacklog {
		backlog = limits.MaxCMBacklog
	}
	if len(l.exact)+len(l.ranges) >= limits.MaxCMListeners {
		return rdma.Refuse(syscall.ENOMEM, "too many listeners")
	}
	added := &listener{service: service & mask, mask: mask, backlog: backlog, cookie: cookie}
	if mask == exact {
		if l.exact[service] != nil {
			return rdma.Refuse(syscall.EADDRINUSE, "the service has a listener")
		}
		l.exact[service] = added
		return nil
	}
	if slices.ContainsFunc(l.ranges, func(r *listener) bool {
		return r.service == added.service && r.mask == mask
	}) {
		return rdma.Refuse(syscall.EADDRINUSE, "the services have a listener")
	}
	l.ranges = append(l.ranges, added)
	return nil
}

// Unlisten ends the listeners with a cookie. Requests that have been events are still the owner's
// to accept or to release.
func (e *Engine) Unlisten(cookie uint32) {
	l := &e.listeners
	for service, found := range l.exact {
		if found.cookie == cookie {
			delete(l.exact, service)
		}
	}
	l.ranges = slices.DeleteFunc(l.ranges, func(r *listener) bool { return r.cookie == cookie })
}

// Taken says that the application has got the event of a request: from now on it does not count
// against the backlog. Accept, Reject and Release say so too.
func (e *Engine) Taken(id ID) {
	if c := e.conns[id]; c != nil {
		e.unqueue(c)
	}
}

// enqueue counts a request against the backlog; it returns false where that is full.
func (e *Engine) enqueue(l *listener) bool {
	if l.pending >= l.backlog || e.pending >= limits.MaxCMRequests {
		return false
	}
	l.pending++
	e.pending++
	return true
}

// isStuck reports, of a listener without room for a request, that its application has taken none
// for so long that the peer had better know.
func (l *listener) isStuck(now clock.Time) bool {
	if !l.isFull {
		l.isFull, l.fullSince = true, now
	}
	return now.Sub(l.fullSince) >= limits.CMBacklogPatience
}

// unqueue ends that.
func (e *Engine) unqueue(c *conn) {
	if c.listener != nil {
		c.listener.isFull = false
		c.listener.pending--
		e.pending--
		c.listener = nil
	}
}
