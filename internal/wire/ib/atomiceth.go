package ib

import (
	"encoding/binary"
	"fmt"

	"github.com/softrnic/softrnic/internal/rdma"
)

// AtomicETHLen is the length of an atomic extended transport header in bytes (IBTA 9.3.4).
const AtomicETHLen = 28

// AtomicETH carries an atomic request (IBTA 9.3.4).
type AtomicETH struct {
	VA   uint64
	RKey rdma.Key
	// SwapAdd is the value to store (CmpSwap) or to add (FetchAdd).
	SwapAdd uint64
	// Compare is what CmpSwap expects to find; FetchAdd ignores it.
	Compare uint64
}

// ParseAtomicETH reads an AtomicETH at the start of b.
func ParseAtomicETH(b []byte) (AtomicETH, error) {
	var h AtomicETH
	if len(b) < AtomicETHLen {
		return h, ErrTruncated
	}
	h.decode(b)
	return h, nil
}

// decode reads the fields. Preconditions: len(b) >= AtomicETHLen.
func (h *AtomicETH) decode(b []byte) {
	_ = b[AtomicETHLen-1]
	h.VA = binary.BigEndian.Uint64(b)
	h.RKey = rdma.Key(binary.BigEndian.Uint32(b[8:]))
	h.SwapAdd = binary.BigEndian.Uint64(b[12:])
	h.Compare = binary.BigEndian.Uint64(b[20:])
}

// Append appends the AtomicETHLen bytes of the header to b.
func (h *AtomicETH) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, h.VA)
	b = binary.BigEndian.AppendUint32(b, uint32(h.RKey))
	b = binary.BigEndian.AppendUint64(b, h.SwapAdd)
	return binary.BigEndian.AppendUint64(b, h.Compare)
}

func (h AtomicETH) String() string {
	return fmt.Sprintf("AtomicETH{va=0x%x rkey=%s swap_add=0x%x compare=0x%x}",
		h.VA, h.RKey, h.SwapAdd, h.Compare)
}
