//go:build linux

package udp

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The raw system calls below do not tell the Go scheduler that they block, because none does:
// every one carries MSG_DONTWAIT or a zero timeout, and the number of bytes a call may move is
// bounded by its arrays. A lane that spins would otherwise lose its processor at each call.

// mmsghdr is struct mmsghdr of recvmmsg(2).
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32 // bytes received
}

// recvMessages is recvmmsg(2) without waiting.
func recvMessages(fd int, messages []mmsghdr) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd),
		uintptr(unsafe.Pointer(&messages[0])), uintptr(len(messages)), unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}

// sendMessages is sendmmsg(2) without waiting. After a failure it returns the number of messages
// that went before, if there were any, and the error next time.
func sendMessages(fd int, messages []mmsghdr) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd),
		uintptr(unsafe.Pointer(&messages[0])), uintptr(len(messages)), unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}

// recvError is recvmsg(2) from the error queue.
func recvError(fd int, message *unix.Msghdr) unix.Errno {
	_, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, uintptr(fd),
		uintptr(unsafe.Pointer(message)), unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	return errno
}

// pollNow is ppoll(2) with a zero timeout.
func pollNow(fds []unix.PollFd) (int, unix.Errno) {
	var zero unix.Timespec
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds[0])),
		uintptr(len(fds)), uintptr(unsafe.Pointer(&zero)), 0, 0, 0)
	return int(n), errno
}

// isBehind reports that b begins where a ends. Neither is empty, and both live.
func isBehind(a, b []byte) bool {
	return uintptr(unsafe.Pointer(&a[0]))+uintptr(len(a)) == uintptr(unsafe.Pointer(&b[0]))
}
