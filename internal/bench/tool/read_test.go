package tool

import (
	"context"
	"errors"
	"math"
	"os"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/bench"
)

// Reports as the programs print them.
const (
	bandwidthReport = ` #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      1000             9600.00            8000.00		     0.137329
`
	latencyReport = ` #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]
 64      1000          3.10           19.20        3.25     	       3.40        	0.20   		4.00
`
	ucxReport = `iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr
2000,4.160,217.656,465.001,2000.00,1000.00,4594,2151000
`
	iperfReport = `{"end":{"sum_received":{"bytes":4000000000,"bits_per_second":16000000000}}}`
	cmReport    = `step              total ms     max ms     min us  us / conn
create id    :        5.30       0.20      10.00       4.00
disconnect   :       90.00      21.00      15.00       6.00
`
)

func TestReaders_Reports_AreRead(t *testing.T) {
	for name, test := range map[string]struct {
		read func() (bench.Sample, error)
		want bench.Sample
	}{
		"PerftestBandwidth": {
			func() (bench.Sample, error) {
				return (&Perftest{Name: "ib_write_bw", Size: 65536}).Read(bandwidthReport)
			},
			bench.Sample{bench.Bandwidth: 8.388608, bench.Rate: 0.137329},
		},
		"PerftestLatency": {
			func() (bench.Sample, error) {
				return (&Perftest{Name: "ib_send_lat", Size: 64}).Read(latencyReport)
			},
			bench.Sample{bench.Latency: 3.25},
		},
		"UCXBandwidth": {
			func() (bench.Sample, error) { return readUCX(ucxReport, false) },
			bench.Sample{bench.Bandwidth: 1.048576, bench.Rate: 2.151},
		},
		"UCXLatency": {
			func() (bench.Sample, error) { return readUCX(ucxReport, true) },
			bench.Sample{bench.Latency: 4.16},
		},
		"Iperf": {
			func() (bench.Sample, error) {
				return readIperf(outcome{client: iperfReport, cpu: 2 * time.Second})
			},
			bench.Sample{bench.Bandwidth: 2, bench.CPUCost: 0.5},
		},
		"CMTime": {
			func() (bench.Sample, error) { return readCMTime(cmReport) },
			bench.Sample{bench.PerSecond: 100000},
		},
		"Probe": {
			func() (bench.Sample, error) { return readSample("a warning\n{\"µs\":2.5}\n") },
			bench.Sample{bench.Latency: 2.5},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := test.read()
			if err != nil || len(got) != len(test.want) {
				t.Fatalf("%v, %v", got, err)
			}
			for unit, want := range test.want {
				if math.Abs(got[unit]-want) > 1e-9*want {
					t.Errorf("%v %s, want %v", got[unit], unit, want)
				}
			}
		})
	}
}

func TestReaders_NoReport_Fails(t *testing.T) {
	const text = "Couldn't connect to 127.0.0.1\n"
	bandwidth, latency := Perftest{Name: "ib_write_bw"}, Perftest{Name: "ib_write_lat"}
	for name, read := range map[string]func() (bench.Sample, error){
		"PerftestBandwidth": func() (bench.Sample, error) { return bandwidth.Read(text) },
		"PerftestLatency":   func() (bench.Sample, error) { return latency.Read(text) },
		"UCX":               func() (bench.Sample, error) { return readUCX(text, true) },
		"Iperf":             func() (bench.Sample, error) { return readIperf(outcome{client: text}) },
		"CMTime":            func() (bench.Sample, error) { return readCMTime(text) },
		"Probe":             func() (bench.Sample, error) { return readSample(text) },
		"Qperf": func() (bench.Sample, error) {
			_, err := readQperf(text)
			return nil, err
		},
	} {
		if got, err := read(); err == nil {
			t.Errorf("%s reads %v", name, got)
		}
	}
}

func TestPerftest_MisreadClock_IsToldApart(t *testing.T) {
	for report, test := range map[string]Perftest{
		" 65536 192 0.000000 0.000000 0.000000\n": {Name: "ib_read_bw", Size: 65536},
		" 64 1000 +Inf inf inf inf nan inf inf\n": {Name: "ib_send_lat", Size: 64},
		" 64 1000 0.00 0.00 0.00 0.00 0.00 0 0\n": {Name: "ib_read_lat", Size: 64},
	} {
		if s, err := test.Read(report); !errors.Is(err, ErrClock) {
			t.Errorf("%q: %v, %v", report, s, err)
		}
	}
}

func TestQperf_AnyUnit_IsConverted(t *testing.T) {
	for text, want := range map[string]float64{
		"tcp_bw:\n    bw  =  4.2 GB/sec\n":              4.2,
		"tcp_bw:\n    bw  =  740297251 bytes/sec\n":     0.740297251,
		"tcp_lat:\n    latency   =       13363 ns\n":    13.363,
		"tcp_lat:\n    latency  =  27.5 us\n":           27.5,
		"tcp_bw:\n    bw              =  26.9 MB/sec\n": 0.0269,
	} {
		if got, err := readQperf(text); err != nil || math.Abs(got-want) > 1e-9 {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// host is this machine, without a NIC.
func host(t *testing.T) *Host {
	t.Helper()
	dir := t.TempDir()
	h, err := NewHost(dir, Host{Rnic: "/no/rnic"})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestPath_ProgramThatIsNotThere_IsMissing(t *testing.T) {
	h := host(t)
	p := &Path{Server: h, Client: h, Address: "127.0.0.1", Length: 1}
	t.Setenv("PATH", t.TempDir())
	for name, run := range map[string]func(context.Context) (bench.Sample, error){
		"perftest": func(ctx context.Context) (bench.Sample, error) {
			return p.Perftest(ctx, Perftest{Name: "ib_write_bw", Size: 2, Count: 1})
		},
		"qperf": func(ctx context.Context) (bench.Sample, error) {
			return p.Qperf(ctx, QperfBandwidth, 2)
		},
		"iperf3": func(ctx context.Context) (bench.Sample, error) { return p.Iperf(ctx, 2) },
		"ucx": func(ctx context.Context) (bench.Sample, error) {
			return p.UCX(ctx, "tcp", "tag_lat", 2, 1)
		},
		"libfabric": func(ctx context.Context) (bench.Sample, error) {
			return p.Fabric(ctx, "tcp", "msg", 2, 1)
		},
		"cmtime": func(ctx context.Context) (bench.Sample, error) { return p.CMTime(ctx, 1) },
	} {
		if _, err := run(t.Context()); !errors.Is(err, bench.ErrMissing) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPath_ServerThatEndsAtOnce_IsTold(t *testing.T) {
	h := host(t)
	p := &Path{Server: h, Client: h, Address: "127.0.0.1", Length: 1}
	_, err := p.both(t.Context(), pair{
		server: []string{"sh", "-c", "echo no such port; exit 1"}, client: []string{"true"},
		ready: listens(1),
	})
	if !errors.Is(err, errEnded) {
		t.Errorf("%v", err)
	}
}

func TestPath_ProcessorTime_CountsBothAndKillsTheEndless(t *testing.T) {
	h := host(t)
	p := &Path{Server: h, Client: h, Address: "127.0.0.1", Length: 1}
	const busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"
	o, err := p.both(t.Context(), pair{
		server: []string{"sh", "-c", busy + "; sleep 1000"},
		client: []string{"sh", "-c", busy + "; echo done"},
		ready:  func(int) bool { return true }, isEndless: true,
	})
	if err != nil || o.client != "done\n" {
		t.Fatalf("%+v, %v", o, err)
	}
	if o.cpu < 20*time.Millisecond || o.cpu > 20*time.Second {
		t.Errorf("%v of processors", o.cpu)
	}
	if own := cpuTime(os.Getpid()); own <= 0 {
		t.Errorf("this process has used %v", own)
	}
}
