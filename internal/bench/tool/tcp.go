package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"

	"github.com/softrnic/softrnic/internal/bench"
)

// Tests of qperf.
const (
	QperfBandwidth = "tcp_bw"
	QperfLatency   = "tcp_lat"
)

// qperfFigure is a line such as "    bw  =  4200000000 bytes/sec".
var qperfFigure = regexp.MustCompile(`(?:bw|latency)\s+=\s+([0-9.]+) (\S+)`)

// qperfUnits converts to GB/s and µs.
var qperfUnits = map[string]float64{
	"bytes/sec": 1e-9, "KB/sec": 1e-6, "MB/sec": 1e-3, "GB/sec": 1,
	"ns": 1e-3, "us": 1, "ms": 1e3, "sec": 1e6,
}

// Qperf measures TCP with messages of a size: bandwidth and messages a second, or the latency.
func (p *Path) Qperf(ctx context.Context, test string, size int) (bench.Sample, error) {
	listenPort := p.nextPort()
	port := strconv.Itoa(listenPort)
	o, err := p.both(ctx, pair{
		server: []string{"qperf", "-lp", port},
		client: []string{
			"qperf", "-lp", port, "-uu", "-t", strconv.Itoa(p.seconds()), "-m", strconv.Itoa(size),
			p.Address, test,
		},
		ready: listens(listenPort), isEndless: true, packageName: "qperf",
	})
	if err != nil {
		return nil, err
	}
	value, err := readQperf(o.client)
	if err != nil {
		return nil, err
	}
	if test == QperfLatency {
		return bench.Sample{bench.Latency: value}, nil
	}
	return bench.Sample{bench.Bandwidth: value, bench.Rate: value * 1e3 / float64(size)}, nil
}

func readQperf(report string) (float64, error) {
	found := qperfFigure.FindStringSubmatch(report)
	if found == nil {
		return 0, fmt.Errorf("no figure in %q", report)
	}
	value, err := strconv.ParseFloat(found[1], 64)
	scale, known := qperfUnits[found[2]]
	if err != nil || !known {
		return 0, fmt.Errorf("cannot read %q", found[0])
	}
	return value * scale, nil
}

// Iperf measures TCP, and what it costs of processors.
func (p *Path) Iperf(ctx context.Context, size int) (bench.Sample, error) {
	listenPort := p.nextPort()
	port := strconv.Itoa(listenPort)
	o, err := p.both(ctx, pair{
		server: []string{"iperf3", "-s", "-1", "-p", port},
		client: []string{
			"iperf3", "-J", "-c", p.Address, "-p", port, "-t", strconv.Itoa(p.seconds()),
			"-l", strconv.Itoa(size),
		},
		ready: listens(listenPort), packageName: "iperf3",
	})
	if err != nil {
		return nil, err
	}
	return readIperf(o)
}

func readIperf(o outcome) (bench.Sample, error) {
	var report struct {
		End struct {
			Received struct {
				Bytes float64 `json:"bytes"`
				Rate  float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal([]byte(o.client), &report); err != nil {
		return nil, fmt.Errorf("read the report of iperf3: %w", err)
	}
	if report.End.Received.Bytes == 0 {
		return nil, fmt.Errorf("no figure in %q", o.client)
	}
	return bench.Sample{
		bench.Bandwidth: report.End.Received.Rate / 8e9,
		bench.CPUCost:   o.cpu.Seconds() / (report.End.Received.Bytes / 1e9),
	}, nil
}
