package daemon

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/test/racetest"
)

// watched is a mover whose thread waits for share hundredths of the time, and does not sleep unless
// it is restless: then it sleeps in every turn.
type watched struct {
	mover
	now, wait, share clock.Time
	isRestless       bool
	slept            uint64
}

func newWatched() *watched {
	w := &watched{now: 1e9}
	w.waited = func() (clock.Time, bool) { return w.wait, true }
	w.move = func() {}
	w.isOn, w.pause = true, movePauseMin
	w.look(w.now, 0)
	return w
}

// run lets time pass in turns of 50 µs.
func (w *watched) run(d time.Duration) (moves int) {
	for end := w.now.Add(d); w.now < end; {
		const turn = clock.Time(50 * time.Microsecond)
		w.now += turn
		w.wait += turn * w.share / 100
		if w.isRestless {
			w.slept++
		}
		if w.look(w.now, w.slept) {
			moves++
		}
	}
	return moves
}

func TestMover_LaneThatHardlyWaits_Stays(t *testing.T) {
	w := newWatched()
	w.share = 20
	if n := w.run(time.Second); n != 0 {
		t.Errorf("moved %d times", n)
	}
}

func TestMover_LaneWithLittleToDo_StaysWithItsPeer(t *testing.T) {
	w := newWatched()
	w.share, w.isRestless = 50, true
	if n := w.run(time.Second); n != 0 {
		t.Errorf("moved %d times", n)
	}
}

func TestMover_LaneThatSharesAProcessor_Leaves(t *testing.T) {
	w := newWatched()
	w.share = 45
	if n := w.run(20 * time.Millisecond); n == 0 {
		t.Error("stays where it waits half of the time")
	}
}

func TestMover_MovingHelpsNot_IsTriedRarely(t *testing.T) {
	w := newWatched()
	w.share = 60
	w.run(3 * time.Second)
	if n := w.run(10 * time.Second); n == 0 || n > 10 {
		t.Errorf("moved %d times in 10 s", n)
	}
	w.share = 0 // what was in the way has gone,
	w.run(3 * time.Second)
	w.share = 60 // and comes back
	if n := w.run(20 * time.Millisecond); n == 0 {
		t.Error("what did not help once is not tried soon")
	}
}

func TestMover_NobodyKnowsHowLongItWaited_DoesNothing(t *testing.T) {
	w := newWatched()
	w.share = 90
	w.waited = func() (clock.Time, bool) { return 0, false }
	if n := w.run(time.Second); n != 0 || w.isOn {
		t.Errorf("moved %d times", n)
	}
}

func TestLeaveProcessor_MayUseAllAfterwards(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Skip(err)
	}
	// The scheduler may bring it back at once, but does so seldom.
	moved := false
	for range 20 {
		from := processor()
		leaveProcessor()
		moved = moved || processor() != from
	}
	if !moved && before.Count() > 1 {
		t.Error("stays on its processor")
	}
	if err := unix.SchedGetaffinity(0, &after); err != nil || after != before {
		t.Errorf("may use %v afterwards, before %v: %v", after, before, err)
	}
}

func TestMover_OfAThread_KnowsItsWait(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var m mover
	m.start()
	if !m.isOn {
		t.Skip("the kernel does not count how long threads wait")
	}
	first, ok := m.waited()
	time.Sleep(time.Millisecond)
	second, okAgain := m.waited()
	if !ok || !okAgain || first < 0 || second < first {
		t.Errorf("%v, then %v", first, second)
	}
	if n := testing.AllocsPerRun(100, func() { m.waited() }); n != 0 && !racetest.Enabled {
		t.Errorf("%v allocations a look", n)
	}
}
