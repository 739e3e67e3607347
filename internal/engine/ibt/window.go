package ibt

import (
	"time"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
)

const (
	// rttSlack is the delay over the shortest round trip that the window takes for scheduling and
	// not for a queue.
	rttSlack = 2 * time.Millisecond
	// rttAge is how long the shortest round trip is believed.
	rttAge = 10 * time.Second
)

// window bounds the packets on the wire. It grows by what is acknowledged, to the threshold
// quickly and then by one packet a round trip; loss and congestion marks halve it at most once a
// round trip, and a growing delay stops it.
type window struct {
	size      uint32 // packets
	threshold uint32
	acked     uint32 // toward the next step of slow growth
	// A cut holds until cutEnd is acknowledged: what was lost in the same window is one loss.
	cutEnd rdma.PSN
	isCut  bool

	// One packet at a time is timed; sending it again spoils the measure.
	samplePSN rdma.PSN
	sampleAt  clock.Time
	isTiming  bool
	rtt       time.Duration // smoothed; 0 before the first sample
	rttMin    time.Duration
	rttMinAt  clock.Time
}

func (w *window) reset() {
	*w = window{size: limits.WindowPacketsInitial, threshold: limits.WindowPacketsMax}
}

// grow takes n newly acknowledged packets up to una. limited says that the window, and not a want
// of work, bounded what was on the wire.
func (w *window) grow(n uint32, una rdma.PSN, limited bool) {
	if w.isCut && w.cutEnd.LessEq(una) {
		w.isCut = false
	}
	if w.isCut || !limited || w.isDelayed() {
		return
	}
	if w.size < w.threshold {
		w.size = min(w.size+n, w.threshold)
	} else {
		w.acked += n
		if w.acked >= w.size {
			w.acked -= w.size
			w.size++
		}
	}
	w.size = min(w.size, limits.WindowPacketsMax)
}

// cut halves the window unless it was cut for the packets before high already.
func (w *window) cut(high rdma.PSN) {
	if w.isCut {
		return
	}
	w.threshold = max(w.size/2, limits.WindowPacketsMin)
	w.size, w.acked = w.threshold, 0
	w.cutEnd, w.isCut = high, true
}

// collapse answers a timeout: everything on the wire is taken for lost.
func (w *window) collapse(high rdma.PSN) {
	if !w.isCut {
		w.threshold = max(w.size/2, limits.WindowPacketsMin)
	}
	w.size, w.acked = limits.WindowPacketsMin, 0
	w.cutEnd, w.isCut = high, true
	w.isTiming = false
}

// time starts a measure with a packet just sent.
func (w *window) time(p rdma.PSN, now clock.Time) {
	if !w.isTiming {
		w.samplePSN, w.sampleAt, w.isTiming = p, now, true
	}
}

// timed ends the measure when una has passed the packet.
func (w *window) timed(una rdma.PSN, now clock.Time) {
	if !w.isTiming || !w.samplePSN.Less(una) {
		return
	}
	w.isTiming = false
	d := max(now.Sub(w.sampleAt), time.Nanosecond)
	if w.rtt == 0 {
		w.rtt = d
	}
	w.rtt += (d - w.rtt) / 8
	if w.rttMin == 0 || d <= w.rttMin || now.Sub(w.rttMinAt) > rttAge {
		w.rttMin, w.rttMinAt = d, now
	}
}

func (w *window) isDelayed() bool { return w.rtt > 2*w.rttMin+rttSlack }
