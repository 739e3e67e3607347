package ctl

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// rawName returns the address of a socket as the kernel has it: package unix cuts names at a zero
// byte, which may stand in the middle of one, and gives sockets without a name the name "@".
func rawName(call uintptr, fd int) (name string, err error) {
	var address unix.RawSockaddrUnix
	size := uint32(unsafe.Sizeof(address))
	_, _, errno := unix.Syscall(call, uintptr(fd), uintptr(unsafe.Pointer(&address)),
		uintptr(unsafe.Pointer(&size)))
	if errno != 0 {
		return "", errno
	}
	const family = uint32(unsafe.Offsetof(address.Path))
	if address.Family != unix.AF_UNIX || size < family || size > uint32(unsafe.Sizeof(address)) {
		return "", nil
	}
	path := unsafe.Slice((*byte)(unsafe.Pointer(&address.Path[0])), size-family)
	return string(path), nil
}
