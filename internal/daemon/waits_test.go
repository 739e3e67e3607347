package daemon_test

import (
	"log/slog"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/daemon"
)

// lines keeps a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestWaits_ProgramHangsForItself_LogSaysWhere: the words stand in the log whatever its level, on
// one line whatever the program sends, and a program cannot fill the log with them.
func TestWaits_ProgramHangsForItself_LogSaysWhere(t *testing.T) {
	var log lines
	d := start(t, daemon.Config{
		Embedded: true, NoNetwork: true,
		Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	sock, err := d.Connect()
	if err != nil {
		t.Fatal(err)
	}
	c := ctl.NewClient(sock)
	defer func() { _ = c.Close() }()
	_, lane, err := c.Hello("slow")
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(lane)
	req := abi.WaitsReq{Count: 3}
	copy(req.Call[:], "ibv_destroy_cq")
	copy(req.Ack[:], "ibv_ack_cq_events")
	copy(req.Event[:], "a completion\nevent")
	for range 100 {
		if _, _, err := ctl.Call[struct{}](c, abi.OpWaits, ctl.Bytes(&req)); err != nil {
			t.Fatal(err)
		}
	}
	want := "ibv_destroy_cq waits for ibv_ack_cq_events of a completion?event"
	got := log.String()
	if n := strings.Count(got, want); n == 0 || n > 40 {
		t.Errorf("%d lines: %.300s", n, got)
	}
	for _, part := range []string{"client.program=slow", "events=3", "client.pid="} {
		if !strings.Contains(got, part) {
			t.Errorf("no %q in %.300s", part, got)
		}
	}
	if _, err := c.Do(abi.OpWaits, []byte("short")); err == nil {
		t.Error("a short request is granted")
	}
}
