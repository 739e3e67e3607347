package shm

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Pipe makes a pipe for events: the NIC keeps the write end, which never blocks, and hands the
// read end out. Both ends are separate open files, so that nothing the application does to its
// end changes the other's flags.
func Pipe() (read, write int, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return -1, -1, fmt.Errorf("shm: make an event pipe: %w%s", err, remedy(err))
	}
	if err := unix.SetNonblock(p[1], true); err != nil {
		_, _ = unix.Close(p[0]), unix.Close(p[1])
		return -1, -1, fmt.Errorf("shm: make an event pipe nonblocking: %w", err)
	}
	return p[0], p[1], nil
}

// EventFD makes an eventfd that wakes a lane. Whoever holds a copy can read it, so a reader that
// must not lose wake-ups watches it edge-triggered and never reads it.
func EventFD() (int, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return -1, fmt.Errorf("shm: make an eventfd: %w%s", err, remedy(err))
	}
	return fd, nil
}

// kick is the value 1 as an eventfd wants it; both byte orders wake.
var kick = [8]byte{1, 0, 0, 0, 0, 0, 0, 0}

// Kick wakes whoever watches the eventfd. A counter that is full wakes as well.
func Kick(fd int) error {
	for {
		_, err := unix.Write(fd, kick[:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err == nil, errors.Is(err, unix.EAGAIN):
			return nil
		default:
			return fmt.Errorf("shm: wake the lane: %w", err)
		}
	}
}
