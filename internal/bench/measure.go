package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Options are choices for a run.
type Options struct {
	// Rounds is how often everything runs.
	Rounds int
	// Version is that of the SoftRNIC under test.
	Version string
	// Progress, when not nil, is told of every gauge before it runs.
	Progress func(round, index, count int, g *Gauge)
	// Complain, when not nil, is told at once of what failed.
	Complain func(g *Gauge, err error)
}

// record is what the rounds found out about a gauge.
type record struct {
	samples []Sample
	retries int   // after a failure
	err     error // that of a retry as well, or none was made
}

// Measure runs all gauges of the figures in turn, as often as the options say. One that fails is
// tried once more in its round, and its value tells how often that was; when it fails again, that
// is what is told of it, and it is not run in later rounds: a figure of the rounds that happened to
// work would hide that others do not.
func Measure(ctx context.Context, figures []Figure, o Options) *Run {
	run := &Run{Begun: time.Now().Round(time.Second), Rounds: o.Rounds, Version: o.Version}
	gauges := gaugesOf(figures)
	records := map[string]*record{}
	for _, g := range gauges {
		records[g.Key] = &record{}
	}
	for round := range o.Rounds {
		m := measurement{records: records, complain: o.Complain}
		for i, g := range gauges {
			if ctx.Err() != nil {
				break
			}
			r := records[g.Key]
			if r.err != nil {
				continue
			}
			if o.Progress != nil {
				o.Progress(round, i, len(gauges), g)
			}
			m.once(ctx, g)
		}
		m.leave()
	}
	run.Took = time.Since(run.Begun).Round(time.Second)
	for _, f := range figures {
		run.Figures = append(run.Figures, f.result(records))
	}
	return run
}

// gaugesOf lists every gauge once. Those of one stage stand together, in the order in which rows
// name them.
func gaugesOf(figures []Figure) []*Gauge {
	var (
		stages []*Stage
		known  = map[string]bool{}
		on     = map[*Stage][]*Gauge{}
	)
	add := func(g *Gauge) {
		if g == nil || known[g.Key] {
			return
		}
		known[g.Key] = true
		if !slices.Contains(stages, g.Stage) {
			stages = append(stages, g.Stage)
		}
		on[g.Stage] = append(on[g.Stage], g)
	}
	for _, f := range figures {
		for _, row := range f.Rows {
			add(row.Ours)
			for _, goal := range row.Goals {
				add(goal.Peer)
			}
		}
	}
	var all []*Gauge
	for _, s := range stages {
		all = append(all, on[s]...)
	}
	return all
}

// measurement is a round under way.
type measurement struct {
	records  map[string]*record
	complain func(g *Gauge, err error)
	stage    *Stage
	failed   error // to open the stage
}

func (m *measurement) once(ctx context.Context, g *Gauge) {
	if g.Stage != m.stage {
		m.leave()
		if m.stage = g.Stage; m.stage != nil {
			m.failed = m.stage.Open(ctx)
		}
	}
	r := m.records[g.Key]
	if r.err = m.failed; r.err != nil {
		m.tell(g, r.err)
		return
	}
	sample, err := try(ctx, g)
	if err != nil && !errors.Is(err, ErrMissing) && ctx.Err() == nil {
		m.tell(g, err)
		r.retries++
		sample, err = try(ctx, g)
	}
	if r.err = err; err != nil {
		m.tell(g, err)
		return
	}
	r.samples = append(r.samples, sample)
}

// try runs a gauge, and looks whether what it found can be.
func try(ctx context.Context, g *Gauge) (Sample, error) {
	sample, err := g.Run(ctx)
	for unit, x := range sample {
		if math.IsNaN(x) || math.IsInf(x, 0) || x < 0 {
			err = errors.Join(err, fmt.Errorf("%v %s cannot be", x, unit))
		}
	}
	return sample, err
}

// tell tells at once what went wrong.
func (m *measurement) tell(g *Gauge, err error) {
	if m.complain != nil && !errors.Is(err, ErrMissing) {
		m.complain(g, err)
	}
}

func (m *measurement) leave() {
	if m.stage != nil {
		m.stage.Close()
	}
	m.stage, m.failed = nil, nil
}
