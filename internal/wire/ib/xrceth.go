package ib

import (
	"encoding/binary"
	"fmt"
)

// XRCETHLen is the length of an XRC extended transport header in bytes (IBTA A14.4.2).
const XRCETHLen = 4

// XRCETH is the 24-bit number of the shared receive queue that an XRC request goes to
// (IBTA A14.4.2).
type XRCETH uint32

// ParseXRCETH reads an XRCETH at the start of b.
func ParseXRCETH(b []byte) (XRCETH, error) {
	if len(b) < XRCETHLen {
		return 0, ErrTruncated
	}
	return XRCETH(binary.BigEndian.Uint32(b) & mask24), nil
}

// Append appends the XRCETHLen bytes of the header to b.
func (h XRCETH) Append(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, uint32(h)&mask24)
}

func (h XRCETH) String() string { return fmt.Sprintf("XRCETH{srqn=0x%06x}", uint32(h)) }
