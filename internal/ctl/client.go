package ctl

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/invariant"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
)

// ErrGone is wrapped by every call on a connection whose NIC has ended.
var ErrGone = errors.New("the NIC is gone")

// ErrNoNIC is wrapped by Dial when nobody serves the socket.
var ErrNoNIC = errors.New("no NIC is running here")

// Error is a request that the NIC refused. It unwraps to the *rdma.Refusal, and through it to the
// errno.
type Error struct {
	Op      abi.Op
	Refusal *rdma.Refusal
}

func (e *Error) Error() string { return fmt.Sprintf("%v: %v", e.Op, e.Refusal) }

// Unwrap returns the refusal.
func (e *Error) Unwrap() error { return e.Refusal }

// Client is an application's end of a control connection. It is safe for concurrent use: requests
// take turns.
type Client struct {
	mu   sync.Mutex // guards conn's reads and writes, seq and gone
	conn *Conn
	seq  uint32
	gone bool
	// filed says that others may hold the connection, so that closing it here does not end it.
	filed atomic.Bool
}

// Dial connects to the NIC at a socket path; see SocketPath for the default one.
func Dial(path string) (*Client, error) {
	if err := CheckPath(path); err != nil {
		return nil, err
	}
	sock, err := dialPatiently(path)
	switch {
	case err == nil:
		return NewClient(sock), nil
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("ctl: connect to %s: %w (%w)", path, ErrNoNIC, err)
	case errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("ctl: connect to %s: it belongs to another user: %w", path, err)
	}
	return nil, fmt.Errorf("ctl: connect to %s: %w", path, err)
}

// The bounds of waiting for a place in the queue of a NIC that many programs connect to at once.
const (
	dialTries    = 500
	dialInterval = 10 * time.Millisecond
)

// dialPatiently waits while the NIC's queue of connections is full, as a blocking connect does.
func dialPatiently(path string) (sock *net.UnixConn, err error) {
	for range dialTries {
		sock, err = DialSocket(path)
		if !errors.Is(err, syscall.EAGAIN) {
			return sock, err
		}
		time.Sleep(dialInterval)
	}
	return nil, err
}

// DialSocket makes the connection alone. The kernel chooses a name for this end, by which the NIC
// knows the connection should its descriptor come back to it (see NameOf).
func DialSocket(path string) (*net.UnixConn, error) {
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		// Without a name the connection is good for all but imports.
		return raw.Control(func(fd uintptr) {
			_ = unix.Bind(int(fd), &unix.SockaddrUnix{})
		})
	}}
	conn, err := dialer.Dial("unixpacket", path)
	if err != nil {
		return nil, err
	}
	sock, ok := conn.(*net.UnixConn)
	invariant.Assert(ok, "ctl: a Unix connection is none")
	return sock, nil
}

// NewClient makes a client of a connection that is there, such as one end of Pair, and owns it
// from now on.
func NewClient(sock *net.UnixConn) *Client {
	return &Client{conn: newConn(sock, limits.MaxMessage)}
}

// SetDeadline bounds the calls that follow; the zero time unbounds them. A call that it cuts off
// returns an error that Is os.ErrDeadlineExceeded, and the connection is of no more use.
func (c *Client) SetDeadline(t time.Time) error { return c.conn.SetDeadline(t) }

// Close ends the connection and with it everything that was made through it, whoever else holds
// its File. What Inherit returned keeps it.
func (c *Client) Close() error {
	if c.filed.Load() {
		_ = c.conn.sock.CloseWrite()
	}
	return c.conn.Close()
}

// File returns a descriptor of the connection: with it another process imports what was made
// through the connection. It is refused (EOPNOTSUPP) where the NIC could not tell whose it is.
func (c *Client) File() (*os.File, error) {
	fd := -1
	c.filed.Store(true)
	err := c.conn.control(func(own int) (err error) {
		if NameOf(own) == "" {
			return rdma.Refuse(syscall.EOPNOTSUPP, "the connection to the NIC has no name: the NIC"+
				" is inside the program, or the kernel older than Linux 5.14")
		}
		fd, err = unix.FcntlInt(uintptr(own), unix.F_DUPFD_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	// Not by net.UnixConn.File, whose Fd makes the connection a blocking one for all that have it.
	return os.NewFile(uintptr(fd), "rnic control"), nil
}

// Peer tells which process is the NIC.
func (c *Client) Peer() (Peer, error) { return c.conn.Peer() }

// Do sends a request and waits for its reply, which the caller owns. The error is an *Error when
// the NIC refused, and wraps ErrGone when there is no NIC any more.
func (c *Client) Do(op abi.Op, body []byte, fds ...int) (*Message, error) {
	return c.DoFDs(0, op, body, fds...)
}

// DoFDs is Do for a reply that comes with n descriptors. Where the process has no room for them it
// asks for nothing: the object would be made, and nobody could use it or end it.
func (c *Client) DoFDs(n int, op abi.Op, body []byte, fds ...int) (*Message, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return nil, fmt.Errorf("%v: %w", op, ErrGone)
	}
	spares, err := takeSpares(n)
	if err != nil {
		return nil, fmt.Errorf("%v: %w: ulimit -n bounds them: %w", op, ErrNoRoom, err)
	}
	c.seq++
	reply := new(Message)
	err = c.conn.Send(&Message{Op: op, Seq: c.seq, Body: body, FDs: fds})
	spares.CloseFDs()
	if err == nil {
		err = c.conn.Receive(reply)
	}
	switch {
	case errors.Is(err, syscall.EMSGSIZE), errors.Is(err, ErrNoRoom):
		return nil, fmt.Errorf("%v: %w", op, err) // the conversation is still in step
	case err == nil && (reply.Op != op || reply.Seq != c.seq):
		reply.CloseFDs()
		err = fmt.Errorf("%w: reply %v (%d) to request %d", ErrMalformed, reply.Op, reply.Seq, c.seq)
	}
	if err != nil {
		// Requests and replies are out of step from here on, so nothing more can be trusted.
		c.gone = true
		_ = c.conn.Close()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%v: %w", op, ErrGone)
		}
		return nil, fmt.Errorf("%v: %w: %w", op, ErrGone, err)
	}
	if reply.Status != 0 {
		reply.CloseFDs()
		refusal := rdma.Refuse(syscall.Errno(reply.Status), string(reply.Body))
		return nil, &Error{Op: op, Refusal: refusal}
	}
	reply.Body = append([]byte(nil), reply.Body...) // the next request overwrites it
	return reply, nil
}

// takeSpares takes the places of n descriptors.
func takeSpares(n int) (m Message, err error) {
	for range n {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err != nil {
			m.CloseFDs()
			return m, err
		}
		m.FDs = append(m.FDs, fd)
	}
	return m, nil
}

// Call is Do for a reply that is one structure, and returns the descriptors that came with it.
// Rsp is struct{} for a reply without a body.
func Call[Rsp any](c *Client, op abi.Op, body []byte, fds ...int) (rsp Rsp, got []int, err error) {
	return callFDs[Rsp](c, 0, op, body, fds...)
}

func callFDs[Rsp any](
	c *Client, n int, op abi.Op, body []byte, fds ...int,
) (rsp Rsp, got []int, err error) {
	reply, err := c.DoFDs(n, op, body, fds...)
	if err != nil {
		return rsp, nil, err
	}
	if !Decode(reply.Body, &rsp) {
		reply.CloseFDs()
		return rsp, nil, fmt.Errorf("%v: %w: reply of %d bytes", op, ErrMalformed, len(reply.Body))
	}
	return rsp, reply.FDs, nil
}

// CallFDs is Call for a reply that comes with exactly n descriptors.
func CallFDs[Rsp any](c *Client, op abi.Op, body []byte, n int) (rsp Rsp, got []int, err error) {
	rsp, got, err = callFDs[Rsp](c, n, op, body)
	if err == nil && len(got) != n {
		(&Message{FDs: got}).CloseFDs()
		return rsp, nil, fmt.Errorf("%v: %w: %d descriptors came, not %d", op, ErrMalformed,
			len(got), n)
	}
	return rsp, got, err
}

// Hello opens the conversation. lane is the descriptor of the lane page.
func (c *Client) Hello(program string) (rsp abi.HelloRsp, lane int, err error) {
	req := abi.HelloReq{Magic: abi.Magic, Version: abi.Version, PID: uint32(os.Getpid())}
	if os.Getenv(DirectEnv) == "off" {
		req.Flags = abi.HelloKeepsOut
	}
	copy(req.Name[:len(req.Name)-1], program)
	rsp, fds, err := CallFDs[abi.HelloRsp](c, abi.OpHello, Bytes(&req), 1)
	if err != nil {
		return rsp, -1, err
	}
	return rsp, fds[0], nil
}
