package tool

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/softrnic/softrnic/internal/bench"
)

// Perftest is one of its programs.
type Perftest struct {
	Name  string // ib_write_bw
	Size  int
	Count int // of operations
	More  []string
}

// Columns of a report, after the size and the number of operations.
const (
	columnTypical   = 4 // of a latency
	columnBandwidth = 3 // average, Gb/s
	columnRate      = 4
)

// Arguments are those of both sides.
func (t *Perftest) Arguments() []string {
	args := []string{
		t.Name, "-F", "-s", strconv.Itoa(t.Size), "-n", strconv.Itoa(t.Count),
	}
	if !t.isLatency() {
		args = append(args, "--report_gbits")
	}
	return append(args, t.More...)
}

func (t *Perftest) isLatency() bool { return strings.HasSuffix(t.Name, "_lat") }

// Perftest runs a program over the NICs.
func (p *Path) Perftest(ctx context.Context, t Perftest) (bench.Sample, error) {
	if err := installed(t.Name, "perftest"); err != nil {
		return nil, err
	}
	t.Count = p.scaled(t.Count)
	if !t.isLatency() {
		t.Count = (t.Count + 15) &^ 15 // whole lists of requests
	}
	port := p.nextPort()
	args := append(t.Arguments(), "-p", strconv.Itoa(port))
	ready := listens(port)
	if p.UsesCM {
		args = append(args, "-R")
		ready = func(int) bool { return p.Server.hasListener(ctx) }
	}
	o, err := p.both(ctx, pair{
		server: p.Server.run(args...), client: append(p.Client.run(args...), p.Address), ready: ready,
	})
	if err != nil {
		return nil, err
	}
	sample, err := t.Read(o.client)
	if err == nil && !t.isLatency() {
		sample[bench.CPUCost] = o.cpu.Seconds() / (float64(t.Size) * float64(t.Count) / 1e9)
	}
	return sample, err
}

// Read finds the figures in a report.
func (t *Perftest) Read(report string) (bench.Sample, error) {
	for line := range strings.Lines(report) {
		fields := strings.Fields(line)
		if len(fields) < 5 || fields[0] != strconv.Itoa(t.Size) {
			continue
		}
		if t.isLatency() {
			typical, err := strconv.ParseFloat(fields[columnTypical], 64)
			if err != nil || typical <= 0 {
				return nil, fmt.Errorf("cannot read %q", line)
			}
			return bench.Sample{bench.Latency: typical}, nil
		}
		gigabits, err := strconv.ParseFloat(fields[columnBandwidth], 64)
		if err != nil || gigabits <= 0 && t.Size > 1024 {
			return nil, fmt.Errorf("cannot read %q", line)
		}
		rate, err := strconv.ParseFloat(fields[columnRate], 64)
		if err != nil {
			return nil, fmt.Errorf("cannot read %q", line)
		}
		return bench.Sample{bench.Bandwidth: gigabits / 8, bench.Rate: rate}, nil
	}
	return nil, fmt.Errorf("no figure in %q", report)
}
