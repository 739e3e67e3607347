package ib

import (
	"encoding/binary"
	"fmt"
)

// FETHLen is the length of a flush extended transport header in bytes (IBTA A19.4.2).
const FETHLen = 4

// FETH says what a FLUSH makes visible or persistent (IBTA A19.4.2).
type FETH struct {
	// Placement is the placement type, a set of four bits.
	Placement FlushPlacement
	// Select is the selectivity level, two bits.
	Select FlushSelect
}

// FlushPlacement is the guarantee that a FLUSH asks for; values of enum ib_placement_type.
type FlushPlacement uint8

// Placement types.
const (
	FlushGlobal     FlushPlacement = 1 << 0
	FlushPersistent FlushPlacement = 1 << 1
	flushPlacements FlushPlacement = 0xf
)

// FlushSelect is the memory that a FLUSH covers; values of enum ib_selectivity_level.
type FlushSelect uint8

// Selectivity levels.
const (
	FlushRange        FlushSelect = 0
	FlushMemoryRegion FlushSelect = 1
	flushSelects      FlushSelect = 3
	flushSelectShift              = 4
)

// ParseFETH reads a FETH at the start of b.
func ParseFETH(b []byte) (FETH, error) {
	var h FETH
	if len(b) < FETHLen {
		return h, ErrTruncated
	}
	h.decode(b)
	return h, nil
}

// decode reads the fields. Preconditions: len(b) >= FETHLen.
func (h *FETH) decode(b []byte) {
	_ = b[FETHLen-1]
	h.Placement = FlushPlacement(b[3]) & flushPlacements
	h.Select = FlushSelect(b[3]>>flushSelectShift) & flushSelects
}

// Append appends the FETHLen bytes of the header to b.
func (h *FETH) Append(b []byte) []byte {
	low := uint32(h.Placement&flushPlacements) |
		uint32(h.Select&flushSelects)<<flushSelectShift
	return binary.BigEndian.AppendUint32(b, low)
}

func (h FETH) String() string {
	return fmt.Sprintf("FETH{placement=0x%x select=%d}", uint8(h.Placement), h.Select)
}
