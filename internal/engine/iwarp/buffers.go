package iwarp

import "github.com/softrnic/softrnic/internal/wire/iwarp"

// chunkBytes holds the longest FPDU with its markers.
const chunkBytes = 66 << 10

// chunksKept bounds the chunks that wait for their next use.
const chunksKept = 64

// Buffers is the memory that the connections of a lane take headers, copied payload and split FPDUs
// from. A connection with nothing under way holds none of it.
type Buffers struct {
	free []*chunk
	// One FPDU without its markers, and a header that is split, while they are looked at.
	plain []byte
}

// NewBuffers makes an empty pool; its bytes are allocated when first needed.
func NewBuffers() *Buffers { return &Buffers{} }

// chunk is a piece of memory that is filled from the front, and free again once all that was put
// into it is sent.
type chunk struct {
	buf  []byte
	used int
	refs int // pieces that wait in it, and one of its filler
}

// take returns an empty chunk with one reference.
func (b *Buffers) take() *chunk {
	if n := len(b.free); n > 0 {
		c := b.free[n-1]
		b.free = b.free[:n-1]
		c.used, c.refs = 0, 1
		return c
	}
	return &chunk{buf: make([]byte, chunkBytes), refs: 1}
}

// drop gives a reference back.
func (b *Buffers) drop(c *chunk) {
	c.refs--
	if c.refs == 0 && len(b.free) < chunksKept {
		b.free = append(b.free, c)
	}
}

// scratch returns memory for one FPDU without markers, valid until the next call.
func (b *Buffers) scratch() []byte {
	if b.plain == nil {
		b.plain = make([]byte, iwarp.FPDULen(iwarp.ULPDUMax))
	}
	return b.plain
}
