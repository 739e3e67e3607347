package bench

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// steps is a gauge that finds one value after the other.
func steps(key string, stage *Stage, log *[]string, values ...float64) *Gauge {
	next := 0
	return &Gauge{Key: key, Who: key, Stage: stage, Run: func(context.Context) (Sample, error) {
		*log = append(*log, key)
		next++
		return Sample{Bandwidth: values[next-1]}, nil
	}}
}

func TestMeasure_SharedGauges_RunOnceARoundInTurn(t *testing.T) {
	var log []string
	hall := &Stage{
		Name:  "hall",
		Open:  func(context.Context) error { log = append(log, "open"); return nil },
		Close: func() { log = append(log, "close") },
	}
	peer := steps("peer", hall, &log, 1, 2, 3)
	ours := steps("ours", hall, &log, 6, 4, 9)
	other := steps("other", nil, &log, 1, 1, 1)
	more := steps("more", hall, &log, 1, 1, 1)
	run := Measure(t.Context(), []Figure{
		{Key: "a", Unit: Bandwidth, Rows: []Row{
			{Name: "x", Ours: ours, Goals: []Goal{{Peer: peer, Factor: 2.5}, {Factor: 7}}},
			{Name: "y", Ours: other, Goals: []Goal{{Peer: peer}}},
		}},
		{Key: "b", Unit: Bandwidth, Rows: []Row{{Name: "z", Ours: more, Goals: []Goal{{Peer: peer}}}}},
	}, Options{Rounds: 3})
	round := []string{"open", "ours", "peer", "more", "close", "other"}
	if want := slices.Concat(round, round, round); !slices.Equal(log, want) {
		t.Errorf("in turn were %v", log)
	}
	x := run.Figures[0].Rows[0]
	if x.Ours.Median != 6 || x.Ours.Low != 4 || x.Ours.High != 9 {
		t.Errorf("ours is %+v", x.Ours)
	}
	if p := x.Peers[0]; p.Ratio != 3 || !p.IsJudged || !p.IsMet {
		t.Errorf("beside the peer: %+v", p)
	}
	if p := x.Peers[1]; !p.IsFixed || !p.IsJudged || p.IsMet {
		t.Errorf("beside 7: %+v", p)
	}
	if p := run.Figures[0].Rows[1].Peers[0]; p.IsJudged || p.Ratio != 0.5 {
		t.Errorf("without a goal: %+v", p)
	}
}

func TestRun_Missed_ListsWhatIsNotMet(t *testing.T) {
	peer := func(goal, ratio float64) Beaten {
		met := ratio >= goal
		return Beaten{
			Value: Value{Who: "peer"}, Goal: goal, Ratio: ratio, IsJudged: ratio > 0, IsMet: met,
		}
	}
	run := &Run{Figures: []Findings{{Title: "T", Unit: Rate, Rows: []Finding{{
		Name: "row", Ours: Value{Median: 1.5}, Peers: []Beaten{
			peer(2, 1.25), peer(2, 2.5), peer(0, 0.1), peer(3, 0),
			{IsFixed: true, Goal: 2, IsJudged: true},
		},
	}}}}}
	want := []string{
		"T: row: 1.25 × peer, target ≥ 2 ×", "T: row: not judged, target ≥ 3 ×",
		"T: row: 1.50 M/s, target ≥ 2.00 M/s",
	}
	if got := run.Missed(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := new(Run).Missed(); len(got) != 1 || got[0] != "none" {
		t.Errorf("%q of an empty run", got)
	}
}

func TestMeasure_WhatFails_IsToldAndNotRepeated(t *testing.T) {
	calls := 0
	bad := &Gauge{Key: "bad", Run: func(context.Context) (Sample, error) {
		if calls++; calls > 1 {
			return nil, errors.New("broken | in the middle")
		}
		return Sample{Latency: 1}, nil
	}}
	absent := &Gauge{Key: "absent", Who: "absent", Run: func(context.Context) (Sample, error) {
		return nil, Missing("tool is not installed (package %s)", "tools")
	}}
	closed := false
	dark := &Stage{
		Open:  func(context.Context) error { return Missing("no light") },
		Close: func() { closed = true },
	}
	lost := &Gauge{Key: "lost", Stage: dark, Run: func(context.Context) (Sample, error) {
		t.Error("a gauge runs on a stage that is not there")
		return nil, nil
	}}
	complaints := 0
	run := Measure(t.Context(), []Figure{{Key: "f", Title: "F", Unit: Latency, Rows: []Row{
		{Name: "bad", Ours: bad, Goals: []Goal{{Peer: absent, Factor: 1}}}, {Name: "lost", Ours: lost},
	}}}, Options{Rounds: 4, Complain: func(*Gauge, error) { complaints++ }})
	if calls != 3 || complaints != 2 || !closed { // it was tried again, in its round only
		t.Errorf("%d calls, %d complaints, closed %v", calls, complaints, closed)
	}
	rows := run.Figures[0].Rows
	if rows[0].Ours.IsKnown() || rows[0].Ours.IsMissing || !run.HasFailed() {
		t.Errorf("a failure reads %+v", rows[0].Ours)
	}
	if p := rows[0].Peers[0]; !p.IsMissing || p.IsJudged || p.IsMet {
		t.Errorf("a missing peer reads %+v", p)
	}
	if !rows[1].Ours.IsMissing {
		t.Errorf("a missing stage reads %+v", rows[1].Ours)
	}
	for _, want := range []string{
		`failed: broken \| in the middle`, "tool is not installed (package tools)", "no light",
		"not judged",
	} {
		if text := run.Markdown(nil); !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
	run.Figures[0].Rows = rows[1:]
	if run.HasFailed() {
		t.Error("what is missing counts as a failure")
	}
}

func TestMeasure_FailsOnce_IsTriedAgainAndTold(t *testing.T) {
	calls := 0
	shaky := &Gauge{Key: "shaky", Run: func(context.Context) (Sample, error) {
		if calls++; calls == 2 {
			return nil, errors.New("a hiccup")
		}
		return Sample{Latency: float64(calls)}, nil
	}}
	run := Measure(t.Context(), []Figure{
		{Key: "f", Unit: Latency, Rows: []Row{{Name: "r", Ours: shaky}}},
	}, Options{Rounds: 3})
	v := run.Figures[0].Rows[0].Ours
	if calls != 4 || len(v.Samples) != 3 || v.Retries != 1 || run.HasFailed() {
		t.Errorf("%d calls: %+v", calls, v)
	}
	if text := run.Text(); !strings.Contains(text, "3.00 µs (1.00–4.00), tries that failed: 1") {
		t.Errorf("the report does not tell:\n%s", text)
	}
}

func TestMeasure_NumberThatCannotBe_Fails(t *testing.T) {
	for _, x := range []float64{math.NaN(), math.Inf(1), -1} {
		g := &Gauge{Key: "g", Run: func(context.Context) (Sample, error) {
			return Sample{Latency: x}, nil
		}}
		run := Measure(t.Context(), []Figure{
			{Key: "f", Unit: Latency, Rows: []Row{{Name: "r", Ours: g}}},
		}, Options{Rounds: 1})
		if !run.HasFailed() {
			t.Errorf("%v is a figure", x)
		}
		if err := run.Store(t.TempDir(), nil); err != nil {
			t.Error(err)
		}
	}
}

// fixed is a run with one row.
func fixed(unit Unit, ours, peer float64, spread float64) *Run {
	value := func(who string, x float64) Value {
		return Value{Who: who, Median: x, Low: x * (1 - spread), High: x * (1 + spread)}
	}
	row := Finding{Name: "row", Ours: value("SoftRNIC", ours)}
	if peer > 0 {
		row.Peers = []Beaten{{Value: value("peer", peer), Ratio: ours / peer}}
	}
	return &Run{
		Rounds:  3,
		Machine: Machine{Processor: "P", Cores: 2},
		Figures: []Findings{{Key: "k", Title: "T", Unit: unit, Rows: []Finding{row}}},
	}
}

func TestCompare_Changes_AreToldWhereTheyMeanSomething(t *testing.T) {
	elsewhere := fixed(Bandwidth, 5, 0, 0.01)
	elsewhere.Machine.Processor = "Q"
	for name, test := range map[string]struct {
		before, now *Run
		want        string
	}{
		"Worse": {
			fixed(Bandwidth, 10, 0, 0.01), fixed(Bandwidth, 8, 0, 0.01),
			"REGRESSION: T: row: 8.00 GB/s, was 10.0 GB/s: -20 %",
		},
		"WorseWhereLessIsBetter": {
			fixed(Latency, 10, 0, 0.01), fixed(Latency, 12.5, 0, 0.01),
			"REGRESSION: T: row: 12.5 µs, was 10.0 µs: -20 %",
		},
		"Better": {
			fixed(Latency, 10, 5, 0.01), fixed(Latency, 5, 5, 0.01),
			"better: T: row: 5.00 µs, was 10.0 µs: +100 % beside its peers",
		},
		"WeatherMeetsPeersToo": {fixed(Rate, 10, 5, 0.01), fixed(Rate, 4, 2, 0.01), ""},
		"WorseThanTheWeather": {
			fixed(Rate, 10, 5, 0.01), fixed(Rate, 10, 10, 0.01),
			"REGRESSION: T: row: 10.0 M/s, was 10.0 M/s: -50 % beside its peers",
		},
		"WithinTheSpread": {fixed(Rate, 10, 0, 0.2), fixed(Rate, 7, 0, 0.2), ""},
		"AnotherMachine":  {fixed(Bandwidth, 10, 0, 0.01), elsewhere, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			for _, c := range Compare(test.before, test.now) {
				got += c.String()
			}
			if got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

func TestRun_Stored_IsLoadedAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	if before, err := Load(dir); before != nil || err != nil {
		t.Fatalf("%v, %v where nothing is", before, err)
	}
	first := fixed(Bandwidth, 10, 4, 0.1)
	first.Figures = append(first.Figures, Findings{Key: "old", Title: "Old", Unit: Rate})
	if err := first.Store(dir, nil); err != nil {
		t.Fatal(err)
	}
	before, err := Load(dir)
	if err != nil || len(before.Figures) != 2 || before.Figures[0].Rows[0].Ours.Median != 10 {
		t.Fatalf("%+v, %v", before, err)
	}
	if err := fixed(Bandwidth, 5, 4, 0.1).Store(dir, before); err != nil {
		t.Fatal(err)
	}
	report, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil || !strings.Contains(string(report), "\n- REGRESSION: T: row") {
		t.Errorf("%v:\n%s", err, report)
	}
	if _, err := os.Stat(filepath.Join(dir, "old.svg")); err == nil {
		t.Error("the plot of a figure that is no more stays")
	}
	if err := os.WriteFile(filepath.Join(dir, storedName), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); err == nil {
		t.Error("half a run is one")
	}
}

func TestFindings_SVG_IsWellFormed(t *testing.T) {
	f := fixed(Bandwidth, 10, 4, 0.1).Figures[0]
	f.Title = "a < b & c"
	f.Rows = append(f.Rows, Finding{Name: "none", Ours: Value{Problem: "p", IsMissing: true}})
	text := f.SVG()
	decoder := xml.NewDecoder(strings.NewReader(text))
	for {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
	}
	for _, want := range []string{"a &lt; b &amp; c", "10.0 GB/s", "not measured", "more is better"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestScale_WideRange_IsLogarithmic(t *testing.T) {
	value := func(x float64) *Value { return &Value{Median: x, Low: x, High: x} }
	for _, test := range []struct {
		values []*Value
		want   bool
	}{
		{[]*Value{value(1), value(20)}, false},
		{[]*Value{value(0.3), value(20)}, true},
		{[]*Value{value(0), value(20)}, false},
		{[]*Value{{Problem: "p"}, value(20)}, false},
		{nil, false},
	} {
		s := scaleOf(test.values)
		if s.isLogarithmic != test.want {
			t.Errorf("%v: logarithmic is %v", test.values, s.isLogarithmic)
		}
		last := -1.0
		for _, x := range []float64{0, 0.3, 1, 20} {
			if l := s.length(x); l < last || l > barsWidth && x <= s.high {
				t.Errorf("%v: the bar of %v is %v long, that of less %v", test.values, x, l, last)
			} else {
				last = l
			}
		}
	}
}

func TestDescribe_ThisMachine_IsKnown(t *testing.T) {
	m := Describe("no-such-package")
	if (&Machine{Cores: 2, Load: "0.30"}).isBusy() || !(&Machine{Cores: 2, Load: "3.1"}).isBusy() {
		t.Error("a load of 0.3 is busy, or one of 3.1 is not")
	}
	if m.Cores < 1 || m.Kernel == "" || m.MemoryGB <= 0 || len(m.Peers) > 0 || !m.isLike(&m) {
		t.Errorf("%+v", m)
	}
}
