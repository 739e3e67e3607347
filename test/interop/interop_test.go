package interop

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// port is the TCP port by which server and client meet, and listening its line in the kernel's
// table.
const port = "18515"

// patientTimeout is the local ACK timeout, 4.096 µs × 2^18 ≈ 1 s: an emulated processor is slow.
const patientTimeout = "18"

var listening = regexp.MustCompile(`: [0-9A-F]+:4853 [0-9A-F]+:0000 0A `)

func requireInterop(t *testing.T) image {
	t.Helper()
	if os.Getenv("RNIC_INTEROP") == "" {
		t.Skip("boots a virtual machine: make interop")
	}
	if runtime.GOARCH != "amd64" || os.Geteuid() != 0 {
		t.Skip("the virtual machine is an amd64 one, and its cable needs root")
	}
	img, err := buildImage(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// side is one end of the cable.
type side interface {
	start(t *testing.T, args ...string) *program
	awaitPort(t *testing.T, p *program)
	device() string
}

// work is one program, run as a server on one side and as a client on the other.
type work struct {
	name string
	args string // of both; device, port, GID index and, but for UD, path MTU are added
	gid  string // the kind of the queue pairs' addresses: v6, else v4
	path int    // path MTU
	want string // in both reports, besides status 0
}

//tidy:table
var works = []work{
	{name: "rc_pingpong", args: "ibv_rc_pingpong -c -s 10000 -n 200", want: "200 iters"},
	{name: "rc_pingpong_events", args: "ibv_rc_pingpong -c -e -s 1 -n 200", want: "200 iters"},
	{name: "rc_pingpong_v6", args: "ibv_rc_pingpong -c -s 5000 -n 200", gid: "v6", want: "200 iters"},
	{name: "uc_pingpong", args: "ibv_uc_pingpong -c -s 5000 -n 200", want: "200 iters"},
	{name: "ud_pingpong", args: "ibv_ud_pingpong -c -s 1000 -n 200", want: "200 iters"},
	{name: "send", args: "ib_send_bw -n 200 -s 65536"},
	{name: "send_small", args: "ib_send_bw -n 1000 -s 2"},
	{name: "send_sizes", args: "ib_send_bw -n 5 -a"},
	{name: "send_bidirectional", args: "ib_send_bw -n 200 -s 5000 -b -q 2"},
	{name: "send_long", args: "ib_send_bw -n 20 -s 8388608"},
	{name: "send_uc", args: "ib_send_bw -n 50 -s 1000 -c UC -t 1 -r 200"},
	{name: "send_ud", args: "ib_send_bw -n 50 -s 1000 -c UD -t 1 -r 200"},
	{name: "send_v6", args: "ib_send_bw -n 200 -s 5000", gid: "v6"},
	{name: "write", args: "ib_write_bw -n 200 -s 65536"},
	{name: "write_sizes", args: "ib_write_bw -n 5 -a"},
	{name: "write_bidirectional", args: "ib_write_bw -n 200 -s 5000 -b"},
	{name: "write_uc", args: "ib_write_bw -n 100 -s 5000 -c UC"},
	{name: "read", args: "ib_read_bw -n 200 -s 65536"},
	{name: "read_sizes", args: "ib_read_bw -n 5 -a"},
	{name: "read_v6", args: "ib_read_bw -n 200 -s 5000", gid: "v6"},
	{name: "fetch_add", args: "ib_atomic_bw -n 200 -A FETCH_AND_ADD"},
	{name: "compare_swap", args: "ib_atomic_bw -n 200 -A CMP_AND_SWAP"},
	{name: "send_latency", args: "ib_send_lat -n 200 -s 64"},
	{name: "send_latency_inline", args: "ib_send_lat -n 200 -s 64 -I 64"},
	{name: "send_latency_events", args: "ib_send_lat -n 200 -s 64 -e"},
	{name: "write_latency", args: "ib_write_lat -n 200 -s 64"},
	{name: "read_latency", args: "ib_read_lat -n 200 -s 64"},
}

// TestKernel_EveryOperation_BothWays runs programs between the kernel's device and ours, each
// being the server once. Path MTUs are those of Ethernet with and without jumbo frames.
func TestKernel_EveryOperation_BothWays(t *testing.T) {
	img := requireInterop(t)
	for _, link := range []struct{ mtu, path int }{{1500, 1024}, {9000, 4096}} {
		t.Run(fmt.Sprint(link.mtu), func(t *testing.T) {
			guest := bootGuest(t, img, link.mtu)
			host := newHost(t, guest.ns, "")
			for _, w := range works {
				w.path = link.path
				t.Run(w.name+"/KernelServes", func(t *testing.T) { w.run(t, guest, host) })
				t.Run(w.name+"/WeServe", func(t *testing.T) { w.run(t, host, guest) })
			}
		})
	}
}

// TestKernel_LossyLink_Recovers lets our side of the cable lose, repeat and reorder packets both
// ways. The kernel's driver takes seconds to notice some losses, so the runs are short.
func TestKernel_LossyLink_Recovers(t *testing.T) {
	img := requireInterop(t)
	guest := bootGuest(t, img, 1500)
	host := newHost(t, guest.ns, "loss=1%,dup=1%,reorder=1%,seed=1")
	for _, w := range []work{
		{name: "rc_pingpong", args: "ibv_rc_pingpong -c -s 10000 -n 100", want: "100 iters"},
		{name: "write", args: "ib_write_bw -n 20 -s 65536 -u 12"},
		{name: "read", args: "ib_read_bw -n 20 -s 65536 -u 12"},
		{name: "fetch_add", args: "ib_atomic_bw -n 100 -A FETCH_AND_ADD -u 12"},
	} {
		w.path = 1024
		t.Run(w.name+"/KernelServes", func(t *testing.T) { w.run(t, guest, host) })
		t.Run(w.name+"/WeServe", func(t *testing.T) { w.run(t, host, guest) })
	}
}

func (w work) run(t *testing.T, server, client side) {
	serve := server.start(t, w.command(t, server)...)
	server.awaitPort(t, serve)
	// They meet over TCP and IPv4 whatever address the queue pairs use.
	call := client.start(t, append(w.command(t, client), addressOf(server, "v4"))...)
	for _, p := range []*program{call, serve} {
		r := p.succeed(t)
		if !strings.Contains(r.Output, w.want) {
			t.Errorf("%s does not report %q:\n%s", p.name, w.want, r.Output)
		}
	}
}

func (w work) command(t *testing.T, s side) []string {
	args := append(strings.Fields(w.args), "-d", s.device(), "-p", port)
	index := gidIndex(t, s, addressOf(s, w.gid))
	if args[0] != "ibv_ud_pingpong" {
		args = append(args, "-m", fmt.Sprint(w.path))
	}
	if strings.HasPrefix(args[0], "ibv_") {
		return append(args, "-g", index)
	}
	args = append(args, "-F", "-x", index)
	if slices.Contains(args, "-u") || slices.Contains(args, "UC") || slices.Contains(args, "UD") {
		return args
	}
	return append(args, "-u", patientTimeout)
}

func addressOf(s side, kind string) string {
	_, isGuest := s.(*guest)
	switch {
	case kind == "v6" && isGuest:
		return guestV6
	case kind == "v6":
		return hostV6
	case isGuest:
		return guestV4
	}
	return hostV4
}

var gidLine = regexp.MustCompile(`GID\[\s*(\d+)\]:\s*(\S+), RoCE v2`)

// gidIndex asks the side's device where an address stands in its table.
func gidIndex(t *testing.T, s side, address string) string {
	t.Helper()
	r := s.start(t, "ibv_devinfo", "-v", "-d", s.device()).succeed(t)
	for _, m := range gidLine.FindAllStringSubmatch(r.Output, -1) {
		if m[2] == address || m[2] == "::ffff:"+address {
			return m[1]
		}
	}
	t.Fatalf("%s has no GID for %s:\n%s", s.device(), address, r.Output)
	return ""
}
