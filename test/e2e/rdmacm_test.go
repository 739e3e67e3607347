package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// cmRow is a pair of unmodified programs that find each other by rdma_cm. In their arguments PORT
// stands for a port of the row's own, ADDR for the server's address, and BIND for the address of
// the Ethernet that a side is on.
type cmRow struct {
	server, client string
	// wants is what both sides print, serverWants and clientWants what one does.
	wants, serverWants, clientWants string
	// endless servers go on when their client has ended.
	endless bool
	// noisy programs speak on standard error though all is well.
	noisy bool
	// group rows meet in a multicast group rather than at a listener.
	group bool
}

//tidy:table
var cmRows = []cmRow{
	{
		server: "rping -s -p PORT -C 10 -V -v", client: "rping -c -a ADDR -p PORT -C 10 -V -v",
		wants: "ping data: rdma-ping-9:", noisy: true,
	},
	{
		server: "rping -s -p PORT -C 5 -V -S 23", client: "rping -c -a ADDR -p PORT -C 5 -V -S 23",
		noisy: true,
	},
	{
		server: "rping -s -p PORT -C 5 -V -S 1025", noisy: true,
		client: "rping -c -a ADDR -p PORT -C 5 -V -S 1025",
	},
	{
		server: "rping -s -p PORT -C 50 -V -S 65535", noisy: true,
		client: "rping -c -a ADDR -p PORT -C 50 -V -S 65535",
	},
	{
		// Both move their queue pairs themselves.
		server: "rping -s -q -p PORT -C 5 -V -v", client: "rping -c -q -a ADDR -p PORT -C 5 -V -v",
		wants: "ping data: rdma-ping-4:", noisy: true,
	},
	{
		server: "rping -s -P -p PORT", client: "rping -c -a ADDR -p PORT -C 3 -V", endless: true,
		noisy: true,
	},
	{
		server: "ucmatose -p PORT", client: "ucmatose -s ADDR -p PORT",
		wants: "data transfers complete\n", serverWants: "return status 0\n",
	},
	{
		server: "ucmatose -p PORT -c 8 -C 20 -S 70000 -t 0",
		client: "ucmatose -s ADDR -p PORT -c 8 -C 20 -S 70000 -t 0", wants: "return status 0\n",
	},
	{
		// It moves its ids to other channels while they are connected.
		server: "ucmatose -p PORT -c 4 -m", client: "ucmatose -s ADDR -p PORT -c 4 -m",
		wants: "migrating to new event channel", serverWants: "return status 0\n",
	},
	{
		server: "udaddy -c 3 -C 10 -S 1000", wants: "return status 0\n",
		client: "udaddy -s ADDR -c 3 -C 10 -S 1000",
	},
	{
		server: "mckey -m 239.1.1.1 -b BIND -C 10", wants: "return status 0\n", group: true,
		client: "mckey -m 239.1.1.1 -b BIND -s -C 10",
	},
	{
		server: "mckey -m 239.1.1.2 -b BIND -C 10 -c 2 -S 1000", wants: "return status 0\n",
		client: "mckey -m 239.1.1.2 -b BIND -s -o -C 10 -c 2 -S 1000", group: true,
	},
	{
		server: "rdma_server -p PORT", client: "rdma_client -s ADDR -p PORT",
		serverWants: "rdma_server: end 0\n", clientWants: "rdma_client: end 0\n",
	},
	{
		server: "rdma_xserver -p PORT", client: "rdma_xclient -s ADDR -p PORT",
		serverWants: "rdma_xserver: end 0\n", clientWants: "rdma_xclient: end 0\n",
	},
	{
		// A shared receive queue of XRC, which rdma_create_srq makes as the id is of that kind.
		server: "rdma_xserver -p PORT -c x", client: "rdma_xclient -s ADDR -p PORT -c x",
		serverWants: "rdma_xserver: end 0\n", clientWants: "rdma_xclient: end 0\n",
	},
	{
		server: "cmtime -p PORT -c 50", client: "cmtime -s ADDR -p PORT -c 50", endless: true,
		clientWants: "disconnect   :",
	},
	{
		server: fioServer + "--verb=write", client: fioClient + "--verb=write",
		clientWants: "issued rwts: total=0,128,",
	},
	{
		server: fioServer + "--verb=read", client: fioClient + "--verb=read",
		clientWants: "issued rwts: total=0,128,",
	},
	{
		// The receiver checks what it gets. It is ready for all of it from the start: fio wants no
		// retries for one that is not ready.
		server:      fioServer + "--verb=send --iodepth=128 --verify=crc32c",
		client:      fioClient + "--verb=send --iodepth=1 --verify=crc32c --do_verify=0",
		clientWants: "issued rwts: total=0,128,", serverWants: "issued rwts: total=128,",
	},
}

const (
	fioServer = "fio --name=s --ioengine=rdma --port=PORT --bs=16k --size=2m --rw=read "
	fioClient = "fio --name=c --ioengine=rdma --hostname=ADDR --port=PORT --bs=16k --size=2m" +
		" --rw=write "
)

// TestRDMACM_Programs runs what rdma-core and others bring for rdma_cm; among it C03 and C04,
// a host that connects to itself, by its loopback address too.
func TestRDMACM_Programs_C03_C04(t *testing.T) {
	atPlaces(t, func(t *testing.T, p pair) {
		for _, row := range cmRows {
			t.Run(row.client, func(t *testing.T) { row.test(t, p) })
		}
	})
}

// command fills in the arguments of one side.
func (row cmRow) command(text string, m *machine, p pair, port int) []string {
	bind := p.address
	if m.ns != nil {
		bind = m.ns.V4.String()
	}
	return strings.Fields(strings.NewReplacer(
		"PORT", strconv.Itoa(port), "ADDR", p.address, "BIND", bind).Replace(text))
}

func (row cmRow) test(t *testing.T, p pair) {
	if row.group && p.server.ns == nil {
		t.Skip("a multicast group needs an Ethernet of the test's own, and that needs root")
	}
	port := newPort()
	server := p.server.run(t, row.command(row.server, p.server, p, port)...)
	row.awaitServer(t, p, server)
	client := p.client.run(t, row.command(row.client, p.client, p, port)...)
	row.check(t, client, row.clientWants)
	if row.endless {
		server.kill()
		return
	}
	row.check(t, server, row.serverWants)
}

// awaitServer waits until the server has done what its client needs.
func (row cmRow) awaitServer(t *testing.T, p pair, server *process) {
	t.Helper()
	until(t, row.server+" is ready", func() bool {
		if server.hasEnded() {
			out := server.end(t)
			t.Fatalf("%s ended: %d\n%s%s", server.name, out.status, out.stdout, out.stderr)
		}
		if row.group {
			return slices.ContainsFunc(p.server.groups(t), func(qps int) bool { return qps > 0 })
		}
		return p.server.hasListener(t)
	})
}

// hasListener reports whether a program of the machine listens. Some do it in a child of theirs.
func (m *machine) hasListener(t *testing.T) bool {
	t.Helper()
	return slices.ContainsFunc(m.users(t).CMIDs, func(i cmStatus) bool {
		return i.State == "listening"
	})
}

// groups returns how many queue pairs each multicast group of a machine has.
func (m *machine) groups(t *testing.T) (qps []int) {
	t.Helper()
	var d struct {
		Groups []struct {
			QPNs []uint32 `json:"qpns"`
		} `json:"multicast_groups"`
	}
	out := m.start(t, rnic, "devinfo", "--json").end(t)
	if out.status != 0 {
		return nil // the program has not started it yet
	}
	if err := json.Unmarshal([]byte(out.stdout), &d); err != nil {
		t.Fatalf("rnic devinfo --json: %v\n%s", err, out.stdout)
	}
	for _, g := range d.Groups {
		qps = append(qps, len(g.QPNs))
	}
	return qps
}

// check wants a program to succeed and to say what it is to say.
func (row cmRow) check(t *testing.T, p *process, want string) {
	t.Helper()
	out := p.end(t)
	if out.status != 0 || !row.noisy && out.stderr != "" {
		t.Errorf("%s: status %d\nstdout:\n%s\nstderr:\n%s", p.name, out.status, out.stdout, out.stderr)
	}
	for _, text := range []string{row.wants, want} {
		if !strings.Contains(out.stdout, text) {
			t.Errorf("%s does not say %q\n%s\n%s", p.name, text, out.stdout, out.stderr)
		}
	}
}

// TestRDMACM_IPv6 connects by IPv6, within a host and between two.
func TestRDMACM_IPv6(t *testing.T) {
	atPlaces(t, func(t *testing.T, p pair) {
		p.address = "::1"
		if p.server != p.client {
			p.address = p.server.ns.V6.String()
		}
		row := cmRow{
			server: "rping -s -a ADDR -p PORT -C 10 -V -v", noisy: true,
			client: "rping -c -a ADDR -p PORT -C 10 -V -v", wants: "ping data: rdma-ping-9:",
		}
		row.test(t, p)
	})
}

// TestRDMACM_ServerKilled_ClientHearsOfIt kills a server under its client: the client is told
// without delay, and the next server finds the port free.
func TestRDMACM_ServerKilled_ClientHearsOfIt(t *testing.T) {
	m := anyMachine(t)
	port := strconv.Itoa(newPort())
	for range 3 {
		server := m.run(t, "rping", "-s", "-p", port)
		until(t, "rping listens", func() bool { return m.hasListener(t) })
		client := m.run(t, "rping", "-c", "-a", "127.0.0.1", "-p", port, "-v")
		until(t, "rping talks", func() bool { return client.hasSaid("rdma-ping-3") })
		server.signal(t, syscall.SIGKILL)
		out := client.end(t)
		if !strings.Contains(out.stderr+out.stdout, "DISCONNECT EVENT") {
			t.Errorf("the client ended with status %d\n%s\n%s", out.status, out.stdout, out.stderr)
		}
	}
	row := cmRow{
		server: "rping -s -p PORT -C 3", client: "rping -c -a ADDR -p PORT -C 3", noisy: true,
	}
	row.test(t, pair{server: m, client: m, address: "127.0.0.1"})
}

// TestRDMACM_NICKilled_ProgramsHearOfIt: connected programs are told that their device is gone.
func TestRDMACM_NICKilled_ProgramsHearOfIt(t *testing.T) {
	m := anyMachine(t)
	nic, port := m.startNIC(t), strconv.Itoa(newPort())
	server := m.run(t, "rping", "-s", "-p", port)
	until(t, "rping listens", func() bool { return m.hasListener(t) })
	client := m.run(t, "rping", "-c", "-a", "127.0.0.1", "-p", port, "-v")
	until(t, "rping talks", func() bool { return client.hasSaid("rdma-ping-3") })
	nic.signal(t, syscall.SIGKILL)
	for _, p := range []*process{server, client} {
		if out := p.end(t); !strings.Contains(out.stderr+out.stdout, "device removal") {
			t.Errorf("%s: status %d\n%s\n%s", p.name, out.status, out.stdout, out.stderr)
		}
	}
}

// hasSaid reports whether a program has printed the text so far.
func (p *process) hasSaid(text string) bool {
	return strings.Contains(p.stdout.String()+p.stderr.String(), text)
}

// resident is the memory of a process in KiB.
func resident(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var kib int
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
			return kib
		}
	}
	t.Fatalf("process %d has no size", pid)
	return 0
}

func descriptors(t *testing.T, pid int) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestRDMACM_ManyConnections_NothingGrows connects and disconnects again and again; RNIC_E2E_ALL=1
// does it 20,000 times.
func TestRDMACM_ManyConnections_NothingGrows(t *testing.T) {
	rounds, each := 4, 250
	if os.Getenv("RNIC_E2E_ALL") != "" {
		rounds, each = 20, 1000
	}
	m := anyMachine(t)
	nic := m.startNIC(t)
	port, count := strconv.Itoa(newPort()), strconv.Itoa(each)
	server := m.run(t, "cmtime", "-p", port, "-c", count)
	until(t, "cmtime listens", func() bool { return m.hasListener(t) })
	var before [4]int
	for i := range rounds {
		m.run(t, "cmtime", "-s", "127.0.0.1", "-p", port, "-c", count).succeed(t)
		until(t, "the server's ids are gone", func() bool { return len(m.users(t).CMIDs) == 1 })
		now := [4]int{
			resident(t, server.pid()), descriptors(t, server.pid()),
			resident(t, nic.pid()), descriptors(t, nic.pid()),
		}
		if i == 1 {
			before = now
		}
		t.Logf("round %d: server %d KiB, %d descriptors; NIC %d KiB, %d descriptors",
			i, now[0], now[1], now[2], now[3])
		// The Go runtime gives memory back when it likes, and a client that has ended may still
		// have a connection for a moment.
		if i > 1 && (now[0] > before[0]+512 || now[1] != before[1] ||
			now[2] > before[2]+16384 || now[3] > before[3]+8) {
			t.Fatalf("grown from %v", before)
		}
	}
	server.kill()
}

// TestRDMACM_NobodyListens_ProgramsAreRefused, by this host and by another.
func TestRDMACM_NobodyListens_ProgramsAreRefused(t *testing.T) {
	atPlaces(t, func(t *testing.T, p pair) {
		p.server.startNIC(t)
		for client, want := range map[string]string{
			"rping -c -a ADDR -p PORT -C 1": "RDMA_CM_EVENT_REJECTED, error 8",
			"ucmatose -s ADDR -p PORT":      "RDMA_CM_EVENT_REJECTED, error: 8",
			"rdma_client -s ADDR -p PORT":   "Connection refused",
			"udaddy -s ADDR":                "RDMA_CM_EVENT_UNREACHABLE, error: 1",
		} {
			row := cmRow{client: client}
			program := p.client.run(t, row.command(client, p.client, p, newPort())...)
			out := program.endWithin(t, promptly)
			if out.status == 0 || !strings.Contains(out.stdout+out.stderr, want) {
				t.Errorf("%s: status %d\n%s%s", client, out.status, out.stdout, out.stderr)
			}
		}
	})
}
