package ctl

import "golang.org/x/sys/unix"

// NameOf returns the name that a Unix socket is bound to, or "" where it has none or fd is no such
// socket.
func NameOf(fd int) string {
	address, err := unix.Getsockname(fd)
	if err != nil {
		return ""
	}
	return nameIn(address)
}

// PeerName returns the name that the other end is bound to, or "". The kernel sees to it that no
// two sockets of a network namespace have one name at a time.
func (c *Conn) PeerName() string {
	name := ""
	_ = c.control(func(fd int) error {
		address, err := unix.Getpeername(fd)
		if err == nil {
			name = nameIn(address)
		}
		return err
	})
	return name
}

func nameIn(address unix.Sockaddr) string {
	if u, ok := address.(*unix.SockaddrUnix); ok {
		return u.Name
	}
	return ""
}
