package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softrnic/softrnic/test/netnstest"
)

// programWait bounds one program; a measurement takes a few seconds.
const programWait = 2 * time.Minute

// bench is one run of everything.
type bench struct {
	runs     int
	rows     *regexp.Regexp // those to measure
	rnic     string
	dir      string
	port     int
	failed   bool
	cleanups []func()
}

// path is where the two programs of a measurement run.
type path struct {
	name           string
	server, client *host
	address        string // of the server
}

// host is a network namespace, or this machine, with a NIC of its own.
type host struct {
	ns  *netnstest.Namespace
	env []string
}

// borrowedTB lets namespaces for tests serve a program.
type borrowedTB struct {
	testing.TB
	bench *bench
}

func (borrowedTB) Helper() {}

func (t borrowedTB) Cleanup(f func()) { t.bench.cleanups = append(t.bench.cleanups, f) }

func (t borrowedTB) Skipf(format string, args ...any) { panic(fmt.Errorf(format, args...)) }

func (t borrowedTB) Fatalf(format string, args ...any) { panic(fmt.Errorf(format, args...)) }

func (t borrowedTB) Fatal(args ...any) { panic(errors.New(fmt.Sprint(args...))) }

func (b *bench) prepare(binary string) error {
	var err error
	if b.rnic, err = filepath.Abs(binary); err != nil {
		return err
	}
	if _, err := os.Stat(b.rnic); err != nil {
		return fmt.Errorf("nothing to measure, run make build: %w", err)
	}
	for _, name := range []string{"ib_write_bw", "qperf"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("%s is not installed: scripts/deps.sh bench", name)
		}
	}
	if b.dir, err = os.MkdirTemp("", "rnic-bench-"); err != nil {
		return err
	}
	b.port = 22000 + os.Getpid()%1000
	return nil
}

func (b *bench) cleanUp() {
	for i := len(b.cleanups) - 1; i >= 0; i-- {
		b.cleanups[i]()
	}
	_ = os.RemoveAll(b.dir)
}

// paths returns this host, and two namespaces with a link of each of the usual sizes.
func (b *bench) paths() []path {
	self := b.newHost(nil)
	paths := []path{{name: "one host", server: self, client: self, address: "127.0.0.1"}}
	for _, mtu := range []int{1500, 9000} {
		name := fmt.Sprintf("veth, MTU %d", mtu)
		p, err := b.vethPath(name, mtu)
		if err != nil {
			fmt.Printf("%s: not measured: %v\n", name, err)
			continue
		}
		paths = append(paths, p)
	}
	return paths
}

func (b *bench) vethPath(name string, mtu int) (p path, err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err, _ = problem.(error)
		}
	}()
	one, two := netnstest.Pair(borrowedTB{bench: b}, mtu)
	return path{name, b.newHost(one), b.newHost(two), one.V4.String()}, nil
}

// newHost gives a host a home, and with it a NIC, of its own.
func (b *bench) newHost(ns *netnstest.Namespace) *host {
	dir, err := os.MkdirTemp(b.dir, "home-")
	if err != nil {
		panic(err)
	}
	return &host{ns: ns, env: append(os.Environ(),
		"HOME="+dir, "XDG_RUNTIME_DIR="+dir, "RNIC_SOCKET="+filepath.Join(dir, "rnic.sock"))}
}

// command prepares a program on the host.
func (h *host) command(name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Env = h.env
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return c
}

func (h *host) start(c *exec.Cmd) (err error) {
	if h.ns == nil {
		return c.Start()
	}
	h.ns.Do(func() { err = c.Start() })
	return err
}

// tcpListens is the readiness of a server that listens on a TCP port.
func (b *bench) tcpListens(port int) func(pid int) bool {
	return func(pid int) bool { return listens(pid, port) }
}

// pair runs a server and, once it is ready, a client, and returns what the client printed.
func (p path) pair(server, client *exec.Cmd, ready func(pid int) bool) (string, error) {
	var said, report bytes.Buffer
	server.Stdout, server.Stderr = &said, &said
	client.Stdout, client.Stderr = &report, &report
	if err := p.server.start(server); err != nil {
		return "", err
	}
	serverDone := make(chan struct{})
	go func() {
		_ = server.Wait()
		close(serverDone)
	}()
	defer func() {
		_ = syscall.Kill(-server.Process.Pid, syscall.SIGKILL)
		<-serverDone
	}()
	for !ready(server.Process.Pid) {
		select {
		case <-serverDone:
			return "", fmt.Errorf("the server has ended: %s", said.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
	if err := p.client.start(client); err != nil {
		return "", err
	}
	watchdog := time.AfterFunc(programWait, func() { _ = client.Process.Kill() })
	defer watchdog.Stop()
	if err := client.Wait(); err != nil {
		return "", fmt.Errorf("%w: %s", err, strings.TrimSpace(report.String()))
	}
	return report.String(), nil
}

// listens looks a TCP port up in the tables of the namespace that the process is in.
func listens(pid, port int) bool {
	local := fmt.Sprintf(":%04X", port)
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) > 3 && strings.HasSuffix(fields[1], local) && fields[3] == "0A" {
				return true
			}
		}
	}
	return false
}
