package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// pingpongRow is one way to run one of the ping-pong programs of rdma-core, same on both sides.
type pingpongRow struct {
	tool string
	args string
	// bytes and iters are what the report must say; a message goes each way.
	bytes, iters int
	// unsupported is what the program says where the adapter lacks what it asks for; it then
	// ends with an error, which is right.
	unsupported string
}

//tidy:table
var pingpongRows = []pingpongRow{
	{tool: "ibv_rc_pingpong", args: "", bytes: 4096, iters: 1000},
	{tool: "ibv_rc_pingpong", args: "-c", bytes: 4096, iters: 1000},
	{tool: "ibv_rc_pingpong", args: "-e -c", bytes: 4096, iters: 1000},
	{tool: "ibv_rc_pingpong", args: "-c -s 1", bytes: 1, iters: 1000},
	{tool: "ibv_rc_pingpong", args: "-c -s 1025 -m 1024", bytes: 1025, iters: 1000},
	{tool: "ibv_rc_pingpong", args: "-c -s 1000000 -n 50", bytes: 1000000, iters: 50},
	{tool: "ibv_rc_pingpong", args: "-c -s 100000 -m 256 -n 100", bytes: 100000, iters: 100},
	{tool: "ibv_rc_pingpong", args: "-c -m 4096 -n 200", bytes: 4096, iters: 200},
	{tool: "ibv_rc_pingpong", args: "-c -g 1", bytes: 4096, iters: 1000},
	{tool: "ibv_rc_pingpong", args: "-c -r 16 -n 5000", bytes: 4096, iters: 5000},
	{tool: "ibv_rc_pingpong", args: "-c -l 3 -n 100", bytes: 4096, iters: 100},
	{tool: "ibv_rc_pingpong", args: "-N -c", bytes: 4096, iters: 1000},
	{tool: "ibv_rc_pingpong", args: "-t -n 100", bytes: 4096, iters: 100},
	{tool: "ibv_rc_pingpong", args: "-o -c", bytes: 4096, iters: 1000},
	{tool: "ibv_rc_pingpong", args: "-o -P -c", bytes: 4096, iters: 1000},
	{tool: "ibv_rc_pingpong", args: "-O -c", bytes: 4096, iters: 1000},
	{tool: "ibv_rc_pingpong", args: "-O -P -c", bytes: 4096, iters: 1000},
	{tool: "ibv_rc_pingpong", args: "-j", bytes: 4096, iters: 1000},

	{tool: "ibv_uc_pingpong", args: "", bytes: 4096, iters: 1000},
	{tool: "ibv_uc_pingpong", args: "-e -c", bytes: 4096, iters: 1000},
	{tool: "ibv_uc_pingpong", args: "-c -s 1", bytes: 1, iters: 1000},
	{tool: "ibv_uc_pingpong", args: "-c -s 65536 -m 2048 -n 100", bytes: 65536, iters: 100},
	{tool: "ibv_uc_pingpong", args: "-c -g 1 -m 256", bytes: 4096, iters: 1000},

	{tool: "ibv_ud_pingpong", args: "", bytes: 1024, iters: 1000},
	{tool: "ibv_ud_pingpong", args: "-e -c", bytes: 1024, iters: 1000},
	{tool: "ibv_ud_pingpong", args: "-c -s 1", bytes: 1, iters: 1000},
	{tool: "ibv_ud_pingpong", args: "-c -s 4096 -n 200", bytes: 4096, iters: 200},
	{tool: "ibv_ud_pingpong", args: "-c -g 1 -n 100", bytes: 1024, iters: 100},

	{tool: "ibv_srq_pingpong", args: "", bytes: 4096, iters: 1000},
	{tool: "ibv_srq_pingpong", args: "-e -c -q 8", bytes: 4096, iters: 1000},
}

func (row pingpongRow) name() string {
	return strings.TrimSpace(row.tool + " " + row.args)
}

func TestPingpong(t *testing.T) {
	atPlaces(t, func(t *testing.T, p pair) {
		for _, row := range pingpongRows {
			t.Run(row.name(), func(t *testing.T) { row.test(t, p) })
		}
	})
}

func (row pingpongRow) test(t *testing.T, p pair) {
	port := newPort()
	args := append([]string{row.tool, "-p", strconv.Itoa(port)}, strings.Fields(row.args)...)
	if !strings.Contains(row.args, "-g") {
		args = append(args, "-g", "0") // RoCE has no address without a GID
	}
	server := p.server.run(t, args...)
	if row.unsupported != "" {
		until(t, row.tool+" listens or ends", func() bool {
			return server.hasEnded() || listens(server.pid(), port)
		})
		if server.hasEnded() {
			row.checkUnsupported(t, server.end(t))
		}
	}
	server.awaitListening(t, port)
	client := p.client.run(t, append(args, p.address)...)
	for _, side := range []*process{client, server} {
		row.checkReport(t, side.succeed(t).stdout)
	}
}

// TestXSRQPingpong_TwoClients_OneQueue lets two clients exchange messages over XRC with a server
// that has one shared receive queue.
func TestXSRQPingpong_TwoClients_OneQueue(t *testing.T) {
	atPlaces(t, func(t *testing.T, p pair) {
		forgetXRCDomains(t)
		port := newPort()
		args := []string{
			"ibv_xsrq_pingpong", "-p", strconv.Itoa(port), "-g", "0", "-c", "2", "-m", "1024",
		}
		server := p.server.run(t, args...)
		server.awaitListening(t, port)
		one := p.client.run(t, append(args, p.address)...)
		two := p.client.run(t, append(args, p.address)...)
		for _, side := range []*process{one, two, server} {
			if out := side.succeed(t).stdout; !strings.Contains(out, "success") {
				t.Errorf("%s reports no success:\n%s", side.name, out)
			}
		}
	})
}

// forgetXRCDomains removes the files that programs name their XRC domains by, before and after a
// test: another user could not open them.
func forgetXRCDomains(t *testing.T) {
	forget := func() {
		names, _ := filepath.Glob("/tmp/xrc_domain*")
		for _, name := range names {
			_ = os.Remove(name)
		}
	}
	forget()
	t.Cleanup(forget)
}

// checkUnsupported accepts a refusal that names the feature, as on adapters that lack it.
func (row pingpongRow) checkUnsupported(t *testing.T, out outcome) {
	if out.status == 1 && strings.Contains(strings.ToLower(out.stderr),
		strings.ToLower(row.unsupported)) {
		t.Skipf("not supported: %s", strings.TrimSpace(out.stderr))
	}
	t.Fatalf("status %d, stderr: %s", out.status, out.stderr)
}

var (
	pingpongBytes = regexp.MustCompile(`(?m)^(\d+) bytes in [0-9.]+ seconds = [0-9.]+ Mbit/sec$`)
	pingpongIters = regexp.MustCompile(`(?m)^(\d+) iters in [0-9.]+ seconds = [0-9.]+ usec/iter$`)
)

func (row pingpongRow) checkReport(t *testing.T, report string) {
	t.Helper()
	for pattern, want := range map[*regexp.Regexp]int{
		pingpongBytes: 2 * row.bytes * row.iters,
		pingpongIters: row.iters,
	} {
		found := pattern.FindStringSubmatch(report)
		if found == nil || found[1] != fmt.Sprint(want) {
			t.Errorf("the report does not say %d by %v:\n%s", want, pattern, report)
		}
	}
	if strings.Contains(report, "invalid data") {
		t.Errorf("wrong data:\n%s", report)
	}
}
