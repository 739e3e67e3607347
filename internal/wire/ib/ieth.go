package ib

import (
	"encoding/binary"

	"github.com/softrnic/softrnic/internal/rdma"
)

// IETHLen is the length of an invalidate extended transport header in bytes (IBTA 9.3.7).
const IETHLen = 4

// IETH is the remote key that a SEND with invalidate revokes (IBTA 9.3.7).
type IETH rdma.Key

// ParseIETH reads an IETH at the start of b.
func ParseIETH(b []byte) (IETH, error) {
	if len(b) < IETHLen {
		return 0, ErrTruncated
	}
	return IETH(binary.BigEndian.Uint32(b)), nil
}

// Append appends the IETHLen bytes of the header to b.
func (h IETH) Append(b []byte) []byte { return binary.BigEndian.AppendUint32(b, uint32(h)) }

func (h IETH) String() string { return "IETH{rkey=" + rdma.Key(h).String() + "}" }
