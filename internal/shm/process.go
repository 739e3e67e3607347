package shm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/rdma"
)

var pageSize = os.Getpagesize()

// Process is the memory of one process, by its own addresses (mem.Space).
//
// A process of our own user is reached with process_vm_readv and process_vm_writev: the kernel
// checks at every call that we may. A process of another user is reached through its /proc/PID/mem,
// opened once and checked after: that descriptor is tied to the address space it was opened on.
// With process_vm a NIC that runs as root would follow the pid into a set-user-id program that the
// application executes, and write there for it.
type Process struct {
	pid int
	mem int // descriptor of /proc/PID/mem, or −1 for process_vm
	uid uint32
	// thread is the one of the process by which process_vm reaches it: the first, until that ends.
	thread atomic.Int64
	isGone atomic.Bool // an access has found no process
}

// ErrNoProcess is wrapped when the peer of a connection is not visible from here.
var ErrNoProcess = errors.New("the process is not visible from the NIC's PID namespace")

// OpenProcess prepares access to the memory of a process whose user the socket has told. Whether
// access is possible shows at Probe.
func OpenProcess(pid int, uid uint32) (*Process, error) {
	p := &Process{pid: pid, mem: -1, uid: uid}
	if pid <= 0 {
		return nil, fmt.Errorf("shm: memory of pid %d: %w", pid, ErrNoProcess)
	}
	p.thread.Store(int64(pid))
	if uid == uint32(os.Geteuid()) {
		return p, nil
	}
	dir := "/proc/" + strconv.Itoa(pid)
	fd, err := unix.Open(dir+"/mem", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("shm: open %s/mem: %w", dir, err)
	}
	p.mem = fd
	// The files of a process that has executed a set-user-id program, or has given privileges up,
	// belong to root. What was opened before that is the old address space, so check after.
	var st unix.Stat_t
	if err := unix.Stat(dir+"/status", &st); err != nil || st.Uid != uid {
		p.Close()
		return nil, fmt.Errorf("shm: %s is not a plain process of uid %d: %w", dir, uid, unix.EPERM)
	}
	return p, nil
}

// followThreads bounds how many threads one access tries.
const followThreads = 4

// follow turns to another thread when the one that stood for the process has ended: a program may
// end its first thread and go on, and the kernel then knows no memory by that number. It reports
// false when there is no other.
func (p *Process) follow() bool {
	dir, err := os.Open("/proc/" + strconv.Itoa(p.pid) + "/task")
	if err != nil {
		return false
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(2 * followThreads)
	if err != nil {
		return false
	}
	ended := p.thread.Load()
	for _, name := range names {
		thread, err := strconv.ParseInt(name, 10, 64)
		if err == nil && thread != ended && isAlive(filepath.Join(dir.Name(), name)) {
			p.thread.Store(thread)
			return true
		}
	}
	return false
}

// isAlive reports whether the thread with this directory has memory still.
func isAlive(thread string) bool {
	maps, err := os.ReadFile(filepath.Join(thread, "statm"))
	return err == nil && !strings.HasPrefix(string(maps), "0 ")
}

// Close gives the access up.
func (p *Process) Close() {
	if p.mem >= 0 {
		_ = unix.Close(p.mem)
		p.mem = -1
	}
}

// Read copies from the process. It reports false unless all of it was read.
func (p *Process) Read(addr uint64, dst []byte) bool { return p.transfer(addr, dst, false) == 0 }

// Write copies into the process. It reports false unless all of it was written.
func (p *Process) Write(addr uint64, src []byte) bool { return p.transfer(addr, src, true) == 0 }

// IsGone implements mem.Space: it reports whether an access has found that the process has ended.
func (p *Process) IsGone() bool { return p.isGone.Load() }

// Probe tells whether a range can be read, by its first and last byte, and refuses with the
// remedy if not: memory that turns out to be unreachable only when a peer writes to it costs its
// user days.
func (p *Process) Probe(addr, length uint64) *rdma.Refusal {
	if length == 0 {
		return nil
	}
	var b [1]byte
	for _, at := range [...]uint64{addr, addr + length - 1} {
		if errno := p.transfer(at, b[:], false); errno != 0 {
			return p.explain(at, errno)
		}
	}
	return nil
}

// explain turns an errno of process_vm_readv(2) into what the user can do.
func (p *Process) explain(addr uint64, errno syscall.Errno) *rdma.Refusal {
	switch errno {
	case unix.EPERM, unix.EACCES:
		return rdma.Refuse(errno, p.whyForbidden())
	case unix.ESRCH:
		return rdma.Refuse(errno, fmt.Sprintf("process %d is gone", p.pid))
	case unix.ENOSYS:
		return rdma.Refuse(errno, "this kernel has no process_vm_readv (CONFIG_CROSS_MEMORY_ATTACH):"+
			" register memory that was allocated as mapped memory")
	}
	return rdma.Refuse(unix.EFAULT, fmt.Sprintf("address %#x is not readable memory of process %d",
		addr, p.pid))
}

func (p *Process) whyForbidden() string {
	who := fmt.Sprintf("the NIC (uid %d) may not access the memory of process %d (uid %d)",
		os.Geteuid(), p.pid, p.uid)
	if p.uid != uint32(os.Geteuid()) {
		return who + ": start a NIC as that user, or the NIC as root, or use mapped memory"
	}
	scope, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	if level := strings.TrimSpace(string(scope)); err == nil && level != "0" {
		return who + ": Yama forbids it (kernel.yama.ptrace_scope=" + level + "); the program may" +
			" call prctl(PR_SET_PTRACER, NIC's pid), or run sysctl kernel.yama.ptrace_scope=0," +
			" or use mapped memory"
	}
	return who + ": it is set-user-id, not dumpable, or a sandbox forbids process_vm_readv; use" +
		" mapped memory"
}

// PidFD returns a descriptor that becomes readable when the process ends.
func PidFD(pid int) (int, error) {
	if pid <= 0 {
		return -1, fmt.Errorf("shm: watch pid %d: %w", pid, ErrNoProcess)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return -1, fmt.Errorf("shm: watch pid %d: %w", pid, err)
	}
	return fd, nil
}
