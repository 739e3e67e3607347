package interop

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softrnic/softrnic/test/netnstest"
)

// host is our side: programs on bin/rnic in a namespace.
type host struct {
	ns  *netnstest.Namespace
	dir string
	nic *exec.Cmd
}

// newHost starts a NIC in the namespace, with faults of the form of "rnic up --fault".
func newHost(t *testing.T, ns *netnstest.Namespace, fault string) *host {
	t.Helper()
	// Not t.TempDir: the path of a socket is short.
	dir, err := os.MkdirTemp("", "rnic-interop-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	h := &host{ns: ns, dir: dir}
	args := []string{"up"}
	if fault != "" {
		args = append(args, "--fault", fault)
	}
	var log bytes.Buffer
	h.nic = h.command(binary(t), args...)
	h.nic.Stdout, h.nic.Stderr = &log, &log
	h.ns.Do(func() { err = h.nic.Start() })
	if err != nil {
		t.Fatalf("start the NIC: %v", err)
	}
	t.Cleanup(func() {
		_ = h.nic.Process.Signal(syscall.SIGTERM)
		_ = h.nic.Wait()
		if t.Failed() {
			t.Logf("log of the NIC:\n%s", log.String())
		}
	})
	return h
}

func binary(t *testing.T) string {
	t.Helper()
	name := os.Getenv("RNIC_BIN")
	if name == "" {
		name = filepath.Join("..", "..", "bin", "rnic")
	}
	name, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(name); err != nil {
		t.Fatalf("no binary to test, run make build: %v", err)
	}
	return name
}

func (h *host) command(name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Env = []string{
		"PATH=" + os.Getenv("PATH"), "LANG=C", "HOME=" + h.dir, "XDG_RUNTIME_DIR=" + h.dir,
	}
	// Nothing outlives a test that times out.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	c.WaitDelay = time.Second
	return c
}

func (h *host) device() string { return "rnic0" }

func (h *host) start(t *testing.T, args ...string) *program {
	t.Helper()
	c := h.command(binary(t), append([]string{"run", "--"}, args...)...)
	var output bytes.Buffer
	c.Stdout, c.Stderr = &output, &output
	var err error
	h.ns.Do(func() { err = c.Start() })
	if err != nil {
		t.Fatalf("start %s: %v", args[0], err)
	}
	p := &program{
		name: "host: " + strings.Join(args, " "), pid: c.Process.Pid, done: make(chan result, 1),
		stop: func() { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) },
	}
	ended := make(chan struct{})
	go func() {
		err := c.Wait()
		r := result{Status: c.ProcessState.ExitCode(), Output: output.String()}
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			r.Error = err.Error()
		}
		p.done <- r
		close(ended)
	}()
	t.Cleanup(func() {
		select {
		case <-ended:
		default:
			p.stop()
			<-ended
		}
	})
	return p
}

// awaitPort waits until the program's namespace has a listening socket on the port.
func (h *host) awaitPort(t *testing.T, p *program) {
	t.Helper()
	for range 1000 {
		for _, table := range []string{"tcp", "tcp6"} {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", p.pid, table))
			if err == nil && listening.Match(text) {
				return
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s does not listen", p.name)
}
