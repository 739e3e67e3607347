package faulty

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/clock"
)

func verdicts(profile Profile, stream uint64, n int) []Verdict {
	d := NewDecider(profile, stream, nil)
	out := make([]Verdict, n)
	for i := range out {
		out[i] = d.Decide(clock.Time(i)*1000, 100)
	}
	return out
}

func TestDecider_SameSeed_SameVerdicts(t *testing.T) {
	profile := Profile{
		Loss: 0.1, Dup: 0.1, Corrupt: 0.1, Reorder: 0.1, Delay: 50 * time.Microsecond,
		Jitter: 20 * time.Microsecond, Rate: 1e9, Seed: 7,
	}
	first, second := verdicts(profile, 1, 2000), verdicts(profile, 1, 2000)
	for i := range first {
		if first[i] != second[i] {
			t.Fatalf("verdict %d: %+v, then %+v", i, first[i], second[i])
		}
	}
	differ := func(name string, other []Verdict) {
		for i := range first {
			if first[i] != other[i] {
				return
			}
		}
		t.Errorf("another %s gives the same verdicts", name)
	}
	differ("stream", verdicts(profile, 2, 2000))
	profile.Seed++
	differ("seed", verdicts(profile, 1, 2000))
}

func TestDecider_Chances_AsOftenAsAsked(t *testing.T) {
	const n = 200_000
	profile := Profile{Loss: 0.05, Dup: 0.02, Corrupt: 0.01, Reorder: 0.03, Seed: 3}
	var lost, doubled, damaged, reordered float64
	for _, v := range verdicts(profile, 1, n) {
		switch {
		case v.Drop:
			lost++
			continue
		case v.Bit != NoBit:
			damaged++
			if v.Bit < 0 || v.Bit >= 800 {
				t.Fatalf("bit %d of a packet of 800", v.Bit)
			}
		}
		if v.Duplicate {
			doubled++
		}
		if v.Reordered {
			reordered++
		}
	}
	left := n - lost
	for _, c := range []struct {
		name               string
		count, total, want float64
	}{
		{"lost", lost, n, profile.Loss},
		{"doubled", doubled, left, profile.Dup},
		{"damaged", damaged, left, profile.Corrupt},
		{"reordered", reordered, left, profile.Reorder},
	} {
		// Five standard deviations: the seed is fixed, so this either holds or does not.
		if margin := 5 * math.Sqrt(c.total*c.want); math.Abs(c.count-c.total*c.want) > margin {
			t.Errorf("%s %v of %v, want %v", c.name, c.count, c.total, c.total*c.want)
		}
	}
}

func TestDecider_JitterWithoutReorder_KeepsOrder(t *testing.T) {
	profile := Profile{Delay: time.Millisecond, Jitter: time.Millisecond, Seed: 1}
	var last clock.Time
	spread := map[clock.Time]bool{}
	for i, v := range verdicts(profile, 1, 10_000) {
		sent := clock.Time(i) * 1000
		if v.At < last {
			t.Fatalf("packet %d arrives at %d, the one before at %d", i, v.At, last)
		}
		if wait := v.At.Sub(sent); wait < 0 || wait > 2*time.Millisecond {
			t.Fatalf("packet %d takes %v", i, wait)
		}
		last = v.At
		spread[v.At] = true
	}
	if len(spread) < 100 {
		t.Errorf("only %d different arrivals", len(spread))
	}
}

func TestDecider_Reorder_LaterPacketsOvertake(t *testing.T) {
	profile := Profile{Reorder: 0.1, Gap: 50 * time.Microsecond, Seed: 1}
	var overtaken int
	list := verdicts(profile, 1, 10_000)
	for i, v := range list {
		if !v.Reordered {
			if v.At != clock.Time(i)*1000 {
				t.Fatalf("packet %d is not reordered and yet arrives at %d", i, v.At)
			}
			continue
		}
		if hold := v.At.Sub(clock.Time(i) * 1000); hold <= 0 || hold > profile.Gap {
			t.Fatalf("packet %d is held back for %v", i, hold)
		}
		if i+1 < len(list) && list[i+1].At < v.At {
			overtaken++
		}
	}
	if overtaken < 500 {
		t.Errorf("%d packets were overtaken", overtaken)
	}
}

func TestDecider_Rate_SpacesPacketsAndDropsTail(t *testing.T) {
	d := NewDecider(Profile{Rate: 8_000_000}, 1, nil) // 1 byte a microsecond
	var last clock.Time
	dropped := 0
	for range 100 {
		v := d.Decide(0, 1000)
		if v.Drop {
			if !v.Overrun {
				t.Fatal("lost without loss")
			}
			dropped++
			continue
		}
		if v.At.Sub(last) != time.Millisecond {
			t.Fatalf("arrives %v after the one before, want 1 ms", v.At.Sub(last))
		}
		last = v.At
	}
	if want := 100 - 21; dropped != want {
		t.Errorf("%d dropped, want %d beyond a queue of %v", dropped, want, queueMax)
	}
	if v := d.Decide(clock.Time(time.Second), 1000); v.Drop ||
		v.At != clock.Time(time.Second+time.Millisecond) {
		t.Errorf("after a pause: %+v", v)
	}
}

func TestDecider_CallersSource_IsUsed(t *testing.T) {
	profile := Profile{Loss: 0.5, Seed: 1}
	a := NewDecider(profile, 1, rand.New(rand.NewPCG(9, 9)))
	profile.Seed = 2
	b := NewDecider(profile, 2, rand.New(rand.NewPCG(9, 9)))
	for i := range 100 {
		if a.Decide(0, 1) != b.Decide(0, 1) {
			t.Fatalf("verdict %d differs for the same source", i)
		}
	}
}
