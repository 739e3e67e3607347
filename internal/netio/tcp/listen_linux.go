package tcp

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/nic"
)

// backlogMin is what the kernel may hold in any case until the next turn (net.core.somaxconn bounds
// it further): the NIC has a backlog of its own, which refuses what is too much. A peer that comes
// when the kernel's is full believes to be connected and is told nothing for seconds.
const backlogMin = 1024

// Listen implements nic.StreamPort.
func (p *Port) Listen(id nic.StreamID, l *nic.StreamListener) error {
	fd, err := p.newSocket(l.At.Addr().Unmap().Is6())
	if err != nil {
		return err
	}
	err = listen(fd, l)
	if err == nil {
		err = p.admit(&socket{fd: fd, id: id, state: listening}, unix.EPOLLIN)
		if err == nil {
			return nil
		}
	}
	_ = unix.Close(fd)
	return fmt.Errorf("tcp: %w", err)
}

func listen(fd int, l *nic.StreamListener) error {
	// Connections of an earlier listener that are in TIME-WAIT do not keep the port from a new
	// one; a listener that lives does.
	err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err == nil && l.At.Addr().Unmap().Is6() {
		only := 0
		if l.OnlyIPv6 || !l.At.Addr().IsUnspecified() {
			only = 1
		}
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, only)
	}
	if err == nil {
		err = os.NewSyscallError("bind", unix.Bind(fd, sockaddr(l.At, l.Interface)))
	}
	if err == nil {
		err = os.NewSyscallError("listen", unix.Listen(fd, max(l.Backlog, backlogMin)))
	}
	return err
}

// accept takes a few connections and returns what that cost.
func (p *Port) accept(now clock.Time, s *socket) (cost int) {
	for range acceptsPerServe {
		fd, from, err := unix.Accept4(s.fd, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		switch {
		case err == nil:
			cost += callCost
			s.isShort = false
			p.welcome(now, s, fd, from)
		case errors.Is(err, unix.EAGAIN):
			s.readable = false
			return cost
		case isShortage(err):
			// Who waits in the backlog is served when there are descriptors again. No event will
			// tell of that. accept(2) fails so also when nobody waits.
			if !isReadable(s.fd) {
				s.readable = false
				return cost
			}
			if !p.sacrifice() {
				p.rest(now, s, err)
				return cost
			}
		default: // the connection broke while it waited: accept(2) says to go on
			p.counters.add(AcceptErrors, 1)
		}
		if s.state != listening { // the NIC has closed it
			return cost
		}
	}
	return cost
}

// rest lets a listener wait for better times.
func (p *Port) rest(now clock.Time, s *socket, err error) {
	p.counters.add(AcceptPaused, 1)
	p.pause(now, s, acceptPause)
	if !s.isShort && p.config.Warn != nil {
		p.config.Warn("peers wait to be accepted over TCP", fmt.Errorf("tcp: accept: %w", err))
	}
	s.isShort = true
}

// welcome offers a connection to the NIC.
func (p *Port) welcome(now clock.Time, l *socket, fd int, from unix.Sockaddr) {
	a := nic.StreamAccepted{MSS: segmentOf(fd)}
	var zone uint32
	a.Remote, a.Interface = addrOf(from)
	if p.config.DescriptorMax > 0 && fd >= p.config.DescriptorMax || !p.admits(a.Remote) {
		p.refuse(fd)
		return
	}
	a.Local, zone = localOf(fd)
	if a.Interface == 0 {
		a.Interface = zone
	}
	id, wanted := p.handler.HandleAccepted(now, l.id, &a)
	if !wanted {
		p.refuse(fd)
		return
	}
	s := &socket{fd: fd, id: id, state: open, zone: a.Interface}
	s.flow = Flow{ID: id, Local: a.Local, Remote: a.Remote}
	if err := p.admit(s, streamEvents); err != nil {
		p.refuse(fd)
		p.counters.add(Broken, 1)
		p.handler.HandleStreamEnd(now, id, errnoOf(err))
		return
	}
	p.pair(s)
	p.counters.add(Accepted, 1)
	p.opened(s)
}

func (p *Port) refuse(fd int) {
	p.counters.add(AcceptRefused, 1)
	resetOnClose(fd)
	_ = unix.Close(fd)
}

func (p *Port) opened(s *socket) {
	p.settleCongestion(s.fd)
	if t := p.listener(); t != nil {
		t.StreamOpened(&s.flow)
	}
}
