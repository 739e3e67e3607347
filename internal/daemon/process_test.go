package daemon_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/daemon"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/verbs"
)

// These tests run the test binary again as another process: a program on the NIC, or a NIC.

const roleEnv = "DAEMON_TEST_ROLE"

func TestMain(m *testing.M) {
	var err error
	switch role := os.Getenv(roleEnv); role {
	case "":
		os.Exit(m.Run())
	case "target":
		err = roleTarget()
	case "busy":
		err = roleBusy()
	case "parent":
		err = roleParent()
	case "nic":
		err = roleNIC()
	default:
		err = fmt.Errorf("unknown role %q", role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// process is another process in a role.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	role string
}

func startProcess(t *testing.T, role string, env ...string) *process {
	t.Helper()
	p := &process{t: t, role: role, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(append(os.Environ(), roleEnv+"="+role), env...)
	p.cmd.Stderr = testLog{t}
	var err1, err2 error
	var out io.ReadCloser
	p.in, err1 = p.cmd.StdinPipe()
	out, err2 = p.cmd.StdoutPipe()
	p.out = bufio.NewReader(out)
	if err := errors.Join(err1, err2, p.cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return p
}

// kill ends the process as nothing else can. Twice is once.
func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

func (p *process) line() string {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatalf("process %s said %q, %v", p.role, line, err)
	}
	return strings.TrimSpace(line)
}

func (p *process) say(format string, args ...any) {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.in, format+"\n", args...); err != nil {
		p.t.Fatal(err)
	}
}

// roleEnd makes an end without a testing.T to complain to.
func roleEnd(bytes int, mapped bool) (*verbs.QP, *verbs.CQ, *verbs.MR, error) {
	c, err := verbs.Open(context.Background(), "")
	if err != nil {
		return nil, nil, nil, err
	}
	pd, err1 := c.AllocPD()
	cq, err2 := c.CreateCQ(verbs.CQConfig{Entries: 256})
	if err := errors.Join(err1, err2); err != nil {
		return nil, nil, nil, err
	}
	qp, err1 := pd.CreateQP(verbs.QPConfig{Type: rdma.QPTypeRC, SendCQ: cq})
	var mr *verbs.MR
	if mapped {
		mr, err2 = pd.AllocMemory(bytes, allRights)
	} else {
		mr, err2 = pd.Register(make([]byte, bytes), allRights)
	}
	return qp, cq, mr, errors.Join(err1, err2)
}

// roleTarget offers memory to its parent, and does nothing.
func roleTarget() error {
	qp, _, mr, err := roleEnd(1<<16, os.Getenv("MAPPED") == "true")
	if err != nil {
		return err
	}
	fill(mr.Bytes(), 9)
	local, err := qp.Endpoint()
	if err != nil {
		return err
	}
	fmt.Printf("%v %d %d\n", local, mr.Addr(), uint32(mr.RKey()))
	var text string
	if _, err := fmt.Scanln(&text); err != nil {
		return err
	}
	var peer verbs.Endpoint
	if err := peer.UnmarshalText([]byte(text)); err != nil {
		return err
	}
	if err := qp.ConnectTo(peer); err != nil {
		return err
	}
	fmt.Println("connected")
	_, _ = fmt.Scanln(&text) // until the parent is gone
	fmt.Println(mr.Bytes()[100])
	return nil
}

// DESIGN §1: the target's threads take no part in READ, WRITE and atomics, even while it is
// stopped.
func TestDaemon_TargetStopped_MemoryIsServed(t *testing.T) {
	for _, mapped := range []bool{true, false} {
		path := filepath.Join(t.TempDir(), "nic.sock")
		d := start(t, daemon.Config{SocketPath: path, NoNetwork: true})
		p := startProcess(t, "target", ctl.SocketEnv+"="+path, fmt.Sprintf("MAPPED=%v", mapped))
		var text string
		var addr uint64
		var key uint32
		if _, err := fmt.Sscan(p.line(), &text, &addr, &key); err != nil {
			t.Fatal(err)
		}
		var peer verbs.Endpoint
		if err := peer.UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
		a := newEnd(t, open(t, d), rdma.QPTypeRC, 1<<16, true)
		local, err := a.qp.Endpoint()
		if err != nil {
			t.Fatal(err)
		}
		p.say("%v", local)
		if err := a.qp.ConnectTo(peer); err != nil {
			t.Fatal(err)
		}
		if p.line() != "connected" {
			t.Fatal("target not connected")
		}
		if err := p.cmd.Process.Signal(unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		useStopped(t, a, addr, verbs.Key(key))
		if err := p.cmd.Process.Signal(unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
		p.say("done")
		if got := p.line(); got != "77" {
			t.Errorf("mapped %v: the target finds %s where 77 was written", mapped, got)
		}
	}
}

func useStopped(t *testing.T, a *end, addr uint64, key verbs.Key) {
	t.Helper()
	a.post(verbs.SendWR{
		Opcode: rdma.WRRead, SGE: a.mr.SGE(0, 1<<16), RemoteAddr: addr, RKey: key,
	})
	a.ok()
	want := make([]byte, 1<<16)
	fill(want, 9)
	if string(a.mr.Bytes()) != string(want) {
		t.Error("READ returned other bytes")
	}
	a.mr.Bytes()[0] = 77
	a.post(verbs.SendWR{
		Opcode: rdma.WRWrite, SGE: a.mr.SGE(0, 1), RemoteAddr: addr + 100, RKey: key,
	})
	a.ok()
	for range 2 {
		a.post(verbs.SendWR{
			Opcode: rdma.WRFetchAdd, SGE: a.mr.SGE(0, 8), RemoteAddr: addr, RKey: key, CompareAdd: 5,
		})
		a.ok()
	}
	if got := binary.NativeEndian.Uint64(a.mr.Bytes()); got != binary.NativeEndian.Uint64(want)+5 {
		t.Errorf("FETCH_ADD returned %#x", got)
	}
}

// roleBusy does everything at once to itself until it is killed.
func roleBusy() error {
	qp, cq, mr, err := roleEnd(1<<20, os.Getenv("MAPPED") == "true")
	if err != nil {
		return err
	}
	local, err := qp.Endpoint()
	if err != nil {
		return err
	}
	if err := qp.ConnectTo(local); err != nil {
		return err
	}
	fmt.Println("busy")
	var wcs [32]verbs.WC
	for i := uint64(0); ; i++ {
		op := []verbs.WROpcode{rdma.WRWrite, rdma.WRRead}[i%2]
		_, err := qp.PostSend(verbs.SendWR{
			ID: i, Opcode: op, SGE: mr.SGE(0, 1<<19), RemoteAddr: mr.Addr() + 1<<19, RKey: mr.RKey(),
			Flags: verbs.SendSignaled,
		})
		if err != nil && !errors.Is(err, verbs.ErrQueueFull) {
			return err
		}
		if _, err := cq.Poll(wcs[:]); err != nil {
			return err
		}
		if i%16 == 0 { // control requests in between, so that a kill can hit one of them
			extra, err := qp.Endpoint()
			if err != nil || extra.QPN != local.QPN {
				return err
			}
		}
	}
}

// A client that dies at any instruction leaves nothing behind, and disturbs nobody.
func TestDaemon_ClientsKilledAnywhere_NothingStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nic.sock")
	d := start(t, daemon.Config{SocketPath: path, NoNetwork: true})
	a, b := pair(t, d, 5000, true)
	exchange(t, a, b)
	fds, maps := countFDs(t), countMaps(t)
	for i := range 8 {
		p := startProcess(t, "busy", ctl.SocketEnv+"="+path, fmt.Sprintf("MAPPED=%v", i%2 == 0))
		if i%4 != 3 {
			p.line()
			time.Sleep(time.Duration(i) * 3 * time.Millisecond)
		} // else it is killed while it starts
		p.kill()
		exchange(t, a, b)
	}
	eventually(t, "only the two contexts of the test", func() bool {
		s, _ := d.Status()
		return len(s.Contexts) == 2 && s.Connections == 2
	})
	eventually(t, fmt.Sprintf("%d descriptors and %d mappings again", fds, maps), func() bool {
		return countFDs(t) <= fds && countMaps(t) <= maps
	})
	exchange(t, a, b)
}

// roleParent opens the device, and leaves its connection to a child.
func roleParent() error {
	client, err := ctl.DialDefault()
	if err != nil {
		return err
	}
	_, lane, err := client.Hello("parent")
	if err != nil {
		return err
	}
	_ = unix.Close(lane)
	if _, err := client.Inherit(10); err != nil {
		return err
	}
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		return err
	}
	fmt.Println(child.Process.Pid)
	_, err = fmt.Scanln()
	return err
}

// A forked child may hold the socket; the end of the process that opened it counts.
func TestDaemon_ChildHoldsSocket_ProcessEndCloses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nic.sock")
	d := start(t, daemon.Config{SocketPath: path, NoNetwork: true})
	p := startProcess(t, "parent", ctl.SocketEnv+"="+path)
	var child int
	if _, err := fmt.Sscan(p.line(), &child); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Kill(child, unix.SIGKILL) }()
	if s, _ := d.Status(); s.Connections != 1 {
		t.Fatalf("%d connections", s.Connections)
	}
	p.kill()
	eventually(t, "no connection", func() bool {
		s, _ := d.Status()
		return s.Connections == 0
	})
	if err := unix.Kill(child, 0); err != nil {
		t.Errorf("the child is gone, so nothing was tested: %v", err)
	}
}

// roleNIC is a NIC in a process of its own.
func roleNIC() error {
	if text := os.Getenv("FDS"); text != "" {
		limit, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return err
		}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			return err
		}
	}
	d, err := daemon.Start(context.Background(), daemon.Config{NoNetwork: true})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return d.Wait()
}

// A NIC killed under its programs: they see a dead device, at once, and a new NIC can start on the
// same path.
func TestDaemon_NICKilled_ProgramsSeeADeadDevice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nic.sock")
	for range 2 {
		p := startProcess(t, "nic", ctl.SocketEnv+"="+path)
		if p.line() != "ready" {
			t.Fatal("NIC not ready")
		}
		c, err := verbs.Open(t.Context(), "", verbs.WithSocket(path))
		if err != nil {
			t.Fatal(err)
		}
		e := newEnd(t, c, rdma.QPTypeRC, 64, true)
		p.kill()
		select {
		case <-c.Dead():
		case <-time.After(testTimeout):
			t.Fatal("the program does not notice")
		}
		if _, err := e.pd.CreateQP(verbs.QPConfig{Type: rdma.QPTypeRC, SendCQ: e.cq}); !errors.Is(err,
			verbs.ErrDeviceFatal) {
			t.Errorf("request to a dead NIC: %v", err)
		}
		_ = c.Close()
	}
}

// A NIC that runs out of descriptors refuses what it cannot make, and recovers.
func TestDaemon_OutOfDescriptors_RefusesAndRecovers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nic.sock")
	p := startProcess(t, "nic", ctl.SocketEnv+"="+path, "FDS=48")
	p.line()
	// One good program is there before the shortage, and works through it.
	first, err := verbs.Open(t.Context(), "", verbs.WithSocket(path))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Close() }()
	a := newEnd(t, first, rdma.QPTypeRC, 5000, true)
	local, err := a.qp.Endpoint()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.qp.ConnectTo(local); err != nil {
		t.Fatal(err)
	}
	var crowd []*ctl.Client
	for range 60 {
		c, err := ctl.Dial(path)
		if err != nil {
			t.Fatal(err)
		}
		crowd = append(crowd, c)
	}
	for range 3 {
		a.post(verbs.SendWR{
			Opcode: rdma.WRWrite, SGE: a.mr.SGE(0, 2000), RemoteAddr: a.mr.Addr() + 2500,
			RKey: a.mr.RKey(),
		})
		a.ok()
		if _, err := first.CreateCompletionChannel(); err == nil {
			t.Log("there was a descriptor left")
		} else if errors.Is(err, verbs.ErrDeviceFatal) {
			t.Errorf("the shortage killed the device: %v", err)
		}
	}
	for _, c := range crowd {
		_ = c.Close()
	}
	eventually(t, "a new program gets in", func() bool {
		c, err := verbs.Open(t.Context(), "", verbs.WithSocket(path))
		if err != nil {
			return false
		}
		_ = c.Close()
		return true
	})
}

// An idle NIC costs nothing: it sleeps until something happens.
func TestDaemon_Idle_TakesNoProcessor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nic.sock")
	p := startProcess(t, "nic", ctl.SocketEnv+"="+path)
	p.line()
	c, err := verbs.Open(t.Context(), "", verbs.WithSocket(path))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	a := newEnd(t, c, rdma.QPTypeRC, 64, true)
	local, err := a.qp.Endpoint()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.qp.ConnectTo(local); err != nil {
		t.Fatal(err)
	}
	a.post(verbs.SendWR{
		Opcode: rdma.WRWrite, SGE: a.mr.SGE(0, 8), RemoteAddr: a.mr.Addr() + 8, RKey: a.mr.RKey(),
	})
	a.ok()
	const span = time.Second
	before := processTime(t, p.cmd.Process.Pid)
	time.Sleep(span)
	if used := processTime(t, p.cmd.Process.Pid) - before; used > span/100 {
		t.Errorf("an idle NIC used %v of processor time in %v", used, span)
	}
}

// processTime is the processor time of all threads of a process.
func processTime(t *testing.T, pid int) time.Duration {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(tasks) == 0 {
		t.Skipf("no schedstat: %v", err)
	}
	total := time.Duration(0)
	for _, name := range tasks {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // a thread that has ended
		}
		var ran int64
		if _, err := fmt.Sscan(string(text), &ran); err != nil {
			t.Fatal(err)
		}
		total += time.Duration(ran)
	}
	return total
}
