package shm

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Seals that every memfd of ours carries: nobody can change its size, so that no access to the
// mapping can fault, and nobody can add a seal that would take rights away from the other side.
const sizeSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// Memory is one mapped memfd. Its methods are not safe for concurrent use; the bytes are shared by
// nature.
type Memory struct {
	data []byte
	fd   int // −1 once closed
}

// Create makes zeroed shared memory, mapped for reading and writing. The name shows in
// /proc/PID/maps.
func Create(name string, bytes int) (*Memory, error) {
	return create(name, bytes, sizeSeals)
}

// CreateReadOnly is Create for memory that only this process, through this mapping, can write:
// whoever gets the descriptor can map it for reading only.
func CreateReadOnly(name string, bytes int) (*Memory, error) {
	// FUTURE_WRITE leaves the mapping that exists at the time of sealing writable.
	return create(name, bytes, sizeSeals|unix.F_SEAL_FUTURE_WRITE)
}

func create(name string, bytes, seals int) (*Memory, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("shm: %d bytes of shared memory asked for", bytes)
	}
	if err := checkFileSize(bytes); err != nil {
		return nil, err
	}
	fd, err := memfd(name)
	if err != nil {
		return nil, fmt.Errorf("shm: memfd_create: %w%s", err, remedy(err))
	}
	m := &Memory{fd: fd}
	if err := unix.Ftruncate(fd, int64(bytes)); err != nil {
		m.Release()
		return nil, fmt.Errorf("shm: size shared memory to %d bytes: %w", bytes, err)
	}
	m.data, err = unix.Mmap(fd, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		m.Release()
		return nil, fmt.Errorf("shm: map %d bytes of shared memory: %w%s", bytes, err, remedy(err))
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		m.Release()
		return nil, fmt.Errorf("shm: seal shared memory (kernels before 5.1 cannot): %w", err)
	}
	return m, nil
}

// withoutNoexec remembers that this kernel (before 6.3) knows no MFD_NOEXEC_SEAL. Newer ones warn,
// or by sysctl vm.memfd_noexec refuse, when it is missing.
var withoutNoexec atomic.Bool

func memfd(name string) (int, error) {
	flags := unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	if !withoutNoexec.Load() {
		fd, err := unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
		if !errors.Is(err, unix.EINVAL) {
			return fd, err
		}
		withoutNoexec.Store(true)
	}
	return unix.MemfdCreate(name, flags)
}

// checkFileSize refuses what the process may not have. A file that is made larger than it may be
// would not just fail: the kernel sends SIGXFSZ, which ends the process.
func checkFileSize(bytes int) error {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_FSIZE, &limit) != nil || limit.Cur >= uint64(bytes) {
		return nil
	}
	return fmt.Errorf("shm: %d bytes of shared memory: %w (raise the limit on the size of files:"+
		" ulimit -f)", bytes, unix.EFBIG)
}

// remedy says what an operator can do about a full table.
func remedy(err error) string {
	switch {
	case errors.Is(err, unix.EMFILE):
		return " (raise the limit on open files: ulimit -n)"
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOSYS):
		return " (a seccomp filter or a security module forbids it)"
	case errors.Is(err, unix.ENOMEM):
		return " (memory, or the limit sysctl vm.max_map_count, is used up)"
	}
	return ""
}

// CreateFilled makes a memfd that holds content and that nobody can ever change. It is not mapped.
func CreateFilled(name string, content []byte) (fd int, err error) {
	if err := checkFileSize(len(content)); err != nil {
		return -1, err
	}
	fd, err = memfd(name)
	if err != nil {
		return -1, fmt.Errorf("shm: memfd_create: %w%s", err, remedy(err))
	}
	for rest := content; len(rest) > 0 && err == nil; {
		var n int
		n, err = unix.Write(fd, rest)
		rest = rest[max(n, 0):]
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, sizeSeals|unix.F_SEAL_WRITE)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("shm: fill a memfd: %w", err)
	}
	return fd, nil
}

// ReadAll returns the content of a memfd made with CreateFilled and closes it. At most limit bytes
// are read.
func ReadAll(fd, limit int) ([]byte, error) {
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("shm: %w", err)
	}
	content := make([]byte, min(st.Size, int64(limit)))
	for read := 0; read < len(content); {
		n, err := unix.Pread(fd, content[read:], int64(read))
		if err != nil {
			return nil, fmt.Errorf("shm: read a memfd: %w", err)
		}
		if n == 0 {
			return content[:read], nil
		}
		read += n
	}
	return content, nil
}

// Open maps the first bytes of a descriptor that somebody trusted made, and takes the descriptor
// over: it is closed, also on error.
func Open(fd, bytes int, writable bool) (*Memory, error) {
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("shm: shared memory received: %w", err)
	}
	if bytes <= 0 || st.Size < int64(bytes) {
		return nil, fmt.Errorf("shm: shared memory received has %d bytes, not %d", st.Size, bytes)
	}
	prot := unix.PROT_READ
	if writable {
		prot |= unix.PROT_WRITE
	}
	data, err := unix.Mmap(fd, 0, bytes, prot, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("shm: map %d bytes of shared memory: %w%s", bytes, err, remedy(err))
	}
	return &Memory{data: data, fd: -1}, nil
}

// Bytes returns the mapping; it is valid until Release.
func (m *Memory) Bytes() []byte { return m.data }

// FD returns the descriptor, which Memory keeps, or −1 after CloseFD.
func (m *Memory) FD() int { return m.fd }

// CloseFD closes the descriptor once it has been handed out; the mapping stays.
func (m *Memory) CloseFD() {
	if m.fd >= 0 {
		_ = unix.Close(m.fd)
		m.fd = -1
	}
}

// Release unmaps the memory and closes the descriptor. Twice is once.
func (m *Memory) Release() {
	m.CloseFD()
	if m.data != nil {
		if err := unix.Munmap(m.data); err != nil {
			panic(os.NewSyscallError("shm: munmap of our own mapping", err))
		}
		m.data = nil
	}
}

// TakeFD returns the descriptor, whose owner the caller becomes; −1 when it was closed or taken.
func (m *Memory) TakeFD() int {
	fd := m.fd
	m.fd = -1
	return fd
}
