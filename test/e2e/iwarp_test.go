package e2e

import (
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// onIWARP lets the programs of a pair use the iWARP device of a NIC that has both.
func (p pair) onIWARP(t *testing.T, options string) {
	t.Helper()
	machines := []*machine{p.server}
	if p.client != p.server {
		machines = append(machines, p.client)
	}
	for _, m := range machines {
		m.startNIC(t, "--device", "rnic0", "--device", "iwarp0=iwarp"+options)
		m.env = append(m.env, "RNIC_DEVICE=iwarp0")
	}
}

// isForPackets reports a row whose programs want datagrams or XRC.
func (row cmRow) isForPackets() bool {
	return row.group || strings.HasPrefix(row.server, "udaddy") ||
		strings.HasPrefix(row.server, "rdma_xserver")
}

// TestIWARP_Programs runs the programs for rdma_cm over TCP.
func TestIWARP_Programs(t *testing.T) {
	atPlaces(t, func(t *testing.T, p pair) {
		p.onIWARP(t, "")
		for _, row := range cmRows {
			if !row.isForPackets() {
				t.Run(row.client, func(t *testing.T) { row.test(t, p) })
			}
		}
		for _, m := range []*machine{p.server, p.client} {
			stat := m.start(t, rnic, "stat").succeed(t).stdout
			if !regexp.MustCompile(`(?m)^tcp_(accepted|connected) +[1-9]`).MatchString(stat) {
				t.Errorf("no connection was of TCP:\n%s", stat)
			}
		}
	})
}

// TestIWARP_IPv6 connects by IPv6, within a host and between two, and a listener of both families by
// either.
func TestIWARP_IPv6(t *testing.T) {
	atPlaces(t, func(t *testing.T, p pair) {
		p.onIWARP(t, "")
		six := p
		six.address = "::1"
		if p.server != p.client {
			six.address = p.server.ns.V6.String()
		}
		client := "rping -c -a ADDR -p PORT -C 10 -V -v"
		for name, row := range map[string]cmRow{
			"Named":  {server: "rping -s -a ADDR -p PORT -C 10 -V -v", client: client, noisy: true},
			"Any":    {server: "rping -s -a :: -p PORT -C 10 -V -v", client: client, noisy: true},
			"AnyBy4": {server: "rping -s -a :: -p PORT -C 10 -V -v", client: client, noisy: true},
		} {
			t.Run(name, func(t *testing.T) {
				row.wants = "ping data: rdma-ping-9:"
				if name == "AnyBy4" {
					row.test(t, p)
				} else {
					row.test(t, six)
				}
			})
		}
	})
}

// iwarpOptions are what a device of iWARP can be told.
var iwarpOptions = []string{
	",crc=on", ",markers=on", ",crc=on,markers=on", ",mpa=1", ",mpa=1,crc=on,markers=on",
	",fpdu=mss", ",fpdu=large", ",fpdu=large,crc=on,markers=on",
}

// TestIWARP_Options connects devices that are told the same, and one that is told nothing with one
// that is: they agree.
func TestIWARP_Options(t *testing.T) {
	rows := []cmRow{
		{
			server: "rping -s -p PORT -C 20 -V -S 65535", noisy: true,
			client: "rping -c -a ADDR -p PORT -C 20 -V -S 65535",
		},
		{
			server: "ucmatose -p PORT -c 4 -C 20 -S 70000 -t 0",
			client: "ucmatose -s ADDR -p PORT -c 4 -C 20 -S 70000 -t 0", wants: "return status 0\n",
		},
	}
	for _, options := range iwarpOptions {
		for _, other := range []string{options, ""} {
			t.Run(strings.TrimPrefix(options, ",")+"/"+other, func(t *testing.T) {
				p := oneHostOrSelf(t)
				if p.server.ns != nil {
					p = twoHosts(t, p.server.uid)
				}
				p.server.startNIC(t, "--device", "iwarp0=iwarp"+options)
				if p.client != p.server {
					p.client.startNIC(t, "--device", "iwarp0=iwarp"+other)
				}
				for _, m := range []*machine{p.server, p.client} {
					m.env = append(m.env, "RNIC_DEVICE=iwarp0")
				}
				for _, row := range rows {
					row.test(t, p)
				}
			})
		}
	}
}

// TestIWARP_Perftest runs perftest over TCP, each way in one place; with RNIC_E2E_ALL=1 in each.
func TestIWARP_Perftest(t *testing.T) {
	everywhere := os.Getenv("RNIC_E2E_ALL") != ""
	atPlaces(t, func(t *testing.T, p pair) {
		p.onIWARP(t, "")
		turn := 0
		for _, tool := range perfTools {
			rows := []perfRow{
				{args: "-c RC -R -n 1000", sizes: []int{tool.defaultSize}, iters: 1000},
			}
			if !tool.atomic {
				rows = append(rows,
					perfRow{args: "-c RC -R -s 1025 -n 500", sizes: []int{1025}, iters: 500},
					perfRow{args: "-c RC -R -s 8388608 -n 20", sizes: []int{8388608}, iters: 20})
			}
			if tool.bandwidth {
				rows = append(rows, perfRow{
					args: "-c RC -R -b -q 4 -n 200", sizes: []int{tool.defaultSize}, iters: 800,
				})
			}
			if tool.inline {
				rows = append(rows, perfRow{
					args: "-c RC -R -s 64 -I 64 -n 500", sizes: []int{64}, iters: 500,
				})
			}
			if tool.events {
				rows = append(rows, perfRow{
					args: "-c RC -R -e -n 500", sizes: []int{tool.defaultSize}, iters: 500,
				})
			}
			for _, row := range rows {
				turn++
				if turn%p.places != p.place && !everywhere {
					continue
				}
				row.tool = tool.name
				t.Run(row.name(), func(t *testing.T) { row.test(t, p) })
			}
		}
	})
}

// TestIWARP_Qperf runs each test of qperf for connections in one place.
func TestIWARP_Qperf(t *testing.T) {
	atPlaces(t, func(t *testing.T, p pair) {
		p.onIWARP(t, "")
		testQperf(t, p, qperfRC, "-cm", "1")
	})
}

// TestIWARP_ByHand_IsRefusedWithTheReason: programs that set queue pairs up themselves are told why
// that is not to be had (case W06).
func TestIWARP_ByHand_W06_IsRefusedWithTheReason(t *testing.T) {
	p := oneHostOrSelf(t)
	p.onIWARP(t, "")
	port := strconv.Itoa(newPort())
	number, _ := strconv.Atoi(port)
	server := p.server.run(t, "ibv_rc_pingpong", "-d", "iwarp0", "-g", "0", "-p", port)
	server.awaitListening(t, number)
	client := p.client.run(t, "ibv_rc_pingpong", "-d", "iwarp0", "-g", "0", "-p", port, p.address)
	if out := client.end(t); out.status == 0 {
		t.Errorf("it works: %s", out.stdout)
	}
	server.kill()
	out := p.client.start(t, rnic, "ps", "--errors").succeed(t)
	text := strings.Join(strings.Fields(out.stdout), " ")
	if !strings.Contains(text, "iWARP connections are made by rdma_cm") {
		t.Errorf("rnic ps --errors does not tell why:\n%s", out.stdout)
	}
}

// TestIWARP_ServerKilled_ClientHearsOfIt kills a server under its client: the client is told
// without delay, and the next server finds the port free.
func TestIWARP_ServerKilled_ClientHearsOfIt(t *testing.T) {
	p := oneHostOrSelf(t)
	p.onIWARP(t, "")
	m, port := p.server, strconv.Itoa(newPort())
	for range 3 {
		server := m.run(t, "rping", "-s", "-p", port)
		until(t, "rping listens", func() bool { return m.hasListener(t) })
		client := m.run(t, "rping", "-c", "-a", p.address, "-p", port, "-v")
		until(t, "rping talks", func() bool { return client.hasSaid("rdma-ping-3") })
		server.signal(t, syscall.SIGKILL)
		out := client.end(t)
		if !strings.Contains(out.stderr+out.stdout, "DISCONNECT EVENT") {
			t.Errorf("the client ended with status %d\n%s\n%s", out.status, out.stdout, out.stderr)
		}
	}
}

// TestIWARP_TCPPortTaken_ListenerDoesWithout: a listener on all devices does without TCP where
// another program has the port, and says so; one on iWARP alone is refused.
func TestIWARP_TCPPortTaken_ListenerDoesWithout(t *testing.T) {
	p := oneHostOrSelf(t)
	m := p.server
	m.startNIC(t, "--device", "rnic0", "--device", "iwarp0=iwarp")
	port := strconv.Itoa(newPort())
	var other net.Listener
	var err error
	take := func() { other, err = net.Listen("tcp4", ":"+port) }
	if m.ns != nil {
		m.ns.Do(take)
	} else {
		take()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	server := m.run(t, "rping", "-s", "-p", port, "-C", "1")
	until(t, "rping listens", func() bool { return m.hasListener(t) })
	client := m.run(t, "rping", "-c", "-a", p.address, "-p", port, "-C", "1")
	for _, side := range []*process{client, server} {
		if out := side.end(t); out.status != 0 {
			t.Errorf("%s: status %d: %s", side.name, out.status, out.stderr)
		}
	}
	m.env = append(m.env, "RNIC_DEVICE=iwarp0")
	if out := m.run(t, "rping", "-s", "-p", port, "-C", "1").end(t); out.status == 0 ||
		!strings.Contains(out.stderr, "Address already in use") {
		t.Errorf("status %d: %s", out.status, out.stderr)
	}
}
