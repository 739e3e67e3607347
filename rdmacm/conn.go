package rdmacm

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/verbs"
)

// Conn is a connected RC queue pair.
type Conn struct {
	id      *identifier
	queue   queuePair
	local   Addr
	remote  Addr
	private []byte

	done chan struct{} // closed once the connection is over

	mu     sync.Mutex
	err    error // why it is over; guarded by mu
	closed bool  // Close was called; guarded by mu
}

func newConn(id *identifier) *Conn {
	c := &Conn{id: id, done: make(chan struct{})}
	id.setHook(c.watch)
	return c
}

// setAddresses learns the ends of the connection.
func (c *Conn) setAddresses() error {
	route, err := c.id.query()
	if err != nil {
		return err
	}
	c.local, c.remote = addrOf(&route.Src), addrOf(&route.Dst)
	return nil
}

func (c *Conn) makeQP(ctx context.Context, cfg *Config, limit *abi.CMParam) error {
	q, err := c.id.newQueuePair(ctx, cfg, verbs.QPTypeRC)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.queue = q
	c.mu.Unlock()
	return q.prepare(c.id, cfg, limit)
}

// watch sees every event of the connection, in the reader's goroutine.
func (c *Conn) watch(e *abi.CMEvent) {
	if err := failureOf(e); err != nil {
		c.finish(err)
	}
}

// finish records that the connection is over: the queue pair flushes first, so that who waits for
// completions wakes, and who waits for Done finds nothing in flight.
func (c *Conn) finish(why error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = why
	qp := c.queue.qp
	if c.closed {
		qp = nil // it is about to be destroyed
	}
	c.mu.Unlock()
	if qp != nil {
		_ = qp.ToError() // one that is gone has flushed, too
	}
	close(c.done)
}

// QP returns the queue pair. It belongs to the connection: do not close it.
func (c *Conn) QP() *verbs.QP { return c.queue.qp }

// SendCQ returns the queue of completions of sends.
func (c *Conn) SendCQ() *verbs.CQ { return c.queue.qp.Config().SendCQ }

// RecvCQ returns the queue of completions of receives; it is SendCQ unless the configuration said
// otherwise.
func (c *Conn) RecvCQ() *verbs.CQ { return c.queue.qp.Config().RecvCQ }

// LocalAddr returns this side's Addr.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the peer's Addr.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// PrivateData returns what came with the peer's acceptance, or on the accepting side with its
// request, filled up with zeros.
func (c *Conn) PrivateData() []byte { return c.private }

// Done is closed once the connection is over: the peer has disconnected or died, the NIC is gone,
// or this side has disconnected. By then the queue pair is in ERR, what was in flight is flushed,
// and completions of what arrived before are in the queue in front.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns nil while the connection lives, then why it does not.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// NextEvent waits for the next event of the connection: EventDisconnected, then EventTimewaitExit
// when no packet of it can arrive any more.
func (c *Conn) NextEvent(ctx context.Context) (Event, error) {
	var e abi.CMEvent
	if err := c.id.next(ctx, &e); err != nil {
		return Event{}, c.wrap("wait for an event", err)
	}
	return eventOf(&e), nil
}

// Disconnect ends the connection and waits for the peer's answer, or until the peer is given up.
// What is in flight is flushed: a program that wants it to arrive waits for its completions
// before. The connection still has to be closed.
func (c *Conn) Disconnect(ctx context.Context) error {
	if err := c.queue.qp.ToError(); err != nil {
		return c.wrap("disconnect", err)
	}
	err := c.id.core.order(abi.OpDisconnect, c.id.handle)
	switch {
	case errors.Is(err, verbs.ErrDeviceFatal):
		return nil // nothing is left to disconnect
	case err != nil:
		return c.wrap("disconnect", err)
	}
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return c.wrap("disconnect", ctx.Err())
	}
}

// Close ends the connection, if it is not over, without waiting for the peer, and gives back its
// queue pair with the completion queue that was made for it. What was in flight, and completions
// that were not polled, vanish.
func (c *Conn) Close() error {
	c.mu.Lock()
	closed := c.closed
	c.closed = true
	c.mu.Unlock()
	if closed {
		return nil
	}
	err := c.end()
	return errors.Join(err, c.id.core.release())
}

// abandon gives up a connection that did not come about; its core stays.
func (c *Conn) abandon() { _ = c.end() }

func (c *Conn) end() error {
	err := c.id.destroy()
	c.finish(net.ErrClosed)
	c.queue.close()
	return err
}

func (c *Conn) wrap(op string, err error) error {
	return &OpError{Op: op, Network: "rdma", Local: c.local, Remote: c.remote, Err: err}
}
