package shm

import (
	"bytes"
	"errors"
	"os"
	"runtime/debug"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func testMemory(t *testing.T, bytes int) *Memory {
	t.Helper()
	m, err := Create("rnic-test", bytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Release)
	return m
}

func dup(t *testing.T, fd int) int {
	t.Helper()
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestMemory_TwoMappings_ShareBytes(t *testing.T) {
	m := testMemory(t, 8192)
	other, err := Open(dup(t, m.FD()), 8192, true)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Release()
	m.Bytes()[8191] = 0x5a
	if other.Bytes()[8191] != 0x5a {
		t.Error("a write through one mapping does not show in the other")
	}
	m.CloseFD()
	other.Bytes()[0] = 7
	if m.Bytes()[0] != 7 {
		t.Error("mapping dead after CloseFD")
	}
}

func TestMemory_Sealed_CannotChangeSize(t *testing.T) {
	m := testMemory(t, 8192)
	for _, size := range []int64{0, 4096, 16384} {
		if err := unix.Ftruncate(m.FD(), size); !errors.Is(err, unix.EPERM) {
			t.Errorf("truncate to %d: %v, want EPERM", size, err)
		}
	}
	_, err := unix.FcntlInt(uintptr(m.FD()), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE)
	if err == nil {
		t.Error("the other side could add a seal")
	}
}

func TestMemory_ReadOnly_OnlyOwnerWrites(t *testing.T) {
	m, err := CreateReadOnly("rnic-test", 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Release()
	if _, err := Open(dup(t, m.FD()), 4096, true); !errors.Is(err, unix.EPERM) {
		t.Errorf("writable mapping of a read-only page: %v", err)
	}
	if _, err := unix.Pwrite(m.FD(), []byte{1}, 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("write to a read-only page: %v", err)
	}
	punch := uint32(unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE)
	if err := unix.Fallocate(m.FD(), punch, 0, 4096); !errors.Is(err, unix.EPERM) {
		t.Errorf("hole in a read-only page: %v", err)
	}
	view, err := Open(dup(t, m.FD()), 4096, false)
	if err != nil {
		t.Fatal(err)
	}
	defer view.Release()
	m.Bytes()[3] = 9
	if view.Bytes()[3] != 9 {
		t.Error("the reader does not see the owner's write")
	}
}

func TestMemory_OpenTooShort_IsRefused(t *testing.T) {
	m := testMemory(t, 4096)
	if _, err := Open(dup(t, m.FD()), 8192, true); err == nil {
		t.Error("mapped more than there is")
	}
	if _, err := Create("rnic-test", 0); err == nil {
		t.Error("made memory of no bytes")
	}
}

func TestCreateFilled_ReadAll_SameAndImmutable(t *testing.T) {
	want := bytes.Repeat([]byte("softrnic"), 5000)
	fd, err := CreateFilled("rnic-status", want)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Pwrite(fd, []byte{1}, 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("write to a filled memfd: %v", err)
	}
	if short, err := ReadAll(dup(t, fd), 16); err != nil || !bytes.Equal(short, want[:16]) {
		t.Errorf("limited read: %q, %v", short, err)
	}
	got, err := ReadAll(fd, 1<<20)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// memfdWith makes a memfd the way a hostile or careless application would.
func memfdWith(t *testing.T, size int64, flags, seals int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("rnic-test", flags)
	if err != nil {
		t.Skipf("memfd_create with flags %#x: %v", flags, err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	if seals != 0 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
			t.Fatal(err)
		}
	}
	return fd
}

func TestCheckForeign_Unsafe_IsRefused(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "plain")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	read, write, err := Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = unix.Close(read), unix.Close(write) }()
	for name, fd := range map[string]int{
		"plain file": int(file.Fd()),
		"pipe":       read,
		"closed":     1 << 20,
		"no seal":    memfdWith(t, 8192, unix.MFD_ALLOW_SEALING, 0),
		"other seal": memfdWith(t, 8192, unix.MFD_ALLOW_SEALING, unix.F_SEAL_GROW),
	} {
		if _, err := CheckForeign(fd); !errors.Is(err, ErrNotSealed) {
			t.Errorf("%s: %v, want ErrNotSealed", name, err)
		}
	}
	empty := memfdWith(t, 0, unix.MFD_ALLOW_SEALING, unix.F_SEAL_SHRINK)
	if _, err := CheckForeign(empty); !errors.Is(err, ErrOutside) {
		t.Errorf("empty memfd: %v", err)
	}
}

func TestCheckForeign_HugePages_AreRefused(t *testing.T) {
	fd := memfdWith(t, 2<<20, unix.MFD_ALLOW_SEALING|unix.MFD_HUGETLB, unix.F_SEAL_SHRINK)
	if _, err := CheckForeign(fd); !errors.Is(err, ErrNotSealed) {
		t.Errorf("huge pages: %v, want ErrNotSealed", err)
	}
}

func TestForeign_Sealed_MapsAndCovers(t *testing.T) {
	fd := memfdWith(t, 10000, unix.MFD_ALLOW_SEALING, unix.F_SEAL_SHRINK)
	f, err := CheckForeign(fd)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		off, n uint64
		want   bool
	}{
		{0, 10000, true},
		{9999, 1, true},
		{10000, 0, true},
		{0, 10001, false},
		{9999, 2, false},
		{10001, 0, false},
		{^uint64(0), 1, false},
		{1, ^uint64(0), false},
		{5, ^uint64(0) - 4, false},
	} {
		if f.Covers(c.off, c.n) != c.want {
			t.Errorf("Covers(%d, %d) = %v", c.off, c.n, !c.want)
		}
	}
	m, err := f.Map(true)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Release()
	m.Bytes()[9999] = 3
	var b [1]byte
	if _, err := unix.Pread(fd, b[:], 9999); err != nil || b[0] != 3 {
		t.Errorf("file has %d, %v", b[0], err)
	}
}

func TestForeign_WriteSealed_MapsForReadingOnly(t *testing.T) {
	fd := memfdWith(t, 4096, unix.MFD_ALLOW_SEALING, unix.F_SEAL_SHRINK|unix.F_SEAL_WRITE)
	f, err := CheckForeign(fd)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Map(true); err == nil {
		t.Error("mapped for writing what is sealed against it")
	}
	m, err := f.Map(false)
	if err != nil {
		t.Fatal(err)
	}
	m.Release()
}

// The second line of defence of a lane: should a mapping fault in spite of the seals, the copy
// panics with the address instead of ending the process.
func TestMapping_Truncated_FaultIsAPanicWithTheAddress(t *testing.T) {
	fd := memfdWith(t, 8192, 0, 0)
	data, err := unix.Mmap(fd, 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(data) }()
	if err := unix.Ftruncate(fd, 4096); err != nil {
		t.Fatal(err)
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		fault, ok := recover().(interface{ Addr() uintptr })
		if !ok {
			t.Fatal("no fault with an address")
		}
		if at := fault.Addr(); at < AddressOf(data)+4096 || at >= AddressOf(data)+8192 {
			t.Errorf("fault at %#x, outside the page that is gone", at)
		}
	}()
	copy(data[4096:], make([]byte, 4096))
	t.Error("the write did not fault")
}

// A process that may write no file is refused; the kernel would end it.
func TestMemory_NoFileAllowed_NamesTheRemedy(t *testing.T) {
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	_, err := Create("rnic-test", 4096)
	_, errFilled := CreateFilled("rnic-test", []byte{1})
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{err, errFilled} {
		if !errors.Is(err, unix.EFBIG) || !strings.Contains(err.Error(), "ulimit -f") {
			t.Errorf("%v", err)
		}
	}
}
