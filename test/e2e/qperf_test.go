package e2e

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// qperfRC are qperf's tests that find their peer by rdma_cm, when asked to.
var qperfRC = []string{
	"rc_bw", "rc_bi_bw", "rc_lat", "rc_rdma_read_bw", "rc_rdma_read_lat", "rc_rdma_write_bw",
	"rc_rdma_write_lat", "rc_rdma_write_poll_lat", "rc_compare_swap_mr", "rc_fetch_add_mr",
	"ver_rc_compare_swap", "ver_rc_fetch_add",
}

// qperfUnreliable are those that name the peer by LID alone, which no RoCE port accepts
// (annex A17.4.6): they need a NIC that is presented as InfiniBand.
var qperfUnreliable = []string{
	"uc_bw", "uc_bi_bw", "uc_lat", "uc_rdma_write_bw", "uc_rdma_write_lat",
	"uc_rdma_write_poll_lat", "ud_bw", "ud_bi_bw", "ud_lat",
}

// TestRDMACM_Qperf runs each test of qperf, which takes a second or more, in one place; with
// RNIC_E2E_ALL=1 in each.
func TestRDMACM_Qperf(t *testing.T) {
	atPlaces(t, func(t *testing.T, p pair) { testQperf(t, p, qperfRC, "-cm", "1") })
}

// TestLayout_Infiniband_QperfNamesPeersByLID runs what RoCE refuses.
func TestLayout_Infiniband_QperfNamesPeersByLID(t *testing.T) {
	atPlaces(t, func(t *testing.T, p pair) {
		p.server.startNIC(t, "--layout", "ib")
		if p.client != p.server {
			p.client.startNIC(t, "--layout", "ib")
		}
		testQperf(t, p, slices.Concat(qperfUnreliable, qperfRC))
	})
}

func testQperf(t *testing.T, p pair, names []string, flags ...string) {
	everywhere := os.Getenv("RNIC_E2E_ALL") != ""
	port := strconv.Itoa(newPort())
	server := p.server.run(t, "qperf", "-lp", port)
	number, _ := strconv.Atoi(port)
	server.awaitListening(t, number)
	for i, name := range names {
		if i%p.places != p.place && !everywhere {
			continue
		}
		t.Run(name, func(t *testing.T) {
			args := append([]string{"qperf", p.address, "-lp", port, "-t", "1"}, flags...)
			out := p.client.run(t, append(args, name)...).succeed(t)
			if !strings.HasPrefix(out.stdout, name+":\n") || !strings.Contains(out.stdout, "=") ||
				strings.Contains(out.stdout, "failed") {
				t.Errorf("no result: %q", out.stdout)
			}
		})
	}
	server.kill()
}

// TestLayout_Infiniband_ProgramsWithoutAGID are those that take the address of an InfiniBand peer
// for granted.
func TestLayout_Infiniband_ProgramsWithoutAGID(t *testing.T) {
	p := oneHostOrSelf(t)
	p.server.startNIC(t, "--layout", "ib")
	for _, tool := range []string{"ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong"} {
		port := newPort()
		args := []string{tool, "-p", strconv.Itoa(port), "-s", "1024"}
		server := p.server.run(t, args...)
		server.awaitListening(t, port)
		p.client.run(t, append(args, p.address)...).succeed(t)
		server.succeed(t)
	}
	out := p.client.run(t, "ibv_devinfo").succeed(t)
	if !strings.Contains(out.stdout, "InfiniBand") {
		t.Error(out.stdout)
	}
}

// TestLayout_Mlx5_G05_ChooserFindsIndex3 is what programs for mlx5 expect: index 3 is RoCE v2 over
// IPv4, and index 2 the same address of RoCE v1, which this wire does not carry.
func TestLayout_Mlx5_G05_ChooserFindsIndex3(t *testing.T) {
	p := oneHostOrSelf(t)
	p.server.startNIC(t, "--layout", "mlx5")
	row := pingpongRow{tool: "ibv_rc_pingpong", args: "-g 3 -c", bytes: 4096, iters: 1000}
	row.test(t, p)
	port := newPort()
	args := []string{"ibv_rc_pingpong", "-g", "2", "-p", strconv.Itoa(port)}
	server := p.server.run(t, args...)
	server.awaitListening(t, port)
	p.client.run(t, append(args, p.address)...).end(t) // its server goes away
	if out := server.end(t); out.status == 0 || !strings.Contains(out.stderr, "to RTR") {
		t.Errorf("index 2: status %d, %s", out.status, out.stderr)
	}
}
