package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softrnic/softrnic/test/netnstest"
	"github.com/softrnic/softrnic/test/programtest"
)

// socketPath is where the NIC of a machine listens, as it says itself.
func (m *machine) socketPath(t *testing.T) string {
	t.Helper()
	out := m.start(t, rnic, "devinfo", "--json").succeed(t)
	var d struct {
		Socket string `json:"socket"`
	}
	if err := json.Unmarshal([]byte(out.stdout), &d); err != nil || d.Socket == "" {
		t.Fatalf("no socket in %s: %v", out.stdout, err)
	}
	return d.Socket
}

func TestRun_TwoAtOnce_ShareOneNIC(t *testing.T) {
	for range 5 {
		m := anyMachine(t)
		var programs []*process
		for range 6 {
			programs = append(programs, m.run(t, "ibv_devinfo"))
		}
		for _, p := range programs {
			p.succeed(t)
		}
		sockets, err := filepath.Glob(filepath.Join(m.runtimeDir(), "rnic", "*.sock"))
		if err != nil || len(sockets) != 1 {
			t.Errorf("sockets %v, %v", sockets, err)
		}
		text, err := os.ReadFile(strings.TrimSuffix(sockets[0], ".sock") + ".log")
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), "NIC ready"); n != 1 {
			t.Errorf("%d NICs became ready, not 1:\n%s", n, text)
		}
	}
}

// The NIC and the program each have a working directory that need not be the one in which somebody
// has named the socket.
func TestRun_RelativeSocket_IsBelowTheWorkingDirectory(t *testing.T) {
	for _, how := range []string{"flag", "variable"} {
		m := anyMachine(t)
		args := []string{"run", "--socket", "my.sock"}
		if how == "variable" {
			args = args[:1]
			m.env = append(m.env, "RNIC_SOCKET=my.sock")
		}
		args = append(args, "--", "sh", "-c", "cd /; exec ibv_devices")
		m.start(t, rnic, args...).succeed(t)
		socket := filepath.Join(m.home, "my.sock")
		if _, err := os.Stat(socket); err != nil {
			t.Errorf("%s: %v", how, err)
		}
		m.env = append(m.env, "RNIC_SOCKET="+socket)
	}
}

func TestRun_SocketRemoved_NamesTheNICThatHasLostIt(t *testing.T) {
	m := anyMachine(t)
	up := m.start(t, rnic, "up")
	until(t, "the NIC is there", func() bool {
		return strings.Contains(up.stdout.String(), "is ready at")
	})
	if err := os.Remove(m.socketPath(t)); err != nil {
		t.Fatal(err)
	}
	out := m.run(t, "true").end(t)
	who := fmt.Sprintf("is running already (pid %d), but its socket is gone", up.cmd.Process.Pid)
	if out.status != 1 || !strings.Contains(out.stderr, who) || !oneLine(out.stderr) {
		t.Errorf("status %d, %q does not say %q", out.status, out.stderr, who)
	}
}

// A path at which no NIC can be is refused before a log appears beside it.
func TestRun_SocketPathTaken_LeavesNothingBehind(t *testing.T) {
	m := anyMachine(t)
	taken := filepath.Join(m.home, "taken")
	if err := os.Mkdir(taken, 0o755); err != nil {
		t.Fatal(err)
	}
	out := m.start(t, rnic, "run", "--socket", taken, "--", "true").end(t)
	if out.status != 1 || !strings.Contains(out.stderr, "is no socket") {
		t.Errorf("status %d, %q", out.status, out.stderr)
	}
	if left, err := filepath.Glob(taken + "?*"); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestRun_LastProgramEnds_NICEndsSoonAfter(t *testing.T) {
	m := anyMachine(t)
	// The program opens the device only after the NIC would have ended for want of programs.
	program := m.run(t, "sh", "-c", "sleep 5; exec ibv_devinfo")
	until(t, "the NIC is there", func() bool {
		return m.start(t, rnic, "devinfo").end(t).status == 0
	})
	pid := m.device(t).PID
	program.succeed(t)
	ended := time.Now()
	until(t, "the NIC has ended", func() bool { return !alive(pid) })
	if took := time.Since(ended); took < time.Second {
		t.Errorf("the NIC ended %v after its last program, too soon for a next one", took)
	}
	left, err := filepath.Glob(filepath.Join(m.runtimeDir(), "rnic", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range left {
		if !strings.HasSuffix(name, ".log") && filepath.Base(name) != "lib" {
			t.Errorf("left behind: %s", name)
		}
	}
	out := m.start(t, rnic, "down").end(t)
	if out.status != 1 || !strings.Contains(out.stderr, "no NIC is running") {
		t.Errorf("rnic down without a NIC: status %d, %q", out.status, out.stderr)
	}
}

func TestRun_SignalsAndStatus_AreTheProgramsOwn(t *testing.T) {
	m := anyMachine(t)
	for status, script := range map[int]string{
		0:   "exit 0",
		7:   "exit 7",
		255: "exit 255",
		143: "kill -TERM $$",
		137: "kill -KILL $$",
	} {
		if out := m.run(t, "sh", "-c", script).end(t); out.status != status || out.stderr != "" {
			t.Errorf("%s: status %d, %q", script, out.status, out.stderr)
		}
	}
	trap := m.run(t, "sh", "-c",
		`trap 'echo caught; exit 3' USR1; echo set; while :; do sleep 0.01; done`)
	until(t, "the trap is set", func() bool { return strings.Contains(trap.stdout.String(), "set") })
	trap.signal(t, syscall.SIGUSR1)
	if out := trap.end(t); out.status != 3 || !strings.Contains(out.stdout, "caught") {
		t.Errorf("status %d, %q", out.status, out.stdout)
	}
}

func TestRun_Streams_AreTheProgramsOwn(t *testing.T) {
	m := anyMachine(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	m.stdin = read
	cat := m.run(t, "sh", "-c", "cat; echo done >&2")
	m.stdin = nil
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	go func() {
		_, _ = write.Write(large)
		_ = write.Close()
	}()
	out := cat.end(t)
	if out.stdout != string(large) || out.stderr != "done\n" || out.status != 0 {
		t.Errorf("status %d, %d bytes, %q", out.status, len(out.stdout), out.stderr)
	}
	_ = read.Close()
}

// TestRun_BackgroundNIC_HoldsNoDescriptor: who waits for the end of a program's output must not
// wait for the NIC.
func TestRun_BackgroundNIC_HoldsNoDescriptor(t *testing.T) {
	m := anyMachine(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(rnic, "run", "--", "true")
	cmd.Env = m.environment()
	cmd.ExtraFiles = []*os.File{write}
	cmd.Stdout, cmd.Stderr = write, write
	cmd.SysProcAttr = m.attributes()
	if err := programtest.Spawn(cmd, m.ns); err != nil {
		t.Fatal(err)
	}
	if err := write.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if err := read.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := read.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the pipe is still open: %d, %v", n, err)
	}
}

func TestRun_Environment_IsExtendedNotReplaced(t *testing.T) {
	m := anyMachine(t)
	m.env = append(m.env, "LD_LIBRARY_PATH=/opt/a:/opt/b", "OTHER=kept")
	out := m.run(t, "env").succeed(t).stdout
	for _, want := range []string{"OTHER=kept\n", ":/opt/a:/opt/b\n", "RNIC_SOCKET=/"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	nested := m.run(t, rnic, "run", "--", "env").succeed(t).stdout
	search := func(text string) string {
		_, after, _ := strings.Cut(text, "LD_LIBRARY_PATH=")
		line, _, _ := strings.Cut(after, "\n")
		return line
	}
	if search(nested) != search(out) {
		t.Errorf("nested: %q, not %q", search(nested), search(out))
	}
}

func TestUp_Interrupt_EndsCleanly(t *testing.T) {
	m := anyMachine(t)
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		nic := m.startNIC(t)
		socket := m.socketPath(t)
		nic.signal(t, s)
		if out := nic.end(t); out.status != 0 {
			t.Errorf("%v: status %d: %s", s, out.status, out.stderr)
		}
		if _, err := os.Lstat(socket); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the socket is still there: %v", err)
		}
	}
}

func TestUp_Twice_SecondSaysSo(t *testing.T) {
	m := anyMachine(t)
	m.startNIC(t)
	out := m.start(t, rnic, "up").end(t)
	if out.status != 1 || !oneLine(out.stderr) || !strings.Contains(out.stderr, "running") {
		t.Errorf("status %d, %q", out.status, out.stderr)
	}
}

func oneLine(text string) bool {
	return strings.Count(text, "\n") == 1 && strings.HasSuffix(text, "\n")
}

// TestSecondUser_SameHost: the port of RoCE is taken, so the second user's NIC serves his own
// programs, and says so.
func TestSecondUser_SameHost_GetsALocalNIC(t *testing.T) {
	ns := netnstest.New(t)
	first, second := newMachine(t, ns, userOne), newMachine(t, ns, userTwo)
	first.startNIC(t)
	out := second.run(t, "ibv_devinfo").end(t)
	if out.status != 0 || !oneLine(out.stderr) || !strings.Contains(out.stderr, "4791") {
		t.Errorf("status %d, %q", out.status, out.stderr)
	}
	if reason := second.device(t).LocalOnly; !strings.Contains(reason, "4791") {
		t.Errorf("devinfo says %q", reason)
	}
	row := perfRow{tool: "ib_write_bw", args: "-n 1000", sizes: []int{65536}, iters: 1000}
	row.test(t, onOneHost(second))
	if reason := first.device(t).LocalOnly; reason != "" {
		t.Errorf("the first NIC is local too: %q", reason)
	}
}

func TestSecondNamespace_SameUser_HasItsOwnNIC(t *testing.T) {
	a := newMachine(t, netnstest.New(t), userOne)
	b := newMachine(t, netnstest.New(t), userOne)
	b.home = a.home // one home, one runtime directory
	a.startNIC(t)
	b.startNIC(t)
	if a.device(t).PID == b.device(t).PID {
		t.Error("two namespaces share a NIC")
	}
}

// TestGroup: members of the group use a NIC that another user has started for them.
func TestGroup_OtherUser_SharesTheNIC(t *testing.T) {
	ns := netnstest.New(t)
	owner, member := newMachine(t, ns, 0), newMachine(t, ns, userTwo)
	socket := filepath.Join(filepath.Dir(rnic), "group.sock")
	owner.env = append(owner.env, "RNIC_SOCKET="+socket)
	member.env = append(member.env, "RNIC_SOCKET="+socket)
	nic := owner.startNIC(t, "--group", "47912")
	member.run(t, "ibv_devinfo").succeed(t)
	row := perfRow{tool: "ib_write_bw", args: "-n 1000", sizes: []int{65536}, iters: 1000}
	row.test(t, onOneHost(member))
	if pid := member.device(t).PID; pid != nic.pid() {
		t.Errorf("the member uses NIC %d, not %d", pid, nic.pid())
	}
	stranger := newMachine(t, ns, userOne)
	stranger.env = append(stranger.env, "RNIC_SOCKET="+socket)
	out := stranger.start(t, rnic, "devinfo").end(t)
	if out.status != 1 || !strings.Contains(out.stderr, "another user") || !oneLine(out.stderr) {
		t.Errorf("status %d, %q", out.status, out.stderr)
	}
	stranger.env = nil
}
