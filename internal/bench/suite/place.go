package suite

import (
	"context"
	"fmt"
	"strings"

	"github.com/softrnic/softrnic/internal/bench"
	"github.com/softrnic/softrnic/internal/bench/probe"
	"github.com/softrnic/softrnic/internal/bench/tool"
)

// Place is a path with a name that people know it by.
type Place struct {
	Name  string
	Path  *tool.Path
	Stage *bench.Stage
}

// NewPlace makes a place whose stage is the NICs of the path.
func NewPlace(name string, path *tool.Path) *Place {
	return &Place{
		Name: name, Path: path,
		Stage: &bench.Stage{Name: name, Open: path.Open, Close: path.Close},
	}
}

// fresh is the same place with NICs of its own, which have done nothing before.
func (p *Place) fresh(name string) *Place { return NewPlace(p.Name+", "+name, p.Path) }

// key is the beginning of the names of files about the place.
func (p *Place) key() string {
	return strings.NewReplacer(" ", "-", ",", "").Replace(strings.ToLower(p.Name))
}

func (p *Place) gauge(
	key, who string, run func(context.Context) (bench.Sample, error),
) *bench.Gauge {
	return &bench.Gauge{Key: p.Name + "/" + key, Who: who, Stage: p.Stage, Run: run}
}

// Size is a number of bytes as people write it.
func Size(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

// What programs of bandwidth move between two queue pairs of one NIC, and over a network, in units
// of 2^20 bytes.
const (
	localVolume   = 8 << 10
	networkVolume = 4 << 10
)

// pieces is how many messages of a size make up a volume.
func pieces(volume, bytes int) int {
	return int(float64(volume) * (1 << 20) / float64(bytes))
}

func (p *Place) perftest(name string, bytes, count int, more ...string) *bench.Gauge {
	t := tool.Perftest{Name: name, Size: bytes, Count: count, More: more}
	key := fmt.Sprintf("%s/%d/%s", name, bytes, strings.Join(more, ""))
	return p.gauge(key, "SoftRNIC", func(ctx context.Context) (bench.Sample, error) {
		return p.Path.Perftest(ctx, t)
	})
}

func (p *Place) qperf(test string, bytes int) *bench.Gauge {
	key := fmt.Sprintf("qperf/%s/%d", test, bytes)
	return p.gauge(key, "qperf "+test, func(ctx context.Context) (bench.Sample, error) {
		return p.Path.Qperf(ctx, test, bytes)
	})
}

func (p *Place) iperf(bytes int) *bench.Gauge {
	key := fmt.Sprintf("iperf3/%d", bytes)
	return p.gauge(key, "iperf3", func(ctx context.Context) (bench.Sample, error) {
		return p.Path.Iperf(ctx, bytes)
	})
}

func (p *Place) ucx(transports, test string, bytes, count int) *bench.Gauge {
	key := fmt.Sprintf("ucx/%s/%s/%d", transports, test, bytes)
	who := "UCX " + transports + " " + test
	return p.gauge(key, who, func(ctx context.Context) (bench.Sample, error) {
		return p.Path.UCX(ctx, transports, test, bytes, count)
	})
}

func (p *Place) fabric(provider, kind string, bytes, count int) *bench.Gauge {
	key := fmt.Sprintf("libfabric/%s/%d", provider, bytes)
	who := "fi_pingpong " + provider
	return p.gauge(key, who, func(ctx context.Context) (bench.Sample, error) {
		return p.Path.Fabric(ctx, provider, kind, bytes, count)
	})
}

// probe is one of our own programs, alone.
func (p *Place) probe(who string, args ...string) *bench.Gauge {
	return p.gauge("probe/"+strings.Join(args, "/"), who,
		func(ctx context.Context) (bench.Sample, error) { return p.Path.Alone(ctx, args...) })
}

// probes is a pair of our own programs.
func (p *Place) probes(who, server, client string, numbers ...int) *bench.Gauge {
	var args []string
	for _, n := range numbers {
		args = append(args, fmt.Sprint(n))
	}
	return p.gauge("probe/"+client+"/"+strings.Join(args, "/"), who,
		func(ctx context.Context) (bench.Sample, error) {
			return p.Path.Probes(ctx, tool.Duo{Server: server, Client: client, Args: args})
		})
}

// count scales a number of operations of our own programs.
func (p *Place) count(n int) int { return max(int(float64(n)*p.Path.Length), 100) }

// copied is a cold copy of memory, in pieces of a size.
func (p *Place) copied(bytes int) *bench.Gauge {
	return p.probe("cold memcpy", probe.Copy, fmt.Sprint(bytes),
		fmt.Sprint(p.count(pieces(localVolume, bytes))))
}

func (p *Place) pingPong() *bench.Gauge {
	return p.probe("shared-memory ping-pong", probe.PingPong, fmt.Sprint(p.count(200000)))
}
