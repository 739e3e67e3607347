package abi

// The operations on the matching list of a shared receive queue have a ring of their own in its
// memfd. It uses the SQ fields of the header and rings the doorbell that the reply names. An
// operation's place in the ring, the index that runs freely, is the handle of what it adds.
const (
	// OffTagsReleased counts, modulo 2^32, the tagged buffers that the list has room for again:
	// each that was added comes back once, before the completion that says so. Written by the NIC.
	OffTagsReleased = 0x280
)

// TagWQE is the fixed part of an operation on a matching list; scatter/gather entries follow.
type TagWQE struct {
	WRID       uint64
	RecvWRID   uint64 // add: comes with the message's completions
	Tag        uint64
	Mask       uint64 // add: a message fits whose tag & Mask is Tag
	Opcode     uint8  // rdma.TagOpcode
	Flags      uint8  // rdma.TagFlags
	NumSGE     uint16
	Unexpected uint32 // messages handled so far, with rdma.TagCounted
	Handle     uint32 // del
	Reserved   uint32
}

// TagWQEBytes is the size of TagWQE.
const TagWQEBytes = 48

// TagStride returns the slot size of a ring of operations on a matching list.
func TagStride(maxSGE uint32) uint32 { return TagWQEBytes + maxSGE*SGEBytes }

// DecodeTagWQE reads the fixed part of an operation on a matching list.
func DecodeTagWQE(b []byte, w *TagWQE) {
	_ = b[TagWQEBytes-1]
	w.WRID = ne.Uint64(b[0:])
	w.RecvWRID = ne.Uint64(b[8:])
	w.Tag = ne.Uint64(b[16:])
	w.Mask = ne.Uint64(b[24:])
	w.Opcode = b[32]
	w.Flags = b[33]
	w.NumSGE = ne.Uint16(b[34:])
	w.Unexpected = ne.Uint32(b[36:])
	w.Handle = ne.Uint32(b[40:])
	w.Reserved = ne.Uint32(b[44:])
}

// EncodeTagWQE writes the fixed part of an operation on a matching list into b.
func EncodeTagWQE(b []byte, w *TagWQE) {
	_ = b[TagWQEBytes-1]
	ne.PutUint64(b[0:], w.WRID)
	ne.PutUint64(b[8:], w.RecvWRID)
	ne.PutUint64(b[16:], w.Tag)
	ne.PutUint64(b[24:], w.Mask)
	b[32] = w.Opcode
	b[33] = w.Flags
	ne.PutUint16(b[34:], w.NumSGE)
	ne.PutUint32(b[36:], w.Unexpected)
	ne.PutUint32(b[40:], w.Handle)
	ne.PutUint32(b[44:], w.Reserved)
}

// SetTag puts a message's tag and the context of its TMH into the completion that says that it was
// matched (rdma.WCTagMatch). They lie where other completions have what this one does not.
func (c *CQE) SetTag(tag uint64, context uint32) {
	c.SQIndex, c.Reserved2, c.SrcQP = uint32(tag), uint32(tag>>32), context
}

// Tag returns what SetTag has put there.
func (c *CQE) Tag() (tag uint64, context uint32) {
	return uint64(c.SQIndex) | uint64(c.Reserved2)<<32, c.SrcQP
}
