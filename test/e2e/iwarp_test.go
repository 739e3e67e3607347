package e2e

import (
	"errors"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/softrnic/softrnic/test/netnstest"
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

// TestIWARP_IPv6 connects by IPv6, within a host and between two, and a listener of both families
// by either.
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

// byHand are programs that connect queue pairs themselves, or want what iWARP has not.
var byHand = []struct {
	program  string
	isAlone  bool   // it fails before it meets its peer
	complain string // what the program says, or the library for it
	why      string // what rnic ps --errors says
}{
	{program: "ibv_rc_pingpong -d iwarp0 -g 0", complain: onlyCM, why: whyOnlyCM},
	{program: "ib_write_bw -d iwarp0", complain: onlyCM, why: whyOnlyCM},
	{program: "ib_send_lat -d iwarp0 -x 0", complain: onlyCM, why: whyOnlyCM},
	{
		program: "ibv_uc_pingpong -d iwarp0 -g 0", isAlone: true, complain: "Couldn't create QP",
		why: "iwarp0 has no UC queue pairs: iWARP does not know them",
	},
	{
		program: "ibv_ud_pingpong -d iwarp0 -g 0", isAlone: true, complain: "Couldn't create QP",
		why: "iwarp0 has no UD queue pairs: iWARP does not know them",
	},
	{
		program: "ibv_xsrq_pingpong -d iwarp0 -g 0", isAlone: true,
		complain: "Couldn't Open the XRC Domain", why: "iwarp0 has no XRC: iWARP does not know it",
	},
	{program: "udaddy -s 127.0.0.1", isAlone: true, complain: noUD, why: noUD},
	{program: "mckey -m 239.1.1.1 -b 127.0.0.1", isAlone: true, complain: noUD, why: noUD},
}

const (
	noUD      = "iwarp0 has no UD queue pairs: iWARP does not know them"
	onlyCM    = "iwarp0: iWARP connections are made by rdma_cm alone (perftest: -R)"
	whyOnlyCM = "iWARP connections are made by rdma_cm (rdma_connect and rdma_accept), not by hand"
)

// TestIWARP_ByHand_W06_IsRefusedWithTheReason: programs that set queue pairs up themselves fail at
// once, and are told why that is not to be had.
func TestIWARP_ByHand_W06_IsRefusedWithTheReason(t *testing.T) {
	p := oneHostOrSelf(t)
	p.onIWARP(t, "")
	for _, row := range byHand {
		t.Run(row.program, func(t *testing.T) {
			number := newPort()
			args := strings.Fields(row.program)
			if !row.isAlone {
				args = append(args, "-p", strconv.Itoa(number))
			}
			server := p.server.run(t, args...)
			side := server
			if !row.isAlone {
				server.awaitListening(t, number)
				defer server.kill()
				side = p.client.run(t, append(args, p.address)...)
			}
			out := side.end(t)
			said := out.stdout + out.stderr
			if !row.isAlone { // either side may be the first to try
				said += server.stdout.String() + server.stderr.String()
			}
			if out.status == 0 || !strings.Contains(said, row.complain) {
				t.Errorf("status %d, without %q:\n%s", out.status, row.complain, said)
			}
			text := p.client.start(t, rnic, "ps", "--errors").succeed(t).stdout
			if !strings.Contains(strings.Join(strings.Fields(text), " "), row.why) {
				t.Errorf("rnic ps --errors does not tell why:\n%s", text)
			}
		})
	}
}

// TestIWARP_Libfabric_ChoosesEither: a library that looks for devices by itself runs on the one
// that it is told, RoCE or iWARP.
func TestIWARP_Libfabric_ChoosesEither(t *testing.T) {
	p := oneHostOrSelf(t)
	p.server.startNIC(t, "--device", "rnic0", "--device", "iwarp0=iwarp")
	for _, device := range []string{"rnic0", "iwarp0"} {
		p.server.env = append(p.server.env, "RNIC_DEVICE="+device)
		port := newPort()
		args := []string{
			"fi_pingpong", "-p", "verbs", "-e", "msg", "-d", device, "-c", "-B", strconv.Itoa(port),
		}
		server := p.server.run(t, args...)
		server.awaitListening(t, port)
		args[len(args)-2] = "-P"
		out := p.server.run(t, append(args, p.address)...).end(t)
		if out.status != 0 || !regexp.MustCompile(`(?m)^1m +10 `).MatchString(out.stdout) {
			t.Errorf("%s: status %d\n%s\n%s", device, out.status, out.stdout, out.stderr)
		}
		if out := server.end(t); out.status != 0 {
			t.Errorf("%s: the server: status %d\n%s", device, out.status, out.stderr)
		}
	}
}

// TestIWARP_LossyLink_Recovers has a network between two hosts that loses, doubles and reorders
// packets: TCP repairs it, and no program notices.
func TestIWARP_LossyLink_Recovers(t *testing.T) {
	a, b := netnstest.Pair(t, 1500)
	disturb(t, a)
	disturb(t, b)
	p := pair{
		server: newMachine(t, a, userOne), client: newMachine(t, b, userOne), address: a.V4.String(),
	}
	p.onIWARP(t, "")
	for _, row := range []cmRow{
		{
			server: "rping -s -p PORT -C 30 -V -S 20000", noisy: true,
			client: "rping -c -a ADDR -p PORT -C 30 -V -S 20000",
		},
		{
			server: "ucmatose -p PORT -c 4 -C 20 -S 20000 -t 0",
			client: "ucmatose -s ADDR -p PORT -c 4 -C 20 -S 20000 -t 0", wants: "return status 0\n",
		},
	} {
		t.Run(row.client, func(t *testing.T) { row.test(t, p) })
	}
	for _, tool := range []string{"ib_send_bw", "ib_write_bw", "ib_read_bw"} {
		row := perfRow{tool: tool, args: "-c RC -R -s 65536 -n 50", sizes: []int{65536}, iters: 50}
		t.Run(row.name(), func(t *testing.T) { row.test(t, p) })
	}
}

// disturb puts the kernel's network emulator on what a host sends.
func disturb(t *testing.T, ns *netnstest.Namespace) {
	t.Helper()
	ns.Do(func() {
		link, err := netlink.LinkByName(ns.Link)
		if err != nil {
			t.Fatal(err)
		}
		err = netlink.QdiscAdd(netlink.NewNetem(
			netlink.QdiscAttrs{
				LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0),
				Parent: netlink.HANDLE_ROOT,
			},
			netlink.NetemQdiscAttrs{
				Latency: 500, Limit: 100_000, Loss: 2, Duplicate: 1, ReorderProb: 2, // µs, and percent
			}))
		if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.EOPNOTSUPP) {
			t.Skip("the kernel has no sch_netem; the same is tried in the virtual machine," +
				" TestSiw_LossyLink_Recovers")
		}
		if err != nil {
			t.Fatal(err)
		}
	})
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
