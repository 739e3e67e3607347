package ring

import (
	"math/bits"
	"sync/atomic"
)

// Geometry is the shape of a ring: Entries is a power of two, Stride the bytes of a slot.
type Geometry struct {
	Entries uint32
	Stride  uint32
}

// Bytes is the memory that the slots take.
func (g Geometry) Bytes() int { return int(g.Entries) * int(g.Stride) }

// RoundEntries returns the power of two that is at least n and at least 1.
func RoundEntries(n uint32) uint32 {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len32(n-1)
}

// Producer is the writing end.
type Producer struct {
	slots  []byte
	geo    Geometry
	next   uint32 // published and unpublished entries
	prod   *atomic.Uint32
	cons   *atomic.Uint32
	unread uint32 // last known free space is geo.Entries − (next − unread)
}

// NewProducer makes the writing end over shared slots and index words. It continues at the index
// that the producer word holds.
func NewProducer(slots []byte, geo Geometry, prod, cons *atomic.Uint32) *Producer {
	return &Producer{
		slots: slots[:geo.Bytes()], geo: geo, prod: prod, cons: cons,
		next: prod.Load(), unread: cons.Load(),
	}
}

// Free returns how many slots can be filled. A consumer index out of range counts as full.
func (p *Producer) Free() uint32 {
	used := p.next - p.unread
	if used < p.geo.Entries {
		return p.geo.Entries - used
	}
	p.unread = p.cons.Load()
	used = p.next - p.unread
	if used > p.geo.Entries {
		return 0
	}
	return p.geo.Entries - used
}

// IsCorrupt reports a consumer index that no correct consumer writes.
func (p *Producer) IsCorrupt() bool { return p.next-p.cons.Load() > p.geo.Entries }

// Slot returns the next slot to fill.
//
// Preconditions: Free() > 0.
func (p *Producer) Slot() []byte {
	off := int(p.next&(p.geo.Entries-1)) * int(p.geo.Stride)
	return p.slots[off : off+int(p.geo.Stride) : off+int(p.geo.Stride)]
}

// Push counts the filled slot; Publish shows it.
func (p *Producer) Push() { p.next++ }

// Publish makes all pushed slots visible. The store orders the slots' bytes before the index.
func (p *Producer) Publish() { p.prod.Store(p.next) }

// Pushed returns the index of the next slot to fill; it runs freely modulo 2^32.
func (p *Producer) Pushed() uint32 { return p.next }

// Entries returns the ring's capacity.
func (p *Producer) Entries() uint32 { return p.geo.Entries }

// Unreleased returns how many published slots the consumer has not given back; all where its
// index is one that no correct consumer writes.
func (p *Producer) Unreleased() uint32 {
	p.unread = p.cons.Load()
	return min(p.next-p.unread, p.geo.Entries)
}

// MoveTo returns the writing end over other slots, into which it copies what the consumer has not
// released. Indices stay what they are.
//
// Preconditions: Unreleased() ≤ geo.Entries; the consumer does not read meanwhile.
func (p *Producer) MoveTo(slots []byte, geo Geometry) *Producer {
	to := &Producer{slots: slots[:geo.Bytes()], geo: geo, prod: p.prod, cons: p.cons, next: p.next}
	for i := p.next - min(p.Unreleased(), geo.Entries); i != p.next; i++ {
		from := p.slots[int(i&(p.geo.Entries-1))*int(p.geo.Stride):]
		copy(to.slots[int(i&(geo.Entries-1))*int(geo.Stride):], from[:p.geo.Stride])
	}
	to.unread = p.unread
	return to
}

// Consumer is the reading end.
type Consumer struct {
	slots    []byte
	geo      Geometry
	released uint32
	prod     *atomic.Uint32
	cons     *atomic.Uint32
}

// NewConsumer makes the reading end over shared slots and index words. It continues at the index
// that the consumer word holds.
func NewConsumer(slots []byte, geo Geometry, prod, cons *atomic.Uint32) *Consumer {
	return &Consumer{
		slots: slots[:geo.Bytes()], geo: geo, prod: prod, cons: cons, released: cons.Load(),
	}
}

// Pending returns how many unreleased slots the producer has published. ok is false where the
// producer index is one that no correct producer writes; then pending is 0.
func (c *Consumer) Pending() (pending uint32, ok bool) {
	n := c.prod.Load() - c.released
	if n > c.geo.Entries {
		return 0, false
	}
	return n, true
}

// Slot returns the i-th unreleased slot; it is shared memory, so copy it once.
//
// Preconditions: i < Pending().
func (c *Consumer) Slot(i uint32) []byte {
	off := int((c.released+i)&(c.geo.Entries-1)) * int(c.geo.Stride)
	return c.slots[off : off+int(c.geo.Stride) : off+int(c.geo.Stride)]
}

// MoveTo returns the reading end over other slots, into which it copies what is published and not
// released. Indices stay what they are.
//
// Preconditions: Pending() ≤ geo.Entries; the producer does not write meanwhile.
func (c *Consumer) MoveTo(slots []byte, geo Geometry) *Consumer {
	to := &Consumer{
		slots: slots[:geo.Bytes()], geo: geo, released: c.released, prod: c.prod, cons: c.cons,
	}
	n, _ := c.Pending()
	for i := range min(n, geo.Entries) {
		copy(to.Slot(i), c.Slot(i))
	}
	return to
}

// Release gives the first n slots back to the producer.
//
// Preconditions: n ≤ Pending().
func (c *Consumer) Release(n uint32) {
	c.released += n
	c.cons.Store(c.released)
}

// Released returns the index below which all slots are given back; it runs freely modulo 2^32.
func (c *Consumer) Released() uint32 { return c.released }

// Skip releases everything that is published now, as a reset does. It also mends an index that
// was corrupt.
func (c *Consumer) Skip() {
	c.released = c.prod.Load()
	c.cons.Store(c.released)
}

// Entries returns the ring's capacity.
func (c *Consumer) Entries() uint32 { return c.geo.Entries }

// Stride returns the bytes of a slot.
func (c *Consumer) Stride() uint32 { return c.geo.Stride }
