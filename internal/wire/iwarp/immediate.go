package iwarp

import "fmt"

// ImmediateLen is the length of an Immediate Data message's content in bytes (RFC 7306 6).
const ImmediateLen = 8

// Immediate is the content of an Immediate Data message: eight bytes that the receiver gets with
// the completion of a receive (RFC 7306 6).
type Immediate [ImmediateLen]byte

// ParseImmediate reads immediate data at the start of b.
func ParseImmediate(b []byte) (Immediate, error) {
	if len(b) < ImmediateLen {
		return Immediate{}, ErrTruncated
	}
	return Immediate(b[:ImmediateLen]), nil
}

// Append appends the ImmediateLen bytes to b.
func (i Immediate) Append(b []byte) []byte { return append(b, i[:]...) }

func (i Immediate) String() string { return fmt.Sprintf("Immediate{0x%x}", i[:]) }
