package verbs

import (
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// pause lets others run: goroutines of this program, which may be the NIC's lane, and other
// processes, which may be the NIC or the peer. On a machine with few processors a program that
// polls without it keeps the one that would fill its queue from running.
func pause() {
	runtime.Gosched()
	// sched_yield cannot fail, and does not block, so the scheduler need not know of it.
	_, _, _ = syscall.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
}
