package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/softrnic/softrnic/internal/bench"
)

// Alone runs a program of package probe on the client's host. A word NIC in its arguments becomes
// the number of the NIC's process.
func (p *Path) Alone(ctx context.Context, args ...string) (bench.Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, programWait)
	defer cancel()
	line := append(p.Client.Probe[:len(p.Client.Probe):len(p.Client.Probe)], args...)
	for i, word := range line {
		if word == "NIC" {
			line[i] = strconv.Itoa(p.Client.NICPID())
		}
	}
	out, err := p.Client.Output(p.Client.Command(ctx, line...))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", args[0], err)
	}
	return readSample(out)
}

// Duo is a program of package probe that has two sides. Each gets the address after its name, then
// the arguments; the server listens on the TCP port once it is ready.
type Duo struct {
	Server, Client string
	Args           []string
	// IsEndless says that the server never ends by itself.
	IsEndless bool
}

// Probes runs both sides.
func (p *Path) Probes(ctx context.Context, d Duo) (bench.Sample, error) {
	port := p.nextPort()
	address := net.JoinHostPort(p.Address, strconv.Itoa(port))
	side := func(h *Host, name string) []string {
		line := append(h.Probe[:len(h.Probe):len(h.Probe)], name, address)
		return append(line, d.Args...)
	}
	o, err := p.both(ctx, pair{
		server: side(p.Server, d.Server), client: side(p.Client, d.Client), ready: listens(port),
		isEndless: d.IsEndless,
	})
	if err != nil {
		return nil, err
	}
	sample, err := readSample(o.client)
	if gigabytes := sample[bench.CPUCost]; err == nil && gigabytes > 0 {
		sample[bench.CPUCost] = o.cpu.Seconds() / gigabytes
	}
	return sample, err
}

// readSample takes the last line: a Sample as JSON.
func readSample(out string) (bench.Sample, error) {
	var s bench.Sample
	if err := json.Unmarshal([]byte(lastLine(out)), &s); err != nil {
		return nil, fmt.Errorf("read %q: %w", strings.TrimSpace(out), err)
	}
	return s, nil
}
