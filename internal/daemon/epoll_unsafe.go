package daemon

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/clock"
)

// withoutPwait2 remembers a kernel before 5.11, whose epoll counts milliseconds: then a timer is
// up to one millisecond late.
var withoutPwait2 atomic.Bool

// epollWait waits for events until the timeout, which is exact to the kernel's timer slack;
// clock.Never stands for no timeout. It does not allocate. With quiet the runtime does not learn
// that the thread waits (see lane.waitsQuietly).
func epollWait(fd int, events []unix.EpollEvent, timeout clock.Time, quiet bool) (int, error) {
	if timeout == clock.Never {
		return waitMillis(fd, events, -1, quiet)
	}
	if timeout <= 0 {
		return waitMillis(fd, events, 0, true)
	}
	if !withoutPwait2.Load() {
		spec := unix.NsecToTimespec(int64(timeout))
		n, errno := pwait2(fd, events, &spec, quiet)
		switch errno {
		case 0:
			return n, nil
		case unix.EINTR:
			return 0, nil
		case unix.ENOSYS, unix.EPERM: // EPERM: a seccomp filter older than the call
			withoutPwait2.Store(true)
		default:
			return 0, fmt.Errorf("daemon: epoll_pwait2: %w", errno)
		}
	}
	const most = clock.Time(time.Hour)
	return waitMillis(fd, events, int((min(timeout, most)+999999)/1000000), quiet)
}

func waitMillis(fd int, events []unix.EpollEvent, millis int, quiet bool) (int, error) {
	n, errno := pwait(fd, events, millis, quiet)
	switch errno {
	case 0:
		return n, nil
	case unix.EINTR:
		return 0, nil
	default:
		return 0, fmt.Errorf("daemon: epoll_pwait: %w", errno)
	}
}

func pwait2(fd int, events []unix.EpollEvent, timeout *unix.Timespec, quiet bool) (
	int, syscall.Errno,
) {
	var n uintptr
	var errno syscall.Errno
	if quiet {
		n, _, errno = syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT2, uintptr(fd),
			uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)),
			uintptr(unsafe.Pointer(timeout)), 0, 0)
	} else {
		n, _, errno = syscall.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(fd),
			uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)),
			uintptr(unsafe.Pointer(timeout)), 0, 0)
	}
	return int(n), errno
}

func pwait(fd int, events []unix.EpollEvent, millis int, quiet bool) (int, syscall.Errno) {
	var n uintptr
	var errno syscall.Errno
	if quiet {
		n, _, errno = syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(fd),
			uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), uintptr(millis), 0, 0)
	} else {
		n, _, errno = syscall.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(fd),
			uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), uintptr(millis), 0, 0)
	}
	return int(n), errno
}

// yield lets another thread that is ready run on this processor.
func yield(quiet bool) {
	if quiet {
		_, _, _ = syscall.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	} else {
		_, _, _ = syscall.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	}
}
