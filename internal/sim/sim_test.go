package sim

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

func TestHunt(t *testing.T) {
	from, n := uint64(1), uint64(20)
	if s := os.Getenv("SIM_FROM"); s != "" {
		from, _ = strconv.ParseUint(s, 10, 64)
	}
	if s := os.Getenv("SIM_N"); s != "" {
		n, _ = strconv.ParseUint(s, 10, 64)
	}
	var packets uint64
	bad := 0
	marks := map[string]uint64{}
	var comps uint64
	for seed := from; seed < from+n; seed++ {
		cfg := Config{Seed: seed}
		if os.Getenv("SIM_TRACE") != "" {
			cfg.Trace = os.Stdout
		}
		r, err := Run(cfg)
		packets += r.Packets + r.Local
		comps += r.Completions
		for k, v := range r.Marks {
			marks[k] += v
		}
		if err != nil {
			bad++
			t.Errorf("seed %d (%s)\n   %s", seed, r.Plan, strings.Join(r.Failures[:min(3, len(r.Failures))], "\n   "))
			if n == 1 {
				t.Log(strings.Join(r.Tail, "\n"))
			}
		}
	}
	t.Logf("%d packets, %d bad, %d completions", packets, bad, comps)
	for _, k := range sortedKeys(marks) {
		t.Logf("%8d %s", marks[k], k)
	}
}
