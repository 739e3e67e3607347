package rnet_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/softrnic/softrnic"
	"github.com/softrnic/softrnic/rdmacm"
	"github.com/softrnic/softrnic/rdmacm/rnet"
	"github.com/softrnic/softrnic/verbs"
)

// patience bounds what must happen.
const patience = time.Minute

// roleEnv makes this test program play a part in another process.
const roleEnv = "RNET_TEST_ROLE"

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(roleEnv) {
	case "":
		os.Exit(m.Run())
	case "nic":
		err = playNIC()
	case "source":
		err = playSource()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// playNIC serves at RNIC_SOCKET until standard input ends.
func playNIC() error {
	nic, err := softrnic.Start(context.Background(), softrnic.Config{Socket: os.Getenv("RNIC_SOCKET")})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nic.Close()
}

// playSource writes what it is told to the address that it is told, and ends at once after Close.
// With the word "hang" it does not close.
func playSource() error {
	in := bufio.NewReader(os.Stdin)
	var address, how string
	var bytes int
	if _, err := fmt.Fscan(in, &address, &bytes, &how); err != nil {
		return err
	}
	c, err := rnet.Dial("rdma", address)
	if err != nil {
		return err
	}
	if _, err := c.Write(pattern(bytes)); err != nil {
		return err
	}
	if how == "hang" {
		fmt.Println("written")
		_, _ = io.Copy(io.Discard, in)
	}
	return c.Close()
}

// pattern is content in which every shift shows.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8*13 + i>>16)
	}
	return b
}

// role is a process of this test program.
type role struct {
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Scanner
}

func startRole(t *testing.T, name, socket string) *role {
	t.Helper()
	r := &role{cmd: exec.Command(os.Args[0])}
	r.cmd.Env = append(os.Environ(), roleEnv+"="+name, "RNIC_SOCKET="+socket)
	r.cmd.Stderr = os.Stderr
	in, err := r.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.in, r.out = in, bufio.NewScanner(out)
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		r.kill()
	})
	return r
}

func (r *role) kill() {
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
}

func (r *role) line(t *testing.T) string {
	t.Helper()
	if !r.out.Scan() {
		t.Fatalf("the process ended: %v", r.out.Err())
	}
	return r.out.Text()
}

func startNICProcess(t *testing.T) (socket string, nic *role) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "nic.sock")
	nic = startRole(t, "nic", socket)
	if got := nic.line(t); got != "ready" {
		t.Fatalf("the NIC says %q", got)
	}
	return socket, nic
}

func startNIC(t testing.TB, c softrnic.Config) *softrnic.NIC {
	t.Helper()
	nic, err := softrnic.Start(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := nic.Close(); err != nil {
			t.Errorf("close the NIC: %v", err)
		}
	})
	return nic
}

// hosts are two NICs on one wire, at 10.0.0.1 and 10.0.0.2, with faults as the text says.
func hosts(t testing.TB, fault string) (a, b *softrnic.NIC) {
	t.Helper()
	wire := softrnic.NewNetwork()
	at := func(addr string) *softrnic.NIC {
		return startNIC(t, softrnic.Config{
			Network: wire, Device: "rnic-" + addr, Fault: fault,
			Addresses: []netip.Addr{netip.MustParseAddr(addr)},
		})
	}
	return at("10.0.0.1"), at("10.0.0.2")
}

func on(nic verbs.Connector) rnet.Config { return rnet.Config{CM: rdmacm.Config{NIC: nic}} }

func listen(t testing.TB, cfg rnet.Config) *rnet.Listener {
	t.Helper()
	l, err := rnet.Listen("rdma", ":0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// soon returns a context that ends with the test's patience.
func soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// pair returns the two ends of a connection from cfgA to a listener of cfgB at host.
func pair(t testing.TB, host string, cfgA, cfgB rnet.Config) (a, b *rnet.Conn) {
	t.Helper()
	l := listen(t, cfgB)
	a = dial(t, l, host, cfgA)
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	b = c.(*rnet.Conn)
	t.Cleanup(func() { _ = b.Close() })
	limit := time.Now().Add(patience)
	_, _ = a.SetDeadline(limit), b.SetDeadline(limit)
	return a, b
}

func dial(t testing.TB, l *rnet.Listener, host string, cfg rnet.Config) *rnet.Conn {
	t.Helper()
	d := rnet.Dialer{Config: cfg}
	c, err := d.DialContext(soon(t), "rdma", net.JoinHostPort(host, portOf(l)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(*rnet.Conn)
}

func portOf(l interface{ Addr() net.Addr }) string {
	addr := l.Addr().String()
	return addr[strings.LastIndexByte(addr, ':')+1:]
}

// settles waits until a count is back at what it was.
func settles(t testing.TB, what string, want int, count func() int) {
	t.Helper()
	for limit := time.Now().Add(patience); count() > want; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			buf := make([]byte, 1<<16)
			t.Fatalf("%d %s, %d before\n%s", count(), what, want, buf[:runtime.Stack(buf, true)])
		}
	}
}

func descriptors() int {
	list, _ := os.ReadDir("/proc/self/fd")
	return len(list)
}
