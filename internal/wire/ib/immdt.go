package ib

import (
	"encoding/binary"
	"fmt"
)

// ImmDtLen is the length of immediate data in bytes (IBTA 9.3.6).
const ImmDtLen = 4

// ImmDt is immediate data (IBTA 9.3.6). In memory it is the four bytes of the wire in their order,
// whatever the host's endianness, because verbs hand imm_data to the application as a __be32:
// copying it between work request, packet and completion needs no swap.
type ImmDt uint32

// ParseImmDt reads an ImmDt at the start of b.
func ParseImmDt(b []byte) (ImmDt, error) {
	if len(b) < ImmDtLen {
		return 0, ErrTruncated
	}
	return ImmDt(binary.NativeEndian.Uint32(b)), nil
}

// Append appends the ImmDtLen bytes of the header to b.
func (h ImmDt) Append(b []byte) []byte { return binary.NativeEndian.AppendUint32(b, uint32(h)) }

// Number returns the immediate as the number that ntohl makes of it.
func (h ImmDt) Number() uint32 {
	var b [ImmDtLen]byte
	return binary.BigEndian.Uint32(h.Append(b[:0]))
}

// ImmDtFromNumber is the inverse of Number.
func ImmDtFromNumber(n uint32) ImmDt {
	var b [ImmDtLen]byte
	binary.BigEndian.PutUint32(b[:], n)
	return ImmDt(binary.NativeEndian.Uint32(b[:]))
}

func (h ImmDt) String() string { return fmt.Sprintf("ImmDt{0x%08x}", h.Number()) }
