package verbs

import (
	"sync/atomic"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ring"
	"github.com/softrnic/softrnic/internal/shm"
)

// bell is one doorbell slot of a context's page.
type bell struct {
	word, summary       *atomic.Uint64
	wordBit, summaryBit uint64
	sleeping            *atomic.Uint32
	kick                int
}

func newBell(page, lane []byte, slot uint32, kick int) bell {
	word := int(slot / 64)
	return bell{
		word:       ring.Word64(page, abi.OffDoorbellWords+8*word),
		wordBit:    1 << (slot % 64),
		summary:    ring.Word64(page, abi.OffDoorbellSummary+8*(word/64)),
		summaryBit: 1 << (word % 64),
		sleeping:   ring.Word(lane, abi.OffLaneSleeping),
		kick:       kick,
	}
}

// ring tells the NIC that the queue has news. The index was published before; every access here
// is sequentially consistent. The NIC clears the summary before the word, and the word before it
// reads the index, so it either sees the news now or finds the bits again. It says that it sleeps
// before it looks at the bits for the last time, so either it sees them or we see that it sleeps.
func (b *bell) ring() {
	b.word.Or(b.wordBit)
	b.summary.Or(b.summaryBit)
	if b.sleeping.Load() != 0 {
		// A kick cannot fail but for a descriptor that Close took away, and Close waits for us.
		_ = shm.Kick(b.kick)
	}
}
