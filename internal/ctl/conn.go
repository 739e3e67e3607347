package ctl

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/limits"
)

// ErrMalformed is wrapped for a message that breaks the framing: shorter than its header says, or
// longer than allowed. What came with it is closed.
var ErrMalformed = errors.New("malformed control message")

// ErrNoRoom is wrapped for a message whose descriptors did not all arrive: there were too many, or
// this process has no descriptor left. What came is closed.
var ErrNoRoom = errors.New("no room for the descriptors of a control message")

// ErrPipelined is returned by Reply when the other side has not read the reply before this one.
var ErrPipelined = errors.New("request sent before the reply to the last one was read")

const headerBytes = 16

// Message is one control message. Received descriptors belong to whoever received the message;
// descriptors to send stay the sender's.
type Message struct {
	Op     abi.Op
	Seq    uint32
	Status int32 // replies: 0 or an errno
	Body   []byte
	FDs    []int
}

// CloseFDs closes the descriptors that came with a message and were not taken.
func (m *Message) CloseFDs() {
	for _, fd := range m.FDs {
		_ = unix.Close(fd)
	}
	m.FDs = nil
}

// TakeFD removes the first descriptor from the message, whose owner the caller becomes; −1 when
// there is none.
func (m *Message) TakeFD() int {
	if len(m.FDs) == 0 {
		return -1
	}
	fd := m.FDs[0]
	m.FDs = m.FDs[1:]
	return fd
}

// Peer is who is at the other end, as the kernel vouches.
type Peer struct {
	PID int // 0 when it is not visible from our PID namespace
	UID uint32
	GID uint32
}

// Conn is one end of a control connection. One goroutine may use it at a time; Close may be called
// from any.
type Conn struct {
	sock *net.UnixConn
	buf  []byte
	oob  []byte
}

func newConn(sock *net.UnixConn, bodyMax int) *Conn {
	return &Conn{
		sock: sock,
		buf:  make([]byte, headerBytes+bodyMax),
		oob:  make([]byte, unix.CmsgSpace(limits.MaxFDs*4)),
	}
}

// Close ends the connection; a Receive or Reply that waits returns.
func (c *Conn) Close() error { return c.sock.Close() }

// SetDeadline bounds waits; the zero time unbounds them.
func (c *Conn) SetDeadline(t time.Time) error { return c.sock.SetDeadline(t) }

// Receive waits for the next message. The body is valid until the next call. It returns io.EOF
// when the other side has closed, and an error that Is ErrMalformed or ErrNoRoom for a message that
// cannot be used, after which the connection still works.
func (c *Conn) Receive(m *Message) error {
	*m = Message{}
	n, oobn, flags, _, err := c.sock.ReadMsgUnix(c.buf, c.oob)
	m.FDs = parseRights(c.oob[:oobn])
	if err != nil {
		m.CloseFDs()
		return connError("receive", err)
	}
	if text := c.parse(m, n, flags); text != "" {
		m.CloseFDs()
		return fmt.Errorf("%w: %s", ErrMalformed, text)
	}
	if flags&unix.MSG_CTRUNC != 0 {
		m.CloseFDs()
		return fmt.Errorf("%w: at most %d may come, and ulimit -n bounds them all", ErrNoRoom,
			limits.MaxFDs)
	}
	return nil
}

func (c *Conn) parse(m *Message, n, flags int) string {
	var h abi.Header
	body, ok := DecodeHead(c.buf[:n], &h)
	if ok {
		// Known even when the rest is not, so that an answer can name them.
		m.Op, m.Seq, m.Status = abi.Op(h.Op), h.Seq, h.Status
	}
	switch {
	case flags&unix.MSG_TRUNC != 0:
		return fmt.Sprintf("longer than %d bytes", len(c.buf)-headerBytes)
	case !ok:
		return fmt.Sprintf("%d bytes are no header", n)
	case int64(h.Length) != int64(len(body)):
		return fmt.Sprintf("header says %d bytes, there are %d", h.Length, len(body))
	}
	m.Body = body
	return ""
}

// parseRights returns all descriptors of a control buffer. What is not SCM_RIGHTS is ignored.
func parseRights(oob []byte) []int {
	if len(oob) == 0 {
		return nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	var fds []int
	for i := range messages {
		if got, err := unix.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, got...)
		}
	}
	return fds
}

// Send sends a message and waits for room for it.
func (c *Conn) Send(m *Message) error {
	h := abi.Header{
		Op: uint16(m.Op), Seq: m.Seq, Status: m.Status, Length: uint32(len(m.Body)),
	}
	if len(m.Body) > limits.MaxMessage || len(m.FDs) > limits.MaxFDs {
		return fmt.Errorf("ctl: %v with %d bytes and %d descriptors: %w", m.Op, len(m.Body),
			len(m.FDs), syscall.EMSGSIZE)
	}
	out := append(append(make([]byte, 0, headerBytes+len(m.Body)), Bytes(&h)...), m.Body...)
	var oob []byte
	if len(m.FDs) > 0 {
		oob = unix.UnixRights(m.FDs...)
	}
	if _, _, err := c.sock.WriteMsgUnix(out, oob, nil); err != nil {
		return connError("send "+m.Op.String(), err)
	}
	return nil
}

// Reply is Send for a NIC, which does not let descriptors pile up in the socket of an application
// that reads no replies: the kernel counts them against the NIC's user.
func (c *Conn) Reply(m *Message) error {
	if len(m.FDs) > 0 {
		unread, err := c.unread()
		if err != nil {
			return err
		}
		if unread > 0 {
			return ErrPipelined
		}
	}
	return c.Send(m)
}

// unread returns how much of what we sent the other side has not received.
func (c *Conn) unread() (int, error) {
	var unread int
	err := c.control(func(fd int) (err error) {
		unread, err = unix.IoctlGetInt(fd, unix.SIOCOUTQ)
		return err
	})
	return unread, err
}

func (c *Conn) control(f func(fd int) error) error {
	raw, err := c.sock.SyscallConn()
	if err != nil {
		return connError("use", err)
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return connError("use", err)
	}
	return inner
}

// Peer asks the kernel who connected.
func (c *Conn) Peer() (Peer, error) {
	var p Peer
	err := c.control(func(fd int) error {
		cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			return fmt.Errorf("ctl: peer credentials: %w", err)
		}
		p = Peer{PID: int(cred.Pid), UID: cred.Uid, GID: cred.Gid}
		return nil
	})
	return p, err
}

// PeerPidFD returns a descriptor that becomes readable when the process that connected ends. The
// kernel hands it out since 6.5, with no doubt about which process a pid meant; ENOPROTOOPT before.
func (c *Conn) PeerPidFD() (int, error) {
	pidfd := -1
	err := c.control(func(fd int) (err error) {
		pidfd, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
		if err != nil {
			return fmt.Errorf("ctl: pidfd of the peer: %w", err)
		}
		return nil
	})
	if err != nil {
		return -1, err
	}
	return pidfd, nil
}

// connError keeps io.EOF as it is, and reports a connection that is gone as io.EOF too: a NIC that
// died with unread requests resets the connection instead of closing it.
func connError(op string, err error) error {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(err, unix.EPIPE),
		errors.Is(err, unix.ECONNRESET):
		return io.EOF
	}
	return fmt.Errorf("ctl: %s: %w", op, err)
}

// Pair returns the two ends of a connection within this process.
func Pair() (client, nic *net.UnixConn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("ctl: make a socket pair: %w", err)
	}
	client, err = fromFD(fds[0])
	if err != nil {
		_ = unix.Close(fds[1])
		return nil, nil, err
	}
	nic, err = fromFD(fds[1])
	if err != nil {
		_ = client.Close()
		return nil, nil, err
	}
	return client, nic, nil
}

// fromFD takes the descriptor over.
func fromFD(fd int) (*net.UnixConn, error) {
	file := os.NewFile(uintptr(fd), "rnic control")
	defer func() { _ = file.Close() }() // FileConn has made a copy
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("ctl: use a socket pair: %w", err)
	}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		_ = conn.Close()
		return nil, fmt.Errorf("ctl: use a socket pair: it is a %T", conn)
	}
	return unixConn, nil
}
