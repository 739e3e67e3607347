package rdmacm

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/verbs"
)

// Listener takes requests for connections at an address.
type Listener struct {
	passive
}

// Listen listens for requests for connections. An empty host, or a wildcard, is every address of
// the NIC; with network "rdma" of both families. Port 0 chooses one, see Addr. The context ctx
// bounds the call only.
func Listen(ctx context.Context, network, address string, cfg Config) (*Listener, error) {
	l := &Listener{}
	if err := l.listen(ctx, dialing{"listen", network, address}, &cfg, spaceTCP); err != nil {
		return nil, err
	}
	return l, nil
}

// Accept waits for the next request, which the caller accepts or rejects. It returns an error that
// Is net.ErrClosed once the listener is closed.
func (l *Listener) Accept(ctx context.Context) (*Request, error) {
	a, err := l.accept(ctx)
	if err != nil {
		return nil, err
	}
	return &Request{a}, nil
}

// passive is what listeners have in common.
type passive struct {
	id      *identifier
	network string
	addr    Addr
	once    sync.Once
}

func (l *passive) listen(ctx context.Context, d dialing, cfg *Config, space uint32) error {
	wrap := func(err error) error {
		return &OpError{Op: d.op, Network: d.network, Err: preferCause(ctx, err)}
	}
	f, err := familyOf(d.network)
	if err != nil {
		return wrap(err)
	}
	if err := checkBacklog(cfg.Backlog); err != nil {
		return wrap(err)
	}
	list, err := f.lookup(ctx, d.address)
	if err != nil {
		return wrap(err)
	}
	c, err := cfg.hold(ctx)
	if err != nil {
		return wrap(err)
	}
	t := verbs.QPTypeRC
	if space == spaceUDP {
		t = verbs.QPTypeUD
	}
	if l.id, err = c.createID(space, t, cfg); err == nil {
		l.network = d.network
		err = l.bind(Addr{list[0]}, f, cfg)
	}
	if err != nil {
		if l.id != nil {
			_ = l.id.destroy()
		}
		_ = c.release()
		return &OpError{Op: d.op, Network: d.network, Local: Addr{list[0]}, Err: err}
	}
	return nil
}

func (l *passive) bind(at Addr, f family, cfg *Config) error {
	if !at.Addr().IsUnspecified() || at.Addr().Is4() {
		f = familyAny // the address says it all
	}
	if err := l.id.configure(cfg, f); err != nil {
		return err
	}
	src, err := cmAddr(at.AddrPort)
	if err != nil {
		return err
	}
	bind := abi.CMAddrReq{ID: l.id.handle, Src: src}
	if _, err := call[abi.CMRoute](l.id.core, abi.OpBindAddr, ctl.Bytes(&bind)); err != nil {
		return err
	}
	req := abi.CMListenReq{ID: l.id.handle, Backlog: uint32(min(cfg.Backlog, 1<<30))}
	route, err := call[abi.CMRoute](l.id.core, abi.OpListen, ctl.Bytes(&req))
	l.addr = addrOf(&route.Src)
	return err
}

// Addr returns the Addr that the listener listens at.
func (l *passive) Addr() net.Addr { return l.addr }

// Close ends the listener. Requests that nobody has taken are rejected; those that were taken, and
// connections, live on.
func (l *passive) Close() (err error) {
	l.once.Do(func() {
		err = l.id.destroy()
		var e abi.CMEvent
		for l.id.take(&e) {
			if i := l.id.core.find(e.ID); EventType(e.Event) == EventConnectRequest && i != nil {
				err = errors.Join(err, i.destroy())
			}
		}
		err = errors.Join(err, l.id.core.release())
	})
	return err
}

// accept waits for a request and returns its identifier. The session lives as long as the request.
func (l *passive) accept(ctx context.Context) (asked, error) {
	for {
		var e abi.CMEvent
		if err := l.id.next(ctx, &e); err != nil {
			return asked{}, l.wrap(err)
		}
		if EventType(e.Event) != EventConnectRequest {
			if err := failureOf(&e); err != nil {
				return asked{}, l.wrap(err)
			}
			continue
		}
		i := l.id.core.find(e.ID)
		if i == nil {
			continue // Close has taken it
		}
		// Only its Close takes away the listener's own reference.
		if !i.core.retain() {
			_ = i.destroy()
			return asked{}, l.wrap(verbs.ErrDeviceFatal)
		}
		route, err := i.query()
		if err != nil {
			// The peer's change of mind does not end the identifier, so it is the NIC that is gone,
			// or Close was faster.
			_ = i.destroy()
			_ = i.core.release()
			continue
		}
		return asked{
			id: i, network: l.network, event: e, local: addrOf(&route.Src), remote: addrOf(&route.Dst),
		}, nil
	}
}

func (l *passive) wrap(err error) error {
	return &OpError{Op: "accept", Network: l.network, Local: l.addr, Err: err}
}
