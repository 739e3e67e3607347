package daemon

import (
	"errors"
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
// clock.Never stands for no timeout. It does not allocate.
func epollWait(fd int, events []unix.EpollEvent, timeout clock.Time) (int, error) {
	if timeout == clock.Never {
		return waitMillis(fd, events, -1)
	}
	if timeout <= 0 {
		return waitMillis(fd, events, 0)
	}
	if !withoutPwait2.Load() {
		spec := unix.NsecToTimespec(int64(timeout))
		n, _, errno := syscall.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(fd),
			uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)),
			uintptr(unsafe.Pointer(&spec)), 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
			return 0, nil
		case unix.ENOSYS, unix.EPERM: // EPERM: a seccomp filter older than the call
			withoutPwait2.Store(true)
		default:
			return 0, fmt.Errorf("daemon: epoll_pwait2: %w", errno)
		}
	}
	const most = clock.Time(time.Hour)
	return waitMillis(fd, events, int((min(timeout, most)+999999)/1000000))
}

func waitMillis(fd int, events []unix.EpollEvent, millis int) (int, error) {
	n, err := unix.EpollWait(fd, events, millis)
	if errors.Is(err, unix.EINTR) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("daemon: epoll_wait: %w", err)
	}
	return n, nil
}

// yield lets another thread that is ready run on this processor.
func yield() { _, _, _ = syscall.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
