package softrnic_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/softrnic/softrnic"
	"github.com/softrnic/softrnic/verbs"
)

// patience bounds what must happen.
const patience = time.Minute

// roleEnv makes this test program play a part in another process: a NIC, or a program whose
// memory is a target.
const roleEnv = "SOFTRNIC_TEST_ROLE"

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(roleEnv) {
	case "":
		os.Exit(m.Run())
	case "nic":
		err = playNIC()
	case "target":
		err = playTarget()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// playNIC serves at RNIC_SOCKET until standard input ends, as it does when the test dies.
func playNIC() error {
	nic, err := softrnic.Start(context.Background(), softrnic.Config{Socket: os.Getenv("RNIC_SOCKET")})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nic.Close()
}

// playTarget offers 64 bytes of Go memory to the endpoint that it reads, and says where they are.
func playTarget() error {
	dev, err := verbs.Open(context.Background(), "")
	if err != nil {
		return err
	}
	defer dev.Close()
	e, err := newEnd(dev, verbs.QPConfig{Type: verbs.QPTypeRC})
	if err != nil {
		return err
	}
	memory := make([]byte, 64)
	copy(memory, "the target's own words")
	mr, err := e.pd.Register(memory, verbs.AccessAll)
	if err != nil {
		return err
	}
	fmt.Println(e.point, mr.Addr(), uint32(mr.RKey()))
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	var peer verbs.Endpoint
	if err := peer.UnmarshalText([]byte(strings.TrimSpace(line))); err != nil {
		return err
	}
	if err := e.qp.ConnectTo(peer); err != nil {
		return err
	}
	fmt.Println("connected")
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	fmt.Printf("%q\n", memory[:32])
	return nil
}

// role is a process of this test program.
type role struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
	once sync.Once
}

func startRole(t *testing.T, name, socket string) *role {
	t.Helper()
	r := &role{cmd: exec.Command(os.Args[0])}
	r.cmd.Env = append(os.Environ(), roleEnv+"="+name, "RNIC_SOCKET="+socket)
	r.cmd.Stderr = os.Stderr
	var err error
	if r.in, err = r.cmd.StdinPipe(); err != nil {
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
	t.Cleanup(r.kill)
	return r
}

func (r *role) kill() {
	r.once.Do(func() {
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
	})
}

// line returns the next line that the process prints.
func (r *role) line(t *testing.T) string {
	t.Helper()
	if !r.out.Scan() {
		t.Fatalf("the %v process ended: %v", r.cmd.Args, r.out.Err())
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

// end is a queue pair with what it needs.
type end struct {
	dev   *verbs.Context
	pd    *verbs.PD
	cq    *verbs.CQ
	qp    *verbs.QP
	point verbs.Endpoint
}

func newEnd(dev *verbs.Context, cfg verbs.QPConfig) (*end, error) {
	e := &end{dev: dev}
	var err error
	if e.pd, err = dev.AllocPD(); err != nil {
		return nil, err
	}
	if e.cq, err = dev.CreateCQ(verbs.CQConfig{Entries: 64}); err != nil {
		return nil, err
	}
	cfg.SendCQ = e.cq
	if e.qp, err = e.pd.CreateQP(cfg); err != nil {
		return nil, err
	}
	e.point, err = e.qp.Endpoint()
	return e, err
}

// do posts one request and waits for its completion.
func (e *end) do(ctx context.Context, wr verbs.SendWR) error {
	wr.Flags |= verbs.SendSignaled
	if _, err := e.qp.PostSend(wr); err != nil {
		return err
	}
	wc, err := e.next(ctx)
	return errors.Join(err, wc.Err())
}

func (e *end) next(ctx context.Context) (verbs.WC, error) {
	var wcs [1]verbs.WC
	for {
		if err := e.cq.Wait(ctx); err != nil {
			return wcs[0], err
		}
		if n, err := e.cq.Poll(wcs[:]); n > 0 || err != nil {
			return wcs[0], err
		}
	}
}

// pair returns two connected ends.
func pair(t *testing.T, a, b *verbs.Context, cfg verbs.QPConfig) (x, y *end) {
	t.Helper()
	x, err := newEnd(a, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if y, err = newEnd(b, cfg); err != nil {
		t.Fatal(err)
	}
	if cfg.Type == verbs.QPTypeUD {
		err = errors.Join(x.qp.Activate(), y.qp.Activate())
	} else {
		err = errors.Join(x.qp.ConnectTo(y.point), y.qp.ConnectTo(x.point))
	}
	if err != nil {
		t.Fatal(err)
	}
	return x, y
}

func start(t *testing.T, c softrnic.Config) *softrnic.NIC {
	t.Helper()
	nic, err := softrnic.Start(t.Context(), c)
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

func open(t *testing.T, opts ...verbs.Option) *verbs.Context {
	t.Helper()
	dev, err := verbs.Open(t.Context(), "", opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Errorf("close the device: %v", err)
		}
	})
	return dev
}

// soon returns a context that ends with the test's patience.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// settles waits until a count is back at what it was.
func settles(t *testing.T, what string, want int, count func() int) {
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
