package tool

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/softrnic/softrnic/internal/bench"
)

// CMTime runs rdma-core's own program that measures connections, so many at once, and tells how
// many a second go through all its steps, from the identifier to its end.
func (p *Path) CMTime(ctx context.Context, connections int) (bench.Sample, error) {
	if err := installed("cmtime", "rdmacm-utils"); err != nil {
		return nil, err
	}
	args := []string{
		"cmtime", "-c", strconv.Itoa(connections), "-p", strconv.Itoa(p.nextPort()),
	}
	o, err := p.both(ctx, pair{
		server:    p.Server.run(args...),
		client:    append(p.Client.run(args...), "-s", p.Address),
		ready:     func(int) bool { return p.Server.hasListener(ctx) },
		isEndless: true,
	})
	if err != nil {
		return nil, err
	}
	return readCMTime(o.client)
}

// readCMTime adds up the last column, microseconds of a step for each connection.
func readCMTime(report string) (bench.Sample, error) {
	total := 0.0
	for line := range strings.Lines(report) {
		_, figures, found := strings.Cut(line, ":")
		fields := strings.Fields(figures)
		if !found || len(fields) != 4 {
			continue
		}
		step, err := strconv.ParseFloat(fields[3], 64)
		if err != nil {
			return nil, fmt.Errorf("cannot read %q", line)
		}
		total += step
	}
	if total == 0 {
		return nil, fmt.Errorf("no figure in %q", report)
	}
	return bench.Sample{bench.PerSecond: 1e6 / total}, nil
}
