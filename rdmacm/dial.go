package rdmacm

import (
	"context"
	"net/netip"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/verbs"
)

// Dial connects an RC queue pair to the service at an address. Where the host has several
// addresses they are tried in turn. The context ctx bounds the attempt; it does not bound the
// connection.
func Dial(ctx context.Context, network, address string, cfg Config) (*Conn, error) {
	var conn *Conn
	err := dialEach(ctx, dialing{"dial", network, address}, &cfg,
		func(c *core, dst netip.AddrPort) (err error) {
			conn, err = c.dial(ctx, dst, &cfg)
			return err
		})
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// dialing says in errors what is tried.
type dialing struct{ op, network, address string }

// dialEach tries every meaning of an address until one succeeds. The attempt that succeeds owns
// the reference to the core.
func dialEach(
	ctx context.Context, d dialing, cfg *Config, try func(*core, netip.AddrPort) error,
) error {
	f, err := familyOf(d.network)
	if err != nil {
		return &OpError{Op: d.op, Network: d.network, Err: err}
	}
	list, err := f.lookup(ctx, d.address)
	if err != nil {
		return &OpError{Op: d.op, Network: d.network, Err: preferCause(ctx, err)}
	}
	c, err := cfg.hold(ctx)
	if err != nil {
		return &OpError{Op: d.op, Network: d.network, Err: err}
	}
	var first error
	for _, dst := range list {
		err := try(c, dst)
		if err == nil {
			return nil
		}
		if first == nil {
			err = preferCause(ctx, err)
			first = &OpError{Op: d.op, Network: d.network, Remote: Addr{dst}, Err: err}
		}
		if ctx.Err() != nil {
			break
		}
	}
	_ = c.release()
	return first
}

// preferCause reports the end of ctx rather than what it broke.
func preferCause(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// resolve finds the way to a destination.
func (i *identifier) resolve(ctx context.Context, dst netip.AddrPort, cfg *Config) error {
	if err := i.configure(cfg, familyAny); err != nil {
		return err
	}
	src, err := cfg.local(ctx, dst)
	if err != nil {
		return err
	}
	req := abi.CMAddrReq{ID: i.handle, TimeoutMS: resolveTimeoutMS}
	if req.Src, err = cmAddr(src); err != nil {
		return err
	}
	if req.Dst, err = cmAddr(dst); err != nil {
		return err
	}
	if _, err := call[struct{}](i.core, abi.OpResolveAddr, ctl.Bytes(&req)); err != nil {
		return err
	}
	var e abi.CMEvent
	if err := i.expect(ctx, EventAddrResolved, &e); err != nil {
		return err
	}
	if _, err := call[struct{}](i.core, abi.OpResolveRoute, ctl.Bytes(&req)); err != nil {
		return err
	}
	return i.expect(ctx, EventRouteResolved, &e)
}

// resolveTimeoutMS is what rdma_resolve_addr is told; the NIC answers from the host's tables at
// once.
const resolveTimeoutMS = 2000

func (c *core) dial(ctx context.Context, dst netip.AddrPort, cfg *Config) (_ *Conn, err error) {
	param, err := cfg.param()
	if err != nil {
		return nil, err
	}
	id, err := c.createID(spaceTCP, verbs.QPTypeRC, cfg)
	if err != nil {
		return nil, err
	}
	conn := newConn(id)
	defer func() {
		if err != nil {
			conn.abandon()
		}
	}()
	if err := id.resolve(ctx, dst, cfg); err != nil {
		return nil, err
	}
	if err := conn.setAddresses(); err != nil {
		return nil, err
	}
	if err := conn.makeQP(ctx, cfg, &param); err != nil {
		return nil, err
	}
	param.QPN = uint32(conn.queue.qp.QPN())
	param.SRQ = flag(cfg.QP.SRQ != nil)
	if err := id.command(abi.OpConnect, &param, 0); err != nil {
		return nil, err
	}
	var e abi.CMEvent
	if err := id.expectAny(ctx, &e, EventConnectResponse, EventEstablished); err != nil {
		return nil, err
	}
	conn.private = privateOf(&e)
	if EventType(e.Event) == EventEstablished {
		return conn, nil // iWARP has no third message, and its NIC has moved the queue pair
	}
	return conn, id.whyNot(conn.finishDial(&param))
}

// finishDial makes the queue pair ready and tells the peer.
func (c *Conn) finishDial(param *abi.CMParam) error {
	for _, to := range []verbs.QPState{verbs.QPStateRTR, verbs.QPStateRTS} {
		if err := c.queue.move(c.id, to, param); err != nil {
			return err
		}
	}
	return c.id.core.order(abi.OpEstablish, c.id.handle)
}

func flag(on bool) uint8 {
	if on {
		return 1
	}
	return 0
}
