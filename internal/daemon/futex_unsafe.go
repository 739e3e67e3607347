package daemon

import (
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Operations of futex(2), on a word that no other process sees.
const (
	futexWaitPrivate = 128
	futexWakePrivate = 129
)

// futexWait sleeps while the word is 0. It returns at a wake, and now and then without one.
func futexWait(word *atomic.Uint32) {
	_, _, _ = syscall.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWaitPrivate,
		0, 0, 0, 0)
}

// futexWake wakes one thread that sleeps on the word.
func futexWake(word *atomic.Uint32) {
	_, _, _ = syscall.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWakePrivate,
		1, 0, 0, 0)
}
