package rdmacm_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/softrnic/softrnic/verbs"
)

// patience bounds what must happen.
const patience = time.Minute

// roleEnv makes this test program play a part in another process.
const roleEnv = "RDMACM_TEST_ROLE"

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(roleEnv) {
	case "":
		os.Exit(m.Run())
	case "nic":
		err = playNIC()
	case "server":
		err = playServer()
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

// addressEnv is where the server listens, if not just anywhere.
const addressEnv = "RDMACM_TEST_ADDRESS"

// playServer accepts one connection and then does nothing, until it is killed.
func playServer() error {
	ctx := context.Background()
	address := ":0"
	if a := os.Getenv(addressEnv); a != "" {
		address = a
	}
	l, err := rdmacm.Listen(ctx, "rdma", address, rdmacm.Config{})
	if err != nil {
		return err
	}
	fmt.Println(portOf(l.Addr().String()))
	r, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	if _, err := r.Accept(ctx, rdmacm.Config{}); err != nil {
		return err
	}
	fmt.Println("connected")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

func portOf(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

// role is a process of this test program.
type role struct {
	cmd *exec.Cmd
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
	r.out = bufio.NewScanner(out)
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

// line returns the next line that the process prints.
func (r *role) line(t *testing.T) string {
	t.Helper()
	if !r.out.Scan() {
		t.Fatalf("the process ended: %v", r.out.Err())
	}
	return r.out.Text()
}

// startNICProcess returns the socket of a NIC in another process.
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

// hosts are two NICs on one wire, at 10.0.0.1 and 10.0.0.2 and the same of IPv6.
func hosts(t testing.TB) (a, b *softrnic.NIC) {
	t.Helper()
	wire := softrnic.NewNetwork()
	at := func(v4, v6 string) *softrnic.NIC {
		return startNIC(t, softrnic.Config{
			Network: wire, Device: "rnic-" + v4,
			Addresses: []netip.Addr{netip.MustParseAddr(v4), netip.MustParseAddr(v6)},
		})
	}
	return at("10.0.0.1", "fd00::1"), at("10.0.0.2", "fd00::2")
}

// soon returns a context that ends with the test's patience.
func soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func listen(t testing.TB, network, address string, cfg rdmacm.Config) *rdmacm.Listener {
	t.Helper()
	l, err := rdmacm.Listen(soon(t), network, address, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("close the listener: %v", err)
		}
	})
	return l
}

// meet dials a listener and accepts.
func meet(
	t testing.TB, l *rdmacm.Listener, address string, active, passive rdmacm.Config,
) (a, b *rdmacm.Conn) {
	t.Helper()
	type result struct {
		conn *rdmacm.Conn
		err  error
	}
	accepted := make(chan result, 1)
	go func() {
		r, err := l.Accept(soon(t))
		if err != nil {
			accepted <- result{nil, err}
			return
		}
		conn, err := r.Accept(soon(t), passive)
		accepted <- result{conn, err}
	}()
	a, err := rdmacm.Dial(soon(t), "rdma", address, active)
	if err != nil {
		t.Fatal(err)
	}
	got := <-accepted
	if got.err != nil {
		t.Fatal(got.err)
	}
	b = got.conn
	t.Cleanup(func() {
		if err := errors.Join(a.Close(), b.Close()); err != nil {
			t.Errorf("close the connection: %v", err)
		}
	})
	return a, b
}

// next returns the next completion.
func next(t testing.TB, cq *verbs.CQ) verbs.WC {
	t.Helper()
	var wcs [1]verbs.WC
	for {
		if err := cq.Wait(soon(t)); err != nil {
			t.Fatal(err)
		}
		if n, err := cq.Poll(wcs[:]); n > 0 || err != nil {
			if err != nil {
				t.Fatal(err)
			}
			return wcs[0]
		}
	}
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

// inbox is memory for one receive, and the Config.Prepare that posts it.
type inbox struct {
	mr *verbs.MR
}

func newInbox(t testing.TB, pd *verbs.PD, n int) *inbox {
	t.Helper()
	mr, err := pd.AllocMemory(n, verbs.AccessLocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	return &inbox{mr}
}

func (b *inbox) post(qp *verbs.QP) error {
	_, err := qp.PostRecv(verbs.RecvWR{ID: 7, SGE: b.mr.SGE(0, b.mr.Len())})
	return err
}

func session(t testing.TB, nic verbs.Connector) *rdmacm.Session {
	t.Helper()
	s, err := rdmacm.Share(soon(t), nic)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the session: %v", err)
		}
	})
	return s
}
