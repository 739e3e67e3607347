package rdmacm

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/verbs"
)

// Group is a UD queue pair that is a member of a multicast group.
type Group struct {
	conn UDConn
	gid  verbs.GID
	join uint32
	// listens says that the queue pair is attached: it gets what is sent to the group.
	listens bool
	once    sync.Once
}

// Join makes a UD queue pair and lets it join the multicast group of an IP address; the port of
// the address means nothing. Config.LocalAddress chooses the interface.
func Join(ctx context.Context, network, address string, cfg Config) (*Group, error) {
	var g *Group
	err := dialEach(ctx, dialing{"join", network, address}, &cfg,
		func(c *core, dst netip.AddrPort) (err error) {
			g, err = c.joinGroup(ctx, dst, &cfg)
			return err
		})
	if err != nil {
		return nil, err
	}
	return g, nil
}

// Membership of rdma_join_multicast_ex(3).
const (
	joinFull     = 1
	joinSendOnly = 2
)

func (c *core) joinGroup(
	ctx context.Context, dst netip.AddrPort, cfg *Config,
) (_ *Group, err error) {
	id, err := c.createID(spaceUDP, verbs.QPTypeUD, cfg)
	if err != nil {
		return nil, err
	}
	g := &Group{conn: UDConn{id: id}, gid: rdma.GIDFromAddr(dst.Addr())}
	defer func() {
		if err != nil {
			_ = g.end()
		}
	}()
	if err := id.resolve(ctx, dst, cfg); err != nil {
		return nil, err
	}
	route, err := id.query()
	if err != nil {
		return nil, err
	}
	g.conn.local, g.conn.remote = addrOf(&route.Src), addrOf(&route.Dst)
	if err := g.conn.makeQP(ctx, cfg); err != nil {
		return nil, err
	}
	req := abi.CMMulticastReq{ID: id.handle, Flags: joinFull, Addr: route.Dst}
	if cfg.SendOnly {
		req.Flags = joinSendOnly
	}
	rsp, err := call[abi.HandleMsg](c, abi.OpJoinMulticast, ctl.Bytes(&req))
	if err != nil {
		return nil, err
	}
	g.join = rsp.Handle
	var e abi.CMEvent
	if err := id.expect(ctx, EventMulticastJoin, &e); err != nil {
		return nil, err
	}
	if err := g.conn.address(&e.Param); err != nil {
		return nil, err
	}
	if cfg.SendOnly {
		return g, nil
	}
	if err := g.conn.queue.qp.AttachMulticast(g.gid); err != nil {
		return nil, err
	}
	g.listens = true
	return g, nil
}

// QP returns the queue pair.
func (g *Group) QP() *verbs.QP { return g.conn.QP() }

// SendCQ returns the queue of completions of sends.
func (g *Group) SendCQ() *verbs.CQ { return g.conn.SendCQ() }

// RecvCQ returns the queue of completions of receives.
func (g *Group) RecvCQ() *verbs.CQ { return g.conn.RecvCQ() }

// LocalAddr returns this side's Addr.
func (g *Group) LocalAddr() net.Addr { return g.conn.local }

// Addr returns the group's Addr.
func (g *Group) Addr() net.Addr { return g.conn.remote }

// Address directs a work request at the group.
func (g *Group) Address(wr *verbs.SendWR) { g.conn.Address(wr) }

// Close leaves the group and gives everything back.
func (g *Group) Close() (err error) {
	g.once.Do(func() { err = errors.Join(g.end(), g.conn.id.core.release()) })
	return err
}

func (g *Group) end() error {
	var err error
	if g.listens {
		err = g.conn.queue.qp.DetachMulticast(g.gid)
	}
	if g.join != 0 {
		err = errors.Join(err, g.conn.id.core.order(abi.OpLeaveMulticast, g.join))
	}
	return errors.Join(err, g.conn.end())
}
