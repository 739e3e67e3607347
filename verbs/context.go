package verbs

import (
	"errors"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/shm"
)

// Context is an open device. Everything that is made from it ends with it.
type Context struct {
	device DeviceInfo
	lane   *shm.Memory
	bells  *shm.Memory
	kick   int
	async  *os.File
	events chan Event
	// lost counts asynchronous events that nobody took in time.
	lost atomic.Uint64

	// dead is closed when the NIC is gone.
	dead     chan struct{}
	deadOnce sync.Once
	// done is closed when the reader of asynchronous events has ended.
	done chan struct{}

	client   *ctl.Client
	mu       sync.Mutex
	closed   bool                          // guarded by mu
	channels map[uint32]*CompletionChannel // by handle; guarded by mu
	cqs      map[uint32]*CQ                // by handle; guarded by mu
	qps      map[uint32]*QP                // by handle; guarded by mu
	srqs     map[uint32]*SRQ               // by handle; guarded by mu
	// regions also keeps registered slices alive, whoever else forgets them; guarded by mu.
	regions map[uint32]*MR
	windows map[uint32]*MW             // by handle; guarded by mu
	dms     map[*DeviceMemory]struct{} // what is imported twice is here twice; guarded by mu
}

func newContext(client *ctl.Client) *Context {
	return &Context{
		client: client, kick: -1,
		events: make(chan Event, eventsKept),
		dead:   make(chan struct{}), done: make(chan struct{}),
		channels: map[uint32]*CompletionChannel{}, cqs: map[uint32]*CQ{},
		qps: map[uint32]*QP{}, srqs: map[uint32]*SRQ{}, regions: map[uint32]*MR{},
		windows: map[uint32]*MW{}, dms: map[*DeviceMemory]struct{}{},
	}
}

// Device returns what the context is a context of.
func (c *Context) Device() DeviceInfo { return c.device }

func (c *Context) isDead() bool {
	select {
	case <-c.dead:
		return true
	default:
		return false
	}
}

// die records that the NIC is gone, and wakes everybody who waits for it.
func (c *Context) die() {
	c.deadOnce.Do(func() { close(c.dead) })
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ch := range c.channels {
		ch.wake()
	}
}

// Dead is closed once the NIC is gone.
func (c *Context) Dead() <-chan struct{} { return c.dead }

// Close ends the context and everything made from it. Afterwards the NIC touches no memory that
// was registered, and mapped memory is gone: do not use what MR.Bytes returned.
func (c *Context) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	qps, srqs, cqs := values(c.qps), values(c.srqs), values(c.cqs)
	regions, channels := values(c.regions), values(c.channels)
	windows, dms := values(c.windows), slices.Collect(maps.Keys(c.dms))
	c.mu.Unlock()

	for _, q := range qps {
		q.release()
	}
	for _, q := range srqs {
		q.release()
	}
	// The NIC may be writing into this program's memory at this moment. Its answer says that it
	// no longer does. A NIC that is gone does not, either.
	var err error
	for _, w := range windows { // a region is not given up while one is bound to it
		err = errors.Join(err, c.destroy("free memory window", abi.OpDeallocMW, w.handle))
	}
	for _, r := range regions {
		if e := c.destroy("deregister memory", abi.OpDeregMR, r.handle); e != nil {
			err = errors.Join(err, e)
		}
	}
	if e := c.client.Close(); !errors.Is(e, net.ErrClosed) { // it is closed when the NIC is gone
		err = errors.Join(err, e)
	}
	for _, r := range regions {
		r.release()
	}
	for _, d := range dms {
		d.release()
	}
	for _, q := range cqs {
		q.release()
	}
	for _, ch := range channels {
		ch.release()
	}
	_ = c.async.Close()
	<-c.done
	c.unmap()
	return err
}

func (c *Context) unmap() {
	c.bells.Release()
	c.lane.Release()
	_ = unix.Close(c.kick)
}

func values[T any](m map[uint32]*T) []*T {
	out := make([]*T, 0, len(m))
	for _, v := range m {
		out = append(out, v)
	}
	return out
}

// adopt enters an object into the context's tables. It reports false if the context was closed.
func (c *Context) adopt(object any) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	switch o := object.(type) {
	case *CompletionChannel:
		c.channels[o.handle] = o
	case *CQ:
		c.cqs[o.handle] = o
	case *QP:
		c.qps[o.handle] = o
	case *SRQ:
		c.srqs[o.handle] = o
	case *MR:
		c.regions[o.handle] = o
	case *MW:
		c.windows[o.handle] = o
	case *DeviceMemory:
		c.dms[o] = struct{}{}
	}
	return true
}

// disown takes an object out of the context's tables.
func (c *Context) disown(object any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch o := object.(type) {
	case *CompletionChannel:
		delete(c.channels, o.handle)
	case *CQ:
		delete(c.cqs, o.handle)
	case *QP:
		delete(c.qps, o.handle)
	case *SRQ:
		delete(c.srqs, o.handle)
	case *MR:
		delete(c.regions, o.handle)
	case *MW:
		delete(c.windows, o.handle)
	case *DeviceMemory:
		delete(c.dms, o)
	}
}

func (c *Context) findCQ(handle uint32) *CQ {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cqs[handle]
}
