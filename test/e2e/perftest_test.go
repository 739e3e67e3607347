package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/softrnic/softrnic/internal/dropin"
)

// perfRow is one way to run one program of perftest, the same on both sides.
type perfRow struct {
	tool string
	args string
	// sizes are the message sizes that the report lists, in order.
	sizes []int
	// iters is the number of messages that the report names; 0 when it is a matter of time.
	iters int
}

func (row perfRow) name() string { return row.tool + " " + row.args }

// perfTool says what a program can do.
type perfTool struct {
	name        string
	transports  []string
	bandwidth   bool // else it measures latency
	atomic      bool // one size, no -a, no -I
	inline      bool
	events      bool // has -e
	defaultSize int
}

//tidy:table
var perfTools = []perfTool{
	{name: "ib_send_bw", transports: []string{"RC", "UC", "UD"}, bandwidth: true, inline: true,
		events: true, defaultSize: 65536},
	{name: "ib_send_lat", transports: []string{"RC", "UC", "UD"}, inline: true, events: true,
		defaultSize: 2},
	{name: "ib_write_bw", transports: []string{"RC", "UC"}, bandwidth: true, inline: true,
		defaultSize: 65536},
	{name: "ib_write_lat", transports: []string{"RC", "UC"}, inline: true, defaultSize: 2},
	{name: "ib_read_bw", transports: []string{"RC"}, bandwidth: true, events: true,
		defaultSize: 65536},
	{name: "ib_read_lat", transports: []string{"RC"}, events: true, defaultSize: 2},
	{name: "ib_atomic_bw", transports: []string{"RC"}, bandwidth: true, events: true, atomic: true,
		defaultSize: 8},
	{name: "ib_atomic_lat", transports: []string{"RC"}, events: true, atomic: true, defaultSize: 8},
}

// udPayloadMax is the largest message of UD: one packet, and perftest's -a stops there.
const udPayloadMax = 4096

// rows lists the ways to run a program over one transport.
func (tool perfTool) rows(transport string) []perfRow {
	var rows []perfRow
	size := tool.defaultSize
	if transport == "UD" {
		size = min(size, udPayloadMax)
	}
	add := func(iters int, args string, sizes ...int) {
		if len(sizes) == 0 {
			sizes = []int{size}
		}
		if iters > 0 {
			args = strings.TrimSpace(args + " -n " + strconv.Itoa(iters))
		}
		rows = append(rows, perfRow{tool.name, "-c " + transport + " " + args, sizes, iters})
	}
	add(1000, "")
	add(10, "")
	add(500, "-m 256", min(size, tool.sizeAt(transport, 256)))
	add(500, "-m 4096")
	add(500, "-x 1")
	add(500, "-u 10")
	if !tool.atomic {
		add(20, "-a", tool.allSizes(transport)...)
		add(500, "-s 1025", 1025)
	}
	if tool.events {
		add(500, "-e")
	}
	if tool.inline {
		add(1000, "-s 64 -I 64", 64)
		add(1000, "-s 512 -I 512", 512)
	}
	if tool.bandwidth {
		rows = append(rows, tool.bandwidthRows(transport, size)...)
	}
	if tool.atomic {
		add(500, "-A CMP_AND_SWAP")
		add(500, "-A FETCH_AND_ADD")
	}
	add(0, "-D 1 -f 0")
	return rows
}

// bandwidthRows has the options that only the bandwidth programs know.
func (tool perfTool) bandwidthRows(transport string, size int) []perfRow {
	var rows []perfRow
	add := func(iters, reported int, args string, sizes ...int) {
		if len(sizes) == 0 {
			sizes = []int{size}
		}
		args = fmt.Sprintf("-c %s %s -n %d", transport, args, iters)
		rows = append(rows, perfRow{tool.name, args, sizes, reported})
	}
	add(500, 500, "-b")
	add(200, 1600, "-q 8")
	add(800, 800, "-l 8")
	add(1000, 1000, "-t 1")
	add(1000, 1000, "-t 512")
	if tool.events {
		add(200, 1600, "-q 8 -e")
	}
	if !tool.atomic {
		add(5000, 5000, "-s 2", 2)
		if transport != "UD" {
			add(20, 20, "-s 8388608", 8388608)
			add(200, 800, "-b -q 4 -l 4 -s 4096", 4096)
		}
	}
	if tool.name == "ib_send_bw" && transport != "UC" {
		add(1000, 1000, "--use-srq")
		add(1000, 1000, "-r 16")
	}
	return rows
}

// sizeAt is the largest message of a transport at a path MTU.
func (tool perfTool) sizeAt(transport string, mtu int) int {
	if transport == "UD" {
		return mtu
	}
	return tool.defaultSize
}

// allSizes is what -a walks through: the powers of two up to 8 MiB, or what UD can carry.
func (tool perfTool) allSizes(transport string) []int {
	largest := 1 << 23
	if transport == "UD" {
		largest = udPayloadMax
	}
	var sizes []int
	for size := 2; size <= largest; size *= 2 {
		sizes = append(sizes, size)
	}
	return sizes
}

func TestPerftest(t *testing.T) {
	atPlaces(t, func(t *testing.T, p pair) {
		for _, tool := range perfTools {
			for _, transport := range tool.transports {
				for _, row := range tool.rows(transport) {
					t.Run(row.name(), func(t *testing.T) { row.test(t, p) })
				}
			}
		}
	})
}

// TestPerftest_RDMACM has the programs exchange their addresses through the connection manager.
func TestPerftest_RDMACM(t *testing.T) {
	hasCM := func(l dropin.Library) bool { return strings.HasPrefix(l.Name, "librdmacm.so") }
	if !slices.ContainsFunc(dropin.Libraries(), hasCM) {
		t.Skip("this build has no drop-in librdmacm, which -z needs")
	}
	atPlaces(t, func(t *testing.T, p pair) {
		for _, tool := range perfTools {
			args := "-z -n 100"
			row := perfRow{tool.name, args, []int{tool.defaultSize}, 100}
			t.Run(row.name(), func(t *testing.T) { row.test(t, p) })
		}
	})
}

func (row perfRow) command(port int) []string {
	// -F: the clock of the CPU is none of our business.
	return append([]string{row.tool, "-F", "-p", strconv.Itoa(port)}, strings.Fields(row.args)...)
}

func (row perfRow) test(t *testing.T, p pair) {
	port := newPort()
	server := p.server.run(t, row.command(port)...)
	server.awaitListening(t, port)
	client := p.client.run(t, append(row.command(port), p.address)...)
	row.checkReport(t, client.succeed(t).stdout)
	server.succeed(t)
}

// checkReport wants a line for each size, with the number of messages, and figures that are not
// nought.
func (row perfRow) checkReport(t *testing.T, report string) {
	t.Helper()
	var sizes []int
	for _, line := range figures(report) {
		sizes = append(sizes, int(line[0]))
		if row.iters > 0 && int(line[1]) != row.iters || line[1] <= 0 {
			t.Errorf("%d messages of %d bytes, not %d", int(line[1]), int(line[0]), row.iters)
		}
		if average := line[3]; average <= 0 {
			t.Errorf("a measured value of %v for %d bytes", average, int(line[0]))
		}
	}
	if !slices.Equal(sizes, row.sizes) {
		t.Errorf("sizes %v, not %v", sizes, row.sizes)
	}
	if t.Failed() {
		t.Logf("%s:\n%s", filepath.Base(row.tool), report)
	}
}

// figures returns the lines of a report that consist of four numbers or more: size, number of
// messages, then the measured values.
func figures(report string) [][]float64 {
	var out [][]float64
	for line := range strings.Lines(report) {
		fields := strings.Fields(line)
		var numbers []float64
		for _, field := range fields {
			if n, err := strconv.ParseFloat(field, 64); err == nil {
				numbers = append(numbers, n)
			}
		}
		if len(numbers) >= 4 && len(numbers) == len(fields) {
			out = append(out, numbers)
		}
	}
	return out
}
