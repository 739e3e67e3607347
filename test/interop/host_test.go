package interop

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/softrnic/softrnic/test/netnstest"
)

// host is our side: programs on bin/rnic in a namespace.
type host struct {
	ns  *netnstest.Namespace
	dir string
	// programs is a directory of programs that are on no path.
	programs string
	own      string // name of the device that programs are to use
	nic      *exec.Cmd
	log      nicLog
	peer     *guest // at the other end of the cable, if programs are to talk to it
}

// nicLog is what a NIC has logged so far.
type nicLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *nicLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *nicLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// newHost starts a NIC in the namespace. Programs use its device own; up are options of "rnic up".
func newHost(t *testing.T, ns *netnstest.Namespace, img image, up ...string) *host {
	t.Helper()
	// Not t.TempDir: the path of a socket is short.
	dir, err := os.MkdirTemp("", "rnic-interop-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	h := &host{ns: ns, dir: dir, programs: img.programs, own: img.driver.ours}
	h.nic = h.command(binary(t), append([]string{"up"}, up...)...)
	h.nic.Stdout, h.nic.Stderr = &h.log, &h.log
	h.ns.Do(func() { err = h.nic.Start() })
	if err != nil {
		t.Fatalf("start the NIC: %v", err)
	}
	t.Cleanup(func() {
		_ = h.nic.Process.Signal(syscall.SIGTERM)
		_ = h.nic.Wait()
		if t.Failed() {
			t.Logf("log of the NIC:\n%s", h.log.String())
		}
	})
	h.awaitNIC(t)
	return h
}

// awaitNIC waits until the NIC answers.
func (h *host) awaitNIC(t *testing.T) {
	t.Helper()
	for range 500 {
		var err error
		c := h.command(binary(t), "ps", "--json")
		h.ns.Do(func() { err = c.Run() })
		if err == nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("the NIC does not answer")
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
		"PATH=" + h.programs + ":" + os.Getenv("PATH"), "LANG=C", "HOME=" + h.dir,
		"XDG_RUNTIME_DIR=" + h.dir, "RNIC_DEVICE=" + h.own,
	}
	// Nothing outlives a test that times out.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	c.WaitDelay = time.Second
	return c
}

func (h *host) device() string { return h.own }

func (h *host) start(t *testing.T, args ...string) *program {
	t.Helper()
	rnic := append([]string{"run", "--"}, args...)
	if args[0] == "rnic" {
		rnic = args[1:]
	}
	c := h.command(binary(t), rnic...)
	var output bytes.Buffer
	c.Stdout, c.Stderr = &output, &output
	var err error
	h.ns.Do(func() { err = c.Start() })
	if err != nil {
		t.Fatalf("start %s: %v", args[0], err)
	}
	p := &program{
		name: "host: " + strings.Join(args, " "), pid: c.Process.Pid, done: make(chan result, 1),
		peer: h.peer,
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

// awaitTCP waits until the program's namespace has a listening socket on the port.
func (h *host) awaitTCP(t *testing.T, p *program, port int) {
	t.Helper()
	listening := regexp.MustCompile(fmt.Sprintf(`: [0-9A-F]+:%04X [0-9A-F]+:0000 0A `, port))
	h.await(t, p, func() bool {
		for _, table := range []string{"tcp", "tcp6"} {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", p.pid, table))
			if err == nil && listening.Match(text) {
				return true
			}
		}
		return false
	})
}

// awaitCM waits until a program listens for connections of rdma_cm.
func (h *host) awaitCM(t *testing.T, p *program) {
	t.Helper()
	h.await(t, p, func() bool {
		var users struct {
			CMIDs []struct {
				State string `json:"state"`
			} `json:"cm_ids"`
		}
		h.ask(t, &users, "ps", "--json")
		for _, id := range users.CMIDs {
			if id.State == "listening" {
				return true
			}
		}
		return false
	})
}

// awaitGroup waits until a queue pair is in the group; no other has a member.
func (h *host) awaitGroup(t *testing.T, p *program, _ netip.Addr) {
	t.Helper()
	h.await(t, p, func() bool {
		var device struct {
			Groups []struct {
				QPNs []uint32 `json:"qpns"`
			} `json:"multicast_groups"`
		}
		h.ask(t, &device, "devinfo", "--json")
		for _, g := range device.Groups {
			if len(g.QPNs) > 0 {
				return true
			}
		}
		return false
	})
}

// ask has the binary tell something as JSON.
func (h *host) ask(t *testing.T, into any, args ...string) {
	t.Helper()
	c := h.command(binary(t), args...)
	var out []byte
	var err error
	h.ns.Do(func() { out, err = c.Output() })
	if err == nil {
		err = json.Unmarshal(out, into)
	}
	if err != nil {
		t.Fatalf("rnic %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// await waits until something holds by what the program p does.
func (h *host) await(t *testing.T, p *program, holds func() bool) {
	t.Helper()
	for range 1000 {
		if holds() {
			return
		}
		if len(p.done) > 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	p.stop()
	t.Fatalf("%s is not ready\n%s", p.name, p.end(t).Output)
}
