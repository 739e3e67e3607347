package daemon

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/clock"
)

// mover takes the lane to another processor where it waits too much for its own.
//
// The scheduler counts threads: two processors are balanced well for it when two lanes share one of
// them, each with work for a whole one, and programs that look for completions yield to each other
// on the other. It even brings that about, because whoever is woken to receive is put beside the
// sender while the other processor looks busy, and from then on nothing ends it. Of transfers
// between two namespaces on two processors 40 % ran so, at a third of the speed.
type mover struct {
	// waited tells how long the thread has wanted a processor and had none since it began; false
	// where nobody knows. move takes it from its processor to another.
	waited func() (clock.Time, bool)
	move   func()

	isOn   bool
	last   clock.Time // when it looked, with what it saw then
	known  clock.Time
	sleeps uint64
	next   clock.Time // when it looks again
	pause  clock.Time // between two looks: longer while moving does not help
}

const (
	// movePauseMin is a few slices of the scheduler, and costs a lane that looks so often a
	// thousandth of its time; with movePauseMax, moves in vain cost nothing that one could measure.
	movePauseMin = clock.Time(5 * time.Millisecond)
	movePauseMax = clock.Time(time.Second)
	// A lane that waits for 30 % of the time shares its processor with a thread that works.
	waitMin = 30
	// One that sleeps more often than once in sleepPause has no work for a processor: it waits for
	// its peer, and is best where that is, since to wake a thread on another processor takes longer.
	// Lanes that share a processor for bulk data sleep 500 to 700 times a second, those of latency
	// tests at least 7000 times.
	sleepPause = clock.Time(500 * time.Microsecond)
)

// start begins with the calling thread, which stays the one that looks.
func (m *mover) start() {
	path := "/proc/thread-self/schedstat"
	if f, err := os.Open(path); err == nil {
		m.waited = func() (clock.Time, bool) { return waitedOf(f) }
		m.move = leaveProcessor
		_, m.isOn = m.waited()
	}
	m.pause = movePauseMin
}

// look moves the thread if it has waited too much since the last look, and reports whether it has.
// sleeps is how often the lane has slept since it began.
func (m *mover) look(now clock.Time, sleeps uint64) (moved bool) {
	if !m.isOn || now < m.next {
		return false
	}
	total, ok := m.waited()
	if !ok {
		m.isOn = false
		return false
	}
	passed, waited, slept := now-m.last, total-m.known, clock.Time(sleeps-m.sleeps)
	m.last, m.known, m.sleeps = now, total, sleeps
	moved = waited*100 >= passed*waitMin && slept*sleepPause <= passed
	if moved {
		m.move()
		m.pause = min(2*m.pause, movePauseMax)
	} else {
		m.pause = movePauseMin
	}
	// Two lanes that share a processor must not both leave it at the same time. What the clock says
	// below a pause is as good as chance.
	m.next = now + m.pause + now%m.pause
	return moved
}

// waitedOf reads how long a thread has waited, the second number of its schedstat.
func waitedOf(f *os.File) (clock.Time, bool) {
	var buf [96]byte
	n, err := unix.Pread(int(f.Fd()), buf[:], 0)
	if err != nil {
		return 0, false
	}
	_, rest, _ := bytes.Cut(buf[:n], []byte(" "))
	number, _, _ := bytes.Cut(rest, []byte(" "))
	waited, err := strconv.ParseInt(string(number), 10, 64)
	return clock.Time(waited), err == nil
}

// leaveProcessor takes the calling thread to another of the processors that it may use, all of
// which it may use again afterwards.
func leaveProcessor() {
	var all unix.CPUSet
	if unix.SchedGetaffinity(0, &all) != nil {
		return
	}
	others := all
	others.Clear(processor())
	if others.Count() == 0 || unix.SchedSetaffinity(0, &others) != nil {
		return
	}
	_ = unix.SchedSetaffinity(0, &all) // what was allowed a moment ago
}
