package suite

import (
	"fmt"

	"github.com/softrnic/softrnic/internal/bench"
	"github.com/softrnic/softrnic/internal/bench/probe"
)

func (p *Place) roundRobin(n int) *bench.Gauge {
	return p.probe(fmt.Sprintf("with %d", n), probe.RoundRobin, fmt.Sprint(n),
		fmt.Sprint(p.count(200000)), "NIC")
}

// watched is for how long, in milliseconds, an idle NIC is looked at, at least.
const watched = 500

// Rest is what a NIC does while nothing is to be done, and the simulator.
func Rest(p *Place) []bench.Figure {
	idle := p.probe("SoftRNIC", probe.Idle, "1000", fmt.Sprint(max(p.count(5000), watched)), "NIC")
	const name = "1000 connected queue pairs"
	return []bench.Figure{
		{
			Key: "idle-cpu", Title: "Idle NIC: processor", Unit: bench.CPUShare,
			Rows: []bench.Row{{Name: name, Ours: idle, Goals: []bench.Goal{{Factor: 1}}}},
		},
		{
			Key: "idle-wakes", Title: "Idle NIC: wake-ups a second", Unit: bench.WakeUps,
			Note: "Of all its threads. Nothing is due, so there should be none.",
			Rows: []bench.Row{{Name: name, Ours: idle, Goals: []bench.Goal{{Factor: 1}}}},
		},
		{
			Key: "simulator", Title: "Simulator: packets a second", Unit: bench.PerSecond,
			Rows: []bench.Row{{
				Name:  "worlds of all kinds, one core",
				Ours:  p.probe("SoftRNIC", probe.Simulate, fmt.Sprint(max(p.count(3000), watched))),
				Goals: []bench.Goal{{Factor: 500000}},
			}},
		},
		{
			Key: "simulator-nics", Title: "Simulator: NICs in one simulation", Unit: bench.Count,
			Rows: []bench.Row{{
				Name: "NICs", Ours: p.probe("SoftRNIC", probe.SimHosts, "1000"),
				Goals: []bench.Goal{{Factor: 1000}},
			}},
		},
	}
}

// Own are programs that come with SoftRNIC, for machines where nothing is installed: package verbs
// beside TCP of the Go library and the limits of the machine.
func Own(p *Place) []bench.Figure {
	bandwidth := bench.Figure{
		Key: "own-bandwidth", Title: "Package verbs: bandwidth", Unit: bench.Bandwidth,
		Note: "Two programs on one NIC, 16 requests under way, in memory that the NIC maps.",
	}
	latency := bench.Figure{
		Key: "own-latency", Title: "Package verbs: latency", Unit: bench.Latency,
		Note: "From the request to its completion. TCP and the ping-pong are one way.",
	}
	rate := bench.Figure{
		Key: "own-rate", Title: "Package verbs: messages a second", Unit: bench.Rate,
		Note: "One queue pair, 16 requests under way, each posted by a call of its own.",
	}
	for _, operation := range []string{
		probe.OperationWrite, probe.OperationRead, probe.OperationSend,
	} {
		for _, n := range bulkSizes {
			count := p.count(pieces(localVolume/2, n))
			bandwidth.Rows = append(bandwidth.Rows, bench.Row{
				Name: operation + " " + Size(n), Ours: p.verbs(operation, n, count, 16),
				Goals: []bench.Goal{
					bench.Beside(p.probes("TCP", probe.TCPServe, probe.TCPSend, n, count)),
					bench.Beside(p.copied(n)),
				},
			})
		}
	}
	for _, operation := range []string{
		probe.OperationWrite, probe.OperationRead, probe.OperationAdd, probe.OperationSend,
	} {
		const n = 8
		latency.Rows = append(latency.Rows, bench.Row{
			Name: operation + " " + Size(n), Ours: p.verbs(operation, n, p.count(50000), 1),
			Goals: []bench.Goal{
				bench.Beside(p.probes("TCP", probe.TCPEcho, probe.TCPPing, n, p.count(20000))),
				bench.Beside(p.pingPong()),
			},
		})
	}
	for _, operation := range []string{probe.OperationWrite, probe.OperationSend} {
		const n = 8
		rate.Rows = append(rate.Rows, bench.Row{
			Name: operation + " " + Size(n), Ours: p.verbs(operation, n, p.count(500000), 16),
			Goals: []bench.Goal{
				bench.Beside(p.probes("TCP", probe.TCPServe, probe.TCPSend, n, p.count(500000))),
			},
		})
	}
	return []bench.Figure{bandwidth, latency, rate}
}

func (p *Place) verbs(operation string, n, count, depth int) *bench.Gauge {
	return p.probe("SoftRNIC", probe.Verbs, operation, fmt.Sprint(n), fmt.Sprint(count),
		fmt.Sprint(depth))
}
