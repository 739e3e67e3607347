package rping

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/softrnic/softrnic/rdmacm"
	"github.com/softrnic/softrnic/verbs"
)

// Config are the choices of a client or a server.
type Config struct {
	// NIC is where the RDMA device is; nil is the NIC process of this user.
	NIC verbs.Connector
	// Device is the device of the NIC to use; empty leaves the choice to rdmacm.
	Device string
	// Size is the bytes that a client's round carries each way; 0 means 64. A server that is
	// rping has as many as its own option -S says.
	Size int
	// Verify makes a client compare what comes back with what it sent.
	Verify bool
}

// sizeDefault is rping's.
const sizeDefault = 64

// ErrDamaged is wrapped when the bytes that come back are not those that were sent.
var ErrDamaged = errors.New("the bytes that came back differ")

// Client is a connection to a server.
type Client struct {
	session *rdmacm.Session
	link    *link
	data    *verbs.MR // the source, then the sink
	size    int
	verify  bool
	number  int
}

// Dial connects to a server at "host:port".
func Dial(ctx context.Context, address string, cfg Config) (*Client, error) {
	if cfg.Size == 0 {
		cfg.Size = sizeDefault
	}
	if cfg.Size < 1 || cfg.Size > SizeMax {
		return nil, fmt.Errorf("rping: a size of %d bytes is not from 1 to %d", cfg.Size, SizeMax)
	}
	session, err := rdmacm.Open(ctx, cfg.NIC)
	if err != nil {
		return nil, err
	}
	c := &Client{session: session, size: cfg.Size, verify: cfg.Verify}
	if err := c.connect(ctx, address, cfg.Device); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Client) connect(ctx context.Context, address, device string) error {
	pd, err := c.session.PDOn(ctx, device)
	if err != nil {
		return err
	}
	if c.link, err = newLink(c.session, pd); err != nil {
		return err
	}
	c.data, err = pd.AllocMemory(2*c.size,
		verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessRemoteWrite)
	if err != nil {
		return err
	}
	conn, err := rdmacm.Dial(ctx, "rdma", address, c.link.config())
	if err != nil {
		return err
	}
	c.link.attach(conn)
	return nil
}

// LocalAddr and RemoteAddr are the ends of the connection.
func (c *Client) LocalAddr() net.Addr { return c.link.conn.LocalAddr() }

// RemoteAddr is the server's.
func (c *Client) RemoteAddr() net.Addr { return c.link.conn.RemoteAddr() }

// Round goes there and back once and returns how long that took. After an error the connection is
// of no more use, unless the error is ErrDamaged.
func (c *Client) Round(ctx context.Context) (time.Duration, error) {
	source, sink := c.data.Bytes()[:c.size], c.data.Bytes()[c.size:]
	fill(source, c.number)
	if c.verify {
		clear(sink)
		sink[0] = ^source[0] // also where the source is all zeros
	}
	c.number++
	begin := time.Now()
	for _, offset := range []int{0, c.size} {
		err := c.link.send(buffer{
			addr: c.data.Addr() + uint64(offset), key: c.data.RKey(), size: uint32(c.size),
		})
		if err == nil {
			_, err = c.link.await(ctx)
		}
		if err != nil {
			return 0, fmt.Errorf("rping: round %d: %w", c.number, c.link.reason(err))
		}
	}
	took := time.Since(begin)
	if c.verify && !bytes.Equal(source, sink) {
		return took, fmt.Errorf("rping: round %d: %w", c.number, ErrDamaged)
	}
	return took, nil
}

// Close ends the connection.
func (c *Client) Close() {
	if c.link != nil {
		c.link.close()
	}
	if c.data != nil {
		_ = c.data.Close()
	}
	_ = c.session.Close()
}

// fill makes the text of a round: printable and ended by the only NUL, since a server that is
// rping returns a string.
func fill(b []byte, number int) {
	head := fmt.Appendf(nil, "rdma-ping-%d: ", number)
	n := copy(b, head)
	for i := n; i < len(b); i++ {
		b[i] = 'A' + byte((number+i)%58)
	}
	b[len(b)-1] = 0
}
