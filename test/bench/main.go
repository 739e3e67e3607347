package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"
)

// measurement is one figure that a pair of programs reports.
type measurement struct {
	name   string
	unit   string
	tool   string
	args   []string
	column int     // in the report: size, messages, then the figures
	scale  float64 // from the report's unit to ours
	// against names what TCP figure it is compared with, and better says which way is better.
	against string
	lower   bool
}

// Units that TCP figures are in.
const (
	tcpBandwidth = "tcp_bw"  // GB/s
	tcpLatency   = "tcp_lat" // µs
)

//tidy:table
var measurements = []measurement{
	{
		name: "ib_write_bw -s 65536", unit: "GB/s", tool: "ib_write_bw",
		args: []string{"-s", "65536", "-n", "20000", "--report_gbits"}, column: 3, scale: 1.0 / 8,
		against: tcpBandwidth,
	},
	{
		name: "ib_send_lat", unit: "µs", tool: "ib_send_lat",
		args: []string{"-n", "10000"}, column: 5, scale: 1, against: tcpLatency, lower: true,
	},
	{
		name: "ib_write_lat", unit: "µs", tool: "ib_write_lat",
		args: []string{"-n", "10000"}, column: 5, scale: 1, against: tcpLatency, lower: true,
	},
	{
		name: "ib_send_bw -s 2", unit: "M/s", tool: "ib_send_bw",
		args: []string{"-s", "2", "-n", "100000", "-N"}, column: 4, scale: 1,
	},
}

const idleRow = "idle NIC, of a core"

func main() {
	if os.Getenv(peerEnv) != "" {
		if err := playPeer(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	runs := flag.Int("runs", 3, "repeat each measurement this often and print the median")
	binary := flag.String("rnic", "bin/rnic", "the rnic `binary` to measure")
	only := flag.String("only", "", "measure only rows that match this `expression`")
	flag.Parse()
	rows, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	if *runs < 1 || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	b := &bench{runs: *runs, rows: rows}
	if err := b.prepare(*binary); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	b.all()
	b.cleanUp()
	if b.failed {
		os.Exit(1)
	}
}

// all measures every path and prints a table.
func (b *bench) all() {
	fmt.Printf("%s, %d CPUs, %s; median of %d runs; TCP on the same path\n\n",
		kernel(), runtime.NumCPU(), time.Now().Format("2006-01-02 15:04"), b.runs)
	out := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(out, "path\tmeasurement\tSoftRNIC\tTCP\t\tSoftRNIC is\t")
	for _, p := range b.paths() {
		var tcp map[string]float64 // once it is wanted
		for _, m := range measurements {
			if !b.rows.MatchString(m.name) {
				continue
			}
			if tcp == nil {
				tcp = b.measureTCP(p)
			}
			b.print(out, p, m, tcp)
		}
		for _, row := range rateRows {
			if b.rows.MatchString(row.name) {
				b.printRate(out, p, row)
			}
		}
		if b.rows.MatchString(idleRow) {
			fmt.Fprintf(out, "%s\t%s\t%.2f\t\t%%\t\t\n", p.name, idleRow, b.idle(p))
		}
		_ = out.Flush() // its only failure is standard output's
	}
}

func (b *bench) print(out *tabwriter.Writer, p path, m measurement, tcp map[string]float64) {
	value, err := b.median(func() (float64, error) { return b.perftest(p, m) })
	if err != nil {
		b.complain("%s, %s: %v", p.name, m.name, err)
		return
	}
	reference, compared := tcp[m.against]
	if !compared {
		fmt.Fprintf(out, "%s\t%s\t%.3g\t\t%s\t\t\n", p.name, m.name, value, m.unit)
		return
	}
	ratio := value / reference
	word := "×"
	if m.lower {
		ratio, word = reference/value, "× faster"
	}
	fmt.Fprintf(out, "%s\t%s\t%.3g\t%.3g\t%s\t%.2f %s\t\n",
		p.name, m.name, value, reference, m.unit, ratio, word)
}

// median repeats a measurement. One failure fails it: a figure of the runs that happened to work
// would hide that others do not.
func (b *bench) median(measure func() (float64, error)) (float64, error) {
	var values []float64
	for range b.runs {
		value, err := measure()
		if err != nil {
			return 0, err
		}
		values = append(values, value)
	}
	slices.Sort(values)
	return values[len(values)/2], nil
}

func (b *bench) complain(format string, args ...any) {
	b.failed = true
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...)
}

func kernel() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return runtime.GOOS
	}
	return "Linux " + string(release[:len(release)-1])
}
