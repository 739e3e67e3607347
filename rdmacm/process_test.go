package rdmacm_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/softrnic/softrnic/rdmacm"
	"github.com/softrnic/softrnic/test/nictest"
	"github.com/softrnic/softrnic/verbs"
)

func TestDial_NICProcess_ConnectsTwoPrograms(t *testing.T) {
	socket, _ := nictest.StartProcess(t)
	server := nictest.StartPart(t, "server", socket)
	port := server.Line(t)
	conn, err := rdmacm.Dial(nictest.Soon(t), "rdma", "127.0.0.1:"+port,
		rdmacm.Config{NIC: rdmacm.Socket(socket)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := server.Line(t); got != "connected" {
		t.Fatalf("the server says %q", got)
	}
	if conn.Err() != nil {
		t.Fatal(conn.Err())
	}
	// A program that dies has its connections ended by the NIC.
	server.Kill()
	<-conn.Done()
	if !errors.Is(conn.Err(), rdmacm.ErrDisconnected) {
		t.Errorf("%v", conn.Err())
	}
}

// often is how many times a soak repeats itself, and many times with RNIC_E2E_ALL=1.
func often(normally, all int) int {
	if os.Getenv("RNIC_E2E_ALL") != "" {
		return all
	}
	return normally
}

// footprint is what a process has of what must not grow: descriptors, and KiB of memory.
type footprint struct{ descriptors, resident int }

func footprintOf(t *testing.T, pid int) (f footprint) {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	f.descriptors = len(list)
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		_, _ = fmt.Sscanf(line, "VmRSS: %d kB", &f.resident)
	}
	return f
}

// What the last connections may have still, and the Go runtime may not have given back, in KiB.
const (
	descriptorSlack = 8
	memorySlack     = 16384
)

func (f footprint) hasGrownFrom(before footprint) bool {
	return f.descriptors > before.descriptors+descriptorSlack ||
		f.resident > before.resident+memorySlack
}

// A server that is killed and started again gives its port back each time, and a client that tries
// again finds it soon.
func TestDial_ServerRestarts_ClientReconnects(t *testing.T) {
	socket, nic := nictest.StartProcess(t)
	cfg := rdmacm.Config{NIC: rdmacm.Socket(socket), Session: session(t, rdmacm.Socket(socket))}
	t.Setenv(addressEnv, ":7471")
	rounds := often(20, 500)
	var before [2]footprint
	for i := range rounds {
		server := nictest.StartPart(t, "server", socket)
		server.Line(t) // it listens
		begin := time.Now()
		conn, err := rdmacm.Dial(nictest.Soon(t), "rdma", "127.0.0.1:7471", cfg)
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took > reconnectWait {
			t.Errorf("round %d: connected after %v", i, took)
		}
		server.Kill()
		<-conn.Done()
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		if _, err = rdmacm.Dial(nictest.Soon(t), "rdma", "127.0.0.1:7471", cfg); !errors.Is(err,
			rdmacm.ErrRejected) {
			t.Errorf("round %d: without a server: %v", i, err)
		}
		now := [2]footprint{footprintOf(t, os.Getpid()), footprintOf(t, nic.PID())}
		switch {
		case i == rounds/2:
			before = now
		case i > rounds/2 && (now[0].hasGrownFrom(before[0]) || now[1].hasGrownFrom(before[1])):
			t.Fatalf("round %d: grown from %v to %v (this process, the NIC)", i, before, now)
		}
	}
}

// reconnectWait is how long a server that is there may take to accept.
const reconnectWait = 5 * time.Second

// One program connects, disconnects and closes again and again; RNIC_E2E_ALL=1 does it 20,000
// times.
func TestDial_AgainAndAgain_NothingGrows(t *testing.T) {
	socket, nic := nictest.StartProcess(t)
	cfg := rdmacm.Config{NIC: rdmacm.Socket(socket), Session: session(t, rdmacm.Socket(socket))}
	l := listen(t, "rdma", ":7471", cfg)
	ctx := t.Context() // one for all: the test is to grow no more than the rest
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			r, err := l.Accept(ctx)
			if err != nil {
				return
			}
			conn, err := r.Accept(ctx, cfg)
			if err != nil {
				t.Error(err)
				return
			}
			<-conn.Done()
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
		}
	}()
	// Heaps take half of the rounds to become as large as they stay.
	const rounds = 12
	var before [2]footprint
	for round := range rounds {
		for i := range often(480, 20_000) / rounds {
			conn, err := rdmacm.Dial(ctx, "rdma", "127.0.0.1:7471", cfg)
			if err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 { // both ways to end it
				err = conn.Disconnect(ctx)
			}
			if err = errors.Join(err, conn.Close()); err != nil {
				t.Fatal(err)
			}
		}
		now := [2]footprint{footprintOf(t, os.Getpid()), footprintOf(t, nic.PID())}
		t.Logf("round %d: this process %v, the NIC %v", round, now[0], now[1])
		if round <= rounds/2 {
			before = now
		} else if now[0].hasGrownFrom(before[0]) || now[1].hasGrownFrom(before[1]) {
			t.Fatalf("grown from %v to %v (this process, the NIC)", before, now)
		}
	}
	_ = l.Close()
	<-done
}

func TestSession_NICDies_EverybodyLearnsAndTheNextDialFindsTheNewOne(t *testing.T) {
	path, nic := nictest.StartProcess(t)
	socket := rdmacm.Socket(path)
	cfg := rdmacm.Config{NIC: socket}
	l := listen(t, "rdma", ":7471", cfg)
	a, b := meet(t, l, "127.0.0.1:7471", cfg, cfg)
	ended := make(chan error, 1)
	go func() {
		_, err := l.Accept(nictest.Soon(t))
		ended <- err
	}()
	nic.Kill()
	if err := <-ended; !errors.Is(err, verbs.ErrDeviceFatal) {
		t.Errorf("Accept: %v", err)
	}
	for _, c := range []*rdmacm.Conn{a, b} {
		<-c.Done()
		if !errors.Is(c.Err(), verbs.ErrDeviceFatal) {
			t.Errorf("%v", c.Err())
		}
		if err := c.Disconnect(nictest.Soon(t)); err != nil && !errors.Is(err, verbs.ErrDeviceFatal) {
			t.Errorf("Disconnect: %v", err)
		}
	}
	_, err := rdmacm.Dial(nictest.Soon(t), "rdma", "127.0.0.1:7471", cfg)
	if !errors.Is(err, verbs.ErrNoNIC) {
		t.Errorf("Dial: %v", err)
	}
	nictest.StartProcessAt(t, path)
	_, err = rdmacm.Dial(nictest.Soon(t), "rdma", "127.0.0.1:7471", cfg)
	if !errors.Is(err, rdmacm.ErrRejected) {
		t.Errorf("Dial on the new NIC: %v", err)
	}
}

func TestShare_OneNIC_OneSession(t *testing.T) {
	path, _ := nictest.StartProcess(t)
	t.Setenv("RNIC_SOCKET", path)
	a, b := session(t, nil), session(t, rdmacm.Socket(path))
	if a.Device() != b.Device() || a.PD() != b.PD() {
		t.Error("two sessions on one NIC")
	}
	own, err := rdmacm.Open(nictest.Soon(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	if own.Device() == a.Device() {
		t.Error("Open shares")
	}
	if err := errors.Join(own.Close(), own.Close()); err != nil {
		t.Error(err)
	}
	_, err = rdmacm.Dial(nictest.Soon(t), "rdma", ":1", rdmacm.Config{Session: own})
	if !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("Dial on a closed session: %v", err)
	}
	t.Setenv("RNIC_SOCKET", filepath.Join(t.TempDir(), "none"))
	if _, err := rdmacm.Share(nictest.Soon(t), nil); !errors.Is(err, verbs.ErrNoNIC) {
		t.Errorf("Share without a NIC: %v", err)
	}
}
