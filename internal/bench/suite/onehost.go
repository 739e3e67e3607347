package suite

import (
	"fmt"

	"github.com/softrnic/softrnic/internal/bench"
	"github.com/softrnic/softrnic/internal/bench/tool"
)

// Tables of sizes.
var (
	bulkSizes  = []int{64 << 10, 1 << 20}
	smallSizes = []int{2, 64}
)

// OneHost are unmodified programs on one NIC, beside what programs on one host have otherwise.
func OneHost(p *Place) []bench.Figure {
	return []bench.Figure{p.localBandwidth(), p.localLatency(), p.localRate()}
}

func (p *Place) localBandwidth() bench.Figure {
	f := bench.Figure{
		Key: p.key() + "-bandwidth", Title: "One host: bandwidth", Unit: bench.Bandwidth,
		Note: "One queue pair of perftest. The copy of memory is one between 256 MiB each, which no" +
			" cache holds; perftest writes the same message again and again.",
	}
	for _, name := range []string{"ib_write_bw", "ib_read_bw", "ib_send_bw"} {
		for _, n := range bulkSizes {
			f.Rows = append(f.Rows, bench.Row{
				Name: name + " " + Size(n), Ours: p.perftest(name, n, pieces(localVolume, n)),
				Goals: []bench.Goal{
					{Peer: p.qperf(tool.QperfBandwidth, n), Factor: 2.5},
					{Peer: p.ucx("posix,cma", "tag_bw", n, pieces(localVolume, n)), Factor: 1.2},
					{Peer: p.copied(n), Factor: 0.6},
					bench.Beside(p.ucx("tcp", "tag_bw", n, pieces(networkVolume, n))),
				},
			})
		}
	}
	return f
}

func (p *Place) localLatency() bench.Figure {
	f := bench.Figure{
		Key: p.key() + "-latency", Title: "One host: latency", Unit: bench.Latency,
		Note: "Typical, as perftest calls the median: one way for writes and sends, from request to" +
			" completion for reads and atomics. That of fi_pingpong is an average.",
	}
	const count = 50000
	add := func(name string, n int, overTCP, overMemory float64) {
		goals := []bench.Goal{
			{Peer: p.ucx("tcp", "tag_lat", n, count), Factor: overTCP},
			{Peer: p.pingPong(), Factor: overMemory},
			bench.Beside(p.ucx("posix,cma", "tag_lat", n, count)),
			bench.Beside(p.fabric("tcp", "msg", n, count)),
			bench.Beside(p.fabric("shm", "rdm", n, count)),
			bench.Beside(p.qperf(tool.QperfLatency, n)),
		}
		f.Rows = append(f.Rows, bench.Row{
			Name: name + " " + Size(n), Ours: p.perftest(name, n, count), Goals: goals,
		})
	}
	for _, n := range smallSizes {
		add("ib_write_lat", n, 0.5, 3)
		add("ib_read_lat", n, 0.5, 3)
	}
	add("ib_atomic_lat", 8, 0.5, 3)
	for _, n := range smallSizes {
		add("ib_send_lat", n, 0.7, 0)
	}
	return f
}

// messages is how many a program of the rate sends.
const messages = 1 << 20

func (p *Place) localRate() bench.Figure {
	f := bench.Figure{
		Key: p.key() + "-rate", Title: "One host: messages a second", Unit: bench.Rate,
		Note: "One queue pair; perftest posts lists of 16 (-l 16).",
	}
	for _, name := range []string{"ib_write_bw", "ib_send_bw"} {
		for _, n := range smallSizes {
			f.Rows = append(f.Rows, bench.Row{
				Name: name + " " + Size(n), Ours: p.perftest(name, n, messages, "-l", "16"),
				Goals: []bench.Goal{
					{Factor: 2},
					{Peer: p.qperf(tool.QperfBandwidth, n), Factor: 5},
					bench.Beside(p.ucx("posix,cma", "tag_bw", n, messages)),
				},
			})
		}
	}
	return f
}

// Scale is what many queue pairs cost.
func Scale(p *Place) []bench.Figure {
	cost := bench.Figure{
		Key: "scale-cost", Title: "Many queue pairs: cost of an operation", Unit: bench.Cost,
		Note: "WRITEs of 8 bytes, 16 under way, over one connected queue pair after the other. The" +
			" target is the growth from one queue pair on.",
	}
	memory := bench.Figure{
		Key: "scale-memory", Title: "Many queue pairs: memory of the NIC", Unit: bench.Memory,
		Note: "Of one idle, connected queue pair, without its rings, which are shared with the program.",
	}
	one := p.fresh("1 queue pair").roundRobin(1)
	cost.Rows = append(cost.Rows, bench.Row{Name: "1 queue pair", Ours: one})
	for _, n := range []int{100, 1000, 10000} {
		name := fmt.Sprintf("%d queue pairs", n)
		// Memory that a NIC has had for others before would hide what these take.
		many := p.fresh(name).roundRobin(n)
		cost.Rows = append(cost.Rows, bench.Row{
			Name: name, Ours: many, Goals: []bench.Goal{{Peer: one, Factor: 1.3}},
		})
		if n >= 1000 {
			memory.Rows = append(memory.Rows, bench.Row{
				Name: name, Ours: many, Goals: []bench.Goal{{Factor: 8}},
			})
		}
	}
	return []bench.Figure{cost, memory}
}
