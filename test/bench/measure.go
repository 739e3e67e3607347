package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// perftest runs one measurement once.
func (b *bench) perftest(p path, m measurement) (float64, error) {
	b.port++
	args := append([]string{"run", "--", m.tool, "-F", "-p", strconv.Itoa(b.port)}, m.args...)
	server := p.server.command(b.rnic, args...)
	client := p.client.command(b.rnic, append(args, p.address)...)
	report, err := p.pair(server, client, b.tcpListens(b.port))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(report) {
		fields := strings.Fields(line)
		if len(fields) <= m.column {
			continue
		}
		if _, err := strconv.Atoi(fields[0]); err != nil {
			continue
		}
		value, err := strconv.ParseFloat(fields[m.column], 64)
		if err == nil && value > 0 {
			return value * m.scale, nil
		}
	}
	return 0, fmt.Errorf("no figure in %q", report)
}

// qperfFigure is a line such as "    bw  =  4.2 GB/sec".
var qperfFigure = regexp.MustCompile(`(?:bw|latency)\s+=\s+([0-9.]+) (\S+)`)

// toOurUnits converts qperf's units to GB/s and µs.
var toOurUnits = map[string]float64{
	"GB/sec": 1, "MB/sec": 1e-3, "KB/sec": 1e-6, "ns": 1e-3, "us": 1, "ms": 1e3, "sec": 1e6,
}

// measureTCP returns the figures of TCP on a path, without those that failed.
func (b *bench) measureTCP(p path) map[string]float64 {
	figures := map[string]float64{}
	for _, test := range []string{tcpBandwidth, tcpLatency} {
		value, err := b.median(func() (float64, error) { return b.qperf(p, test) })
		if err != nil {
			b.complain("%s, qperf %s: %v", p.name, test, err)
			continue
		}
		figures[test] = value
	}
	return figures
}

func (b *bench) qperf(p path, test string) (float64, error) {
	b.port++
	port := strconv.Itoa(b.port)
	server := p.server.command("qperf", "-lp", port)
	client := p.client.command("qperf", "-lp", port, "-t", "1", p.address, test)
	report, err := p.pair(server, client, b.tcpListens(b.port))
	if err != nil {
		return 0, err
	}
	found := qperfFigure.FindStringSubmatch(report)
	if found == nil {
		return 0, fmt.Errorf("no figure in %q", report)
	}
	value, err := strconv.ParseFloat(found[1], 64)
	scale, known := toOurUnits[found[2]]
	if err != nil || !known {
		return 0, fmt.Errorf("cannot read %q", found[0])
	}
	return value * scale, nil
}

// idleTime is how long a NIC without work is watched.
const idleTime = 2 * time.Second

// clockTick is the unit of times in /proc, 1/100 s on every Linux that runs Go.
const clockTick = 10 * time.Millisecond

// idle returns the share of a core, in percent, that the client's NIC takes while nothing uses it.
func (b *bench) idle(p path) float64 {
	holder := p.client.command(b.rnic, "run", "--", "sleep", "60")
	if err := p.client.start(holder); err != nil {
		b.complain("%s: %v", p.name, err)
		return 0
	}
	defer func() {
		_ = holder.Process.Kill()
		_ = holder.Wait()
	}()
	pid := 0
	for range 100 {
		if pid = b.nicPID(p.client); pid != 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	before, err := cpuTime(pid)
	if err != nil {
		b.complain("%s: %v", p.name, err)
		return 0
	}
	time.Sleep(idleTime)
	after, err := cpuTime(pid)
	if err != nil {
		b.complain("%s: %v", p.name, err)
		return 0
	}
	return 100 * float64(after-before) / float64(idleTime)
}

func (b *bench) nicPID(h *host) int {
	var out bytes.Buffer
	c := h.command(b.rnic, "devinfo", "--json")
	c.Stdout = &out
	if h.start(c) != nil || c.Wait() != nil {
		return 0
	}
	var status struct {
		PID int `json:"pid"`
	}
	if json.Unmarshal(out.Bytes(), &status) != nil {
		return 0
	}
	return status.PID
}

// cpuTime is what a process has used, as user and in the kernel.
func cpuTime(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("CPU time of the NIC: %w", err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const user, system = 11, 12 // counted from the state, the field after the name
	if len(fields) <= system {
		return 0, fmt.Errorf("CPU time of the NIC: %q", stat)
	}
	total := 0
	for _, field := range fields[user : system+1] {
		ticks, err := strconv.Atoi(field)
		if err != nil {
			return 0, fmt.Errorf("CPU time of the NIC: %w", err)
		}
		total += ticks
	}
	return time.Duration(total) * clockTick, nil
}
