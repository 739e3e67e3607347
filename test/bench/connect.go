package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
)

// rateRow is a figure per second beside that of TCP.
type rateRow struct {
	name    string
	measure func(*bench, path) (float64, error)
	against func(*bench, path) (float64, error)
}

// rateRows are connections and requests per second. A connection of TCP is one that a byte has
// crossed each way, like rnet's; rdma_cm's carries its greeting in the messages that make it.
//
//tidy:table
var rateRows = []rateRow{
	{
		name:    "connections, rdmacm.Dial in turn",
		measure: peerRow("rdmacm", "sequential"), against: peerRow("tcp", "sequential"),
	},
	{
		name:    "connections, 1000 rdmacm.Dial at once",
		measure: peerRow("rdmacm", "parallel"), against: peerRow("tcp", "parallel"),
	},
	{
		name:    "connections, rnet.Dial in turn",
		measure: peerRow("rnet", "sequential"), against: peerRow("tcp", "sequential"),
	},
	{name: "connections, cmtime", measure: (*bench).cmtime},
	{
		name:    "HTTP requests, rnet",
		measure: peerRow("rnet", "http"), against: peerRow("tcp", "http"),
	},
}

func peerRow(network, what string) func(*bench, path) (float64, error) {
	return func(b *bench, p path) (float64, error) { return b.peer(p, network, what) }
}

// printRate measures a row, both sides of it in turn so that a change of weather meets both.
func (b *bench) printRate(out io.Writer, p path, row rateRow) {
	var reference float64
	value, err := b.median(func() (float64, error) { return row.measure(b, p) })
	if err == nil && row.against != nil {
		reference, err = b.median(func() (float64, error) { return row.against(b, p) })
	}
	switch {
	case err != nil:
		b.complain("%s, %s: %v", p.name, row.name, err)
	case row.against == nil:
		fmt.Fprintf(out, "%s\t%s\t%.0f\t\t/s\t\t\n", p.name, row.name, value)
	default:
		fmt.Fprintf(out, "%s\t%s\t%.0f\t%.0f\t/s\t%.2f ×\t\n",
			p.name, row.name, value, reference, value/reference)
	}
}

// cmtime returns the connections per second of rdma-core's own measuring program: all its steps,
// from the identifier to its end.
func (b *bench) cmtime(p path) (float64, error) {
	if _, err := exec.LookPath("cmtime"); err != nil {
		return 0, fmt.Errorf("cmtime is not installed: scripts/deps.sh bench")
	}
	b.port++
	args := []string{"run", "--", "cmtime", "-c", strconv.Itoa(dials), "-p", strconv.Itoa(b.port)}
	server := p.server.command(b.rnic, args...)
	client := p.client.command(b.rnic, append(args, "-s", p.address)...)
	report, err := p.pair(server, client, func(int) bool { return b.cmListens(p.server) })
	if err != nil {
		return 0, err
	}
	var perConnection float64 // µs
	for line := range strings.Lines(report) {
		_, figures, found := strings.Cut(line, ":")
		fields := strings.Fields(figures)
		if !found || len(fields) != 4 {
			continue
		}
		step, err := strconv.ParseFloat(fields[3], 64)
		if err != nil {
			return 0, fmt.Errorf("cannot read %q", line)
		}
		perConnection += step
	}
	if perConnection == 0 {
		return 0, fmt.Errorf("no figure in %q", report)
	}
	return 1e6 / perConnection, nil
}

// cmListens reports whether a program of the host's NIC listens for connections.
func (b *bench) cmListens(h *host) bool {
	var out bytes.Buffer
	c := h.command(b.rnic, "ps", "--json")
	c.Stdout = &out
	if h.start(c) != nil || c.Wait() != nil {
		return false
	}
	var status struct {
		CMIDs []struct {
			State string `json:"state"`
		} `json:"cm_ids"`
	}
	if json.Unmarshal(out.Bytes(), &status) != nil {
		return false
	}
	for _, id := range status.CMIDs {
		if id.State == "listening" {
			return true
		}
	}
	return false
}
