package e2e

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

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
	// long marks rows that take seconds, most of which the program spends on measuring the clock
	// of the CPU. Each of them runs in one place, taken in turn; with RNIC_E2E_ALL=1 in each.
	long bool
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
	{
		name: "ib_send_bw", transports: []string{"RC", "UC", "UD"}, bandwidth: true, inline: true,
		events: true, defaultSize: 65536,
	},
	{
		name: "ib_send_lat", transports: []string{"RC", "UC", "UD"}, inline: true, events: true,
		defaultSize: 2,
	},
	{
		name: "ib_write_bw", transports: []string{"RC", "UC"}, bandwidth: true, inline: true,
		defaultSize: 65536,
	},
	{name: "ib_write_lat", transports: []string{"RC", "UC"}, inline: true, defaultSize: 2},
	{
		name: "ib_read_bw", transports: []string{"RC"}, bandwidth: true, events: true,
		defaultSize: 65536,
	},
	{name: "ib_read_lat", transports: []string{"RC"}, events: true, defaultSize: 2},
	{
		name: "ib_atomic_bw", transports: []string{"RC"}, bandwidth: true, events: true, atomic: true,
		defaultSize: 8,
	},
	{name: "ib_atomic_lat", transports: []string{"RC"}, events: true, atomic: true, defaultSize: 8},
}

// udPayloadMax is the largest message of UD: one packet, and perftest's -a stops there.
const udPayloadMax = 4096

// rows lists the ways to run a program over one transport.
func (tool perfTool) rows(transport string) []perfRow {
	var rows []perfRow
	size := tool.sizeAt(transport, udPayloadMax)
	add := func(iters int, args string, sizes ...int) {
		args = fmt.Sprintf("-c %s %s -n %d", transport, sized(args, transport, sizes[0]), iters)
		rows = append(rows, perfRow{tool: tool.name, args: args, sizes: sizes, iters: iters})
	}
	add(1000, "", size)
	add(10, "-m 4096", size)
	add(500, "-m 256 -x 1 -u 10", tool.sizeAt(transport, 256))
	if tool.atomic {
		add(500, "-A CMP_AND_SWAP", size)
		add(500, "-A FETCH_AND_ADD", size)
	} else {
		add(500, "-s 1025", 1025)
		add(20, "-a", tool.allSizes(transport)...)
		rows[len(rows)-1].long = true
	}
	if tool.events {
		add(500, "-e", size)
	}
	if tool.inline {
		add(500, "-s 64 -I 64", 64)
		add(500, "-s 512 -I 512", 512)
	}
	if tool.bandwidth {
		rows = append(rows, tool.bandwidthRows(transport, size)...)
	}
	rows = append(rows, perfRow{
		tool: tool.name, args: "-c " + transport + sized(" -D 2 -f 0", transport, size),
		sizes: []int{size}, long: true,
	})
	return rows
}

// sized adds the message size where the program would complain that its own is not right.
func sized(args, transport string, size int) string {
	if transport != "UD" || strings.Contains(args, "-s ") || strings.Contains(args, "-a") {
		return args
	}
	return args + fmt.Sprintf(" -s %d", size)
}

// bandwidthRows has the options that only the bandwidth programs know.
func (tool perfTool) bandwidthRows(transport string, size int) []perfRow {
	var rows []perfRow
	// The report counts the messages of all queue pairs.
	add := func(iters, reported int, args string, size int) {
		args = fmt.Sprintf("-c %s %s -n %d", transport, sized(args, transport, size), iters)
		rows = append(rows,
			perfRow{tool: tool.name, args: args, sizes: []int{size}, iters: reported})
	}
	each := 200
	if transport == "UC" {
		each = 25 // nobody slows eight senders down: what they send has to fit a socket buffer
	}
	add(500, 500, "-b", size)
	add(each, 8*each, "-q 8", size)
	add(800, 800, "-l 8", size)
	add(500, 500, "-t 1", size)
	add(1000, 1000, "-t 512", size)
	if transport == "UC" {
		add(20, 20, "-b", size) // what a small socket buffer holds
	}
	if tool.events {
		add(each, 8*each, "-q 8 -e", size)
	}
	if !tool.atomic {
		add(5000, 5000, "-s 2", 2)
	}
	if !tool.atomic && transport != "UD" {
		add(20, 20, "-s 8388608", 8388608)
		add(200, 800, "-b -q 4 -l 4 -s 4096", 4096)
	}
	if tool.name == "ib_send_bw" && transport == "RC" {
		add(1000, 1000, "--use-srq", size)
		add(1000, 1000, "--use_old_post_send", size)
		add(1000, 1000, "-r 16", size)
	}
	return rows
}

// sizeAt is what a program sends without -s: a message of UD is one packet.
func (tool perfTool) sizeAt(transport string, mtu int) int {
	if transport == "UD" {
		return min(tool.defaultSize, mtu)
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
	everywhere := os.Getenv("RNIC_E2E_ALL") != ""
	atPlaces(t, func(t *testing.T, p pair) {
		turn := 0
		for _, tool := range perfTools {
			for _, transport := range tool.transports {
				for _, row := range tool.rows(transport) {
					if row.long {
						turn++
						if turn%p.places != p.place && !everywhere {
							continue
						}
					}
					t.Run(row.name(), func(t *testing.T) { row.test(t, p) })
				}
			}
		}
	})
}

// xrcRows are the programs over XRC, with a shared receive queue at each end.
var xrcRows = []perfRow{
	{tool: "ib_send_bw", args: "-c XRC -n 1000", sizes: []int{65536}, iters: 1000},
	{tool: "ib_send_bw", args: "-c XRC -q 4 -e -n 200", sizes: []int{65536}, iters: 800},
	{tool: "ib_send_lat", args: "-c XRC -s 64 -I 64 -n 500", sizes: []int{64}, iters: 500},
	{tool: "ib_write_bw", args: "-c XRC -s 1025 -n 500", sizes: []int{1025}, iters: 500},
	{tool: "ib_read_bw", args: "-c XRC -n 500", sizes: []int{65536}, iters: 500},
	{tool: "ib_atomic_bw", args: "-c XRC -n 500", sizes: []int{8}, iters: 500},
}

func TestPerftest_XRC(t *testing.T) {
	atPlaces(t, func(t *testing.T, p pair) {
		for _, row := range xrcRows {
			t.Run(row.name(), func(t *testing.T) {
				forgetXRCDomains(t)
				row.test(t, p)
			})
		}
	})
}

// TestPerftest_Multicast has the receiver attach its queue pair to a group of IPv4: the program
// compares the kinds of the group's and the sender's GIDs.
func TestPerftest_Multicast(t *testing.T) {
	atPlaces(t, func(t *testing.T, p pair) {
		if p.server.ns == nil {
			t.Skip("a multicast group needs an Ethernet of the test's own, and that needs root")
		}
		const group = " -g -M 0:0:0:0:0:0:0:0:0:0:255:255:239:77:1:2"
		for _, row := range []perfRow{
			{tool: "ib_send_bw", args: "-c UD -n 100 -s 1024" + group, sizes: []int{1024}, iters: 100},
			{tool: "ib_send_lat", args: "-c UD -n 100 -s 64" + group, sizes: []int{64}, iters: 100},
		} {
			t.Run(row.name(), func(t *testing.T) { row.test(t, p) })
		}
	})
}

// TestPerftest_RDMACM has the programs exchange their addresses through the connection manager,
// and, with -R, connect their queue pairs by it.
func TestPerftest_RDMACM(t *testing.T) {
	hasCM := func(l dropin.Library) bool { return strings.HasPrefix(l.Name, "librdmacm.so") }
	if !slices.ContainsFunc(dropin.Libraries(), hasCM) {
		t.Skip("this build has no drop-in librdmacm, which -z and -R need")
	}
	atPlaces(t, func(t *testing.T, p pair) {
		for _, tool := range perfTools {
			for _, args := range []string{"-c RC -z -n 100", "-c RC -R -n 100"} {
				row := perfRow{
					tool: tool.name, args: args, sizes: []int{tool.defaultSize}, iters: 100,
				}
				t.Run(row.name(), func(t *testing.T) { row.test(t, p) })
			}
		}
	})
}

// TestPerftest_Reversed has the program that was given no name of a host send to the other one.
func TestPerftest_Reversed(t *testing.T) {
	atPlaces(t, func(t *testing.T, p pair) {
		for _, tool := range []string{"ib_write_bw", "ib_read_bw"} {
			for _, args := range []string{"-c RC --reversed -n 100", "-c RC -R --reversed -n 100"} {
				row := perfRow{tool: tool, args: args, sizes: []int{65536}, iters: 100}
				t.Run(row.name(), func(t *testing.T) {
					if row.isListenerNamed() && p.server != p.client {
						t.Skip("with -R it connects to its own host, whatever name it was given")
					}
					row.test(t, p)
				})
			}
		}
	})
}

// isListenerNamed reports that perftest has the program with the name of a host listen, and the one
// without connect to its own host: the connection manager's part of it goes by who sends, not by
// who was given a name. In the usual order the other one is refused, since nobody listens yet.
func (row perfRow) isListenerNamed() bool {
	return strings.Contains(row.args, "-R --reversed")
}

// commands are those of the server, which listens, and of the client.
func (row perfRow) commands(port int, address string) (server, client []string) {
	named := append(row.command(port), address)
	if row.isListenerNamed() {
		return named, row.command(port)
	}
	return row.command(port), named
}

// awaitServer waits until the server takes a client, by TCP or through the connection manager.
func (row perfRow) awaitServer(t *testing.T, m *machine, server *process, port int) {
	t.Helper()
	if !strings.Contains(row.args, " -z") && !strings.Contains(row.args, " -R") {
		server.awaitListening(t, port)
		return
	}
	until(t, row.name()+" listens", func() bool {
		if server.hasEnded() {
			t.Fatalf("%s ended: %+v", server.name, server.end(t))
		}
		return slices.ContainsFunc(m.users(t).CMIDs, func(i cmStatus) bool {
			return i.PID == server.pid() && i.State == "listening"
		})
	})
}

func (row perfRow) command(port int) []string {
	// -F: the clock of the CPU is none of our business.
	return append([]string{row.tool, "-F", "-p", strconv.Itoa(port)}, strings.Fields(row.args)...)
}

// unacknowledged is how many bytes of packets may be under way at once that nobody acknowledges:
// all that an unreliable transport sends in one direction, for its requests complete when they
// are sent.
func (row perfRow) unacknowledged() int {
	if strings.Contains(row.args, "-c RC") || row.tool == "ib_write_bw" {
		return 0 // nobody waits for what ib_write_bw writes
	}
	bytes := slices.Max(row.sizes)
	if strings.HasSuffix(row.tool, "_bw") {
		bytes *= max(row.iters, row.option("-n", 5000))
	}
	return bytes
}

// option returns the value of an option of the row, or what the program takes without it.
func (row perfRow) option(name string, otherwise int) int {
	fields := strings.Fields(row.args)
	if i := slices.Index(fields, name); i >= 0 && i+1 < len(fields) {
		if n, err := strconv.Atoi(fields[i+1]); err == nil {
			return n
		}
	}
	return otherwise
}

// ampleBuffer is a socket buffer, in the kernel's counting, that outlasts the moments in which the
// other host's NIC has no processor, at the rate to which it makes the sender keep.
const ampleBuffer = 2 << 20

// requireBuffer skips rows that send more unacknowledged than a small buffer at the other host
// holds. A loss is then in order, and the program waits for the lost message for ever. The kernel
// counts about twice a packet's bytes.
func (row perfRow) requireBuffer(t *testing.T, p pair) {
	t.Helper()
	if p.server == p.client || row.unacknowledged() == 0 {
		return
	}
	holder := p.server.run(t, "sleep", "60")
	defer holder.kill()
	until(t, "the NIC is there", func() bool {
		return p.server.start(t, rnic, "devinfo").end(t).status == 0
	})
	room := p.server.device(t).Network.ReceiveBuffer
	if room < ampleBuffer && 2*row.unacknowledged() > room {
		t.Skipf("%d bytes may be under way without flow control, and the socket buffer of an"+
			" ordinary user is %d (sysctl net.core.rmem_max)", row.unacknowledged(), room)
	}
}

func (row perfRow) test(t *testing.T, p pair) {
	row.requireBuffer(t, p)
	t.Cleanup(func() {
		if t.Failed() && p.server != p.client {
			t.Logf("the server's NIC:\n%s", p.server.evidence())
		}
	})
	for range refusalsMax {
		port := newPort()
		listen, connect := row.commands(port, p.address)
		server := p.server.run(t, listen...)
		row.awaitServer(t, p.server, server, port)
		client := p.client.run(t, connect...)
		if row.wasTooEarly(t, client) || row.wasOverrun(t, p, client) {
			client.kill()
			server.kill()
			continue
		}
		report, clocked := row.succeed(t, client)
		row.checkReport(t, report, clocked)
		row.succeed(t, server)
		return
	}
	t.Errorf("refused or overrun %d times", refusalsMax)
}

// refusalsMax bounds how often a client may come too early, or overrun the other host.
const refusalsMax = 5

// overrunPatience is how long a client may take until it is asked whether something was lost.
const overrunPatience = 15 * time.Second

// wasOverrun reports that the client waits in vain because a transport without acknowledgements
// lost packets where a host had no processor for its NIC: the kernel counts what found no room.
func (row perfRow) wasOverrun(t *testing.T, p pair, client *process) bool {
	t.Helper()
	if p.server == p.client || row.unacknowledged() == 0 {
		return false
	}
	select {
	case <-client.done:
		return false
	case <-time.After(overrunPatience):
	}
	dropped := uint64(0)
	for _, m := range []*machine{p.server, p.client} {
		dropped += m.device(t).Network.Counters["rx_socket_dropped"]
	}
	t.Logf("%s has not ended; the kernel dropped %d packets", client.name, dropped)
	return dropped > 0
}

// wasTooEarly reports that the client was refused by the connection manager because nobody
// listened. With -R that happens now and then on other adapters too: the two programs race with
// each other, and the client does not cope with a refusal and crashes.
func (row perfRow) wasTooEarly(t *testing.T, client *process) bool {
	t.Helper()
	if !strings.Contains(row.args, " -R") {
		return false
	}
	return strings.Contains(client.end(t).stderr, "RDMA_CM_EVENT_REJECTED; error: 8.")
}

// clockNoise is what perftest says when it cannot agree with itself on the clock of the CPU,
// which it measures by spinning and which a busy machine disturbs. It has nothing to do with the
// adapter; what it then measures is nonsense, though.
var clockNoise = regexp.MustCompile(`(?m)^(Correlation coefficient r\^2: \S+ < 0\.9` +
	`|Warning: measured timestamp frequency .*|Conflicting CPU frequency values .*)\n`)

// udNotice is what it says when -a names sizes that no UD message can have, as on any adapter.
var udNotice = regexp.MustCompile(`(?m)^ (Max msg size in UD is MTU \d+|Changing to this MTU)\n`)

// succeed waits for a program and wants status 0 and a silent standard error, but for such noise.
// It returns the report, and whether the times in it mean anything.
func (row perfRow) succeed(t *testing.T, p *process) (report string, clocked bool) {
	t.Helper()
	limit := patience
	if row.long {
		limit = 5 * patience
	}
	out := p.endWithin(t, limit)
	rest := clockNoise.ReplaceAllString(out.stderr, "")
	clocked = rest == out.stderr
	if strings.Contains(row.args, "UD -a") {
		rest = udNotice.ReplaceAllString(rest, "")
	}
	if out.status != 0 || rest != "" {
		t.Errorf("%s: status %d\nstdout:\n%s\nstderr:\n%s", p.name, out.status, out.stdout, rest)
	}
	return out.stdout, clocked
}

// checkReport wants a line for each size, with the number of messages, and figures that are not
// nought.
func (row perfRow) checkReport(t *testing.T, report string, clocked bool) {
	t.Helper()
	var sizes []int
	for _, line := range figures(report) {
		sizes = append(sizes, line.size)
		if row.iters > 0 && line.messages != row.iters || line.messages <= 0 {
			t.Errorf("%d messages of %d bytes, not %d", line.messages, line.size, row.iters)
		}
		if clocked && line.average <= 0 {
			t.Errorf("a measured value of %v for %d bytes", line.average, line.size)
		}
	}
	if !slices.Equal(sizes, row.sizes) {
		t.Errorf("sizes %v, not %v", sizes, row.sizes)
	}
	if t.Failed() {
		t.Logf("%s:\n%s", row.name(), report)
	}
}

// figure is a line of a report.
type figure struct {
	size, messages int
	average        float64 // bandwidth, or the longest time of one message
}

// figures returns the lines that consist of numbers: size, number of messages, then what was
// measured. Some of that is "-nan" where the clock of the CPU is unclear.
func figures(report string) []figure {
	var out []figure
	for line := range strings.Lines(report) {
		fields := strings.Fields(line)
		if len(fields) < 4 {
			continue
		}
		size, errSize := strconv.Atoi(fields[0])
		messages, errMessages := strconv.Atoi(fields[1])
		average, errAverage := strconv.ParseFloat(fields[3], 64)
		if errSize == nil && errMessages == nil && errAverage == nil {
			out = append(out, figure{size, messages, average})
		}
	}
	return out
}
