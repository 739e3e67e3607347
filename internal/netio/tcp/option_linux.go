package tcp

import (
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/nic"
)

// option is one integer socket option, with the words for when it fails.
type option struct {
	level, name, value int
	what               string
}

// newSocket opens a socket with the options that all of ours have; those that are accepted inherit
// them from their listener.
func (p *Port) newSocket(v6 bool) (int, error) {
	if p.off != nil {
		return -1, p.off
	}
	domain := unix.AF_INET
	if v6 {
		domain = unix.AF_INET6
	}
	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		unix.IPPROTO_TCP)
	if isShortage(err) && p.sacrifice() {
		fd, err = unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
			unix.IPPROTO_TCP)
	}
	if err != nil {
		return -1, fmt.Errorf("tcp: open a socket: %w", err)
	}
	if p.config.DescriptorMax > 0 && fd >= p.config.DescriptorMax {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("tcp: descriptors from %d on are kept for other purposes"+
			" (ulimit -n): %w", p.config.DescriptorMax, unix.EMFILE)
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("tcp: let a socket send at once: %w", err)
	}
	p.leavePacing(fd)
	p.watchPeer(fd)
	return fd, nil
}

// watchPeer lets the kernel find peers that are gone. Where a sandbox does not know an option, the
// stream does without, and whoever uses it has to find out by other means.
func (p *Port) watchPeer(fd int) {
	c := &p.config
	for _, o := range []option{
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1, "ask for keep-alive probes"},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, seconds(c.KeepAliveIdle), "set their beginning"},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, seconds(c.KeepAliveInterval), "set their interval"},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, c.KeepAliveCount, "set their number"},
		{
			unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(c.UserTimeout.Milliseconds()),
			"set the user timeout",
		},
	} {
		err := unix.SetsockoptInt(fd, o.level, o.name, o.value)
		if err != nil && !p.isBlind && c.Warn != nil {
			c.Warn("peers that vanish are found late, or never", fmt.Errorf("tcp: %s (socket"+
				" option %d/%d): %w", o.what, o.level, o.name, err))
		}
		p.isBlind = p.isBlind || err != nil
	}
}

// seconds rounds up: 0 is no value for a keep-alive time.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// isShortage reports that descriptors or memory are short, which passes.
func isShortage(err error) bool {
	switch errnoOf(err) {
	case unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM:
		return err != nil
	}
	return false
}

// sockaddr converts an address. zone is the index of an interface, for link-local addresses.
func sockaddr(a netip.AddrPort, zone uint32) unix.Sockaddr {
	ip := a.Addr().Unmap()
	if ip.Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: ip.As4()}
	}
	s := &unix.SockaddrInet6{Port: int(a.Port()), Addr: ip.As16()}
	if ip.IsLinkLocalUnicast() {
		s.ZoneId = zone
	}
	return s
}

// addrOf converts back, without a zone, which it returns on its own.
func addrOf(s unix.Sockaddr) (a netip.AddrPort, zone uint32) {
	switch s := s.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(s.Addr), uint16(s.Port)), 0
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(s.Addr).Unmap(), uint16(s.Port)), s.ZoneId
	}
	return netip.AddrPort{}, 0
}

// localOf returns a socket's own address.
func localOf(fd int) (a netip.AddrPort, zone uint32) {
	s, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, 0
	}
	return addrOf(s)
}

// segmentOf returns the payload of a full segment, or 0.
func segmentOf(fd int) int {
	n, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG)
	if err != nil {
		return 0
	}
	return n
}

// errorOf takes the error that a socket has, or 0.
func errorOf(fd int) unix.Errno {
	value, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return errnoOf(err)
	}
	return unix.Errno(value)
}

// isReadable reports that somebody waits on a listener.
func isReadable(fd int) bool {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds[:], 0)
	return err != nil || n > 0
}

// resetOnClose makes the next close send RST.
func resetOnClose(fd int) {
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
}

// IsTaken implements nic.StreamAcks.
func (p *Port) IsTaken(id nic.StreamID) bool {
	s := p.byID[id]
	if s == nil {
		return true
	}
	waiting, err := unix.IoctlGetInt(s.fd, unix.SIOCOUTQ) // tcp(7): sent or not, and not acknowledged
	return err != nil || waiting == 0
}
