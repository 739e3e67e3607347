//go:build linux

package tcp

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The raw system calls below do not tell the Go scheduler that they block, because none does:
// every one carries MSG_DONTWAIT, and the number of bytes that it moves is bounded by its arrays.
// A lane that spins would otherwise lose its processor at each call.

// sendPieces is sendmsg(2) without waiting and without SIGPIPE.
func sendPieces(fd int, message *unix.Msghdr) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd),
		uintptr(unsafe.Pointer(message)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	return int(n), errno
}

// receivePieces is recvmsg(2) without waiting.
func receivePieces(fd int, message *unix.Msghdr) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, uintptr(fd),
		uintptr(unsafe.Pointer(message)), unix.MSG_DONTWAIT)
	return int(n), errno
}

// receive is recvfrom(2) without waiting, of one buffer.
func receive(fd int, b []byte, flags int) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd),
		uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(unix.MSG_DONTWAIT|flags), 0, 0)
	return int(n), errno
}

// pieces is the array of a vectored call.
type pieces struct {
	message unix.Msghdr
	iovecs  []unix.Iovec
}

func newPieces(most int) *pieces { return &pieces{iovecs: make([]unix.Iovec, 0, most)} }

// put appends bytes and reports whether there was room.
func (p *pieces) put(b []byte) bool {
	if len(p.iovecs) == cap(p.iovecs) {
		return false
	}
	if len(b) > 0 {
		v := unix.Iovec{Base: &b[0]}
		v.SetLen(len(b))
		p.iovecs = append(p.iovecs, v)
	}
	return true
}

// ready returns the message that names what was put.
func (p *pieces) ready() *unix.Msghdr {
	p.message = unix.Msghdr{Iov: unsafe.SliceData(p.iovecs)}
	p.message.SetIovlen(len(p.iovecs))
	return &p.message
}

// reset drops the pointers: memory of an application may be unmapped next, and the garbage
// collector must not meet its addresses when they belong to something else.
func (p *pieces) reset() {
	clear(p.iovecs)
	p.iovecs = p.iovecs[:0]
	p.message = unix.Msghdr{}
}

// bytesOf returns what an iovec names.
func bytesOf(v *unix.Iovec) []byte { return unsafe.Slice(v.Base, int(v.Len)) }
