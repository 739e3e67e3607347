package e2e

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

var reconnect = ownProgram{name: "reconnect", libraries: "-lrdmacm -libverbs"}

// reconnectWait is how soon after a server is there again its client must be connected. The client
// tries again at once; one attempt that meets a death may last until the NIC tells of it.
const reconnectWait = 5 * time.Second

// TestRDMACM_ServerRestarts_ClientReconnects kills a server under its client, again and again, and
// starts the next: the client gets its connection each time, and neither it nor the NIC grows.
// RNIC_E2E_ALL=1 does it 500 times.
func TestRDMACM_ServerRestarts_ClientReconnects(t *testing.T) {
	rounds := 20
	if os.Getenv("RNIC_E2E_ALL") != "" {
		rounds = 500
	}
	m := anyMachine(t)
	nic := m.startNIC(t)
	port := strconv.Itoa(newPort())
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close()
	m.stdin = read
	client := m.run(t, reconnect.build(t), port, "127.0.0.1")
	m.stdin = nil
	_ = read.Close()
	sizes := func() [4]int {
		return [4]int{
			resident(t, client.pid()), descriptors(t, client.pid()),
			resident(t, nic.pid()), descriptors(t, nic.pid()),
		}
	}
	var before [4]int
	for i := range rounds {
		server := m.startServer(t, port)
		begin := time.Now()
		until(t, "the client is connected", func() bool {
			return strings.Count(client.stdout.String(), "connected") > i
		})
		if took := time.Since(begin); took > reconnectWait {
			t.Errorf("round %d: connected after %v", i, took)
		}
		now := sizes()
		if i == rounds/2 {
			before = now
		}
		if i == rounds-1 && (now[0] > before[0]+512 || now[1] != before[1] ||
			now[2] > before[2]+16384 || now[3] > before[3]+8) {
			t.Errorf("grown from %v to %v", before, now)
		}
		server.signal(t, syscall.SIGKILL)
		server.end(t)
	}
	if out := client.stderr.String(); out != "" {
		t.Error(out)
	}
	_ = write.Close()
	client.succeed(t)
	until(t, "nothing is left", func() bool {
		u := m.users(t)
		return len(u.Contexts) == 0 && len(u.CMIDs) == 0
	})
}

// TestRDMACM_ClientsKilled_ServerLosesNothing kills clients as soon as they are connected: their
// server keeps what it has, and nothing of theirs.
func TestRDMACM_ClientsKilled_ServerLosesNothing(t *testing.T) {
	rounds := 20
	if os.Getenv("RNIC_E2E_ALL") != "" {
		rounds = 500
	}
	m := anyMachine(t)
	nic := m.startNIC(t)
	port := strconv.Itoa(newPort())
	server := m.startServer(t, port)
	until(t, "the server listens", func() bool { return m.hasListener(t) })
	var before [2]int
	for i := range rounds {
		client := m.startReconnect(t, port, "127.0.0.1")
		until(t, "the client is connected", func() bool { return client.hasSaid("connected") })
		client.signal(t, syscall.SIGKILL)
		client.end(t)
		until(t, "the listener is alone", func() bool {
			u := m.users(t)
			return len(u.CMIDs) == 1 && len(u.Contexts) == 1 && len(u.Contexts[0].QPs) == 0
		})
		now := [2]int{descriptors(t, server.pid()), descriptors(t, nic.pid())}
		if i == 1 {
			before = now
		}
		if i > 1 && (now[0] > before[0] || now[1] > before[1]+8) {
			t.Fatalf("round %d: descriptors grown from %v to %v", i, before, now)
		}
	}
}

// startReconnect starts testdata/reconnect.c with a standard input that stays open.
func (m *machine) startReconnect(t *testing.T, args ...string) *process {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = write.Close() })
	m.stdin = read
	p := m.run(t, append([]string{reconnect.build(t)}, args...)...)
	m.stdin = nil
	_ = read.Close()
	return p
}

// startServer starts the server of testdata/reconnect.c, which never ends by itself.
func (m *machine) startServer(t *testing.T, port string) *process {
	t.Helper()
	return m.startReconnect(t, port)
}

var disconnect = ownProgram{name: "disconnect", libraries: "-lrdmacm -libverbs"}

// TestRDMACM_Disconnect_E04_C08: a queue pair that is disconnected is in the error state at once,
// each of its receives comes back flushed, once, and the events come in their order to the last.
func TestRDMACM_Disconnect_E04_C08_FlushesEachOnceAndTellsAll(t *testing.T) {
	m := anyMachine(t)
	program := disconnect.build(t)
	for _, address := range []string{"127.0.0.1", "::1"} {
		m.run(t, program, address, strconv.Itoa(newPort())).succeed(t)
	}
}
