package daemon

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/ring"
)

// TestLane_Place_FollowsTheThread over every processor that it may run on.
func TestLane_Place_FollowsTheThread(t *testing.T) {
	l := newTestLane(t)
	place := ring.Word(l.page.Bytes(), abi.OffLaneProcessor)
	if place.Load() != 0 {
		t.Errorf("a lane that has not run says %d", place.Load())
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.SchedSetaffinity(0, &all) }()
	for cpu := range 64 {
		if !all.IsSet(cpu) {
			continue
		}
		var one unix.CPUSet
		one.Set(cpu)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			t.Fatal(err)
		}
		l.wait(0, 0)
		if got := place.Load(); got != uint32(cpu)+1 {
			t.Errorf("on processor %d the lane says %d", cpu, got)
		}
	}
}

// TestLane_Patience_LongWhereNobodyWaits: who spins beside others does so for a short time.
func TestLane_Patience_LongWhereNobodyWaits(t *testing.T) {
	for _, row := range []struct {
		name        string
		spin        clock.Time
		rival       bool
		prioritised bool
		want        clock.Time
	}{
		{"Alone", 5000, false, false, clock.Time(spinAlone)},
		{"Rival", 5000, true, false, 5000},
		{"Prioritised", 5000, false, true, 5000},
		{"Never", -1, false, false, -1},
		{"Longer", 1000000, false, false, 1000000},
	} {
		l := lane{spin: row.spin, rival: row.rival}
		l.stats.prioritised = row.prioritised
		if got := l.patience(); got != row.want {
			t.Errorf("%s: %d, want %d", row.name, got, row.want)
		}
	}
}

// TestLane_Prioritised_MovesNobody: it preempts whom it meets.
func TestLane_Prioritised_MovesNobody(t *testing.T) {
	l := newTestLane(t)
	l.stats.prioritised = true
	l.wait(0, 0)
	if got := ring.Word(l.page.Bytes(), abi.OffLaneProcessor).Load(); got != 0 {
		t.Errorf("it says %d", got)
	}
}
