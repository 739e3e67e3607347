package ib

import (
	"encoding/binary"
	"fmt"

	"github.com/softrnic/softrnic/internal/rdma"
)

// RETHLen is the length of an RDMA extended transport header in bytes (IBTA 9.3.3).
const RETHLen = 16

// RETH names the remote memory of an RDMA operation (IBTA 9.3.3).
type RETH struct {
	VA   uint64
	RKey rdma.Key
	// Length is the length of the whole message in bytes, at most 2^31 when legal (IBTA 9.3.3.3).
	Length uint32
}

// ParseRETH reads an RETH at the start of b.
func ParseRETH(b []byte) (RETH, error) {
	var h RETH
	if len(b) < RETHLen {
		return h, ErrTruncated
	}
	h.decode(b)
	return h, nil
}

// decode reads the fields. Preconditions: len(b) >= RETHLen.
func (h *RETH) decode(b []byte) {
	_ = b[RETHLen-1]
	h.VA = binary.BigEndian.Uint64(b)
	h.RKey = rdma.Key(binary.BigEndian.Uint32(b[8:]))
	h.Length = binary.BigEndian.Uint32(b[12:])
}

// Append appends the RETHLen bytes of the header to b.
func (h *RETH) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, h.VA)
	b = binary.BigEndian.AppendUint32(b, uint32(h.RKey))
	return binary.BigEndian.AppendUint32(b, h.Length)
}

func (h RETH) String() string {
	return fmt.Sprintf("RETH{va=0x%x rkey=%s len=%d}", h.VA, h.RKey, h.Length)
}
