package ib

import (
	"encoding/binary"
	"fmt"
)

// AtomicAckETHLen is the length of an atomic acknowledge header in bytes (IBTA 9.5.3).
const AtomicAckETHLen = 8

// AtomicAckETH is the value that remote memory held before an atomic operation (IBTA 9.5.3).
type AtomicAckETH uint64

// ParseAtomicAckETH reads an AtomicAckETH at the start of b.
func ParseAtomicAckETH(b []byte) (AtomicAckETH, error) {
	if len(b) < AtomicAckETHLen {
		return 0, ErrTruncated
	}
	return AtomicAckETH(binary.BigEndian.Uint64(b)), nil
}

// Append appends the AtomicAckETHLen bytes of the header to b.
func (h AtomicAckETH) Append(b []byte) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(h))
}

func (h AtomicAckETH) String() string { return fmt.Sprintf("AtomicAckETH{orig=0x%x}", uint64(h)) }
