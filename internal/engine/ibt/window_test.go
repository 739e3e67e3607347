package ibt

import (
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
)

func TestWindow_GrowsWithAcksUpToTheLimit(t *testing.T) {
	var w window
	w.reset()
	una := rdma.PSN(0)
	for range 200 {
		una = una.Add(w.size)
		w.grow(w.size, una, true)
	}
	if w.size != limits.WindowPacketsMax {
		t.Fatalf("window %d", w.size)
	}
	idle := window{size: 10, threshold: 1000}
	idle.grow(10, 10, false)
	if idle.size != 10 {
		t.Fatal("an idle window grew")
	}
}

func TestWindow_LossHalvesOncePerWindowThenAddsOne(t *testing.T) {
	var w window
	w.reset()
	w.cut(100)
	w.cut(100)
	if w.size != limits.WindowPacketsInitial/2 {
		t.Fatalf("window %d after two losses of one window", w.size)
	}
	w.grow(16, 99, true)
	if w.size != 16 {
		t.Fatal("grew before the loss was repaired")
	}
	w.grow(16, 100, true) // the cut ends, and one window's worth adds one packet
	w.grow(16, 116, true)
	if w.size < 17 || w.size > 18 {
		t.Fatalf("window %d after two round trips", w.size)
	}
	for range 20 {
		w.isCut = false
		w.cut(0)
	}
	if w.size != limits.WindowPacketsMin {
		t.Fatalf("window %d", w.size)
	}
}

func TestWindow_QueueingDelay_StopsGrowth(t *testing.T) {
	var w window
	w.reset()
	now := clock.Time(0)
	sample := func(d time.Duration) {
		w.time(1, now)
		now = now.Add(d)
		w.timed(2, now)
	}
	for range 50 {
		sample(100 * time.Microsecond)
	}
	w.grow(8, 10, true)
	if w.size != limits.WindowPacketsInitial+8 {
		t.Fatalf("window %d at a short round trip", w.size)
	}
	for range 50 {
		sample(5 * time.Millisecond)
	}
	before := w.size
	w.grow(8, 20, true)
	if w.size != before {
		t.Fatal("grew although the queue grows")
	}
}
