package tool

import (
	"context"
	"errors"
	"fmt"
	"math"
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
	columnBandwidth = 3 // average, in units of 2^20 bytes
	columnRate      = 4
)

// Arguments are those of both sides.
func (t *Perftest) Arguments() []string {
	return append([]string{
		t.Name, "-F", "-s", strconv.Itoa(t.Size), "-n", strconv.Itoa(t.Count),
	}, t.More...)
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

// ErrClock says that perftest, which counts cycles of a clock that it measures before, found no
// such clock: its figures are zero or infinite. That happens where time stands still now and then;
// it is no fault of what was measured.
var ErrClock = errors.New("perftest has misread the clock")

// Read finds the figures in a report.
func (t *Perftest) Read(report string) (bench.Sample, error) {
	for line := range strings.Lines(report) {
		fields := strings.Fields(line)
		if len(fields) < 5 || fields[0] != strconv.Itoa(t.Size) {
			continue
		}
		if t.isLatency() {
			typical, err := figure(fields[columnTypical])
			if err != nil {
				return nil, fmt.Errorf("read %q: %w", line, err)
			}
			return bench.Sample{bench.Latency: typical}, nil
		}
		// The bandwidth of few bytes may well round to 0.
		bandwidth, err := strconv.ParseFloat(fields[columnBandwidth], 64)
		rate, rateErr := figure(fields[columnRate])
		if err = errors.Join(err, rateErr); err != nil {
			return nil, fmt.Errorf("read %q: %w", line, err)
		}
		return bench.Sample{
			bench.Bandwidth: bandwidth * (1 << 20) / 1e9, bench.Rate: rate,
		}, nil
	}
	return nil, fmt.Errorf("no figure in %q", report)
}

// figure reads one that can be.
func figure(text string) (float64, error) {
	x, err := strconv.ParseFloat(text, 64)
	if err == nil && (!(x > 0) || math.IsInf(x, 0)) {
		err = ErrClock
	}
	return x, err
}
