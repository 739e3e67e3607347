package suite

import (
	"strings"
	"testing"

	"github.com/softrnic/softrnic/internal/bench"
	"github.com/softrnic/softrnic/internal/bench/tool"
)

// everything is all figures, as of a whole run.
func everything(t *testing.T) []bench.Figure {
	t.Helper()
	at := func(name string) *Place {
		h, err := tool.NewHost(t.TempDir(), tool.Host{})
		if err != nil {
			t.Fatal(err)
		}
		return NewPlace(name, &tool.Path{Server: h, Client: h, Length: 1})
	}
	one, two, stream := at("One host"), at("Two hosts, MTU 1500"), at("iWARP, MTU 1500")
	figures := append(OneHost(one), TwoHosts(two, 1024)...)
	figures = append(figures, Stream(stream, 0.9)...)
	figures = append(figures, Scale(one)...)
	figures = append(figures, Rest(one)...)
	figures = append(figures, Own(one)...)
	return append(figures, Connections(one), Connections(two))
}

// What is stored is found again by these names, and files have them.
func TestSuite_Names_AreUnique(t *testing.T) {
	keys := map[string]bool{}
	for _, f := range everything(t) {
		if keys[f.Key] || f.Key != strings.ToLower(f.Key) || strings.ContainsAny(f.Key, " ,/") {
			t.Errorf("the key %q is there twice, or no name of a file", f.Key)
		}
		keys[f.Key] = true
		if f.Title == "" || f.Unit == "" || len(f.Rows) == 0 {
			t.Errorf("%s is not complete: %+v", f.Key, f)
		}
		rows := map[string]bool{}
		for _, row := range f.Rows {
			if rows[row.Name] {
				t.Errorf("%s has two rows %q", f.Key, row.Name)
			}
			rows[row.Name] = true
			peers := map[string]bool{}
			for _, goal := range row.Goals {
				if goal.Peer != nil && peers[goal.Peer.Who] {
					t.Errorf("%s: %s: two peers %s", f.Key, row.Name, goal.Peer.Who)
				}
				if goal.Peer != nil {
					peers[goal.Peer.Who] = true
				} else if goal.Factor == 0 {
					t.Errorf("%s: %s: a goal without a value", f.Key, row.Name)
				}
			}
		}
	}
}

// A gauge is known by its key: two with one key would be measured as one.
func TestSuite_Gauges_OfOneKeyAreOneThing(t *testing.T) {
	known := map[string]*bench.Gauge{}
	for _, f := range everything(t) {
		for _, row := range f.Rows {
			gauges := []*bench.Gauge{row.Ours}
			for _, goal := range row.Goals {
				if goal.Peer != nil {
					gauges = append(gauges, goal.Peer)
				}
			}
			for _, g := range gauges {
				other := known[g.Key]
				if other != nil && (other.Stage != g.Stage || other.Who != g.Who) {
					t.Errorf("%s is %s and %s", g.Key, g.Who, other.Who)
				}
				known[g.Key] = g
				if g.Stage == nil || g.Run == nil {
					t.Errorf("%s cannot run", g.Key)
				}
			}
		}
	}
}

func TestSize_Bytes_AreReadable(t *testing.T) {
	for n, want := range map[int]string{
		2: "2 B", 1000: "1000 B", 65536: "64 KiB", 1 << 20: "1 MiB", 3 << 19: "1536 KiB",
	} {
		if got := Size(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
