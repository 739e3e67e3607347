package rdmacm

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/verbs"
)

// UDConn is a UD queue pair. After DialUD it knows the peer's queue pair; the accepting side
// learns it from the datagrams that come (verbs.PD.CreateAHFrom).
type UDConn struct {
	id      *identifier
	queue   queuePair
	shared  bool // the queue pair is the program's
	local   Addr
	remote  Addr
	private []byte

	ah   *verbs.AH // nil on the accepting side
	qpn  verbs.QPN
	qkey verbs.QKey

	once sync.Once
}

// DialUD asks which queue pair serves a datagram service (SIDR, IBTA 12.11) and makes a UD queue
// pair that can send to it.
func DialUD(ctx context.Context, network, address string, cfg Config) (*UDConn, error) {
	var conn *UDConn
	err := dialEach(ctx, dialing{"dial datagrams", network, address}, &cfg,
		func(c *core, dst netip.AddrPort) (err error) {
			conn, err = c.dialUD(ctx, dst, &cfg)
			return err
		})
	if err != nil {
		return nil, err
	}
	return conn, nil
}

func (c *core) dialUD(ctx context.Context, dst netip.AddrPort, cfg *Config) (_ *UDConn, err error) {
	param, err := cfg.param()
	if err != nil {
		return nil, err
	}
	id, err := c.createID(spaceUDP, verbs.QPTypeUD, cfg)
	if err != nil {
		return nil, err
	}
	conn := &UDConn{id: id}
	defer func() {
		if err != nil {
			_ = conn.end()
		}
	}()
	if err := id.resolve(ctx, dst, cfg); err != nil {
		return nil, err
	}
	route, err := id.query()
	if err != nil {
		return nil, err
	}
	conn.local, conn.remote = addrOf(&route.Src), addrOf(&route.Dst)
	if err := id.command(abi.OpConnect, &param, 0); err != nil {
		return nil, err
	}
	var e abi.CMEvent
	if err := id.expect(ctx, EventEstablished, &e); err != nil {
		return nil, err
	}
	conn.private = privateOf(&e)
	// Only now: the queue key is the peer's choice. Nobody knows the queue pair before its first
	// datagram.
	if err := conn.makeQP(ctx, cfg); err != nil {
		return nil, err
	}
	return conn, conn.address(&e.Param)
}

// makeQP makes the queue pair and takes it to RTS: datagrams need no peer for that.
func (c *UDConn) makeQP(ctx context.Context, cfg *Config) error {
	q, err := c.id.newQueuePair(ctx, cfg, verbs.QPTypeUD)
	if err != nil {
		return err
	}
	c.queue = q
	if err := q.prepare(c.id, cfg, &abi.CMParam{}); err != nil {
		return err
	}
	attr, _, err := c.id.attributes(verbs.QPStateRTS)
	if err != nil {
		return err
	}
	c.qkey = attr.QKey
	if err := q.qp.ToRTR(verbs.QPAttr{}); err != nil {
		return err
	}
	return q.qp.ToRTS(verbs.QPAttr{SQPSN: attr.SQPSN})
}

// address learns where datagrams go.
func (c *UDConn) address(p *abi.CMParam) error {
	ah, err := c.queue.pd.CreateAH(pathOf(&p.AH))
	if err != nil {
		return err
	}
	c.ah, c.qpn, c.qkey = ah, verbs.QPN(p.QPN), verbs.QKey(p.QKey)
	return nil
}

// QP returns the queue pair.
func (c *UDConn) QP() *verbs.QP { return c.queue.qp }

// SendCQ returns the queue of completions of sends.
func (c *UDConn) SendCQ() *verbs.CQ { return c.queue.qp.Config().SendCQ }

// RecvCQ returns the queue of completions of receives.
func (c *UDConn) RecvCQ() *verbs.CQ { return c.queue.qp.Config().RecvCQ }

// LocalAddr returns this side's Addr.
func (c *UDConn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the peer's Addr.
func (c *UDConn) RemoteAddr() net.Addr { return c.remote }

// PrivateData returns what came with the peer's answer, or on the accepting side with its request.
func (c *UDConn) PrivateData() []byte { return c.private }

// QKey returns the queue key that datagrams between the two carry.
func (c *UDConn) QKey() verbs.QKey { return c.qkey }

// Address fills in where a work request goes: the peer's queue pair. The accepting side has no
// such address, and leaves the work request as it is.
func (c *UDConn) Address(wr *verbs.SendWR) {
	if c.ah != nil {
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = c.ah, c.qpn, c.qkey
	}
}

// Close gives everything back. What is in flight is dropped.
func (c *UDConn) Close() (err error) {
	c.once.Do(func() { err = errors.Join(c.end(), c.id.core.release()) })
	return err
}

func (c *UDConn) end() error {
	err := c.id.destroy()
	if !c.shared {
		c.queue.close()
	}
	if c.ah != nil {
		err = errors.Join(err, c.ah.Close())
	}
	return err
}

// UDListener takes requests of those who look for a datagram service.
type UDListener struct {
	passive
}

// ListenUD offers a datagram service at an address, as Listen does connections.
func ListenUD(ctx context.Context, network, address string, cfg Config) (*UDListener, error) {
	l := &UDListener{}
	d := dialing{"listen for datagrams", network, address}
	if err := l.listen(ctx, d, &cfg, spaceUDP); err != nil {
		return nil, err
	}
	return l, nil
}

// Accept waits for the next request.
func (l *UDListener) Accept(ctx context.Context) (*UDRequest, error) {
	a, err := l.accept(ctx)
	if err != nil {
		return nil, err
	}
	return &UDRequest{a}, nil
}

// UDRequest is a request for the queue pair of a datagram service. It ends with Accept, AcceptWith
// or Reject.
type UDRequest struct {
	asked
}

// Accept answers with a queue pair that is made for the purpose.
func (r *UDRequest) Accept(ctx context.Context, cfg Config) (*UDConn, error) {
	conn := r.newConn()
	err := conn.makeQP(ctx, &cfg)
	if err == nil {
		err = r.answer(conn, cfg.PrivateData)
	}
	return r.settle(conn, err)
}

// AcceptWith answers with a queue pair of the program, which may serve any number of peers. qkey
// is the key that it was made with.
func (r *UDRequest) AcceptWith(qp *verbs.QP, qkey verbs.QKey, private []byte) (*UDConn, error) {
	conn := r.newConn()
	conn.queue.qp, conn.shared, conn.qkey = qp, true, qkey
	var err error
	if qp.Config().Type != verbs.QPTypeUD {
		err = rdma.Refuse(syscall.EINVAL, "only a UD queue pair can serve datagrams")
	} else {
		err = r.answer(conn, private)
	}
	return r.settle(conn, err)
}

func (r *UDRequest) newConn() *UDConn {
	return &UDConn{id: r.id, local: r.local, remote: r.remote, private: r.PrivateData()}
}

func (r *UDRequest) answer(conn *UDConn, private []byte) error {
	p := abi.CMParam{QPN: uint32(conn.queue.qp.QPN()), QKey: uint32(conn.qkey)}
	if err := setPrivate(&p, private); err != nil {
		return err
	}
	return r.id.command(abi.OpAccept, &p, 0)
}

// settle ends what did not come about.
func (r *UDRequest) settle(conn *UDConn, err error) (*UDConn, error) {
	if err == nil {
		return conn, nil
	}
	err = r.wrap("accept", r.id.whyNot(err))
	_ = conn.Close()
	return nil, err
}
