package suite

import (
	"context"

	"github.com/softrnic/softrnic/internal/bench"
	"github.com/softrnic/softrnic/internal/bench/probe"
	"github.com/softrnic/softrnic/internal/bench/tool"
)

// connectionsAtOnce is how many cmtime makes.
const connectionsAtOnce = 1000

// Connections are connections and HTTP requests a second, of the Go packages and of cmtime.
func Connections(p *Place) bench.Figure {
	f := bench.Figure{
		Key: p.key() + "-connections", Title: p.Name + ": connections and HTTP requests a second",
		Unit: bench.PerSecond,
		Note: "A connection of TCP is one that a byte has crossed each way, as for rnet; rdma_cm" +
			" carries its greeting in the messages that make the connection.",
	}
	for _, row := range []struct{ name, network, what string }{
		{"connections, rdmacm.Dial in turn", probe.NetworkCM, probe.InTurn},
		{"connections, 1000 rdmacm.Dial at once", probe.NetworkCM, probe.AtOnce},
		{"connections, rnet.Dial in turn", probe.NetworkRnet, probe.InTurn},
		{"HTTP requests, rnet", probe.NetworkRnet, probe.HTTP},
	} {
		f.Rows = append(f.Rows, bench.Row{
			Name: row.name, Ours: p.connect("SoftRNIC", row.network, row.what),
			Goals: []bench.Goal{bench.Beside(p.connect("TCP", probe.NetworkTCP, row.what))},
		})
	}
	cmtime := p.gauge("cmtime", "SoftRNIC", func(ctx context.Context) (bench.Sample, error) {
		return p.Path.CMTime(ctx, connectionsAtOnce)
	})
	f.Rows = append(f.Rows, bench.Row{Name: "connections, cmtime", Ours: cmtime})
	return f
}

func (p *Place) connect(who, network, what string) *bench.Gauge {
	return p.gauge("connect/"+network+"/"+what, who,
		func(ctx context.Context) (bench.Sample, error) {
			return p.Path.Probes(ctx, tool.Duo{
				Server: probe.ConnectServe, Client: probe.Connect,
				Args: []string{network, what}, IsEndless: true,
			})
		})
}
