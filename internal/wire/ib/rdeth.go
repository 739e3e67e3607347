package ib

import (
	"encoding/binary"
	"fmt"
)

// RDETHLen is the length of a reliable datagram header in bytes (IBTA 9.3.2).
const RDETHLen = 4

// RDETH is the 24-bit end-to-end context number of a reliable datagram (IBTA 9.3.2). No QP of
// SoftRNIC receives one; the header is here so that tools can show any packet.
type RDETH uint32

const mask24 = 0xffffff

// ParseRDETH reads an RDETH at the start of b.
func ParseRDETH(b []byte) (RDETH, error) {
	if len(b) < RDETHLen {
		return 0, ErrTruncated
	}
	return RDETH(binary.BigEndian.Uint32(b) & mask24), nil
}

// Append appends the RDETHLen bytes of the header to b.
func (h RDETH) Append(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, uint32(h)&mask24)
}

func (h RDETH) String() string { return fmt.Sprintf("RDETH{eec=0x%06x}", uint32(h)) }
