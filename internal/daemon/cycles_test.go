package daemon_test

import (
	"errors"
	"io"
	"os"
	"runtime"
	"testing"

	"github.com/softrnic/softrnic/internal/daemon"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/verbs"
)

// cycleCount is how often things are made and destroyed: 200,000 times with RNIC_E2E_ALL=1.
func cycleCount() int {
	if os.Getenv("RNIC_E2E_ALL") != "" {
		return 200000
	}
	return 600
}

// TestCycles_EveryObject_NothingGrows makes one of everything and destroys it, again and again.
func TestCycles_EveryObject_NothingGrows(t *testing.T) {
	d := startLocal(t)
	c := open(t, d)
	gids, err := c.GIDs()
	if err != nil || len(gids) == 0 {
		t.Fatal(gids, err)
	}
	own := make([]byte, 1<<16)
	checkCycles(t, d, cycleCount(), func(i int) error {
		return cycle(c, verbs.AHAttr{DGID: gids[0].GID}, own[i%4096:], i)
	})
}

// TestCycles_Registrations_NothingGrow registers memory of every kind.
func TestCycles_Registrations_NothingGrow(t *testing.T) {
	d := startLocal(t)
	c := open(t, d)
	pd, err := c.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	own := make([]byte, 1<<16)
	checkCycles(t, d, cycleCount(), func(i int) error {
		var mr *verbs.MR
		var err error
		switch i % 4 {
		case 0:
			mr, err = pd.AllocMemory(4096, allRights)
		case 1:
			mr, err = pd.AllocNull()
		case 2:
			mr, err = pd.RegisterImplicit(allRights | rdma.AccessOnDemand)
		default:
			mr, err = pd.Register(own[i%4096:], allRights)
		}
		if err != nil {
			return err
		}
		return mr.Close()
	})
}

func checkCycles(t *testing.T, d *daemon.Daemon, count int, once func(i int) error) {
	t.Helper()
	run := func(n int) {
		for i := range n {
			if err := once(i); err != nil {
				t.Fatalf("cycle %d: %v", i, err)
			}
		}
	}
	run(100) // tables find their size
	heap, fds, maps, goroutines := heapNow(), countFDs(t), countMaps(t), runtime.NumGoroutine()
	run(count)
	eventually(t, "descriptors, mappings and goroutines as before", func() bool {
		return countFDs(t) <= fds && countMaps(t) <= maps && runtime.NumGoroutine() <= goroutines
	})
	if grown := heapNow() - heap; grown > 128<<10 {
		t.Errorf("%d bytes more on the heap after %d cycles", grown, count)
	}
	status, _ := d.Status()
	c := status.Contexts[0]
	if c.AHs+c.MWs+len(c.MRs)+len(c.CQs)+len(c.SRQs)+len(c.QPs)+int(c.DMBytes) != 0 {
		t.Errorf("left: %+v", c)
	}
}

// cycle makes one of everything, and destroys it in the opposite order.
func cycle(c *verbs.Context, to verbs.AHAttr, own []byte, i int) (err error) {
	var made []io.Closer
	add := func(object io.Closer, failed error) {
		if failed == nil {
			made = append(made, object)
		}
		err = errors.Join(err, failed)
	}
	pd, e := c.AllocPD()
	add(pd, e)
	channel, e := c.CreateCompletionChannel()
	add(channel, e)
	cq, e := c.CreateCQ(verbs.CQConfig{Entries: 8, Channel: channel})
	add(cq, e)
	if err != nil {
		return err
	}
	cfg := verbs.QPConfig{Type: rdma.QPTypeRC, SendCQ: cq, MaxSendWR: 4, MaxRecvWR: 4}
	if i%2 == 0 {
		cfg.SRQ, e = pd.CreateSRQ(verbs.SRQConfig{MaxWR: 4, MaxSGE: 1})
		add(cfg.SRQ, e)
	}
	if i%3 == 0 {
		cfg.Type = rdma.QPTypeUD
	}
	qp, e := pd.CreateQP(cfg)
	add(qp, e)
	ah, e := pd.CreateAH(to)
	add(ah, e)
	mr, e := pd.Register(own, allRights)
	add(mr, e)
	mw, e := pd.AllocWindow(verbs.MWType1)
	add(mw, e)
	dm, e := c.AllocDeviceMemory(4096)
	add(dm, e)
	for k := len(made) - 1; k >= 0; k-- {
		err = errors.Join(err, made[k].Close())
	}
	return err
}
