package shm

import (
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// ErrNotSealed is wrapped when a descriptor from an application could be truncated under the NIC,
// or is no memfd of ordinary pages.
var ErrNotSealed = errors.New("not a memfd that is sealed against shrinking (F_SEAL_SHRINK)")

// ErrOutside is wrapped when a range lies outside the memfd.
var ErrOutside = errors.New("range lies outside the memfd")

// Identity tells memfds apart while one of them is mapped.
type Identity struct {
	Device, Inode uint64
}

// Foreign is a memfd that an application made, checked but not mapped.
type Foreign struct {
	Identity
	Size uint64
	fd   int
}

// CheckForeign examines a descriptor from an application. Accepted are memfds of ordinary pages
// that can never become shorter: a truncated file raises SIGBUS in whoever touches the mapping,
// and huge pages do so when the pool runs dry. The descriptor stays the caller's.
func CheckForeign(fd int) (Foreign, error) {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&unix.F_SEAL_SHRINK == 0 {
		return Foreign{}, fmt.Errorf("shm: descriptor of a segment: %w", ErrNotSealed)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || fs.Type != unix.TMPFS_MAGIC {
		return Foreign{}, fmt.Errorf("shm: descriptor of a segment lies on huge pages or an unknown"+
			" file system: %w", ErrNotSealed)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Foreign{}, fmt.Errorf("shm: descriptor of a segment: %w", err)
	}
	if st.Size <= 0 || st.Size > int64(math.MaxInt-pageSize) {
		return Foreign{}, fmt.Errorf("shm: memfd of %d bytes: %w", st.Size, ErrOutside)
	}
	id := Identity{Device: st.Dev, Inode: st.Ino}
	return Foreign{Identity: id, Size: uint64(st.Size), fd: fd}, nil
}

// Covers reports whether n bytes at off exist; it is safe for every off and n.
func (f *Foreign) Covers(off, n uint64) bool { return off <= f.Size && n <= f.Size-off }

// Map maps the whole memfd.
func (f *Foreign) Map(writable bool) (*Memory, error) {
	prot := unix.PROT_READ
	if writable {
		prot |= unix.PROT_WRITE
	}
	data, err := unix.Mmap(f.fd, 0, int(f.Size), prot, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("shm: map a memfd of %d bytes: %w%s", f.Size, err, remedy(err))
	}
	return &Memory{data: data, fd: -1}, nil
}
