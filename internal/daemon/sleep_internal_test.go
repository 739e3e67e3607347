package daemon

import (
	"runtime"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/shm"
)

// sleepsOf counts how often the lane has slept.
func sleepsOf(t *testing.T, l *lane) (sleeps uint64) {
	t.Helper()
	if !l.do(func(clock.Time) { sleeps = l.stats.sleeps }) {
		t.Fatal("the lane has ended")
	}
	return sleeps
}

// A lane that waits quietly does not keep the runtime from stopping all threads, as it does to
// collect garbage; and one for which nothing comes is not interrupted for ever.
func TestLane_WaitsQuietly_StopsForTheRuntimeAndThenSleeps(t *testing.T) {
	if !canBeQuiet() {
		t.Skip("GODEBUG keeps the runtime from interrupting threads")
	}
	l := newTestLane(t)
	l.isQuiet = true
	go l.run()
	defer l.stop()
	for range 20 {
		_ = sleepsOf(t, l) // something comes for it
		runtime.GC()       // hangs if the lane cannot be stopped
	}
	before := sleepsOf(t, l)
	time.Sleep(300 * time.Millisecond)
	// One quiet wait that was interrupted, one openly; and a collection may come between.
	if after := sleepsOf(t, l); after-before > 4 {
		t.Errorf("%d sleeps while nothing came", after-before)
	}
}

// A sleep that a timer ends makes the timers of the next ones exact again.
func TestLane_ManyEvents_MakeTimersCoarseUntilOneExpires(t *testing.T) {
	l := newTestLane(t)
	for range streakMin {
		if err := shm.Kick(l.wake); err != nil {
			t.Fatal(err)
		}
		if l.wait(0, clock.Never); l.slack != clock.Time(exact) {
			t.Fatalf("slack %d after %d events", l.slack, l.streak)
		}
	}
	const timeout = clock.Time(time.Millisecond)
	for i, want := range []time.Duration{coarse, exact} {
		if l.wait(0, timeout); l.slack != clock.Time(want) {
			t.Errorf("sleep %d: slack %d, want %d", i, l.slack, want)
		}
	}
}
