package bench

import (
	"context"
	"errors"
	"fmt"
)

// Unit is what a figure is in.
type Unit string

// Units.
const (
	Bandwidth Unit = "GB/s"  // 10^9 bytes
	Latency   Unit = "µs"    // one way, unless the row says otherwise
	Rate      Unit = "M/s"   // millions of messages
	PerSecond Unit = "/s"    // connections, requests, packets
	CPUCost   Unit = "s/GB"  // seconds of a processor, of all processes together
	Cost      Unit = "ns"    // of one operation
	Memory    Unit = "KiB"   // of a queue pair
	CPUShare  Unit = "%"     // of a core
	WakeUps   Unit = "wakes" // in a second
	Count     Unit = "NICs"
)

// IsLower says that less is better.
func (u Unit) IsLower() bool {
	switch u {
	case Latency, CPUCost, Cost, Memory, CPUShare, WakeUps:
		return true
	case Bandwidth, Rate, PerSecond, Count:
	}
	return false
}

// Sample is what a gauge found in one round.
type Sample map[Unit]float64

// ErrMissing says that something cannot be measured here for want of a program or a right. It is no
// failure.
var ErrMissing = errors.New("not measured")

// Missing returns an error that is ErrMissing and says why.
func Missing(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrMissing, fmt.Errorf(format, args...))
}

// Gauge is one way to measure.
type Gauge struct {
	// Key names it among all, for ever: "one host/ib_write_bw/65536".
	Key string
	// Who is its name beside others: "qperf tcp_bw".
	Who string
	// Stage is what it runs on; nil for one that needs nothing.
	Stage *Stage
	Run   func(ctx context.Context) (Sample, error)
}

// Stage is what some gauges need around them.
type Stage struct {
	Name string
	// Open prepares it, before the first of its gauges in a round.
	Open func(ctx context.Context) error
	// Close takes it down, also when Open failed half way.
	Close func()
}

// Row sets SoftRNIC beside its peers.
type Row struct {
	// Name tells people what is measured; within its figure it is unique, and stays.
	Name  string
	Ours  *Gauge
	Goals []Goal
}

// Goal is a peer, and how SoftRNIC is to compare.
type Goal struct {
	// Peer is what ours stands beside; nil compares with Factor itself, in the figure's unit.
	Peer *Gauge
	// Factor is the smallest ratio of ours to the peer's that is good enough or, where less is
	// better, the largest. 0 aims at nothing.
	Factor float64
}

// Beside is a peer without an aim.
func Beside(peer *Gauge) Goal { return Goal{Peer: peer} }

// Figure is what belongs together.
type Figure struct {
	// Key is the name of its plot's file.
	Key   string
	Title string
	// Note explains what the rows do not.
	Note string
	Unit Unit
	Rows []Row
}
