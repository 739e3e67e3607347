package main

import (
	"bytes"
	"context"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/daemon"
)

// shared is a buffer that a command writes to while a test reads.
type shared struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (s *shared) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *shared) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// await returns what has been written once it has want in it.
func (s *shared) await(t *testing.T, want string) string {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if text := s.String(); strings.Contains(text, want) {
			return text
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %q in %q", want, s.String())
		}
	}
}

// startForPing starts a NIC that the command finds.
func startForPing(t *testing.T) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "nic.sock")
	t.Setenv("RNIC_SOCKET", socket)
	nic, err := daemon.Start(t.Context(), daemon.Config{SocketPath: socket, NoNetwork: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nic.Close() })
}

func startCommand(ctx context.Context, args ...string) (out *shared, ended chan int) {
	out, ended = new(shared), make(chan int, 1)
	root := newRoot()
	root.SetOut(out)
	root.SetErr(out)
	root.SetContext(ctx)
	go func() { ended <- execute(root, args) }()
	return out, ended
}

func await(t *testing.T, ended chan int) int {
	t.Helper()
	select {
	case status := <-ended:
		return status
	case <-time.After(20 * time.Second):
		t.Fatal("the command does not end")
		return -1
	}
}

func TestPing_ServerAndClient_RoundsAndSummaries(t *testing.T) {
	startForPing(t)
	ctx, interrupt := context.WithCancel(t.Context())
	server, serverEnded := startCommand(ctx, "ping", "--listen", "-p", "0", "127.0.0.1")
	line := server.await(t, "\n")
	_, port, err := net.SplitHostPort(strings.TrimSpace(strings.TrimPrefix(line, "listening at ")))
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	client, ended := startCommand(t.Context(), "ping", "-V", "-c", "3", "-i", "1ms", "-s", "100",
		"127.0.0.1:"+port)
	if status := await(t, ended); status != 0 {
		t.Errorf("status %d", status)
	}
	for _, want := range []string{
		": 100 bytes by READ and WRITE", "100 bytes: seq=3 time=",
		"3 rounds, 3 verified, 0 damaged, time ", "rtt min/avg/max/mdev = ",
	} {
		if !strings.Contains(client.String(), want) {
			t.Errorf("no %q in\n%s", want, client)
		}
	}
	server.await(t, ": 3 rounds, 300 B each way\n")

	// ^C, in the pause between two rounds.
	stopClient, stop := context.WithCancel(t.Context())
	client, ended = startCommand(stopClient, "ping", "-i", "1h", "-p", port, "127.0.0.1")
	client.await(t, "seq=1 ")
	stop()
	if status := await(t, ended); status != 0 || !strings.Contains(client.String(), "\n1 rounds, ") {
		t.Errorf("interrupted: status %d\n%s", status, client)
	}
	interrupt()
	if status := await(t, serverEnded); status != 0 {
		t.Errorf("the server ends with status %d: %s", status, server)
	}
}

func TestPing_ServerEnds_FailureAndSummary(t *testing.T) {
	startForPing(t)
	ctx, interrupt := context.WithCancel(t.Context())
	server, serverEnded := startCommand(ctx, "ping", "--listen", "-p", "0", "127.0.0.1")
	line := server.await(t, "\n")
	client, ended := startCommand(t.Context(), "ping", "-i", "10ms",
		strings.TrimSpace(strings.TrimPrefix(line, "listening at ")))
	client.await(t, "seq=1 ")
	interrupt()
	if status := await(t, ended); status != exitFailure ||
		!strings.Contains(client.String(), "rnic ping statistics") {
		t.Errorf("status %d\n%s", status, client)
	}
	await(t, serverEnded)
}

func TestPing_NobodyListens_SaysWhy(t *testing.T) {
	startForPing(t)
	client, ended := startCommand(t.Context(), "ping", "127.0.0.1:9")
	if status := await(t, ended); status != exitFailure ||
		!strings.Contains(client.String(), "rejected") || strings.Count(client.String(), "\n") != 1 {
		t.Errorf("status %d, %s", status, client)
	}
}

func TestPingAddress_HostWithAndWithoutPort(t *testing.T) {
	o := pingOptions{port: "7174"}
	for host, want := range map[string]string{
		"server": "server:7174", "server:1": "server:1", "10.0.0.1": "10.0.0.1:7174",
		"fe80::1%eth0": "[fe80::1%eth0]:7174", "[::1]:9": "[::1]:9",
	} {
		if got := o.address([]string{host}); got != want {
			t.Errorf("%s: %s, not %s", host, got, want)
		}
	}
	if got := o.address(nil); got != ":7174" {
		t.Errorf("all addresses: %s", got)
	}
}
