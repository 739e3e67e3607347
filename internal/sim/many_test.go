package sim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/softrnic/softrnic/test/racetest"
)

// manyHosts are as many NICs as one simulation is to hold, and fewer where everything is slower.
func manyHosts() int {
	if racetest.Enabled || testing.Short() {
		return 100
	}
	return 1000
}

// TestRun_ThousandNICs_KeepEveryPromise: traffic is short, and yet each NIC has some.
func TestRun_ThousandNICs_KeepEveryPromise(t *testing.T) {
	n := manyHosts()
	for _, row := range []struct {
		world    string
		duration time.Duration
	}{
		{WorldVerbs, time.Millisecond},
		{WorldConnections, time.Second},
		{WorldIWARP, time.Millisecond},
	} {
		w := newWorld(Config{Seed: 1, World: row.world, Hosts: n, Duration: row.duration})
		for _, h := range w.hosts {
			count := len(h.callers)
			for _, a := range h.apps {
				count += len(a.endpoints)
			}
			if count == 0 {
				t.Errorf("%s: %s has nothing to do", row.world, h.name)
			}
		}
		w.runGuarded()
		r, err := w.report()
		if err != nil {
			t.Errorf("%s: %v", row.world, err)
		}
		if want := fmt.Sprintf("%d hosts,", n); !strings.HasPrefix(r.Plan, want) {
			t.Errorf("%s: plan %q", row.world, r.Plan)
		}
		if r.Packets < uint64(n) {
			t.Errorf("%s: %d packets", row.world, r.Packets)
		}
		w.recycle()
	}
}

func TestHostOf_EachAddress_IsFound(t *testing.T) {
	w := newWorld(Config{Seed: 1, Hosts: 600, Duration: time.Microsecond})
	seen := map[string]bool{}
	for i, h := range w.hosts {
		for _, g := range h.gids {
			if w.hostOf(g) != h || seen[g.String()] {
				t.Fatalf("host %d: address %v", i, g)
			}
			seen[g.String()] = true
			g[13] ^= 1
			if w.hostOf(g) == h {
				t.Fatalf("host %d: %v, which is not its address", i, g)
			}
		}
	}
	if got := w.hostOf(strangerGID); got != nil {
		t.Errorf("the stranger is %s", got.name)
	}
}

func TestBitSet_Walk_InOrder(t *testing.T) {
	var s bitSet
	for _, i := range []int{700, 3, 64, 63, 0, 64} {
		s.add(i)
	}
	s.remove(3)
	s.remove(5000)
	var got []int
	for i := s.next(0); i >= 0; i = s.next(i + 1) {
		got = append(got, i)
	}
	if want := "[0 63 64 700]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
	for i, want := range map[int]bool{63: true, 3: false, 701: false, 9999: false} {
		if s.has(i) != want {
			t.Errorf("has %d: %v", i, s.has(i))
		}
	}
}
