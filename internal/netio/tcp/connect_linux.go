package tcp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/nic"
)

// Connect implements nic.StreamPort.
func (p *Port) Connect(id nic.StreamID, r *nic.StreamRoute) error {
	v6 := r.Remote.Addr().Unmap().Is6()
	if !p.admits(r.Remote) {
		return fmt.Errorf("tcp: this NIC is without a network: %w", unix.ENETUNREACH)
	}
	fd, err := p.newSocket(v6)
	if err != nil {
		return err
	}
	if err = connect(fd, v6, r); err == nil {
		s := &socket{fd: fd, id: id, state: connecting}
		remote := netip.AddrPortFrom(r.Remote.Addr().Unmap().WithZone(""), r.Remote.Port())
		s.flow = Flow{ID: id, Remote: remote, Active: true}
		// Not before connect, since epoll takes a fresh socket for one that was hung up.
		if err = p.admit(s, streamEvents); err == nil {
			s.flow.Local, s.zone = localOf(fd)
			p.pair(s)
			return nil
		}
	}
	_ = unix.Close(fd)
	p.counters.add(ConnectFailed, 1)
	return fmt.Errorf("tcp: %w", err)
}

func connect(fd int, v6 bool, r *nic.StreamRoute) error {
	level, name := unix.IPPROTO_IP, unix.IP_TOS
	if v6 {
		level, name = unix.IPPROTO_IPV6, unix.IPV6_TCLASS
	}
	if r.TOS != 0 {
		if err := unix.SetsockoptInt(fd, level, name, int(r.TOS)); err != nil {
			return fmt.Errorf("set the type of service: %w", err)
		}
	}
	if err := bind(fd, r); err != nil {
		return os.NewSyscallError("bind", err)
	}
	err := unix.Connect(fd, sockaddr(r.Remote, r.Interface))
	if errors.Is(err, unix.EINPROGRESS) || errors.Is(err, unix.EINTR) {
		return nil // an event tells
	}
	return os.NewSyscallError("connect", err)
}

func bind(fd int, r *nic.StreamRoute) error {
	if !r.Local.Addr().IsValid() {
		return nil
	}
	// With a port of its own a connection must be able to follow one in TIME-WAIT. Without, the
	// port is chosen by connect, which knows the peer: so there are as many for each peer.
	level, name := unix.SOL_SOCKET, unix.SO_REUSEADDR
	if r.Local.Port() == 0 {
		level, name = unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT
	}
	_ = unix.SetsockoptInt(fd, level, name, 1) // without it the port may be taken more often
	return unix.Bind(fd, sockaddr(r.Local, r.Interface))
}

// complete asks how a connection attempt ended.
func (p *Port) complete(now clock.Time, s *socket) {
	if !s.writable {
		s.readable = false
		return
	}
	s.writable = false
	c := nic.StreamConnected{Errno: errorOf(s.fd)}
	if c.Errno == 0 {
		if _, err := unix.Getpeername(s.fd); err != nil {
			return // not yet
		}
		c.Local = s.flow.Local
		c.MSS = segmentOf(s.fd)
		if c.Local == s.flow.Remote {
			// Nobody listens, and the kernel has chosen the very port that we connect to: the
			// socket is its own peer (simultaneous open, RFC 9293 §3.5).
			c = nic.StreamConnected{Errno: unix.ECONNREFUSED}
			resetOnClose(s.fd)
		}
	}
	if c.Errno != 0 {
		p.counters.add(ConnectFailed, 1)
		if t := p.listener(); t != nil {
			t.StreamFailed(&s.flow, c.Errno == unix.ECONNREFUSED)
		}
		p.discard(s)
		p.handler.HandleConnected(now, s.id, &c)
		return
	}
	s.state = open
	p.counters.add(Connected, 1)
	p.opened(s)
	p.handler.HandleConnected(now, s.id, &c)
}
