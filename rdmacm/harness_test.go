package rdmacm_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/softrnic/softrnic/rdmacm"
	"github.com/softrnic/softrnic/test/nictest"
	"github.com/softrnic/softrnic/verbs"
)

func TestMain(m *testing.M) {
	nictest.Main(m, map[string]func() error{"server": playServer, "client": playClient})
}

// addressEnv is where the server listens, if not just anywhere.
const addressEnv = "RDMACM_TEST_ADDRESS"

// stateEnv is how far the server and the client go before they do nothing any more, until they
// are killed: "listening", "asked" or, when it is not set, "connected".
const stateEnv = "RDMACM_TEST_STATE"

func hang() { _, _ = io.Copy(io.Discard, os.Stdin) }

// playClient dials addressEnv.
func playClient() error {
	fmt.Println("dialing")
	_, err := rdmacm.Dial(context.Background(), "rdma", os.Getenv(addressEnv), rdmacm.Config{})
	if err != nil {
		return err
	}
	fmt.Println("connected")
	hang()
	return nil
}

// playServer accepts one connection.
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
	state := os.Getenv(stateEnv)
	if state == "listening" {
		hang()
	}
	r, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	if state == "asked" {
		fmt.Println("asked")
		hang()
	}
	if _, err := r.Accept(ctx, rdmacm.Config{}); err != nil {
		return err
	}
	fmt.Println("connected")
	hang()
	return nil
}

func portOf(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

func listen(t testing.TB, network, address string, cfg rdmacm.Config) *rdmacm.Listener {
	t.Helper()
	l, err := rdmacm.Listen(nictest.Soon(t), network, address, cfg)
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
		r, err := l.Accept(nictest.Soon(t))
		if err != nil {
			accepted <- result{nil, err}
			return
		}
		conn, err := r.Accept(nictest.Soon(t), passive)
		accepted <- result{conn, err}
	}()
	a, err := rdmacm.Dial(nictest.Soon(t), "rdma", address, active)
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
		if err := cq.Wait(nictest.Soon(t)); err != nil {
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
	s, err := rdmacm.Share(nictest.Soon(t), nic)
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
