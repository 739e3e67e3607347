package daemon

import (
	"time"

	"golang.org/x/sys/unix"
)

// lanePriority is the highest of an ordinary thread, and laneSlice the shortest time that the
// scheduler lets a thread ask for.
const (
	lanePriority = -20
	laneSlice    = 100 * time.Microsecond
)

// hurry lets the calling thread, the lane's, run soon when it wakes beside programs that spin. A
// higher priority does; the right to it have root and whom RLIMIT_NICE grants it. Anybody may ask
// for short slices, to which Linux gives an earlier turn from 6.12 on; before, it means nothing. It
// reports whether there is the higher priority.
func hurry() bool {
	isPrioritised := unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), lanePriority) == nil
	if attr, err := unix.SchedGetAttr(0, 0); err == nil && attr.Policy == unix.SCHED_NORMAL {
		attr.Runtime = uint64(laneSlice)
		_ = unix.SchedSetAttr(0, attr, 0) // without it the lane is as others are
	}
	return isPrioritised
}
