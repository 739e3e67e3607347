package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/softrnic/softrnic/internal/bench"
	"github.com/softrnic/softrnic/verbs"
)

const (
	// underway is how many operations of a round robin are at a time.
	underway = 16
	// settle is how long a NIC may still be busy with what was done to it.
	settle = 300 * time.Millisecond
)

// crowd is connected queue pairs of one program. Two and two are connected with each other.
type crowd struct {
	dev *verbs.Context
	cq  *verbs.CQ
	qps []*verbs.QP
	mr  *verbs.MR
}

// newCrowd connects so many, two at least.
func newCrowd(ctx context.Context, count int) (*crowd, error) {
	c := new(crowd)
	var err error
	if c.dev, err = verbs.Open(ctx, ""); err != nil {
		return nil, err
	}
	pd, err := c.dev.AllocPD()
	if err != nil {
		return nil, err
	}
	if c.cq, err = c.dev.CreateCQ(verbs.CQConfig{Entries: 2 * underway, PollOnly: true}); err != nil {
		return nil, err
	}
	if c.mr, err = pd.AllocMemory(4096, verbs.AccessAll); err != nil {
		return nil, err
	}
	cfg := verbs.QPConfig{
		Type: verbs.QPTypeRC, SendCQ: c.cq, MaxSendWR: underway, MaxRecvWR: 1,
		MaxSendSGE: 1, MaxRecvSGE: 1,
	}
	for len(c.qps) < max(count, 2) {
		a, err := pd.CreateQP(cfg)
		if err != nil {
			return nil, fmt.Errorf("queue pair %d: %w", len(c.qps), err)
		}
		b, err := pd.CreateQP(cfg)
		if err != nil {
			return nil, fmt.Errorf("queue pair %d: %w", len(c.qps)+1, err)
		}
		if err := join(a, b); err != nil {
			return nil, err
		}
		c.qps = append(c.qps, a, b)
	}
	return c, nil
}

func join(a, b *verbs.QP) error {
	one, err := a.Endpoint()
	if err != nil {
		return err
	}
	two, err := b.Endpoint()
	if err != nil {
		return err
	}
	return errors.Join(a.ConnectTo(two), b.ConnectTo(one))
}

// measureRoundRobin writes eight bytes over one queue pair after the other, sixteen at a time, and
// tells what an operation takes, and the NIC's memory for each queue pair.
func measureRoundRobin(ctx context.Context, args []string) (bench.Sample, error) {
	var count, operations, pid int
	if err := numbers(args, &count, &operations, &pid); err != nil {
		return nil, err
	}
	before, err := ownMemory(pid)
	if err != nil {
		return nil, err
	}
	c, err := newCrowd(ctx, count)
	if err != nil {
		return nil, err
	}
	defer c.dev.Close()
	time.Sleep(settle)
	after, err := ownMemory(pid)
	if err != nil {
		return nil, err
	}
	used := c.qps[:max(count, 1)]
	// Every queue pair works once before it counts.
	if _, err := c.write(used, max(len(used), 100)); err != nil {
		return nil, err
	}
	took, err := c.write(used, operations)
	if err != nil {
		return nil, err
	}
	return bench.Sample{
		bench.Cost:   float64(took.Nanoseconds()) / float64(operations),
		bench.Memory: max(after-before, 0) / float64(len(c.qps)),
	}, nil
}

func (c *crowd) write(qps []*verbs.QP, count int) (time.Duration, error) {
	wr := verbs.SendWR{
		Opcode: verbs.WRWrite, Flags: verbs.SendSignaled, SGE: c.mr.SGE(0, 8),
		RemoteAddr: c.mr.Addr() + 64, RKey: c.mr.RKey(),
	}
	var wcs [underway]verbs.WC
	begin, next := time.Now(), 0
	for posted, done := 0, 0; done < count; {
		for posted < count && posted-done < underway {
			if _, err := qps[next].PostSend(wr); err != nil {
				return 0, err
			}
			if next++; next == len(qps) {
				next = 0
			}
			posted++
		}
		n, err := c.cq.Poll(wcs[:])
		if err != nil {
			return 0, err
		}
		for i := range wcs[:n] {
			if err := wcs[i].Err(); err != nil {
				return 0, err
			}
		}
		done += n
	}
	return time.Since(begin), nil
}

// measureIdle watches a NIC with queue pairs that nobody uses.
func measureIdle(ctx context.Context, args []string) (bench.Sample, error) {
	var count, milliseconds, pid int
	if err := numbers(args, &count, &milliseconds, &pid); err != nil {
		return nil, err
	}
	c, err := newCrowd(ctx, count)
	if err != nil {
		return nil, err
	}
	defer c.dev.Close()
	if _, err := c.write(c.qps, len(c.qps)); err != nil {
		return nil, err
	}
	time.Sleep(settle)
	time.Sleep(settle)
	before, err := lookAt(pid)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	time.Sleep(time.Duration(milliseconds) * time.Millisecond)
	took := time.Since(begin)
	after, err := lookAt(pid)
	if err != nil {
		return nil, err
	}
	return bench.Sample{
		bench.CPUShare: 100 * float64(after.busy-before.busy) / float64(took),
		bench.WakeUps:  float64(after.sleeps-before.sleeps) / took.Seconds(),
	}, nil
}

// activity is what the threads of a process have done.
type activity struct {
	busy   time.Duration
	sleeps int // as often it woke up
}

func lookAt(pid int) (a activity, err error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil || len(threads) == 0 {
		return a, fmt.Errorf("process %d has no threads: %w", pid, errors.Join(err, os.ErrNotExist))
	}
	for _, thread := range threads {
		text, err := os.ReadFile(filepath.Join(thread, "schedstat"))
		if err != nil {
			continue // it has ended
		}
		if fields := bytes.Fields(text); len(fields) > 0 {
			ns, err := strconv.ParseInt(string(fields[0]), 10, 64)
			if err != nil {
				return a, err
			}
			a.busy += time.Duration(ns)
		}
		sleeps, err := statusNumber(filepath.Join(thread, "status"), "voluntary_ctxt_switches:")
		if err != nil {
			continue
		}
		a.sleeps += int(sleeps)
	}
	return a, nil
}

// ownMemory is what a process has for itself, in KiB: of a NIC all but the rings, which it shares
// with programs.
func ownMemory(pid int) (float64, error) {
	return statusNumber(fmt.Sprintf("/proc/%d/status", pid), "RssAnon:")
}

// statusNumber reads a line of a file such as /proc/1/status.
func statusNumber(name, key string) (float64, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, key); ok {
			return strconv.ParseFloat(strings.Fields(value)[0], 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", name, key)
}
