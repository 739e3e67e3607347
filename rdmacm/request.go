package rdmacm

import (
	"context"
	"errors"
	"net"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/verbs"
)

// Request is a peer's request for a connection. It ends with Accept or Reject, of which one has to
// be called, once.
type Request struct {
	asked
}

// asked is what requests have in common.
type asked struct {
	id            *identifier
	network       string
	event         abi.CMEvent
	local, remote Addr
}

// PrivateData returns what came with the request, filled up with zeros.
func (r *asked) PrivateData() []byte { return privateOf(&r.event) }

// LocalAddr returns the Addr that the peer asked for.
func (r *asked) LocalAddr() net.Addr { return r.local }

// RemoteAddr returns the peer's Addr.
func (r *asked) RemoteAddr() net.Addr { return r.remote }

// Device is the name of the device that the request came by, and that a connection will use: the
// place for its memory, see Session.PDOn.
func (r *asked) Device() string { return r.id.device }

// Reject refuses the request. The peer's Dial fails with a *RejectedError that has the private
// data: at most 148 bytes, or 136 for a datagram request.
func (r *asked) Reject(private []byte) error { return r.RejectFor(0, private) }

// RejectFor is Reject with a reason other than ReasonConsumer. Datagram requests have none.
func (r *asked) RejectFor(reason Reason, private []byte) error {
	var p abi.CMParam
	err := setPrivate(&p, private)
	if err == nil {
		err = r.id.command(abi.OpReject, &p, reason)
	}
	// Whatever became of it, the end of the identifier is a rejection as well.
	err = errors.Join(err, r.id.destroy(), r.id.core.release())
	if err != nil {
		return r.wrap("reject", err)
	}
	return nil
}

// ResponderResources and InitiatorDepth are what the peer would have this side grant and use.
func (r *Request) ResponderResources() int { return int(r.event.Param.ResponderResources) }

// InitiatorDepth is how many READs and atomics the peer lets this side have in flight.
func (r *Request) InitiatorDepth() int { return int(r.event.Param.InitiatorDepth) }

// Accept connects a new queue pair to the peer's, and waits until the peer knows. Of cfg all that
// concerns the queue pair counts; PD and completion queues must belong to the listener's NIC.
func (r *Request) Accept(ctx context.Context, cfg Config) (*Conn, error) {
	conn := newConn(r.id)
	conn.local, conn.remote, conn.private = r.local, r.remote, r.PrivateData()
	if err := r.accept(ctx, conn, &cfg); err != nil {
		conn.abandon()
		_ = r.id.core.release()
		return nil, r.wrap("accept", preferCause(ctx, err))
	}
	return conn, nil
}

func (r *Request) accept(ctx context.Context, conn *Conn, cfg *Config) error {
	param, err := cfg.param()
	if err != nil {
		return err
	}
	asked := &r.event.Param
	param.ResponderResources = min(param.ResponderResources, asked.ResponderResources)
	param.InitiatorDepth = min(param.InitiatorDepth, asked.InitiatorDepth)
	if err := r.id.configure(&Config{TOS: cfg.TOS, AckTimeout: cfg.AckTimeout}, 0); err != nil {
		return err
	}
	if err := conn.makeQP(ctx, cfg, &param); err != nil {
		return r.id.whyNot(err)
	}
	for _, to := range []verbs.QPState{verbs.QPStateRTR, verbs.QPStateRTS} {
		if err := conn.queue.move(r.id, to, &param); err != nil {
			return r.id.whyNot(err)
		}
	}
	param.QPN = uint32(conn.queue.qp.QPN())
	param.SRQ = flag(cfg.QP.SRQ != nil)
	if err := r.id.command(abi.OpAccept, &param, 0); err != nil {
		return r.id.whyNot(err)
	}
	var e abi.CMEvent
	return r.id.expect(ctx, EventEstablished, &e)
}

func (r *asked) wrap(op string, err error) error {
	return &OpError{Op: op, Network: r.network, Local: r.local, Remote: r.remote, Err: err}
}
