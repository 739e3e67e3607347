package rnet

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/softrnic/softrnic/rdmacm"
	"github.com/softrnic/softrnic/verbs"
)

// batch is how many completions are looked at at once.
const batch = 32

// Conn is a connection, a net.Conn. Its methods may be called from any goroutine.
type Conn struct {
	rc   *rdmacm.Conn
	pump *pump
	cq   *verbs.CQ
	qp   *verbs.QP
	// mr has the ring that the peer writes to, and behind it the mirror of the peer's ring.
	mr         *verbs.MR
	ring       []byte
	mirror     []byte
	mirrorAt   int // offset in mr
	peer       hello
	slotsMax   int // receives of the peer that data may use
	lingerTime time.Duration
	probeEvery time.Duration

	// One Read and one Write at a time; each is held while mu is not, so that the memory stays.
	rmu, wmu sync.Mutex

	mu     sync.Mutex // guards everything below
	reads  side
	writes side
	armed  bool  // an event was asked for and has not come
	closed bool  // Close was called
	err    error // why the connection is of no more use

	in  inflow
	out outflow

	probe *time.Timer
	heard bool // something came from the peer since the last probe

	// Scratch of the methods that hold mu.
	wcs   [batch]verbs.WC
	recvs [batch]verbs.RecvWR
	wrs   [2]verbs.SendWR
	sges  [2]verbs.SGE
}

// Read reads what has arrived, at least one byte. io.EOF says that the peer has ended its
// direction and all that it wrote was read.
func (c *Conn) Read(b []byte) (int, error) {
	c.rmu.Lock()
	defer c.rmu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.closed:
			return 0, c.wrap("read", net.ErrClosed)
		case c.reads.expired:
			return 0, c.wrap("read", os.ErrDeadlineExceeded)
		case len(b) == 0:
			return 0, nil
		}
		if c.in.avail == 0 {
			c.drainLocked()
		}
		switch {
		case c.in.avail > 0:
			return c.takeLocked(b), nil
		case c.in.ended:
			return 0, io.EOF
		case c.err != nil:
			return 0, c.wrap("read", c.err)
		}
		c.waitLocked(&c.reads)
	}
}

// Write writes all of b, and waits while the peer's ring is full. What was written is on its way
// when Write returns, and b is the caller's again.
func (c *Conn) Write(b []byte) (int, error) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := 0; ; {
		if err := c.writableLocked(); err != nil {
			return n, c.wrap("write", err)
		}
		if n == len(b) {
			return n, nil
		}
		room := c.roomLocked()
		if room == 0 && c.drainLocked() {
			room = c.roomLocked()
		}
		if room == 0 {
			c.waitLocked(&c.writes)
			continue
		}
		piece := b[n:min(len(b), n+room)]
		if err := c.sendLocked(piece); err != nil {
			return n, c.wrap("write", err)
		}
		n += len(piece)
		if n == len(b) {
			return n, nil
		}
	}
}

// writableLocked says why nothing can be written, if so.
func (c *Conn) writableLocked() error {
	switch {
	case c.closed:
		return net.ErrClosed
	case c.writes.expired:
		return os.ErrDeadlineExceeded
	case c.out.ending:
		return syscall.EPIPE
	case c.err != nil && c.in.ended && errors.Is(c.err, syscall.ECONNRESET):
		return syscall.EPIPE // the peer has said good-bye
	}
	return c.err
}

// LocalAddr returns the rdmacm.Addr of this side.
func (c *Conn) LocalAddr() net.Addr { return c.rc.LocalAddr() }

// RemoteAddr returns the peer's rdmacm.Addr.
func (c *Conn) RemoteAddr() net.Addr { return c.rc.RemoteAddr() }

// SetDeadline sets when Read and Write give up, those that wait now and those to come; the zero
// time is never.
func (c *Conn) SetDeadline(t time.Time) error { return c.setDeadlines(t, &c.reads, &c.writes) }

// SetReadDeadline is SetDeadline for Read.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadlines(t, &c.reads) }

// SetWriteDeadline is SetDeadline for Write. A Write that it cuts off may have written a part.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadlines(t, &c.writes) }

func (c *Conn) setDeadlines(t time.Time, sides ...*side) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.wrap("set", net.ErrClosed)
	}
	for _, s := range sides {
		c.setDeadlineLocked(s, t)
	}
	return nil
}

func (c *Conn) wrap(op string, err error) error {
	return &net.OpError{
		Op: op, Net: "rdma", Source: c.rc.LocalAddr(), Addr: c.rc.RemoteAddr(), Err: err,
	}
}
