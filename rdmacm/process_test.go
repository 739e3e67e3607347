package rdmacm_test

import (
	"errors"
	"path/filepath"
	"testing"

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

// A server that is killed and started again gives its port back each time, and a client that tries
// again finds it.
func TestDial_ServerRestarts_ClientReconnects(t *testing.T) {
	socket, _ := nictest.StartProcess(t)
	cfg := rdmacm.Config{NIC: rdmacm.Socket(socket)}
	t.Setenv(addressEnv, ":7471")
	server := nictest.StartPart(t, "server", socket)
	server.Line(t)
	for range 5 {
		var conn *rdmacm.Conn
		for {
			var err error
			if conn, err = rdmacm.Dial(nictest.Soon(t), "rdma", "127.0.0.1:7471", cfg); err == nil {
				break
			} else if !errors.Is(err, rdmacm.ErrRejected) {
				t.Fatal(err)
			}
		}
		server.Kill()
		<-conn.Done()
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		server = nictest.StartPart(t, "server", socket)
	}
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
