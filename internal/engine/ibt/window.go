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
	// span is the same measure, but from the first time a packet was sent and over repetitions: an
	// upper bound that is there even where everything is sent twice.
	spanPSN    rdma.PSN
	spanAt     clock.Time
	isSpanning bool
	span       time.Duration

	// What a timeout took away, in case that nothing was lost.
	priorSize, priorThreshold uint32

	rttMin   time.Duration
	rttMinAt clock.Time
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
	w.size, w.acked, w.priorSize = w.threshold, 0, 0
	w.cutEnd, w.isCut = high, true
}

// collapse answers a timeout: everything on the wire is taken for lost.
func (w *window) collapse(high rdma.PSN) {
	if !w.isCut {
		w.priorSize, w.priorThreshold = w.size, w.threshold
		w.threshold = max(w.size/2, limits.WindowPacketsMin)
	}
	w.size, w.acked = limits.WindowPacketsMin, 0
	w.cutEnd, w.isCut = high, true
	w.isTiming = false
}

// restore undoes a collapse that turned out to be without reason.
func (w *window) restore() {
	if w.priorSize > w.size {
		w.size, w.threshold = w.priorSize, w.priorThreshold
		w.acked, w.isCut = 0, false
	}
	w.priorSize = 0
}

// time starts a measure with a packet just sent.
func (w *window) time(p rdma.PSN, now clock.Time) {
	if !w.isSpanning {
		w.spanPSN, w.spanAt, w.isSpanning = p, now, true
	}
	if !w.isTiming {
		w.samplePSN, w.sampleAt, w.isTiming = p, now, true
	}
}

// timed ends the measure when una has passed the packet, and returns it, else 0.
func (w *window) timed(una rdma.PSN, now clock.Time) time.Duration {
	if w.isSpanning && w.spanPSN.Less(una) {
		w.isSpanning = false
		d := now.Sub(w.spanAt)
		if w.span == 0 {
			w.span = d
		}
		w.span += (d - w.span) / 8
	}
	if !w.isTiming || !w.samplePSN.Less(una) {
		return 0
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
	return d
}

func (w *window) isDelayed() bool { return w.rtt > 2*w.rttMin+rttSlack }

// Without answers the window is a rate: half of it in every tick. What is too much shows late, and
// may cost the peer a second: so it grows slowly once something was lost.
const (
	// blindMin keeps a peer that loses packets at random from standing still.
	blindMin = 8
	// blindDouble and blindGrow are how many windows have to go well before the window doubles,
	// and, after a loss, before it grows by a blindPart.
	blindDouble = 8
	blindGrow   = 1000
	blindPart   = 32
	// blindQueue is what the narrowest place on the way is believed to hold, in packets: about what
	// network interfaces queue.
	blindQueue = 1024
)

// growBlind takes n packets that were sent and not heard of since. isTuned says that the window
// was too large once.
func (w *window) growBlind(n uint32, isTuned bool) {
	w.acked += n
	switch {
	case isTuned && w.acked >= blindGrow*w.size:
		w.acked = 0
		w.size += max(1, w.size/blindPart)
	case !isTuned && w.acked >= blindDouble*w.size:
		w.acked = 0
		w.size *= 2
	}
}

// cutBlind answers a loss after n packets of a round had arrived. They filled the queue at the
// narrowest place, by the difference between our rate and its own.
func (w *window) cutBlind(n uint32) {
	size := w.size / 2
	if n > blindQueue {
		size = max(size, uint32(uint64(w.size)*uint64(n-blindQueue)/uint64(n)*7/8))
	}
	w.size, w.acked = max(size, blindMin), 0
}
