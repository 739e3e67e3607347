package shm

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// helperMode in the environment turns this test binary into the target process.
const helperMode = "SHM_TEST_HELPER"

// endFirstThread is the mode of a helper whose first thread ends.
const endFirstThread = "end first thread"

// init keeps the main goroutine on the first thread, which helpers may be told to end.
func init() {
	if os.Getenv(helperMode) != "" {
		runtime.LockOSThread()
	}
}

func TestMain(m *testing.M) {
	if os.Getenv(helperMode) == endFirstThread {
		go helper()
		runtime.Gosched()
		_, _, _ = syscall.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
	}
	if os.Getenv(helperMode) != "" {
		helper()
		return
	}
	os.Exit(m.Run())
}

// helper shows a page to its parent and waits to be killed.
func helper() {
	page := make([]byte, 1<<16)
	copy(page, "memory of another process")
	fmt.Printf("%d\n", uintptr(unsafe.Pointer(&page[0])))
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the parent is gone
	runtime.KeepAlive(page)
}

// startHelper returns the process and the address of its page.
func startHelper(t *testing.T, attr *syscall.SysProcAttr) (*exec.Cmd, uint64) {
	t.Helper()
	return startProgram(t, os.Args[0], attr)
}

// publicCopy copies the test binary to where any user may execute it; "go test" builds it in a
// directory that is closed to others.
func publicCopy(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "softrnic-shm-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	content, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "helper")
	if err := os.WriteFile(name, content, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

func startProgram(t *testing.T, name string, attr *syscall.SysProcAttr) (*exec.Cmd, uint64) {
	t.Helper()
	cmd := exec.Command(name)
	cmd.Env = append(os.Environ(), helperMode+"=1")
	cmd.SysProcAttr = attr
	return cmd, startCommand(t, cmd)
}

// startCommand starts a helper and returns the address of its page.
func startCommand(t *testing.T, cmd *exec.Cmd) uint64 {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start a helper process: %v", err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the helper process said nothing: %v", err)
	}
	var addr uint64
	if _, err := fmt.Sscan(line, &addr); err != nil {
		t.Fatal(err)
	}
	return addr
}

func checkAccess(t *testing.T, p *Process, addr uint64) {
	t.Helper()
	if r := p.Probe(addr, 1<<16); r != nil {
		t.Fatalf("probe: %v", r)
	}
	got := make([]byte, 25)
	if !p.Read(addr, got) || string(got) != "memory of another process" {
		t.Fatalf("read %q", got)
	}
	want := strings.Repeat("x", 1<<16)
	if !p.Write(addr, []byte(want)) {
		t.Fatal("write failed")
	}
	all := make([]byte, 1<<16)
	if !p.Read(addr, all) || string(all) != want {
		t.Fatal("what was written does not read back")
	}
	for _, bad := range []uint64{0, 8, 1 << 63, ^uint64(0) - 3} {
		if p.Read(bad, got) || p.Write(bad, got) {
			t.Errorf("access to address %#x succeeded", bad)
		}
		if r := p.Probe(bad, 1); r == nil || r.Errno != unix.EFAULT {
			t.Errorf("probe of %#x: %v, want EFAULT", bad, r)
		}
	}
}

func TestProcess_Stopped_MemoryIsReachable(t *testing.T) {
	cmd, addr := startHelper(t, nil)
	if err := cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p, err := OpenProcess(cmd.Process.Pid, uint32(os.Geteuid()))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	checkAccess(t, p, addr)
}

func TestProcess_FirstThreadEnded_MemoryIsReachable(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperMode+"="+endFirstThread)
	addr := startCommand(t, cmd)
	leader := fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid)
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		stat, err := os.ReadFile(leader)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(stat), ") Z ") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the first thread goes on: %s", stat)
		}
	}
	p, err := OpenProcess(cmd.Process.Pid, uint32(os.Geteuid()))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	checkAccess(t, p, addr)
}

func TestProcess_OtherUser_RootReachesThroughOneAddressSpace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("wants root, to be a NIC that serves other users")
	}
	const nobody = 65534
	cmd, addr := startProgram(t, publicCopy(t), &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: nobody, Gid: nobody},
	})
	p, err := OpenProcess(cmd.Process.Pid, nobody)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.mem < 0 {
		t.Fatal("another user's process is reached by pid")
	}
	checkAccess(t, p, addr)
	if _, err := OpenProcess(cmd.Process.Pid, nobody-1); err == nil {
		t.Error("a process of a third user was opened")
	}
}

func TestProcess_PartlyUnmapped_IsRefusedWhole(t *testing.T) {
	data, err := unix.Mmap(-1, 0, 2*pageSize, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mprotect(data[pageSize:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(data) }()
	p, err := OpenProcess(os.Getpid(), uint32(os.Geteuid()))
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	at := uint64(AddressOf(data)) + uint64(pageSize) - 32
	if p.Read(at, buf) || p.Write(at, buf) {
		t.Error("a range that ends in unmapped memory was accepted")
	}
	if !p.Read(at, buf[:32]) {
		t.Error("the mapped part was not")
	}
	if r := p.Probe(at, 64); r == nil || r.Errno != unix.EFAULT {
		t.Errorf("probe: %v", r)
	}
}

func TestProcess_Gone_ProbeNamesIt(t *testing.T) {
	cmd, addr := startHelper(t, nil)
	fd, err := PidFD(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if ready(t, fd, 0) {
		t.Fatal("pidfd readable while the process lives")
	}
	p, err := OpenProcess(cmd.Process.Pid, uint32(os.Geteuid()))
	if err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	if !ready(t, fd, 5*time.Second) {
		t.Error("pidfd silent about the end of the process")
	}
	_ = cmd.Wait()
	if r := p.Probe(addr, 1); r == nil || r.Errno != unix.ESRCH {
		t.Errorf("probe of a dead process: %v, want ESRCH", r)
	}
	if _, err := OpenProcess(0, 0); err == nil {
		t.Error("pid 0 was opened")
	}
}

// TestProcess_Ended_IsGone: a process that has ended, by either way to its memory, is told from
// one that has unmapped what was asked for.
func TestProcess_Ended_IsGone(t *testing.T) {
	cmd, addr := startHelper(t, nil)
	pid := cmd.Process.Pid
	byCalls, err := OpenProcess(pid, uint32(os.Geteuid()))
	if err != nil {
		t.Fatal(err)
	}
	byFile := &Process{pid: pid}
	byFile.mem, err = unix.Open(fmt.Sprintf("/proc/%d/mem", pid), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer byFile.Close()
	var b [8]byte
	ways := map[string]*Process{"process_vm": byCalls, "/proc/PID/mem": byFile}
	for name, p := range ways {
		if !p.Read(addr, b[:]) || p.Read(1<<12, b[:]) || p.IsGone() {
			t.Errorf("%s: a process that lives is gone: %t", name, p.IsGone())
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	for name, p := range ways {
		if p.Write(addr, b[:]) || !p.IsGone() {
			t.Errorf("%s: a process that ended is gone: %t", name, p.IsGone())
		}
	}
}

func ready(t *testing.T, fd int, wait time.Duration) bool {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, int(wait.Milliseconds()))
	if err != nil {
		t.Fatal(err)
	}
	return n == 1
}

func TestProcess_Transfer_DoesNotAllocate(t *testing.T) {
	p, err := OpenProcess(os.Getpid(), uint32(os.Geteuid()))
	if err != nil {
		t.Fatal(err)
	}
	src, dst := make([]byte, 4096), make([]byte, 4096)
	addr := uint64(AddressOf(src))
	if n := testing.AllocsPerRun(100, func() {
		if !p.Read(addr, dst) || !p.Write(addr, dst) {
			t.Fatal("access failed")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	runtime.KeepAlive(src)
}

func TestPipe_Full_DoesNotBlock(t *testing.T) {
	read, write, err := Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = unix.Close(read), unix.Close(write) }()
	// What the application does to its end leaves ours alone.
	if err := unix.SetNonblock(read, false); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := unix.Write(write, make([]byte, 4096)); err != nil {
			if err != unix.EAGAIN {
				t.Fatal(err)
			}
			break
		}
	}
}

func TestEventFD_EachKick_IsAnEdge(t *testing.T) {
	fd, err := EventFD()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(ep) }()
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET}
	if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		t.Fatal(err)
	}
	out := make([]unix.EpollEvent, 1)
	for i := range 3 {
		if err := Kick(fd); err != nil {
			t.Fatal(err)
		}
		if n, err := unix.EpollWait(ep, out, 1000); n != 1 || err != nil {
			t.Fatalf("kick %d: %d events, %v", i, n, err)
		}
		if n, _ := unix.EpollWait(ep, out, 0); n != 0 {
			t.Fatalf("kick %d woke twice", i)
		}
	}
}

func BenchmarkProcess_Read(b *testing.B) {
	p, err := OpenProcess(os.Getpid(), uint32(os.Geteuid()))
	if err != nil {
		b.Fatal(err)
	}
	for _, size := range []int{64, 4096, 65536} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			src, dst := make([]byte, size), make([]byte, size)
			b.SetBytes(int64(size))
			for b.Loop() {
				if !p.Read(uint64(AddressOf(src)), dst) {
					b.Fatal("read failed")
				}
			}
			runtime.KeepAlive(src)
		})
	}
}
