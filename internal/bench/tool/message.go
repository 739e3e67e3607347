package tool

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/softrnic/softrnic/internal/bench"
)

// UCX runs ucx_perftest with transports such as "posix,cma", for bandwidth and rate or, of a test
// that ends in _lat, latency.
func (p *Path) UCX(ctx context.Context, transports, test string, size, count int) (
	bench.Sample, error,
) {
	listenPort := p.nextPort()
	port := strconv.Itoa(listenPort)
	o, err := p.both(ctx, pair{
		server: []string{"ucx_perftest", "-p", port},
		client: []string{
			"ucx_perftest", "-p", port, p.Address, "-t", test, "-s", strconv.Itoa(size),
			"-n", strconv.Itoa(p.scaled(count)), "-w", "100", "-f", "-v",
		},
		env:   []string{"UCX_TLS=" + transports, "UCX_LOG_LEVEL=error", "UCX_WARN_UNUSED_ENV_VARS=n"},
		ready: listens(listenPort), packageName: "ucx-utils",
	})
	if err != nil {
		return nil, err
	}
	return readUCX(o.client, strings.HasSuffix(test, "_lat"))
}

// readUCX reads what the option -v prints: iterations, typical, average and overall latency in µs,
// average and overall bandwidth in 2^20 bytes, average and overall rate a second.
func readUCX(report string, isLatency bool) (bench.Sample, error) {
	for line := range strings.Lines(report) {
		fields := strings.Split(strings.TrimSpace(line), ",")
		if len(fields) < 8 {
			continue
		}
		var f [8]float64
		var err error
		for i := range f {
			if f[i], err = strconv.ParseFloat(fields[i], 64); err != nil {
				break
			}
		}
		switch {
		case err != nil:
			continue // the heading
		case isLatency:
			return bench.Sample{bench.Latency: f[1]}, nil
		}
		return bench.Sample{
			bench.Bandwidth: f[5] * (1 << 20) / 1e9, bench.Rate: f[7] / 1e6,
		}, nil
	}
	return nil, fmt.Errorf("no figure in %q", report)
}

// Fabric runs fi_pingpong of libfabric over a provider, with its kind of endpoint. The latency that
// it reports is an average.
func (p *Path) Fabric(ctx context.Context, provider, kind string, size, count int) (
	bench.Sample, error,
) {
	listenPort := p.nextPort()
	port := strconv.Itoa(listenPort)
	args := []string{
		"fi_pingpong", "-p", provider, "-e", kind, "-I", strconv.Itoa(p.scaled(count)),
		"-S", strconv.Itoa(size),
	}
	o, err := p.both(ctx, pair{
		server: append(args[:len(args):len(args)], "-B", port),
		client: append(args[:len(args):len(args)], "-P", port, p.Address),
		ready:  listens(listenPort), packageName: "libfabric-bin",
	})
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(o.client) {
		fields := strings.Fields(line)
		if len(fields) != 8 {
			continue
		}
		if latency, err := strconv.ParseFloat(fields[6], 64); err == nil {
			return bench.Sample{bench.Latency: latency}, nil
		}
	}
	return nil, fmt.Errorf("no figure in %q", o.client)
}
