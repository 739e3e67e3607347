package ctl

import (
	"errors"
	"strconv"

	"golang.org/x/sys/unix"
)

// Names that the kernel chooses for sockets that are bound without one: a zero byte and five
// hexadecimal digits (unix(7), autobind).
const autobindBytes = 6

// NameOf returns what no other socket of the host is called while fd is open, and PeerName returns
// at the other end of its connection; "" where fd is no Unix socket that the kernel has chosen a
// name for.
func NameOf(fd int) string { return fullName(unix.SYS_GETSOCKNAME, fd) }

// PeerName returns what NameOf returns for the other end.
func (c *Conn) PeerName() string {
	name := ""
	_ = c.control(func(fd int) error {
		name = fullName(unix.SYS_GETPEERNAME, fd)
		return nil
	})
	return name
}

// fullName puts the network namespace, in which the kernel sees to it that no two sockets have one
// name at a time, in front of the name. Both ends of a Unix connection lie in that of the end that
// connected. Kernels before 5.14 do not tell it: then there is no name.
func fullName(call uintptr, fd int) string {
	name, err := rawName(call, fd)
	if err != nil || len(name) != autobindBytes || name[0] != 0 {
		return ""
	}
	namespace, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return ""
	}
	return strconv.FormatUint(namespace, 16) + name
}

// HasHungUp reports that the other end is closed: its name may be another's by now.
func (c *Conn) HasHungUp() bool {
	gone := true
	_ = c.control(func(fd int) error {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		for {
			_, err := unix.Poll(p, 0)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			gone = err != nil || p[0].Revents&(unix.POLLHUP|unix.POLLRDHUP|unix.POLLERR) != 0
			return err
		}
	})
	return gone
}
