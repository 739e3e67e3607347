package tool

import (
	"time"

	"golang.org/x/sys/unix"
)

// schedulerClock is the kind of clock of a process that counts nanoseconds on a processor
// (CPUCLOCK_SCHED of the kernel).
const schedulerClock = 2

// cpuTime is what a process has used, as user and in the kernel; 0 for no process.
func cpuTime(pid int) time.Duration {
	if pid == 0 {
		return 0
	}
	var ts unix.Timespec
	// The clock's number is made as clock_getcpuclockid(3) makes it.
	if err := unix.ClockGettime(int32(^pid<<3|schedulerClock), &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
