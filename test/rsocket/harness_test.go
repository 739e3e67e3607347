package rsocket

import (
	"fmt"
	"net"
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

// patience bounds every wait. It is long, because a machine may be slow.
const patience = 60 * time.Second

// linkMTU is that of an Ethernet with jumbo frames.
const linkMTU = 9000

// host is where programs find each other and one NIC.
type host struct {
	ns  *netnstest.Namespace // nil: the test's own
	dir string
	env []string
}

func binary(t *testing.T) string {
	t.Helper()
	path := os.Getenv("RNIC_BIN")
	if path == "" {
		path = filepath.Join("..", "..", "bin", "rnic")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no binary to test, run make build: %v", err)
	}
	return path
}

func newHost(t *testing.T, ns *netnstest.Namespace) *host {
	t.Helper()
	dir, err := os.MkdirTemp("", "rs-") // not t.TempDir: the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	h := &host{ns: ns, dir: dir}
	rnic := binary(t)
	t.Cleanup(func() {
		p := h.start(t, rnic, "down")
		<-p.done
		if log, err := filepath.Glob(filepath.Join(dir, "rnic", "*.log")); err == nil && t.Failed() {
			for _, name := range log {
				if text, err := os.ReadFile(name); err == nil {
					t.Logf("%s:\n%s", name, text)
				}
			}
		}
		_ = os.RemoveAll(dir)
	})
	return h
}

// oneHost returns a host whose programs call each other by 127.0.0.1 and ::1.
func oneHost(t *testing.T) *host {
	t.Helper()
	if os.Geteuid() != 0 {
		return newHost(t, nil)
	}
	ns, _ := netnstest.Pair(t, linkMTU)
	return newHost(t, ns)
}

// place is two ends and how the second calls the first.
type place struct {
	server, client *host
	address        string
}

// atPlaces runs a test on one host and, as root, between two.
func atPlaces(t *testing.T, test func(t *testing.T, p place)) {
	t.Run("OneHost", func(t *testing.T) {
		h := oneHost(t)
		test(t, place{h, h, "127.0.0.1"})
	})
	t.Run("TwoHosts", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("two network namespaces need root")
		}
		a, b := netnstest.Pair(t, linkMTU)
		test(t, place{newHost(t, a), newHost(t, b), a.V4.String()})
	})
}

// onDevices runs a test at all places, by RoCE and by iWARP.
func onDevices(t *testing.T, test func(t *testing.T, p place)) {
	for _, device := range []string{"rnic0", "iwarp0"} {
		t.Run(device, func(t *testing.T) {
			atPlaces(t, func(t *testing.T, p place) {
				for _, h := range []*host{p.server, p.client} {
					h.env = append(h.env, "RNIC_DEVICE="+device)
				}
				test(t, p)
			})
		})
	}
}

// process is a program that runs, or has run. It is killed with the test.
type process struct {
	cmd            *exec.Cmd
	stdout, stderr programtest.Buffer
	done           chan struct{}
}

func (h *host) start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(args[0], args[1:]...)}
	p.cmd.Env = append(programtest.Environment(h.dir, h.dir), h.env...)
	p.cmd.Dir = h.dir
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	p.cmd.SysProcAttr = programtest.Attributes()
	var err error
	if p.done, err = programtest.Start(p.cmd, h.ns); err != nil {
		t.Fatalf("start %s: %v", args[0], err)
	}
	t.Cleanup(func() { programtest.Kill(p.cmd, p.done) })
	return p
}

// run starts a program on the NIC; flags of rnic run may come before "--".
func (h *host) run(t *testing.T, args ...string) *process {
	t.Helper()
	program := args[0]
	for i, arg := range args {
		if arg == "--" {
			program = args[i+1]
		}
	}
	if program == args[0] {
		args = append([]string{"--"}, args...)
	}
	programtest.Require(t, program)
	return h.start(t, append([]string{binary(t), "run"}, args...)...)
}

// succeed waits for the program, wants status 0, and returns what it said.
func (p *process) succeed(t *testing.T) string {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGABRT)
		t.Fatalf("%v hangs\n%s%s", p.cmd.Args, p.stdout.String(), p.stderr.String())
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Fatalf("%v: status %d\n%s%s", p.cmd.Args, code, p.stdout.String(), p.stderr.String())
	}
	return p.stdout.String()
}

func (p *process) stop(t *testing.T) {
	t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Errorf("%v does not end", p.cmd.Args)
	}
}

// until waits for a condition while the process lives.
func (p *process) until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(10 * time.Millisecond) {
		select {
		case <-p.done:
			t.Fatalf("%v ended before %s\n%s%s", p.cmd.Args, what, p.stdout.String(),
				p.stderr.String())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v: %s, in vain", p.cmd.Args, what)
		}
	}
}

// listens waits until somebody listens for RDMA connections at a port.
func (p *process) listens(t *testing.T, h *host, port int) {
	t.Helper()
	p.until(t, fmt.Sprintf("it listens at port %d", port), func() bool {
		for line := range strings.Lines(h.ps(t)) {
			if strings.Contains(line, " listening ") && strings.Contains(line, fmt.Sprintf(":%d ", port)) {
				return true
			}
		}
		return false
	})
}

// bound waits until the process has a UDP port.
func (p *process) bound(t *testing.T, port int) {
	t.Helper()
	local := fmt.Sprintf(":%04X", port)
	p.until(t, fmt.Sprintf("it has UDP port %d", port), func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/udp", p.cmd.Process.Pid))
		return err == nil && strings.Contains(string(text), local)
	})
}

// ps is what the NIC says of its programs.
func (h *host) ps(t *testing.T) string {
	t.Helper()
	p := h.start(t, binary(t), "ps")
	<-p.done
	return p.stdout.String() + p.stderr.String()
}

// connected counts ends of RDMA connections that the NIC knows at a port.
func (h *host) connected(t *testing.T, port int) int {
	t.Helper()
	count := 0
	for line := range strings.Lines(h.ps(t)) {
		if strings.Contains(line, " established ") && strings.Contains(line, fmt.Sprintf(":%d ", port)) {
			count++
		}
	}
	return count
}

var ports struct {
	mu   sync.Mutex
	next int
}

// newPort returns a port that no other test of the run has, nor anybody else now.
func newPort(t *testing.T) int {
	t.Helper()
	ports.mu.Lock()
	defer ports.mu.Unlock()
	for range 1000 {
		ports.next++
		port := 21000 + ports.next
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}
