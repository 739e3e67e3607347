package iwarp

import (
	"encoding/binary"
	"fmt"

	"github.com/softrnic/softrnic/internal/rdma"
)

// AtomicRequestLen is the length of an atomic request's content in bytes (RFC 7306 5.2).
const AtomicRequestLen = 52

// AtomicOp is what an atomic request does, 4 bits (RFC 7306 5.2).
type AtomicOp uint8

// Atomic operations.
const (
	AtomicFetchAdd    AtomicOp = 0
	AtomicCompareSwap AtomicOp = 2

	atomicOpMask = 0xf
)

func (o AtomicOp) String() string {
	switch o {
	case AtomicFetchAdd:
		return "FETCH_ADD"
	case AtomicCompareSwap:
		return "CMP_SWAP"
	}
	return fmt.Sprintf("ATOMIC_%d", uint8(o))
}

// AtomicRequest changes eight bytes of the peer's memory and asks for what they were (RFC 7306
// 5.2). Values and masks are numbers in network order.
type AtomicRequest struct {
	TO   uint64
	STag rdma.Key
	// ID comes back in the response.
	ID uint32
	Op AtomicOp
	// Data is what is added or stored. A bit in DataMask ends a field of the addition, or lets
	// the bit of Data be stored.
	Data, DataMask uint64
	// Compare is what the swap expects to find in the bits of CompareMask; an addition ignores
	// both.
	Compare, CompareMask uint64
}

// ParseAtomicRequest reads an atomic request at the start of b. It accepts any operation.
func ParseAtomicRequest(b []byte) (AtomicRequest, error) {
	var r AtomicRequest
	if len(b) < AtomicRequestLen {
		return r, ErrTruncated
	}
	r.Op = AtomicOp(b[3] & atomicOpMask)
	r.ID = binary.BigEndian.Uint32(b[4:])
	r.STag = rdma.Key(binary.BigEndian.Uint32(b[8:]))
	r.TO = binary.BigEndian.Uint64(b[12:])
	r.Data = binary.BigEndian.Uint64(b[20:])
	r.DataMask = binary.BigEndian.Uint64(b[28:])
	r.Compare = binary.BigEndian.Uint64(b[36:])
	r.CompareMask = binary.BigEndian.Uint64(b[44:])
	return r, nil
}

// Append appends the AtomicRequestLen bytes to b. Bits beyond a field's width are dropped.
func (r *AtomicRequest) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(r.Op)&atomicOpMask)
	b = binary.BigEndian.AppendUint32(b, r.ID)
	b = binary.BigEndian.AppendUint32(b, uint32(r.STag))
	b = binary.BigEndian.AppendUint64(b, r.TO)
	b = binary.BigEndian.AppendUint64(b, r.Data)
	b = binary.BigEndian.AppendUint64(b, r.DataMask)
	b = binary.BigEndian.AppendUint64(b, r.Compare)
	return binary.BigEndian.AppendUint64(b, r.CompareMask)
}

func (r AtomicRequest) String() string {
	return fmt.Sprintf("AtomicRequest{%s id=%d stag=%s to=0x%x data=0x%x/0x%x compare=0x%x/0x%x}",
		r.Op, r.ID, r.STag, r.TO, r.Data, r.DataMask, r.Compare, r.CompareMask)
}
