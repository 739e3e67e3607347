package sim

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// regressionStreams are seeds of worlds of iWARP that found faults which are mended; see
// regressionSeeds.
var regressionStreams = []uint64{
	6,  // a program that accepted was told CONNECT_ERROR without an error
	34, // a reply of MPA revision 1 left the initiator with more READs than the responder served
}

// fixedStreamSeeds are what every test run plays.
const fixedStreamSeeds = 120

var fixedStreams struct {
	once    sync.Once
	reports []Report
}

// playFixedStreams plays the fixed seeds of worlds of iWARP, once per process.
func playFixedStreams() []Report {
	fixedStreams.once.Do(func() {
		n := uint64(fixedStreamSeeds)
		if isRace || testing.Short() {
			n = fixedSeedsRace
		}
		list := slices.Clone(regressionStreams)
		for seed := range n {
			list = append(list, seed+1)
		}
		fixedStreams.reports = make([]Report, len(list))
		var wg sync.WaitGroup
		lanes := runtime.GOMAXPROCS(0)
		for lane := range lanes {
			wg.Go(func() {
				for i := lane; i < len(list); i += lanes {
					fixedStreams.reports[i], _ = Run(Config{Seed: list[i], World: WorldIWARP})
				}
			})
		}
		wg.Wait()
	})
	return fixedStreams.reports
}

func TestRunStreams_FixedSeeds_KeepEveryPromise(t *testing.T) {
	for _, r := range playFixedStreams() {
		if len(r.Failures) > 0 {
			tail := r.Tail[max(0, len(r.Tail)-30):]
			t.Errorf("%s\nseed %d (%s):\n  %s\nreplay: %s", strings.Join(tail, "\n"), r.Seed, r.Plan,
				strings.Join(r.Failures, "\n  "), Config{Seed: r.Seed, World: WorldIWARP}.Replay())
		}
	}
}

func TestRunStreams_SameSeed_SameTrace(t *testing.T) {
	for seed := uint64(1); seed <= 6; seed++ {
		a, err := Run(Config{Seed: seed, World: WorldIWARP})
		if err != nil {
			t.Fatal(err)
		}
		b, _ := Run(Config{Seed: seed, World: WorldIWARP})
		if a.Hash != b.Hash || a.Packets != b.Packets || a.Elapsed != b.Elapsed {
			t.Errorf("seed %d: traces %x and %x", seed, a.Hash, b.Hash)
		}
	}
}
