package sim

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// Config chooses a run. What is zero is chosen by the seed.
type Config struct {
	Seed     uint64
	Hosts    int           // 1…4096; above 16 programs have less memory and time each
	Duration time.Duration // of the trouble, in virtual time
	Faults   string        // one of FaultNames
	World    string        // one of WorldNames; empty: WorldVerbs
	Trace    io.Writer     // gets every line of the trace; nil: none
}

// Report is the outcome of a run.
type Report struct {
	Seed        uint64
	Plan        string
	Hash        uint64 // of the trace: equal for equal runs
	Packets     uint64 // on links
	Local       uint64 // between queue pairs of one NIC
	Requests    uint64
	Completions uint64
	Elapsed     time.Duration     // virtual
	Rest        time.Duration     // virtual: from the end of trouble to rest
	Marks       map[string]uint64 // how often what rare things happened
	Failures    []string
	Tail        []string // the last lines of the trace, where something failed
}

// ErrFailed is wrapped by the error of a run in which something was wrong.
var ErrFailed = errors.New("the simulation found a fault")

// Run plays one seed. Its error wraps ErrFailed where a checker found a fault; the report is
// complete then too.
func Run(cfg Config) (Report, error) {
	switch {
	case cfg.Hosts < 0 || cfg.Hosts > HostsMax:
		return Report{}, fmt.Errorf("sim: %d hosts; use 1…%d, or 0 to let the seed choose",
			cfg.Hosts, HostsMax)
	case cfg.Duration < 0 || cfg.Duration > time.Hour:
		return Report{}, fmt.Errorf("sim: a duration of %v; use up to an hour", cfg.Duration)
	case cfg.Faults != "" && !slices.Contains(FaultNames, cfg.Faults):
		return Report{}, fmt.Errorf("sim: faults %q are unknown; known are %s",
			cfg.Faults, strings.Join(FaultNames, ", "))
	case cfg.World != "" && !slices.Contains(WorldNames, cfg.World):
		return Report{}, fmt.Errorf("sim: the world %q is unknown; known are %s",
			cfg.World, strings.Join(WorldNames, ", "))
	}
	w := newWorld(cfg)
	w.runGuarded()
	report, err := w.report()
	w.recycle()
	return report, err
}

// recycle gives back what the next world can use. Nobody may look at this one any more.
func (w *World) recycle() {
	for _, a := range w.apps {
		a.mem.Recycle()
	}
	for _, v := range w.vandals {
		v.mem.Recycle()
	}
	if !w.court.HasFailed() {
		w.stock.close()
	}
}

// runGuarded turns a panic of the product into a failure, so that the seed and the trace are shown
// with it.
func (w *World) runGuarded() {
	defer func() {
		if x := recover(); x != nil {
			w.court.Failf("panic: %v\n%s", x, stack())
		}
	}()
	w.run()
}

func (w *World) report() (Report, error) {
	r := Report{
		Seed: w.cfg.Seed, Plan: w.describe(), Hash: w.trace.hash, Packets: w.packets,
		Local: w.local, Requests: w.requests, Completions: w.completions,
		Elapsed: time.Duration(w.now), Rest: w.restAt.Sub(w.calmAt), Marks: w.marks,
		Failures: w.court.Failures(),
	}
	if !w.court.HasFailed() {
		return r, nil
	}
	r.Tail = w.trace.tail()
	return r, fmt.Errorf("%w: seed %d: %s", ErrFailed, w.cfg.Seed, r.Failures[0])
}

func (w *World) describe() string {
	s := w.plan.String()
	if w.board != nil {
		s += w.board.plan.String()
	}
	if w.streams != nil {
		s += w.streams.String()
	}
	return s
}

// Replay returns the command that repeats the run.
func (c Config) Replay() string {
	s := fmt.Sprintf("rnic sim --seed %d", c.Seed)
	if c.World != "" {
		s += " --world " + c.World
	}
	if c.Hosts > 0 {
		s += fmt.Sprintf(" --hosts %d", c.Hosts)
	}
	if c.Duration > 0 {
		s += fmt.Sprintf(" --duration %v", c.Duration)
	}
	if c.Faults != "" {
		s += " --faults " + c.Faults
	}
	return s
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
