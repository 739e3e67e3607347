package rdmacm

import (
	"context"
	"reflect"
	"sync"

	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/verbs"
)

// table has the sessions that several holders share, by NIC.
var table = sessionTable{entries: map[any]*sessionEntry{}}

type sessionTable struct {
	mu      sync.Mutex
	entries map[any]*sessionEntry // guarded by mu
}

type sessionEntry struct {
	ready chan struct{} // closed once the core is there, or has failed
	core  *core         // nil if it has failed; not changed after ready
}

// Share returns the session that connections without one of their own use on a NIC. As long as
// the caller keeps it, it does not have to be made anew for each connection. A nil nic is the NIC
// process that RNIC_SOCKET or the default path leads to.
func Share(ctx context.Context, nic verbs.Connector) (*Session, error) {
	key, err := shareKey(nic)
	if err != nil {
		return nil, &OpError{Op: "open", Err: err}
	}
	if key == nil {
		return Open(ctx, nic)
	}
	for {
		e, isNew := table.enter(key)
		if isNew {
			return table.open(ctx, nic, key, e)
		}
		select {
		case <-e.ready:
		case <-ctx.Done():
			return nil, &OpError{Op: "open", Err: ctx.Err()}
		}
		if e.core != nil && e.core.retain() {
			return &Session{core: e.core}, nil
		}
		// Whoever made it has failed, perhaps for want of time, or the NIC is gone.
		table.remove(key, e)
	}
}

// shareKey names a NIC; nil for one that cannot be compared with others.
func shareKey(nic verbs.Connector) (any, error) {
	switch n := nic.(type) {
	case nil:
		path, err := ctl.SocketPath()
		return socket(path), err
	case socket:
		return n, nil
	}
	if !reflect.TypeOf(nic).Comparable() {
		return nil, nil
	}
	return nic, nil
}

func (t *sessionTable) enter(key any) (e *sessionEntry, isNew bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.entries[key]; e != nil {
		return e, false
	}
	e = &sessionEntry{ready: make(chan struct{})}
	t.entries[key] = e
	return e, true
}

func (t *sessionTable) open(
	ctx context.Context, nic verbs.Connector, key any, e *sessionEntry,
) (*Session, error) {
	defer close(e.ready)
	c, err := openCore(ctx, nic)
	if err != nil {
		t.remove(key, e)
		return nil, &OpError{Op: "open", Err: err}
	}
	c.key, e.core = key, c
	return &Session{core: c}, nil
}

func (t *sessionTable) remove(key any, e *sessionEntry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.entries[key] == e {
		delete(t.entries, key)
	}
}

// forget drops a core that ends.
func (t *sessionTable) forget(c *core) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.key == nil {
		return
	}
	if e := t.entries[c.key]; e != nil && e.core == c {
		delete(t.entries, c.key)
	}
}
