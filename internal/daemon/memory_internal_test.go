package daemon

import (
	"strings"
	"testing"
)

// One program gets half of the mappings that the NIC may have, and the next what it needs.
func TestQueueAllocator_ManyQueues_LeavesMappingsToOthers(t *testing.T) {
	l := &lane{budget: &budget{mapsMax: 6, bytesMax: 1 << 30}}
	a := &queueAllocator{lane: l, most: 1 << 30}
	t.Cleanup(func() {
		for _, m := range a.garbage {
			m.Release()
		}
	})
	for range 2 {
		a.owner = &session{queues: map[*queueMemory]struct{}{}}
		for range 3 {
			q, err := a.Alloc(4096)
			if err != nil {
				t.Fatal(err)
			}
			defer q.Release()
		}
		if _, err := a.Alloc(4096); err == nil || !strings.Contains(err.Error(), "3 queues a program") {
			t.Errorf("one more: %v", err)
		}
	}
}
