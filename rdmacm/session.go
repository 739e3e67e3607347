package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/verbs"
)

// Session is a program's part of a NIC: device contexts, protection domains, and the event channel
// of its connections. It ends once it, and all that was made from it, is closed.
type Session struct {
	core   *core
	closed atomic.Bool
}

// Open makes a session of the caller's own. A nil nic is the NIC process that RNIC_SOCKET or the
// default path leads to. The context ctx bounds the opening only.
func Open(ctx context.Context, nic verbs.Connector) (*Session, error) {
	c, err := openCore(ctx, nic)
	if err != nil {
		return nil, &OpError{Op: "open", Err: err}
	}
	return &Session{core: c}, nil
}

// Hold returns the same session once more, for a holder that closes it on its own.
func (s *Session) Hold() (*Session, error) {
	if s.closed.Load() || !s.core.retain() {
		return nil, &OpError{Op: "hold the session", Err: verbs.ErrClosed}
	}
	return &Session{core: s.core}, nil
}

// Close gives the session up. Connections made from it live on.
func (s *Session) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	return s.core.release()
}

// Device returns the session's own device: the one that RNIC_DEVICE names, else the NIC's first. It
// is the session's: do not close it.
func (s *Session) Device() *verbs.Context { return s.core.pd.Context() }

// PD returns the protection domain on that device of connections that were given no other.
func (s *Session) PD() *verbs.PD { return s.core.pd }

// PDOn is PD on a device of the NIC; its Context is the device. The name "" is that of the
// session's own device.
func (s *Session) PDOn(ctx context.Context, device string) (*verbs.PD, error) {
	if s.closed.Load() {
		return nil, &OpError{Op: "open", Err: verbs.ErrClosed}
	}
	pd, err := s.core.pdOn(ctx, device)
	if err != nil {
		return nil, &OpError{Op: "open", Err: err}
	}
	return pd, nil
}

// core is what the holders of a session share.
type core struct {
	client  *ctl.Client
	channel uint32
	pipe    *os.File
	nic     verbs.Connector
	pd      *verbs.PD // of the session's own device
	key     any       // in the table of shared sessions; nil for one of its own

	// dead is closed when the NIC is gone, done when the reader of events has ended.
	dead, done chan struct{}

	mu   sync.Mutex
	refs int                    // guarded by mu
	ids  map[uint32]*identifier // by handle; guarded by mu

	opening sync.Mutex           // held while a device is opened
	pds     map[string]*verbs.PD // by device; guarded by opening
}

// deviceEnv names the device that connections use unless the program says which.
const deviceEnv = "RNIC_DEVICE"

// openCore returns a core with one reference.
func openCore(ctx context.Context, nic verbs.Connector) (*core, error) {
	client, err := dialNIC(ctx, nic)
	if err != nil {
		return nil, err
	}
	c := &core{
		client: client, dead: make(chan struct{}), done: make(chan struct{}), refs: 1,
		ids: map[uint32]*identifier{}, nic: nic, pds: map[string]*verbs.PD{},
	}
	stop := context.AfterFunc(ctx, func() { _ = client.Close() })
	err = c.greet()
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err == nil {
		c.pd, err = c.open(ctx, os.Getenv(deviceEnv))
	}
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		c.shut()
		return nil, err
	}
	go c.readEvents()
	return c, nil
}

// open opens a device that is not open yet; "" is the NIC's first.
func (c *core) open(ctx context.Context, name string) (*verbs.PD, error) {
	device, err := verbs.Open(ctx, name, deviceOptions(c.nic)...)
	if err != nil {
		return nil, err
	}
	pd, err := device.AllocPD()
	if err != nil {
		_ = device.Close()
		return nil, err
	}
	c.pds[device.Device().Name] = pd
	return pd, nil
}

// pdOn returns the protection domain on a device, which it opens if need be; "" is the session's
// own device.
func (c *core) pdOn(ctx context.Context, name string) (*verbs.PD, error) {
	if name == "" {
		return c.pd, nil
	}
	c.opening.Lock()
	defer c.opening.Unlock()
	if pd := c.pds[name]; pd != nil {
		return pd, nil
	}
	return c.open(ctx, name)
}

// Socket is the NIC process that serves a socket of the file system, for Config.NIC.
func Socket(path string) verbs.Connector { return socket(path) }

type socket string

// Connect implements verbs.Connector.
func (s socket) Connect(context.Context) (*net.UnixConn, error) {
	return ctl.DialSocket(string(s))
}

func dialNIC(ctx context.Context, nic verbs.Connector) (client *ctl.Client, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	switch n := nic.(type) {
	case nil:
		client, err = ctl.DialDefault()
	case socket:
		client, err = ctl.Dial(string(n))
	default:
		conn, err := nic.Connect(ctx)
		if err != nil {
			return nil, err
		}
		return ctl.NewClient(conn), nil
	}
	if errors.Is(err, ctl.ErrNoNIC) {
		return nil, fmt.Errorf("%w: %w", verbs.ErrNoNIC, err)
	}
	return client, err
}

func deviceOptions(nic verbs.Connector) []verbs.Option {
	switch n := nic.(type) {
	case nil:
		return nil
	case socket:
		return []verbs.Option{verbs.WithSocket(string(n))}
	}
	return []verbs.Option{verbs.WithConnector(nic)}
}

// greet makes the connection one for connection management.
func (c *core) greet() error {
	_, lane, err := c.client.Hello(filepath.Base(os.Args[0]))
	if err != nil {
		return explain(err)
	}
	_ = syscall.Close(lane) // for those who have queues
	if _, err := call[abi.HandleMsg](c, abi.OpOpenCM, nil); err != nil {
		return err
	}
	rsp, fds, err := ctl.CallFDs[abi.HandleMsg](c.client, abi.OpCreateEventChannel, nil, 1)
	if err != nil {
		return explain(err)
	}
	// Reads wait in the runtime's poller: they cost no thread, and end with Close.
	if err := syscall.SetNonblock(fds[0], true); err != nil {
		_ = syscall.Close(fds[0])
		return err
	}
	c.channel, c.pipe = rsp.Handle, os.NewFile(uintptr(fds[0]), "connection events")
	return nil
}

// call is a request whose reply is one structure; struct{} for an empty one.
func call[Rsp any](c *core, op abi.Op, body []byte) (Rsp, error) {
	rsp, fds, err := ctl.Call[Rsp](c.client, op, body)
	if err != nil {
		return rsp, explain(err)
	}
	(&ctl.Message{FDs: fds}).CloseFDs()
	return rsp, nil
}

// retain adds a holder. It reports false for a core that has ended.
func (c *core) retain() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.dead:
		return false
	default:
	}
	if c.refs == 0 {
		return false
	}
	c.refs++
	return true
}

// release takes a holder away; the last one ends the core.
func (c *core) release() error {
	c.mu.Lock()
	c.refs--
	last := c.refs == 0
	c.mu.Unlock()
	if !last {
		return nil
	}
	table.forget(c)
	err := c.shut()
	<-c.done
	return err
}

// shut closes what the core has.
func (c *core) shut() error {
	err := c.client.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil // the NIC was gone
	}
	if c.pipe != nil {
		_ = c.pipe.Close()
	}
	c.opening.Lock()
	defer c.opening.Unlock()
	for _, name := range slices.Sorted(maps.Keys(c.pds)) {
		err = errors.Join(err, c.pds[name].Context().Close())
	}
	return err
}
