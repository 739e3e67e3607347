package faulty

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

func TestParse_TextForm_ValueAndBack(t *testing.T) {
	for text, want := range map[string]Profile{
		"":  {},
		" ": {},
		"loss=1%,dup=0.5%,reorder=2%,corrupt=0.1%,delay=200us,jitter=50us,seed=7": {
			Loss: 0.01, Dup: 0.005, Reorder: 0.02, Corrupt: 0.001,
			Delay: 200 * time.Microsecond, Jitter: 50 * time.Microsecond, Seed: 7,
		},
		"loss=0.25, rate=2.5gbit, gap=1ms, direction=both": {
			Loss: 0.25, Rate: 2_500_000_000, Gap: time.Millisecond, Receive: true,
		},
		"rate=1500bit":              {Rate: 1500},
		"completions=300us":         {Completions: 300 * time.Microsecond},
		"direction=tx":              {},
		"loss=100%":                 {Loss: 1},
		"loss=1e-6":                 {Loss: 1e-6},
		"rate=100mbit":              {Rate: 100_000_000},
		"delay=1m":                  {Delay: time.Minute},
		"seed=18446744073709551615": {Seed: math.MaxUint64},
	} {
		got, err := Parse(text)
		if err != nil || got != want {
			t.Errorf("Parse(%q) = %+v, %v", text, got, err)
		}
		again, err := Parse(got.String())
		if err != nil || again != got {
			t.Errorf("%q printed as %q, which is %+v, %v", text, got, again, err)
		}
	}
	if text := (Profile{Loss: 0.01, Rate: 1e9, Seed: 7, Receive: true}).String(); text !=
		"loss=0.01,rate=1gbit,seed=7,direction=both" {
		t.Errorf("printed %q", text)
	}
}

func TestParse_BadText_ErrorNamesRemedy(t *testing.T) {
	for text, words := range map[string]string{
		"los=1%":               "loss, dup",
		"loss":                 "loss=1%",
		"loss=":                "loss=1%",
		"loss=1%,":             "unknown",
		"loss=1%,loss=2%":      "twice",
		"loss=one":             "not understood",
		"loss=101%":            "between 0% and 100%",
		"loss=-1%":             "between",
		"loss=NaN":             "between",
		"loss=inf":             "between",
		"delay=200":            "delay=200us",
		"delay=-1s":            "between 0 and",
		"delay=2h":             "between 0 and",
		"completions=-1us":     "between 0 and",
		"jitter=1ms":           "more than delay",
		"rate=10":              "rate=10gbit",
		"rate=0gbit":           "rate=10gbit",
		"rate=-1gbit":          "rate=10gbit",
		"rate=NaNgbit":         "rate=10gbit",
		"rate=99999gbit":       "at most",
		"rate=1e300gbit":       "rate=10gbit",
		"seed=-1":              "seed=7",
		"direction=rx":         "tx or both",
		"loss=1%;dup=1%":       "not understood",
		strings.Repeat("x", 9): "unknown",
	} {
		p, err := Parse(text)
		if !errors.Is(err, ErrProfile) || !strings.Contains(err.Error(), words) {
			t.Errorf("Parse(%q) = %+v, %v; want an error with %q", text, p, err, words)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("loss=1%,dup=0.5%,reorder=2%,corrupt=0.1%,delay=200us,jitter=50us,seed=7")
	f.Add("rate=1gbit,direction=both,gap=3ms")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(text)
		if err != nil {
			return
		}
		if again, err := Parse(p.String()); err != nil || again != p {
			t.Fatalf("%q is %+v, printed as %q, which is %+v, %v", text, p, p, again, err)
		}
		d := NewDecider(p, 1, nil)
		for range 3 {
			d.Decide(1, 100)
		}
	})
}
