package daemon_test

import (
	"sync"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/daemon"
	"github.com/softrnic/softrnic/rdmacm"
	"github.com/softrnic/softrnic/verbs"
)

// crowd is many connections of iWARP within one NIC, with one receive of 8 bytes at each server.
type crowd struct {
	t       *testing.T
	session *rdmacm.Session
	mr      *verbs.MR
	cq      *verbs.CQ
	clients []*rdmacm.Conn
	servers []*rdmacm.Conn
}

func gather(t *testing.T, d *daemon.Daemon, count int) *crowd {
	t.Helper()
	c := &crowd{t: t}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	c.session, err = rdmacm.Open(t.Context(), connector{d})
	must(err)
	t.Cleanup(func() { _ = c.session.Close() })
	pd, err := c.session.PDOn(t.Context(), "iwarp0")
	must(err)
	c.mr, err = pd.AllocMemory(8*count+8, allRights)
	must(err)
	c.cq, err = pd.Context().CreateCQ(verbs.CQConfig{Entries: 4 * count})
	must(err)
	config := rdmacm.Config{
		Session: c.session, Device: "iwarp0", PD: pd,
		QP: verbs.QPConfig{SendCQ: c.cq, MaxSendWR: 2, MaxRecvWR: 2},
	}
	l, err := rdmacm.Listen(t.Context(), "rdma", "127.0.0.1:0", config)
	must(err)
	defer func() { _ = l.Close() }()
	var work sync.WaitGroup
	work.Go(func() { c.serve(l, config, count) })
	for range count {
		conn, err := rdmacm.Dial(t.Context(), "rdma", l.Addr().String(), config)
		must(err)
		c.clients = append(c.clients, conn)
	}
	work.Wait()
	if len(c.servers) != count {
		t.Fatalf("%d connections of %d were accepted", len(c.servers), count)
	}
	return c
}

// serve accepts connections.
func (c *crowd) serve(l *rdmacm.Listener, config rdmacm.Config, count int) {
	for i := range count {
		r, err := l.Accept(c.t.Context())
		if err != nil {
			c.t.Errorf("accept: %v", err)
			return
		}
		config.Prepare = func(qp *verbs.QP) error {
			_, err := qp.PostRecv(verbs.RecvWR{SGE: c.mr.SGE(8*i+8, 8)})
			return err
		}
		conn, err := r.Accept(c.t.Context(), config)
		if err != nil {
			c.t.Errorf("accept: %v", err)
			return
		}
		c.servers = append(c.servers, conn)
	}
}

// await polls so many good completions.
func (c *crowd) await(count int) {
	c.t.Helper()
	wcs := make([]verbs.WC, 64)
	for begin := time.Now(); count > 0; {
		n, err := c.cq.Poll(wcs)
		if err != nil || time.Since(begin) > testTimeout {
			c.t.Fatalf("%d completions are missing: %v", count, err)
		}
		for i := range wcs[:n] {
			if err := wcs[i].Err(); err != nil {
				c.t.Fatal(err)
			}
		}
		count -= n
	}
}

// TestScale_ManyConnectionsOfTCP_TakeTurnsAndThenSleep lets all connections send at once. When none
// does any more, the lane sleeps.
func TestScale_ManyConnectionsOfTCP_TakeTurnsAndThenSleep(t *testing.T) {
	const count = 300
	d := startIWARP(t)
	c := gather(t, d, count)
	copy(c.mr.Bytes(), "8 bytes.")
	for _, conn := range c.clients {
		if _, err := conn.QP().PostSend(verbs.SendWR{
			Opcode: verbs.WRSend, SGE: c.mr.SGE(0, 8), Flags: verbs.SendSignaled,
		}); err != nil {
			t.Fatal(err)
		}
	}
	c.await(2 * count)
	for i := range count {
		if got := string(c.mr.Bytes()[8*i+8:][:8]); got != "8 bytes." {
			t.Fatalf("connection %d has %q", i, got)
		}
	}
	before, _ := d.Status()
	time.Sleep(300 * time.Millisecond)
	after, _ := d.Status()
	if n := after.Lane["turns"] - before.Lane["turns"]; n > 100 {
		t.Errorf("%d turns while nothing was to be done", n)
	}
	if s := after.Streams; s.Connections != 2*count {
		t.Errorf("%+v", s)
	}
	for i := range count {
		_ = c.clients[i].Close()
		_ = c.servers[i].Close()
	}
	eventually(t, "all sockets are closed", func() bool {
		s, ok := d.Status()
		return ok && s.Streams.Connections == 0 && s.Streams.Closing == 0
	})
}
