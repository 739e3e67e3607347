package faulty

import (
	"math/rand/v2"
	"time"

	"github.com/softrnic/softrnic/internal/clock"
)

// queueMax is the longest that a packet waits for its turn under a rate limit; what comes while
// the queue is longer is lost, as at the tail of a switch queue. It lasts many round trips of a
// fast network and still is well below a transport timer of a second.
const queueMax = 20 * time.Millisecond

// NoBit is the Verdict's Bit when nothing is damaged.
const NoBit = -1

// Verdict is what happens to one packet.
type Verdict struct {
	// Drop loses the packet and its duplicate. Overrun tells that the queue was to blame.
	Drop, Overrun bool
	// Bit is the number of the bit to invert, or NoBit.
	Bit int
	// At is when the packet arrives; the time of the call when nothing holds it back.
	At clock.Time
	// Reordered tells that At lets later packets overtake.
	Reordered bool
	// Duplicate adds a second, undamaged packet, which arrives at DuplicateAt.
	Duplicate   bool
	DuplicateAt clock.Time
}

// Decider decides about the packets of one direction of a link, one after the other. The same
// profile, source and calls give the same verdicts.
type Decider struct {
	profile Profile
	random  *rand.Rand
	free    clock.Time // when the rate-limited link is free again
	last    clock.Time // latest arrival of a packet in order
}

// NewDecider returns a Decider for a valid profile. Random is the caller's; nil stands for one
// made from the profile's seed and the number of the stream, which tells directions apart.
func NewDecider(profile Profile, stream uint64, random *rand.Rand) *Decider {
	if random == nil {
		random = rand.New(rand.NewPCG(profile.Seed, stream))
	}
	if profile.Gap == 0 {
		profile.Gap = GapDefault
	}
	return &Decider{profile: profile, random: random}
}

// Decide returns the verdict on a packet of so many bytes that is sent now.
func (d *Decider) Decide(now clock.Time, bytes int) Verdict {
	v := Verdict{Bit: NoBit, At: now}
	if !d.transmit(&v, now, bytes) {
		return v
	}
	p := &d.profile
	if d.chance(p.Loss) {
		v.Drop = true
		return v
	}
	if d.chance(p.Corrupt) && bytes > 0 {
		v.Bit = d.random.IntN(8 * bytes)
	}
	v.Duplicate = d.chance(p.Dup)
	v.Reordered = d.chance(p.Reorder)
	v.At = v.At.Add(d.delay())
	if v.Reordered {
		v.At = v.At.Add(1 + time.Duration(d.random.Int64N(int64(p.Gap))))
	} else {
		v.At = max(v.At, d.last)
		d.last = v.At
	}
	if v.Duplicate {
		// A duplicate is a packet that was sent twice: it follows the first one.
		v.DuplicateAt = v.At.Add(time.Duration(d.random.Int64N(int64(p.Gap))))
	}
	return v
}

// transmit puts the packet on the rate-limited link and reports whether its queue had room.
func (d *Decider) transmit(v *Verdict, now clock.Time, bytes int) bool {
	if d.profile.Rate == 0 {
		return true
	}
	start := max(now, d.free)
	if start.Sub(now) > queueMax {
		v.Drop, v.Overrun = true, true
		return false
	}
	d.free = start.Add(time.Duration(float64(8*bytes) * 1e9 / float64(d.profile.Rate)))
	v.At = d.free
	return true
}

// delay draws Delay ± Jitter.
func (d *Decider) delay() time.Duration {
	p := &d.profile
	if p.Jitter == 0 {
		return p.Delay
	}
	return p.Delay - p.Jitter + time.Duration(d.random.Int64N(2*int64(p.Jitter)+1))
}

// chance draws only for what may happen, so that a profile's choices do not depend on faults that
// it does not have.
func (d *Decider) chance(p float64) bool {
	return p > 0 && d.random.Float64() < p
}
