package ctl

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Inherit makes a copy of the connection that stays open when this process executes another
// program, which then counts as a program of the NIC until it ends. The copy's descriptor is
// numbered from minFD up, out of the way of programs that use low numbers, if the process may
// have such numbers.
func (c *Client) Inherit(minFD int) (fd int, err error) {
	err = c.conn.control(func(sock int) error {
		fd, err = unix.FcntlInt(uintptr(sock), unix.F_DUPFD, minFD)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EMFILE) {
			fd, err = unix.FcntlInt(uintptr(sock), unix.F_DUPFD, 3) // above the standard streams
		}
		return err
	})
	if err != nil {
		return -1, fmt.Errorf("ctl: copy the connection for another program: %w", err)
	}
	return fd, nil
}
