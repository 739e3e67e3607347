package suite

import (
	"fmt"
	"strings"

	"github.com/softrnic/softrnic/internal/bench"
	"github.com/softrnic/softrnic/internal/bench/probe"
	"github.com/softrnic/softrnic/internal/bench/tool"
)

// TwoHosts are programs on two NICs with a network between them, whose packets carry so many bytes
// of a message at most.
func TwoHosts(p *Place, pathMTU int) []bench.Figure {
	return []bench.Figure{
		p.networkBulk("bandwidth", "bandwidth", bench.Bandwidth, pathMTU),
		p.networkBulk("cpu", "processor time for 1 GB", bench.CPUCost, pathMTU),
		p.networkLatency(), p.networkRate(),
	}
}

// rawOverhead is what a packet in the middle of a message has beside its share of the message: a
// header of 12 bytes and the ICRC.
const rawOverhead = 16

// rawLimit is datagrams as long as packets of bulk data, with a checksum each or none.
func (p *Place) rawLimit(pathMTU, checks int) *bench.Gauge {
	who := []string{"UDP, GSO", "UDP, GSO and CRC"}[checks]
	segment := pathMTU + rawOverhead
	count := p.count(pieces(networkVolume, segment))
	return p.probes(who, probe.UDPServe, probe.UDPSend, segment, count, checks)
}

func (p *Place) networkBulk(key, title string, unit bench.Unit, pathMTU int) bench.Figure {
	f := bench.Figure{
		Key: p.key() + "-" + key, Title: p.Name + ": " + title, Unit: unit,
		Note: "The limit is a bare program that sends datagrams with the segmentation offload and" +
			fmt.Sprintf(" receives them so, with a CRC-32 on both sides: %d bytes each, as packets", pathMTU+
				rawOverhead) + " of this path are.",
	}
	overTCP, overLimit := 1.2, 0.7
	if unit == bench.CPUCost {
		f.Note = "Of all processes, both NICs included. perftest looks for completions all the time," +
			" but with -e, where it sleeps as iperf3 does; writes have no such option."
		overTCP, overLimit = 1, 0
	}
	add := func(name string, n int, more ...string) {
		f.Rows = append(f.Rows, bench.Row{
			Name: strings.Join(append([]string{name, Size(n)}, more...), " "),
			Ours: p.perftest(name, n, pieces(networkVolume, n), more...),
			Goals: []bench.Goal{
				{Peer: p.iperf(n), Factor: overTCP},
				{Peer: p.rawLimit(pathMTU, 1), Factor: overLimit},
				bench.Beside(p.rawLimit(pathMTU, 0)),
			},
		})
	}
	for _, name := range []string{"ib_write_bw", "ib_read_bw", "ib_send_bw"} {
		for _, n := range bulkSizes {
			add(name, n)
		}
	}
	if unit == bench.CPUCost {
		add("ib_read_bw", 1<<20, "-e")
		add("ib_send_bw", 1<<20, "-e")
	}
	return f
}

// networkCount is how many round trips latencies are of.
const networkCount = 20000

func (p *Place) networkLatency() bench.Figure {
	f := bench.Figure{
		Key: p.key() + "-latency", Title: p.Name + ": latency", Unit: bench.Latency,
		Note: "Typical; one way for writes and sends, from request to completion for reads.",
	}
	for _, name := range []string{"ib_write_lat", "ib_send_lat", "ib_read_lat"} {
		for _, n := range smallSizes {
			f.Rows = append(f.Rows, bench.Row{
				Name: name + " " + Size(n), Ours: p.perftest(name, n, networkCount),
				Goals: []bench.Goal{{Peer: p.qperf(tool.QperfLatency, n), Factor: 1}},
			})
		}
	}
	return f
}

func (p *Place) networkRate() bench.Figure {
	f := bench.Figure{
		Key: p.key() + "-rate", Title: p.Name + ": messages a second", Unit: bench.Rate,
		Note: "One queue pair, -l 16. Datagrams go one by one, and only those count that arrive.",
	}
	for _, name := range []string{"ib_write_bw", "ib_send_bw"} {
		for _, n := range smallSizes {
			f.Rows = append(f.Rows, bench.Row{
				Name: name + " " + Size(n), Ours: p.perftest(name, n, messages/2, "-l", "16"),
				Goals: []bench.Goal{{
					Peer: p.probes("UDP datagrams", probe.UDPServe, probe.UDPSend, n,
						p.count(messages/2), 0),
					Factor: 5,
				}},
			})
		}
	}
	return f
}

// Stream are programs on two NICs of iWARP; factor is what is aimed at beside iperf3.
func Stream(p *Place, factor float64) []bench.Figure {
	bandwidth := bench.Figure{
		Key: p.key() + "-bandwidth", Title: p.Name + ": bandwidth", Unit: bench.Bandwidth,
	}
	for _, name := range []string{"ib_write_bw", "ib_read_bw", "ib_send_bw"} {
		for _, n := range bulkSizes {
			bandwidth.Rows = append(bandwidth.Rows, bench.Row{
				Name: name + " " + Size(n), Ours: p.perftest(name, n, pieces(networkVolume, n)),
				Goals: []bench.Goal{{Peer: p.iperf(n), Factor: factor}},
			})
		}
	}
	latency := bench.Figure{
		Key: p.key() + "-latency", Title: p.Name + ": latency", Unit: bench.Latency,
		Note: "Typical; one way for writes and sends, from request to completion for reads.",
	}
	for _, name := range []string{"ib_write_lat", "ib_send_lat", "ib_read_lat"} {
		const n = 64
		latency.Rows = append(latency.Rows, bench.Row{
			Name: name + " " + Size(n), Ours: p.perftest(name, n, networkCount),
			Goals: []bench.Goal{{Peer: p.qperf(tool.QperfLatency, n), Factor: 1.3}},
		})
	}
	return []bench.Figure{bandwidth, latency}
}
