package verbs

import "github.com/softrnic/softrnic/internal/abi"

// Flush is what WRFlush makes visible to the peer's processor and its other adapters: what this
// side has written before (IBTA A19.4.3). The peer's queue pair and region have AccessFlushGlobal.
type Flush struct {
	// Length is how many bytes from SendWR.RemoteAddr on; 0 of them only judges the key.
	Length uint64
	// Region flushes all of the region or window of SendWR.RKey instead.
	Region bool
}

// Values of enum ib_placement_type and ib_selectivity_level; the level lies from bit 4 on.
const (
	flushGlobal = 1
	flushRegion = 1 << 4
)

func (f *Flush) put(e *abi.SendWQE) {
	e.CompareAdd, e.Swap = flushGlobal, f.Length
	if f.Region {
		e.CompareAdd |= flushRegion
	}
}
