package iwarp

import (
	"encoding/binary"
	"fmt"
)

// AtomicResponseLen is the length of an atomic response's content in bytes (RFC 7306 5.2).
const AtomicResponseLen = 12

// AtomicResponse is what memory held before an atomic operation (RFC 7306 5.2).
type AtomicResponse struct {
	Original uint64
	// ID is the request's.
	ID uint32
}

// ParseAtomicResponse reads an atomic response at the start of b.
func ParseAtomicResponse(b []byte) (AtomicResponse, error) {
	if len(b) < AtomicResponseLen {
		return AtomicResponse{}, ErrTruncated
	}
	return AtomicResponse{
		ID:       binary.BigEndian.Uint32(b),
		Original: binary.BigEndian.Uint64(b[4:]),
	}, nil
}

// Append appends the AtomicResponseLen bytes to b.
func (r *AtomicResponse) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, r.ID)
	return binary.BigEndian.AppendUint64(b, r.Original)
}

func (r AtomicResponse) String() string {
	return fmt.Sprintf("AtomicResponse{id=%d orig=0x%x}", r.ID, r.Original)
}
