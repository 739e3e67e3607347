package ctl

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// stingyListener listens with the shortest queue of connections that there is, and fills it.
func stingyListener(t *testing.T, path string) (fd int) {
	t.Helper()
	address := &unix.SockaddrUnix{Name: path}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := errors.Join(unix.Bind(fd, address), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	for range 16 {
		client, err := unix.Socket(unix.AF_UNIX,
			unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(client) })
		err = unix.Connect(client, address)
		if errors.Is(err, unix.EAGAIN) {
			return fd
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("the queue of connections does not fill")
	return -1
}

func TestDial_FullQueueOfConnections_WaitsForRoom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	fd := stingyListener(t, path)
	accepted := make(chan error, 1)
	go func() {
		time.Sleep(100 * time.Millisecond)
		conn, _, err := unix.Accept(fd)
		if err == nil {
			err = unix.Close(conn)
		}
		accepted <- err
	}()
	client, err := Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(client.Close(), <-accepted); err != nil {
		t.Error(err)
	}
}

func TestCheckPath_ImpossibleOnes_AreRefused(t *testing.T) {
	dir := t.TempDir()
	long := filepath.Join(dir, strings.Repeat("x", socketPathMax))
	for path, says := range map[string]string{dir: "is no socket", long: "is longer than"} {
		for name, err := range map[string]error{"CheckPath": CheckPath(path), "Dial": dialError(path)} {
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s %s: %v does not say %q", name, path, err, says)
			}
		}
	}
	if err := CheckPath(filepath.Join(dir, "free")); err != nil {
		t.Error(err)
	}
}

func dialError(path string) error {
	client, err := Dial(path)
	if err == nil {
		_ = client.Close()
	}
	return err
}
