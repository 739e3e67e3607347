package tool

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

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

// few is the number of operations of a run that only sets up.
const few = 16

// Perftest runs a program over the NICs.
func (p *Path) Perftest(ctx context.Context, t Perftest) (bench.Sample, error) {
	if err := installed(t.Name, "perftest"); err != nil {
		return nil, err
	}
	t.Count = p.scaled(t.Count)
	if !t.isLatency() {
		t.Count = (t.Count + few - 1) / few * few // whole lists of requests
	}
	o, err := p.perftest(ctx, t)
	if err != nil {
		return nil, err
	}
	sample, err := t.Read(o.client)
	if err != nil || t.isLatency() || p.Server == p.Client {
		return sample, err
	}
	setUp, err := p.setUpTime(ctx, t)
	if err != nil {
		return nil, err
	}
	gigabytes := float64(t.Size) * float64(t.Count) / 1e9
	sample[bench.CPUCost] = max(o.cpu-setUp, 0).Seconds() / gigabytes
	return sample, nil
}

// setUpTime is what a run uses of processors before and after its messages: to start programs, to
// measure clocks, to register memory. It is measured once for a kind of run.
func (p *Path) setUpTime(ctx context.Context, t Perftest) (time.Duration, error) {
	t.Count = few
	kind := strings.Join(t.Arguments(), " ")
	if known, has := p.setUp[kind]; has {
		return known, nil
	}
	o, err := p.perftest(ctx, t)
	if err != nil {
		return 0, err
	}
	if p.setUp == nil {
		p.setUp = map[string]time.Duration{}
	}
	p.setUp[kind] = o.cpu
	return o.cpu, nil
}

func (p *Path) perftest(ctx context.Context, t Perftest) (outcome, error) {
	port := p.nextPort()
	args := append(t.Arguments(), "-p", strconv.Itoa(port))
	ready := listens(port)
	if p.UsesCM {
		args = append(args, "-R")
		ready = func(int) bool { return p.Server.hasListener(ctx) }
	}
	return p.both(ctx, pair{
		server: p.Server.run(args...), client: append(p.Client.run(args...), p.Address), ready: ready,
	})
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
