package ib

import (
	"encoding/binary"
	"fmt"

	"github.com/softrnic/softrnic/internal/rdma"
)

// AETHLen is the length of an acknowledge extended transport header in bytes (IBTA 9.5.2).
const AETHLen = 4

// AETH is the responder's answer: a syndrome, and the number of messages it has completed, modulo
// 2^24 (IBTA 9.5.2).
type AETH struct {
	MSN      rdma.MSN
	Syndrome Syndrome
}

// ParseAETH reads an AETH at the start of b. A reserved syndrome is no error: ask Syndrome.Kind.
func ParseAETH(b []byte) (AETH, error) {
	var h AETH
	if len(b) < AETHLen {
		return h, ErrTruncated
	}
	h.decode(b)
	return h, nil
}

// decode reads the fields. Preconditions: len(b) >= AETHLen.
func (h *AETH) decode(b []byte) {
	_ = b[AETHLen-1]
	h.Syndrome = Syndrome(b[0])
	h.MSN = rdma.MSN(binary.BigEndian.Uint32(b) & mask24)
}

// Append appends the AETHLen bytes of the header to b.
func (h *AETH) Append(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, uint32(h.Syndrome)<<24|uint32(h.MSN)&mask24)
}

func (h AETH) String() string { return fmt.Sprintf("AETH{%s msn=%d}", h.Syndrome, uint32(h.MSN)) }
