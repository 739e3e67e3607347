package shm

import (
	"errors"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// transfer moves all of buf from or to addr of the process; 0 is success. It does not allocate,
// which is why it is not unix.ProcessVMReadv.
//
// buf is ours alone during the call; the other side is a foreign process and may change under the
// copy, as it may with hardware.
func (p *Process) transfer(addr uint64, buf []byte, write bool) syscall.Errno {
	if len(buf) == 0 {
		return 0
	}
	if uint64(uintptr(addr)) != addr {
		return unix.EFAULT
	}
	for tries := 0; ; {
		n, errno := p.move(addr, buf, write)
		switch {
		case errno == unix.EINTR:
		case errno == unix.ESRCH && tries < followThreads && p.follow():
			tries++
		case errno == unix.ESRCH:
			p.isGone.Store(true)
			return errno
		case errno != 0:
			return errno
		case n != len(buf):
			return unix.EFAULT
		default:
			return 0
		}
	}
}

func (p *Process) move(addr uint64, buf []byte, write bool) (int, syscall.Errno) {
	var n int
	var err error
	switch {
	case p.mem >= 0 && write:
		n, err = syscall.Pwrite(p.mem, buf, int64(addr))
	case p.mem >= 0:
		n, err = syscall.Pread(p.mem, buf, int64(addr))
	case write:
		return vectored(unix.SYS_PROCESS_VM_WRITEV, uintptr(p.thread.Load()), buf, addr)
	default:
		return vectored(unix.SYS_PROCESS_VM_READV, uintptr(p.thread.Load()), buf, addr)
	}
	if err != nil {
		var errno syscall.Errno
		_ = errors.As(err, &errno) // package syscall returns nothing else
		return 0, errno
	}
	if n == 0 {
		// Nothing at all, and no reason: the address space that was opened is no more.
		return 0, unix.ESRCH
	}
	return n, 0
}

func vectored(call, pid uintptr, buf []byte, addr uint64) (int, syscall.Errno) {
	local := unix.Iovec{Base: &buf[0]}
	local.SetLen(len(buf))
	remote := unix.RemoteIovec{Base: uintptr(addr), Len: len(buf)}
	n, _, errno := syscall.Syscall6(call, pid, uintptr(unsafe.Pointer(&local)), 1,
		uintptr(unsafe.Pointer(&remote)), 1, 0)
	return int(n), errno
}
