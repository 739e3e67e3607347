package cm

import (
	"encoding/binary"
	"math/rand/v2"
	"syscall"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/invariant"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/mad"
)

// Engine is the communication manager of one adapter.
type Engine struct {
	cfg       Config
	random    *rand.ChaCha8
	listeners listeners
	conns     map[ID]*conn
	peers     map[peerKey]*conn // passive connections, by what their REQ said
	queries   map[queryKey]*conn
	qps       map[qpKey]*conn // connections whose remote QPN is known
	pending   int             // requests that no application has taken
	timers    timers
	lingering lingerList
	out       queue[Message]
	replies   int // of those in out, the ones to strangers
	events    queue[Event]
	stats     Stats
}

// peerKey names a connection by its other side. The address is the one that the REQ came from, not
// one in it: else a stranger could end connections by naming their GUID.
type peerKey struct {
	gid  rdma.GID
	guid rdma.GUID
	id   mad.CommID
}

// qpKey names a queue pair of a peer.
type qpKey struct {
	gid  rdma.GID
	guid rdma.GUID
	qpn  rdma.QPN
}

// queryKey names a service query of a peer.
type queryKey struct {
	gid rdma.GID
	id  mad.CommID
}

// New returns an engine without listeners.
func New(cfg Config) *Engine {
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], cfg.Seed)
	binary.LittleEndian.PutUint64(seed[8:], uint64(cfg.NodeGUID))
	return &Engine{
		cfg:       cfg,
		random:    rand.NewChaCha8(seed),
		listeners: newListeners(),
		conns:     map[ID]*conn{},
		peers:     map[peerKey]*conn{},
		queries:   map[queryKey]*conn{},
		qps:       map[qpKey]*conn{},
		out:       queue[Message]{bound: limits.MaxCMTransmit},
		events:    queue[Event]{bound: eventsPerConn * limits.MaxCMConnections},
	}
}

// eventsPerConn is the most that a connection has in its life: a request or a reply, that it is
// established, a terminal event, and that TIMEWAIT is over.
const eventsPerConn = 4

// create makes a connection with an ID of its own. It returns nil where there are too many.
func (e *Engine) create(path *Path, state State) *conn {
	if len(e.conns) >= limits.MaxCMConnections && !e.forgetOldest() {
		return nil
	}
	c := &conn{path: *path, dest: rdma.QPNGSI, state: state, timer: noTimer}
	for c.id == 0 || e.conns[c.id] != nil {
		c.id = ID(e.random.Uint64())
	}
	e.conns[c.id] = c
	return c
}

// detach makes the connection unreachable by what the peer calls it.
func (e *Engine) detach(c *conn) {
	if key := c.peerKey(); e.peers[key] == c {
		delete(e.peers, key)
	}
	if key := c.qpKey(); e.qps[key] == c {
		delete(e.qps, key)
	}
	if key := c.queryKey(); e.queries[key] == c {
		delete(e.queries, key)
	}
}

// close ends a connection: from now on it is but a name that its owner has to release.
func (e *Engine) close(c *conn) {
	e.unqueue(c)
	e.detach(c)
	e.timers.stop(c)
	e.lingering.remove(c)
	c.state = StateClosed
	if c.released {
		delete(e.conns, c.id)
	}
}

// linger keeps a connection for a while to answer what the peer may still send about it.
func (e *Engine) linger(c *conn, state State, until clock.Time) {
	e.unqueue(c)
	c.state = state
	e.timers.set(c, until)
	if c.released {
		e.keepLingering(c)
	}
}

func (e *Engine) keepLingering(c *conn) {
	if e.lingering.len >= limits.MaxCMLingering {
		e.forgetOldest()
	}
	e.lingering.add(c)
}

// forgetOldest ends the lingering of the connection that has done so for the longest time.
func (e *Engine) forgetOldest() bool {
	if e.lingering.first == nil {
		return false
	}
	e.close(e.lingering.first)
	return true
}

// owned returns the connection that an owner names.
func (e *Engine) owned(id ID) (*conn, *rdma.Refusal) {
	if c := e.conns[id]; c != nil && !c.released {
		return c, nil
	}
	return nil, rdma.Refuse(syscall.EINVAL, "no connection has this ID")
}

// raise puts an event in the queue unless its connection has no owner any more.
func (e *Engine) raise(c *conn, v *Event) {
	if c.released {
		return
	}
	v.ID = c.id
	// Its bound is more than all connections can say; an owner that never drains has a bug.
	invariant.Assert(e.events.push(v), "nobody takes the events of connection management")
}

// PollEvent takes the next event.
func (e *Engine) PollEvent(v *Event) bool {
	for e.events.pop(v) {
		if c := e.conns[v.ID]; c != nil && !c.released {
			return true
		}
	}
	return false
}

// Info is what one may see of a connection.
type Info struct {
	State     State
	Active    bool // this side connected
	Path      Path
	ServiceID uint64
	RemoteID  mad.CommID
	LocalQPN  rdma.QPN
	RemoteQPN rdma.QPN
}

// Query describes a connection.
func (e *Engine) Query(id ID) (Info, bool) {
	c := e.conns[id]
	if c == nil {
		return Info{}, false
	}
	return Info{
		State: c.state, Active: c.active, Path: c.path, ServiceID: c.service,
		RemoteID: c.peerID, LocalQPN: c.localQPN, RemoteQPN: c.remoteQPN,
	}, true
}

// Len returns how many connections and queries the engine knows of, in any state.
func (e *Engine) Len() int { return len(e.conns) }
