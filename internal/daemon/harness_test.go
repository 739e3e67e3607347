package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/daemon"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/verbs"
)

// testTimeout bounds every wait of a test.
const testTimeout = 20 * time.Second

// testLog shows the NIC's log with the test that failed.
type testLog struct{ t testing.TB }

func (l testLog) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

func start(t testing.TB, c daemon.Config) *daemon.Daemon {
	t.Helper()
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(testLog{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	d, err := daemon.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return d
}

// startLocal starts an embedded NIC without a network.
func startLocal(t testing.TB) *daemon.Daemon {
	return start(t, daemon.Config{Embedded: true, NoNetwork: true})
}

type connector struct{ d *daemon.Daemon }

func (c connector) Connect(context.Context) (*net.UnixConn, error) { return c.d.Connect() }

func open(t testing.TB, d *daemon.Daemon) *verbs.Context {
	t.Helper()
	c, err := verbs.Open(t.Context(), "", verbs.WithConnector(connector{d}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

const allRights = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead |
	verbs.AccessRemoteAtomic

// end is one end of a connection: a context with one of everything.
type end struct {
	t   testing.TB
	ctx *verbs.Context
	pd  *verbs.PD
	cq  *verbs.CQ
	qp  *verbs.QP
	mr  *verbs.MR
}

func newEnd(t testing.TB, c *verbs.Context, typ verbs.QPType, bytes int, mapped bool) *end {
	t.Helper()
	e := &end{t: t, ctx: c}
	var err error
	must := func(what string) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	e.pd, err = c.AllocPD()
	must("PD")
	e.cq, err = c.CreateCQ(verbs.CQConfig{Entries: 256})
	must("CQ")
	e.qp, err = e.pd.CreateQP(verbs.QPConfig{Type: typ, SendCQ: e.cq, MaxSendWR: 64, MaxRecvWR: 64})
	must("QP")
	if mapped {
		e.mr, err = e.pd.AllocMemory(bytes, allRights)
	} else {
		e.mr, err = e.pd.Register(make([]byte, bytes), allRights)
	}
	must("MR")
	return e
}

func connect(t testing.TB, a, b *end) {
	t.Helper()
	toA, err1 := a.qp.Endpoint()
	toB, err2 := b.qp.Endpoint()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.qp.ConnectTo(toB), b.qp.ConnectTo(toA)); err != nil {
		t.Fatal(err)
	}
}

// pair makes two connected RC ends in contexts of their own.
func pair(t testing.TB, d *daemon.Daemon, bytes int, mapped bool) (a, b *end) {
	t.Helper()
	a = newEnd(t, open(t, d), rdma.QPTypeRC, bytes, mapped)
	b = newEnd(t, open(t, d), rdma.QPTypeRC, bytes, mapped)
	connect(t, a, b)
	return a, b
}

func (e *end) post(wr verbs.SendWR) {
	e.t.Helper()
	wr.Flags |= verbs.SendSignaled
	if _, err := e.qp.PostSend(wr); err != nil {
		e.t.Fatalf("post: %v", err)
	}
}

// await polls one completion.
func (e *end) await() verbs.WC {
	e.t.Helper()
	var wcs [1]verbs.WC
	for deadline := time.Now().Add(testTimeout); ; {
		n, err := e.cq.Poll(wcs[:])
		if err != nil {
			e.t.Fatalf("poll: %v", err)
		}
		if n == 1 {
			return wcs[0]
		}
		if time.Now().After(deadline) {
			e.t.Fatalf("no completion\n%s", stacks())
		}
		runtime.Gosched()
	}
}

func (e *end) ok() verbs.WC {
	e.t.Helper()
	wc := e.await()
	if err := wc.Err(); err != nil {
		e.t.Fatalf("completion: %v", err)
	}
	return wc
}

func (e *end) recv(id uint64, off, n int) {
	e.t.Helper()
	if _, err := e.qp.PostRecv(verbs.RecvWR{ID: id, SGE: e.mr.SGE(off, n)}); err != nil {
		e.t.Fatalf("post receive: %v", err)
	}
}

func fill(b []byte, seed int) {
	for i := range b {
		b[i] = byte(i*7 + seed)
	}
}

func stacks() string {
	b := make([]byte, 1<<20)
	return string(b[:runtime.Stack(b, true)])
}

func countFDs(t testing.TB) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// countMaps counts the mappings of shared memory that a NIC makes.
func countMaps(t testing.TB) int {
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(text), "memfd:rnic")
}

// eventually waits for a condition that another goroutine brings about.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("in vain: %s\n%s", what, stacks())
		}
	}
}

// settled runs f between two counts of goroutines, descriptors and mappings, which must agree.
func settled(t *testing.T, f func()) {
	t.Helper()
	f() // whatever the runtime makes once
	runtime.GC()
	goroutines, fds, maps := runtime.NumGoroutine(), countFDs(t), countMaps(t)
	f()
	eventually(t, fmt.Sprintf("%d goroutines, %d descriptors, %d mappings again", goroutines, fds,
		maps), func() bool {
		return runtime.NumGoroutine() <= goroutines && countFDs(t) <= fds && countMaps(t) <= maps
	})
}
