package daemon_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/daemon"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/verbs"
)

// withoutDescriptors runs f while this process can open nothing more.
func withoutDescriptors(t *testing.T, f func()) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	next, err := unix.Dup(0)
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(next)
	none := unix.Rlimit{Cur: uint64(next), Max: was.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Fatal(err)
		}
	}()
	f()
}

// A program without a descriptor left is told so before an object is made that it could not use:
// the protection domain can go, and nothing of it stays with the NIC.
func TestVerbs_ProgramOutOfDescriptors_NothingIsMade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nic.sock")
	p := startProcess(t, "nic", ctl.SocketEnv+"="+path)
	if p.line() != "ready" {
		t.Fatal("NIC not ready")
	}
	c, err := verbs.Open(t.Context(), "", verbs.WithSocket(path))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	e := newEnd(t, c, rdma.QPTypeRC, 64, true)
	pd, err := c.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	withoutDescriptors(t, func() {
		tries := map[string]func() error{
			"channel": func() error { _, err := c.CreateCompletionChannel(); return err },
			"CQ":      func() error { _, err := c.CreateCQ(verbs.CQConfig{PollOnly: true}); return err },
			"SRQ":     func() error { _, err := pd.CreateSRQ(verbs.SRQConfig{MaxWR: 1}); return err },
			"QP": func() error {
				_, err := pd.CreateQP(verbs.QPConfig{Type: rdma.QPTypeRC, SendCQ: e.cq, MaxSendWR: 1})
				return err
			},
			"device memory": func() error { _, err := c.AllocDeviceMemory(4096); return err },
			"memory":        func() error { _, err := pd.AllocMemory(4096, allRights); return err },
		}
		for name, try := range tries {
			err := try()
			if !errors.Is(err, unix.EMFILE) || !strings.Contains(err.Error(), "ulimit -n") {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	if err := pd.Close(); err != nil {
		t.Errorf("the domain holds something: %v", err)
	}
}

// The queues of one program take no more memory than it may have, and another has as much.
func TestVerbs_QueueMemoryUsedUp_IsToldToThatProgram(t *testing.T) {
	d := start(t, daemon.Config{Embedded: true, NoNetwork: true, Limits: "queue-memory=1000000"})
	for range 2 {
		c := open(t, d)
		var queues []*verbs.CQ
		var err error
		for err == nil && len(queues) < 10 {
			var q *verbs.CQ
			if q, err = c.CreateCQ(verbs.CQConfig{Entries: 4096, PollOnly: true}); err == nil {
				queues = append(queues, q)
			}
		}
		if len(queues) != 3 || !errors.Is(err, unix.ENOMEM) ||
			!strings.Contains(err.Error(), "limit of 1000000 bytes") {
			t.Errorf("%d queues, then %v", len(queues), err)
		}
		if err := queues[0].Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.CreateCQ(verbs.CQConfig{Entries: 4096, PollOnly: true}); err != nil {
			t.Errorf("in the place of one that has gone: %v", err)
		}
	}
	if status, _ := d.Status(); status.Limits["queue-memory"] != 1000000 || status.Limits["qps"] == 0 {
		t.Errorf("told: %v", status.Limits)
	}
}

// A program that makes channels without end takes the NIC's descriptors, but for those with which
// others get in.
func TestVerbs_ChannelsWithoutEnd_OthersGetIn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nic.sock")
	p := startProcess(t, "nic", ctl.SocketEnv+"="+path, "FDS=200")
	if p.line() != "ready" {
		t.Fatal("NIC not ready")
	}
	greedy, err := verbs.Open(t.Context(), "", verbs.WithSocket(path))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = greedy.Close() }()
	for n := 0; err == nil; n++ {
		if _, err = greedy.CreateCompletionChannel(); n == 200 {
			t.Fatal("more channels than descriptors")
		}
	}
	if !errors.Is(err, unix.EMFILE) || !strings.Contains(err.Error(), "ulimit -n") {
		t.Errorf("in the end: %v", err)
	}
	for range 4 {
		c, err := verbs.Open(t.Context(), "", verbs.WithSocket(path))
		if err != nil {
			t.Fatalf("another program: %v", err)
		}
		defer func() { _ = c.Close() }()
	}
}
