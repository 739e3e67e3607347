package main

import (
	"errors"
	"testing"

	"github.com/softrnic/softrnic/internal/bench"
)

// The suite is stored by the keys of its figures, and measured by those of its gauges.
func TestSession_WholeList_HasKeysOfItsOwn(t *testing.T) {
	s := &session{options: options{rounds: 1, length: 1, hasVM: true}, dir: t.TempDir()}
	defer s.close()
	if err := s.list(); err != nil {
		t.Fatal(err)
	}
	figures, stages := map[string]bool{}, map[string]*bench.Stage{}
	for _, f := range s.figures {
		if figures[f.Key] {
			t.Errorf("two figures %s", f.Key)
		}
		figures[f.Key] = true
		for _, row := range f.Rows {
			gauges := []*bench.Gauge{row.Ours}
			for _, goal := range row.Goals {
				if goal.Peer != nil {
					gauges = append(gauges, goal.Peer)
				}
			}
			for _, g := range gauges {
				if other, has := stages[g.Key]; has && other != g.Stage {
					t.Errorf("%s is on two stages", g.Key)
				}
				stages[g.Key] = g.Stage
			}
		}
	}
	for _, want := range []string{
		"one-host-latency", "two-hosts-mtu-9000-cpu", "iwarp-with-crc-mtu-1500-bandwidth",
		"vm-rxe-1500-rate", "vm-siw-1500-latency", "scale-cost", "idle-cpu", "simulator",
		"two-hosts-mtu-1500-connections",
	} {
		if !figures[want] {
			t.Errorf("no figure %s", want)
		}
	}
}

func TestAttempt_WhatTestsSay_IsAnError(t *testing.T) {
	var cleanups []func()
	tb := borrowedTB{cleanups: &cleanups}
	if err := attempt(func() { tb.Skipf("no %s", "right") }); !errors.Is(err, bench.ErrMissing) {
		t.Errorf("a skipped test: %v", err)
	}
	err := attempt(func() { tb.Fatalf("broken %d", 1) })
	if err == nil || err.Error() != "broken 1" || errors.Is(err, bench.ErrMissing) {
		t.Errorf("a failed test: %v", err)
	}
	if err := attempt(func() { _ = tb.TempDir() }); err != nil || len(cleanups) != 1 {
		t.Errorf("%v, %d to clean up", err, len(cleanups))
	}
	for _, f := range cleanups {
		f()
	}
}

func TestOptions_PartOfARun_TakesNoPlace(t *testing.T) {
	for _, test := range []struct {
		options options
		want    bool
	}{
		{options{length: 1, hasVM: true}, true},
		{options{length: 1, hasVM: false}, false},
		{options{length: 0.5, hasVM: true}, false},
		{options{length: 1, hasVM: true, only: "x"}, false},
		{options{length: 0.5, only: "x", isElsewhere: true}, true},
	} {
		if got := test.options.isStored(); got != test.want {
			t.Errorf("%+v is stored: %v", test.options, got)
		}
	}
}
