package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/softrnic/softrnic/test/netnstest"
	"github.com/softrnic/softrnic/test/programtest"
)

// Ordinary users. They need no entry in the user database: the programs under test ask for none.
const (
	userOne = 47911
	userTwo = 47912
)

// patience bounds every wait. It is long, because a machine may be slow: waits end when what they
// wait for happens.
const patience = 40 * time.Second

// rnic is the binary under test, in a directory that everybody may read. It is empty when there
// is none; then noBinary says why.
var rnic, noBinary string

func TestMain(m *testing.M) {
	if os.Getenv(orphanEnv) != "" {
		startOrphan()
	}
	os.Exit(runAll(m))
}

// orphanEnv names the rnic with which this program starts one of its own, and is killed.
const orphanEnv = "RNIC_E2E_ORPHAN"

func startOrphan() {
	m := &machine{uid: uint32(os.Geteuid())}
	c := exec.Command(os.Getenv(orphanEnv), "run", "--", "sh", "-c", "echo $$; exec sleep 600")
	c.Stdout, c.SysProcAttr = os.Stdout, m.attributes()
	if err := programtest.Spawn(c, m.ns); err != nil {
		fmt.Println(err)
		return
	}
	select {}
}

// TestHarness_TestProgramKilled_ItsProgramsEnd is for who interrupts a test: nothing stays behind.
func TestHarness_TestProgramKilled_ItsProgramsEnd(t *testing.T) {
	m := newMachine(t, nil, uint32(os.Geteuid()))
	for range 10 { // whichever thread of "rnic run" becomes the program
		c := exec.Command(os.Args[0])
		c.Env = append(m.environment(), orphanEnv+"="+rnic)
		out, err := c.StdoutPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		var pid int
		_, err = fmt.Fscan(out, &pid)
		_ = c.Process.Kill()
		_ = c.Wait()
		if err != nil {
			t.Fatal(err)
		}
		until(t, "the program is gone", func() bool { return !alive(pid) })
	}
}

func runAll(m *testing.M) int {
	dir, err := os.MkdirTemp("", "rnic-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := copyBinary(dir); err != nil {
		noBinary = err.Error()
	}
	return m.Run()
}

func copyBinary(dir string) error {
	source := os.Getenv("RNIC_BIN")
	if source == "" {
		source = filepath.Join("..", "..", "bin", "rnic")
	}
	content, err := os.ReadFile(source)
	if err != nil {
		return fmt.Errorf("no binary to test, run make build: %w", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	target := filepath.Join(dir, "rnic")
	rnic = target
	return os.WriteFile(target, content, 0o755)
}

// machine is a host as one of its users sees it: a network namespace, a user, a home.
type machine struct {
	ns   *netnstest.Namespace // nil: the one of the test
	uid  uint32
	home string
	env  []string // in addition to the standard one
	// stdin and stdout, when set, are those of the next program instead of none and a buffer.
	stdin  *os.File
	stdout io.Writer
}

// newMachine returns a machine for the user, whose NIC ends with the test. Without a namespace it
// is the machine of the test itself.
func newMachine(t *testing.T, ns *netnstest.Namespace, uid uint32) *machine {
	t.Helper()
	if noBinary != "" {
		t.Skip(noBinary)
	}
	if uid != uint32(os.Geteuid()) && os.Geteuid() != 0 {
		t.Skip("running as another user needs root")
	}
	// Not t.TempDir: the path of a socket is short, and other users must get in.
	home, err := os.MkdirTemp(filepath.Dir(rnic), "home-")
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{ns: ns, uid: uid, home: home}
	if err := os.Mkdir(m.runtimeDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{m.home, m.runtimeDir()} {
		if err := os.Chown(dir, int(uid), int(uid)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { m.tearDown(t) })
	return m
}

func (m *machine) runtimeDir() string { return filepath.Join(m.home, "run") }

// tearDown ends the NIC if one is there, however the test has ended.
func (m *machine) tearDown(t *testing.T) {
	out := m.start(t, rnic, "down").end(t)
	if out.status != 0 && !strings.Contains(out.stderr, "no NIC") {
		t.Errorf("rnic down: status %d: %s", out.status, out.stderr)
	}
	if t.Failed() {
		logs, err := filepath.Glob(filepath.Join(m.runtimeDir(), "rnic", "*.log"))
		if err != nil {
			return
		}
		for _, name := range logs {
			if text, err := os.ReadFile(name); err == nil {
				t.Logf("%s (end):\n%s", name, tail(string(text), 30))
			}
		}
	}
}

// evidence is what the NIC says of itself and of its programs, for who looks into a failure.
func (m *machine) evidence() string {
	var text programtest.Buffer
	for _, command := range []string{"devinfo", "ps"} {
		c := exec.Command(rnic, command)
		c.Env, c.SysProcAttr = m.environment(), m.attributes()
		c.Stdout, c.Stderr = &text, &text
		if err := programtest.Spawn(c, m.ns); err != nil {
			return err.Error()
		}
		watchdog := time.AfterFunc(2*time.Second, func() { _ = c.Process.Kill() })
		_ = c.Wait() // what it has said is what there is
		watchdog.Stop()
	}
	return text.String()
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func (m *machine) environment() []string {
	return append(programtest.Environment(m.home, m.runtimeDir()), m.env...)
}

// process is a program that runs, or has run, on a machine. It is killed with the test.
type process struct {
	name           string
	machine        *machine
	cmd            *exec.Cmd
	stdout, stderr programtest.Buffer
	done           chan struct{}
}

// outcome is how a program ended. A status from 128 up is a signal, as in a shell.
type outcome struct {
	status         int
	stdout, stderr string
}

// start runs a program as it is, without a NIC.
func (m *machine) start(t *testing.T, name string, args ...string) *process {
	t.Helper()
	p := &process{name: filepath.Base(name), machine: m}
	p.cmd = exec.Command(name, args...)
	p.cmd.Env = m.environment()
	p.cmd.Dir = m.home
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	if m.stdin != nil {
		p.cmd.Stdin = m.stdin
	}
	if m.stdout != nil {
		p.cmd.Stdout = m.stdout
	}
	p.cmd.SysProcAttr = m.attributes()
	var err error
	if p.done, err = programtest.Start(p.cmd, m.ns); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	t.Cleanup(p.kill)
	return p
}

// attributes make a process one of the machine's user.
func (m *machine) attributes() *syscall.SysProcAttr {
	a := programtest.Attributes()
	if m.uid != uint32(os.Geteuid()) {
		a.Credential = &syscall.Credential{Uid: m.uid, Gid: m.uid}
	}
	return a
}

// run runs a program on the NIC, as a user would.
func (m *machine) run(t *testing.T, args ...string) *process {
	t.Helper()
	requireProgram(t, args[0])
	p := m.start(t, rnic, append([]string{"run", "--"}, args...)...)
	p.name = strings.Join(args, " ")
	return p
}

func requireProgram(t *testing.T, name string) {
	t.Helper()
	programtest.Require(t, name)
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("signal %v to %s: %v", s, p.name, err)
	}
}

// kill ends the program and its children, unless it has ended.
func (p *process) kill() { programtest.Kill(p.cmd, p.done) }

// hasEnded reports whether the program has ended, without waiting.
func (p *process) hasEnded() bool { return programtest.HasEnded(p.done) }

// end waits for the program and returns its outcome.
func (p *process) end(t *testing.T) outcome {
	t.Helper()
	return p.endWithin(t, patience)
}

func (p *process) endWithin(t *testing.T, limit time.Duration) outcome {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		evidence := p.machine.evidence()
		p.kill()
		t.Fatalf("%s did not end within %v\nstdout:\n%s\nstderr:\n%s\nits NIC:\n%s",
			p.name, limit, p.stdout.String(), p.stderr.String(), evidence)
	}
	out := outcome{stdout: p.stdout.String(), stderr: p.stderr.String()}
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case !ok:
		t.Fatalf("%s: no exit status", p.name)
	case status.Signaled():
		out.status = 128 + int(status.Signal())
	default:
		out.status = status.ExitStatus()
	}
	return out
}

// succeed waits for the program and wants status 0 and a silent standard error.
func (p *process) succeed(t *testing.T) outcome {
	t.Helper()
	out := p.end(t)
	if out.status != 0 || out.stderr != "" {
		t.Errorf("%s: status %d\nstdout:\n%s\nstderr:\n%s", p.name, out.status, out.stdout, out.stderr)
	}
	return out
}

// until waits for a condition.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v in vain until %s", patience, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// awaitListening waits until the program accepts TCP connections on a port. It looks the socket
// up rather than connecting: the programs under test accept one connection only.
func (p *process) awaitListening(t *testing.T, port int) {
	t.Helper()
	until(t, fmt.Sprintf("%s listens on TCP port %d", p.name, port), func() bool {
		if p.hasEnded() {
			out := p.end(t)
			t.Fatalf("%s ended with status %d before it listened\nstdout:\n%s\nstderr:\n%s",
				p.name, out.status, out.stdout, out.stderr)
		}
		return listens(p.pid(), port)
	})
}

// listens looks a port up in the tables of the namespace that the process is in.
func listens(pid, port int) bool {
	local := fmt.Sprintf(":%04X", port)
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			const listening = "0A"
			if len(fields) > 3 && strings.HasSuffix(fields[1], local) && fields[3] == listening {
				return true
			}
		}
	}
	return false
}

// alive reports whether a process exists and is no zombie.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return false
	}
	after := stat[bytes.LastIndexByte(stat, ')')+1:]
	return !bytes.HasPrefix(after, []byte(" Z"))
}

// ports hands out TCP ports, so that no two tests of a run share one.
var ports struct {
	mu   sync.Mutex
	next int
}

func newPort() int {
	ports.mu.Lock()
	defer ports.mu.Unlock()
	if ports.next == 0 {
		ports.next = 21000 + os.Getpid()%1000
	}
	ports.next++
	return ports.next
}
