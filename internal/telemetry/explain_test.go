package telemetry

import (
	"testing"

	"github.com/softrnic/softrnic/internal/explain"
	"github.com/softrnic/softrnic/internal/nic"
)

// TestCounters_OfTheNIC_AreExplained holds that rnic explain knows every counter of the standard's
// part of rnic stat, by our name and by mlx5's.
func TestCounters_OfTheNIC_AreExplained(t *testing.T) {
	names := map[string]string{"retries": "", "retransmitted_pkts": "", "rcvd_naks": "", "errors": ""}
	for name := range new(nic.Counters).Named(new(nic.EngineCounters)) {
		names[name] = aliases[name]
	}
	for name, alias := range names {
		found := explain.Find(name)
		if len(found) == 0 || found[0].Name != name || found[0].Kind != explain.KindCounter {
			t.Errorf("%s is not explained", name)
		}
		if alias == "" {
			continue
		}
		if found = explain.Find(alias); len(found) == 0 || found[0].Name != name {
			t.Errorf("%s is not explained by %s", name, alias)
		}
	}
}
