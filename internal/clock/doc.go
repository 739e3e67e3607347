// Package clock gives the core its notion of time: a monotonic instant in nanoseconds that the
// shell passes in. Nothing here reads a real clock.
package clock

import "time"

// Time is a monotonic instant in nanoseconds since an origin the shell chose. The zero Time is
// the origin; Never is later than every instant.
type Time int64

// Never is the deadline that does not come.
const Never Time = 1<<63 - 1

// Add returns t+d, saturating at Never.
func (t Time) Add(d time.Duration) Time {
	if t == Never {
		return Never
	}
	return t + Time(d)
}

// Sub returns t−u.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }
