package daemon_test

import (
	"errors"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/verbs"
)

// TestDaemon_PostUntilFull_NeverOverruns: two queue pairs complete into a queue as deep as both.
// Who posts until there is no room, and only then polls, sees every completion once, however fast
// the NIC is.
func TestDaemon_PostUntilFull_NeverOverruns(t *testing.T) {
	d := startLocal(t)
	a := newEnd(t, open(t, d), rdma.QPTypeRC, 4096, true)
	b := newEnd(t, open(t, d), rdma.QPTypeRC, 4096, true)
	a.mustNarrow(t)
	other := *a
	far := newEnd(t, b.ctx, rdma.QPTypeRC, 4096, true)
	var err error
	if other.qp, err = a.pd.CreateQP(a.narrow()); err != nil {
		t.Fatal(err)
	}
	connect(t, a, b)
	connect(t, &other, far)
	var next [2]uint64
	for round := range uint64(50) {
		for i, e := range []*end{a, &other} {
			target := []*end{b, far}[i]
			if n := e.postUntilFull(target, 8*round); n != 8 {
				t.Fatalf("round %d: %d requests fit", round, n)
			}
		}
		if round%10 == 0 {
			time.Sleep(time.Millisecond) // so that all of them are done
		}
		for range 16 {
			wc := a.ok()
			i := 0
			if wc.QPN == other.qp.QPN() {
				i = 1
			}
			if wc.ID != next[i] {
				t.Fatalf("round %d: completion %d, want %d", round, wc.ID, next[i])
			}
			next[i]++
		}
	}
}

// narrow describes queue pairs of eight requests.
func (e *end) narrow() verbs.QPConfig {
	return verbs.QPConfig{Type: rdma.QPTypeRC, SendCQ: e.cq, MaxSendWR: 8, MaxRecvWR: 8}
}

// mustNarrow replaces the queues by narrow ones.
func (e *end) mustNarrow(t *testing.T) {
	t.Helper()
	var err error
	if e.cq, err = e.ctx.CreateCQ(verbs.CQConfig{Entries: 16}); err != nil {
		t.Fatal(err)
	}
	if e.qp, err = e.pd.CreateQP(e.narrow()); err != nil {
		t.Fatal(err)
	}
}

// postUntilFull posts WRITEs until there is no room, and some time longer.
func (e *end) postUntilFull(to *end, first uint64) int {
	e.t.Helper()
	n := 0
	for retries := 0; retries < 5; {
		_, err := e.qp.PostSend(verbs.SendWR{
			ID: first + uint64(n), Opcode: verbs.WRWrite, Flags: verbs.SendSignaled,
			SGE: e.mr.SGE(0, 64), RemoteAddr: to.mr.Addr(), RKey: to.mr.RKey(),
		})
		switch {
		case err == nil:
			n++
		case errors.Is(err, verbs.ErrQueueFull):
			retries++
			time.Sleep(20 * time.Microsecond)
		default:
			e.t.Fatalf("post: %v", err)
		}
	}
	return n
}
