package verbs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/shm"
)

// DeviceInfo describes a device of a NIC.
type DeviceInfo struct {
	Name      string
	NodeGUID  GUID
	Ports     int
	Transport Transport
}

// Transport is what a device speaks (enum ibv_transport_type).
type Transport uint32

// Transports.
const (
	TransportIB    Transport = 0 // InfiniBand's packets, also on Ethernet (RoCE)
	TransportIWARP Transport = 1 // over TCP; rdma_cm makes its connections
)

// String is the name that ibv_devinfo(1) has.
func (t Transport) String() string {
	switch t {
	case TransportIB:
		return "InfiniBand"
	case TransportIWARP:
		return "iWARP"
	}
	return "unknown"
}

// Connector hands out control connections to a NIC: an embedded one hands out one end of a socket
// pair.
type Connector interface {
	Connect(ctx context.Context) (*net.UnixConn, error)
}

// Option changes where Open and Devices look for the NIC.
type Option func(*target)

type target struct {
	socket    string
	connector Connector
}

// WithSocket names the NIC's socket, instead of RNIC_SOCKET or the default.
func WithSocket(path string) Option { return func(t *target) { t.socket = path } }

// WithConnector reaches the NIC through c, without a socket file.
func WithConnector(c Connector) Option { return func(t *target) { t.connector = c } }

func (t *target) dial(ctx context.Context) (*ctl.Client, error) {
	if t.connector != nil {
		conn, err := t.connector.Connect(ctx)
		if err != nil {
			return nil, err
		}
		return ctl.NewClient(conn), nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var client *ctl.Client
	var err error
	if t.socket != "" {
		client, err = ctl.Dial(t.socket)
	} else {
		client, err = ctl.DialDefault()
	}
	if errors.Is(err, ctl.ErrNoNIC) {
		return nil, fmt.Errorf("%w: %w", ErrNoNIC, err)
	}
	return client, err
}

// Devices lists the devices of the NIC, the one that RNIC_DEVICE names first.
func Devices(ctx context.Context, opts ...Option) ([]DeviceInfo, error) {
	c, err := greet(ctx, opts)
	if err != nil {
		return nil, err
	}
	defer c.abandon()
	stop := context.AfterFunc(ctx, func() { _ = c.client.Close() })
	defer stop()
	list, err := c.listDevices()
	return list, preferCause(ctx, err)
}

// Open opens a device by name; "" is the first one. The context ctx bounds the opening only.
func Open(ctx context.Context, name string, opts ...Option) (*Context, error) {
	return openWith(ctx, opts, func(c *Context) error { return c.open(name) })
}

// openWith is Open by steps of the caller's choice.
func openWith(ctx context.Context, opts []Option, steps func(*Context) error) (*Context, error) {
	c, err := greet(ctx, opts)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.client.Close() })
	err = steps(c)
	if !stop() && err == nil {
		err = ctx.Err() // the connection was closed as the last reply came
	}
	if err != nil {
		c.abandon()
		return nil, preferCause(ctx, err)
	}
	go c.readEvents()
	return c, nil
}

// preferCause reports the end of ctx rather than what it broke.
func preferCause(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// greet connects and opens the conversation.
func greet(ctx context.Context, opts []Option) (*Context, error) {
	var t target
	for _, o := range opts {
		o(&t)
	}
	client, err := t.dial(ctx)
	if err != nil {
		return nil, err
	}
	c := newContext(client)
	stop := context.AfterFunc(ctx, func() { _ = client.Close() })
	defer stop()
	if err := c.hello(); err != nil {
		c.abandon()
		return nil, preferCause(ctx, err)
	}
	return c, nil
}

func (c *Context) hello() error {
	const op = "greet the NIC"
	rsp, lane, err := c.client.Hello(filepath.Base(os.Args[0]))
	if err != nil {
		return c.explain(op, err)
	}
	if c.lane, err = shm.Open(lane, abi.LanePageBytes, false); err != nil {
		return &OpError{Op: op, Err: err}
	}
	if int(rsp.NICPID) != os.Getpid() {
		// Where Yama forbids processes to look into each other, a program has to let the NIC in
		// before it can reach registered memory. Where there is no Yama this fails and need not
		// succeed.
		_ = unix.Prctl(unix.PR_SET_PTRACER, uintptr(rsp.NICPID), 0, 0, 0)
	}
	return nil
}

func (c *Context) listDevices() ([]DeviceInfo, error) {
	list, err := callList[abi.DeviceInfo](c, request{op: "list devices", code: abi.OpListDevices})
	if err != nil {
		return nil, err
	}
	out := make([]DeviceInfo, 0, len(list))
	for i := range list {
		d := &list[i]
		out = append(out, DeviceInfo{
			Name: text(d.Name[:]), NodeGUID: GUID(d.NodeGUID), Ports: int(d.Ports),
			Transport: Transport(d.Transport),
		})
	}
	return preferred(out, os.Getenv(deviceEnv)), nil
}

// deviceEnv names the device that the user has chosen.
const deviceEnv = "RNIC_DEVICE"

// preferred puts the device that the user has chosen first: most programs take the first.
func preferred(list []DeviceInfo, name string) []DeviceInfo {
	at := slices.IndexFunc(list, func(d DeviceInfo) bool { return d.Name == name })
	if at <= 0 {
		return list
	}
	chosen := list[at]
	copy(list[1:at+1], list[:at])
	list[0] = chosen
	return list
}

func (c *Context) open(name string) error {
	const op = "open device"
	list, err := c.listDevices()
	if err != nil {
		return err
	}
	found := -1
	var names []string
	for i, d := range list {
		if found < 0 && (name == "" || d.Name == name) {
			found = i
		}
		names = append(names, d.Name)
	}
	if found < 0 {
		return &OpError{Op: op, Err: fmt.Errorf("%w: %q (the NIC has: %s)", ErrNoDevice, name,
			strings.Join(names, ", "))}
	}
	c.device = list[found]
	var req abi.OpenDeviceReq
	copy(req.Name[:len(req.Name)-1], c.device.Name)
	_, fds, err := call[abi.OpenDeviceRsp](c, request{
		op: op, code: abi.OpOpenDevice, body: ctl.Bytes(&req), fds: 3,
	})
	if err != nil {
		return err
	}
	c.kick = fds[1]
	c.bells, err = shm.Open(fds[0], abi.DoorbellPageBytes, true)
	if err == nil {
		c.async, err = pollable(fds[2], "asynchronous events")
	} else {
		closeAll(fds[2:])
	}
	if err != nil {
		return &OpError{Op: op, Err: err}
	}
	return nil
}

// abandon gives up a context that never opened completely.
func (c *Context) abandon() {
	_ = c.client.Close()
	if c.async != nil {
		_ = c.async.Close()
	}
	if c.bells != nil {
		c.bells.Release()
	}
	if c.lane != nil {
		c.lane.Release()
	}
	if c.kick >= 0 {
		_ = unix.Close(c.kick)
	}
}

// text returns a NUL-padded field as a string.
func text(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}
