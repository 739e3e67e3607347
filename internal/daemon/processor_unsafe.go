package daemon

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// processor returns the number of the processor that the calling thread runs on.
func processor() int {
	var n uint32
	_, _, _ = syscall.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&n)), 0, 0)
	return int(n)
}
