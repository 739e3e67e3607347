package sim

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/softrnic/softrnic/test/racetest"
)

// fixedSeedsRace is how many fixed seeds of a world are played where the race detector makes
// everything ten times slower.
const fixedSeedsRace = 8

// fixedWorld is what every test run plays of a world: seeds from 1 on, and those that found faults.
type fixedWorld struct {
	world       string
	seeds       int
	regressions []uint64
	once        sync.Once
	reports     []Report
}

// play plays the seeds once per process, several at a time.
func (f *fixedWorld) play() []Report {
	f.once.Do(func() {
		n := f.seeds
		if racetest.Enabled || testing.Short() {
			n = fixedSeedsRace
		}
		list := slices.Clone(f.regressions)
		for seed := range n {
			list = append(list, uint64(seed)+1)
		}
		f.reports = make([]Report, len(list))
		var wg sync.WaitGroup
		lanes := runtime.GOMAXPROCS(0)
		for lane := range lanes {
			wg.Go(func() {
				for i := lane; i < len(list); i += lanes {
					f.reports[i], _ = Run(Config{Seed: list[i], World: f.world})
				}
			})
		}
		wg.Wait()
	})
	return f.reports
}

// check wants no failure in any of them.
func (f *fixedWorld) check(t *testing.T) {
	t.Helper()
	var packets uint64
	for _, r := range f.play() {
		packets += r.Packets + r.Local
		if len(r.Failures) > 0 {
			tail := r.Tail[max(0, len(r.Tail)-30):]
			t.Errorf("%s\nseed %d (%s):\n  %s\nreplay: %s", strings.Join(tail, "\n"), r.Seed, r.Plan,
				strings.Join(r.Failures, "\n  "), Config{Seed: r.Seed, World: f.world}.Replay())
		}
	}
	t.Logf("%d packets", packets)
}
