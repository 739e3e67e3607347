package rping

import (
	"fmt"
	"math"
	"time"
)

// Stats is what ping(8) says at its end. The zero value is ready.
type Stats struct {
	Rounds, Damaged int
	least, most     time.Duration
	sum, squares    float64 // in nanoseconds
}

// Add takes in one round.
func (s *Stats) Add(took time.Duration, damaged bool) {
	if s.Rounds == 0 || took < s.least {
		s.least = took
	}
	s.most = max(s.most, took)
	s.Rounds++
	if damaged {
		s.Damaged++
	}
	s.sum += float64(took)
	s.squares += float64(took) * float64(took)
}

// Mean and Deviation describe the rounds so far; 0 where there are none.
func (s *Stats) Mean() time.Duration {
	return time.Duration(s.sum / float64(max(s.Rounds, 1)))
}

// Deviation is the standard deviation.
func (s *Stats) Deviation() time.Duration {
	n := float64(max(s.Rounds, 1))
	return time.Duration(math.Sqrt(max(s.squares/n-(s.sum/n)*(s.sum/n), 0)))
}

// String is the last line of ping(8), in microseconds.
func (s *Stats) String() string {
	us := func(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/1e3) }
	return "rtt min/avg/max/mdev = " + us(s.least) + "/" + us(s.Mean()) + "/" + us(s.most) + "/" +
		us(s.Deviation()) + " us"
}
