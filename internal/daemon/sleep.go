package daemon

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/netio"
)

const (
	// glance is how often a lane that finds work all the time looks at what only epoll tells:
	// first packets after a pause, processes that ended, unreachable peers.
	glance = 20 * time.Microsecond
	// yieldLong is how long another thread keeps the processor that we offered before we take it
	// for one that spins and never gives it back; then the lane sleeps at once for sleepTime, since
	// the scheduler prefers a thread that wakes to one that yields.
	yieldLong = 50 * time.Microsecond
	sleepTime = 5 * time.Millisecond
	// yieldAlone is how long a yield takes at most that nobody else used: a change of threads there
	// and back takes longer. spinAlone is how long the lane waits for more work then: nobody wants
	// the processor, and to wake up takes 3 to 50 µs.
	yieldAlone = 2 * time.Microsecond
	spinAlone  = 100 * time.Microsecond
	// streakMin sleeps that something ended, one after the other, make the lane count on the next.
	streakMin = 64
	// coarse is how much later than asked for a timer may end such a sleep: a tick of the kernel's,
	// which most have 250 times a second or more often. exact is what threads have by themselves.
	coarse = 4 * time.Millisecond
	exact  = 50 * time.Microsecond
)

// patience is how long the lane looks for work before it sleeps. A thread of a higher priority
// gives its processor to none of a lower one by a yield, which then tells nothing.
func (l *lane) patience() clock.Time {
	if l.rival || l.spin < 0 || l.stats.prioritised {
		return l.spin
	}
	return max(l.spin, clock.Time(spinAlone))
}

// idle looks for work a little longer, then sleeps.
func (l *lane) idle(now clock.Time) {
	switch {
	case now-l.rested >= l.patience() && !l.awaitsStreams(now), now < l.sleepy:
		l.sleep(now)
	case now-l.looked > clock.Time(glance) && l.patience() > clock.Time(glance):
		l.wait(now, 0) // else the sleep that is near asks
	default:
		yield(l.isQuiet)
		back := l.now()
		if l.rival = back-now > clock.Time(yieldAlone); l.rival {
			l.showPlace()
		}
		if back-now > clock.Time(yieldLong) {
			l.sleepy = back.Add(sleepTime)
		}
	}
}

// sleep waits in the kernel. Sequentially consistent stores order the announcement before the last
// look: who rang before it is seen here, who rings after it sees the announcement and kicks.
func (l *lane) sleep(now clock.Time) {
	l.sleeping.Store(1)
	if l.pending.Load() || l.nic.HandleDoorbells(now) {
		l.sleeping.Store(0)
		l.rested = now
		return
	}
	timeout := l.deadline()
	if timeout != clock.Never {
		timeout = max(timeout-now, 0)
	}
	l.stats.sleeps++
	l.wait(now, timeout)
	l.sleeping.Store(0)
	l.rested = l.now()
}

// showPlace tells programs which processor the lane runs on. It is called where that may have
// changed, and now and then, since the scheduler moves threads by force as well. A lane of a high
// priority has its processor whenever it wants it, and moves nobody.
func (l *lane) showPlace() {
	if l.stats.prioritised {
		return
	}
	if at := uint32(processor()) + 1; at != l.placed {
		l.placed = at
		l.place.Store(at)
	}
}

// wait asks epoll and acts on the answer.
func (l *lane) wait(now, timeout clock.Time) {
	l.looked, l.mute = now, true
	if timeout != 0 {
		l.relax()
	}
	n, err := epollWait(l.epoll, l.events, timeout, l.waitsQuietly())
	l.showPlace()
	if err != nil {
		panic(err) // the set is ours and valid: without it the lane would spin blindly
	}
	switch {
	case timeout == 0:
	case n > 0:
		l.streak++
	default:
		l.streak = 0
	}
	l.heed(l.events[:n])
}

// deadline is when the lane has to be awake.
func (l *lane) deadline() clock.Time {
	if l.nic.HasWork() || l.hasStreams() && l.streams.HasWork() {
		return 0
	}
	at := l.nic.PollTimeout()
	if l.hasStreams() {
		at = min(at, l.streams.Deadline())
	}
	for i, p := range []netio.Port{l.wire, l.mirror} {
		if p != nil {
			at = min(at, p.NextDeadline(), l.out[i].retryAt)
		}
	}
	return at
}

// waitsQuietly reports whether the runtime is not to learn that the lane waits now.
//
// A system call that the runtime knows of makes its monitor look every 20 µs whether there is
// something to do for the lane's share of the processors meanwhile. Each look is a timer and a
// change of threads, on a virtual machine some 30 µs of a processor that the lane or a program
// wants. In calls that it does not know of the lane seems to compute: after 10 ms the runtime
// interrupts it by a signal, as it does when it wants to collect garbage. The lane waits openly
// then, until something comes for it again. So an idle NIC waits openly, and nothing wakes it.
//
// That is for a process of the NIC's own. In one that it shares with a program the lane's
// processor is the program's while it waits.
func (l *lane) waitsQuietly() bool { return l.isQuiet && l.streak > 0 }

// canBeQuiet reports whether the runtime interrupts threads by signals, as it does by itself.
func canBeQuiet() bool {
	return !strings.Contains(os.Getenv("GODEBUG"), "asyncpreemptoff=1")
}

// relax chooses how exact the timer of the next sleep is (timer slack, prctl(2)).
//
// The kernel sets the processor's timer for one that is to be the next to expire, and sets it again
// when that is taken away, which on a virtual machine takes 10 µs and more each: longer than all
// else that the lane does for a message. One with so much leave waits for the next tick, which is
// set already.
func (l *lane) relax() {
	slack := clock.Time(exact)
	if l.streak >= streakMin {
		slack = clock.Time(coarse)
	}
	if slack != l.slack {
		l.slack = slack
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0) // it never fails
	}
}
