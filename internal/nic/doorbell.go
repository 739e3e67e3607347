package nic

import (
	"math/bits"
	"sync/atomic"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/ring"
)

const (
	doorbellWords     = abi.DoorbellSlots / 64
	doorbellSummaries = doorbellWords / 64
)

// doorbells is the NIC's end of a context's doorbell page.
type doorbells struct {
	summary [doorbellSummaries]*atomic.Uint64
	words   [doorbellWords]*atomic.Uint64
}

func newDoorbells(page []byte) *doorbells {
	d := new(doorbells)
	for i := range d.summary {
		d.summary[i] = ring.Word64(page, abi.OffDoorbellSummary+8*i)
	}
	for i := range d.words {
		d.words[i] = ring.Word64(page, abi.OffDoorbellWords+8*i)
	}
	return d
}

// HandleDoorbells looks at every context's doorbells and lets the QPs that rang fetch their work.
// It reports whether any rang.
func (n *NIC) HandleDoorbells(now clock.Time) bool {
	n.now = now
	found := false
	for _, c := range n.contexts {
		for i, s := range c.doorbells.summary {
			if s.Load() == 0 {
				continue
			}
			found = true
			n.answer(c, i, s.Swap(0))
		}
	}
	if found {
		n.failDoomed()
	}
	return found
}

// answer serves the QPs, and the matching lists, whose bits are set below one summary word. Bits of
// slots that nobody owns are a client's mistake without a consequence.
func (n *NIC) answer(c *Context, i int, summary uint64) {
	for ; summary != 0; summary &= summary - 1 {
		w := i*64 + bits.TrailingZeros64(summary)
		for word := c.doorbells.words[w].Swap(0); word != 0; word &= word - 1 {
			slot := w*64 + bits.TrailingZeros64(word)
			if slot >= len(c.slots) || c.slots[slot] == nil {
				if !c.answerTags(slot) {
					n.counters.StrayDoorbells++
				}
				continue
			}
			q := c.slots[slot]
			q.engine.HandleDoorbell(n.now)
			n.settle(q)
		}
	}
}
