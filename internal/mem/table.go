package mem

import (
	"fmt"
	"syscall"

	"github.com/softrnic/softrnic/internal/invariant"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
)

// Table is the NIC's memory protection table: every region and window of every context, found by
// key.
type Table struct {
	slots   []slot
	free    []uint32
	keys    scramble
	rand    uint64
	count   int
	windows int
	bound   map[rdma.QPN]*Window // the first in the list of what a queue pair has bound
}

type slot struct {
	region *Region // or
	window *Window
	// variant counts registrations of the slot, so that a key of a dead region stays dead for the
	// next 255 registrations that reuse its slot.
	variant uint8
}

// NewTable makes an empty table. The secret decides the keys; the same secret and the same calls
// give the same keys.
func NewTable(secret uint64) *Table {
	return &Table{
		keys: newScramble(secret), rand: splitmix(secret ^ 0x6b6579),
		bound: make(map[rdma.QPN]*Window),
	}
}

// Len returns the number of regions.
func (t *Table) Len() int { return t.count }

// Slots returns how many regions and windows there have been at one time, at most.
func (t *Table) Slots() int { return len(t.slots) }

// Register adds a region and gives it a key.
func (t *Table) Register(c Config) (*Region, *rdma.Refusal) {
	if r := checkConfig(&c); r != nil {
		return nil, r
	}
	if t.count >= limits.MaxMR {
		return nil, rdma.Refuse(syscall.ENOMEM, fmt.Sprintf("limit of %d memory regions", limits.MaxMR))
	}
	i, key := t.take()
	r := &Region{Key: key, slot: i}
	r.set(&c)
	t.slots[i].region = r
	t.count++
	return r, nil
}

// Reregister changes everything about a region but its key (IBTA 11.2.8.7). Its segments are new
// ones; those before are returned for the shell to release. After a refusal nothing has changed.
func (t *Table) Reregister(r *Region, c Config) ([]Segment, *rdma.Refusal) {
	if r.windows > 0 {
		return nil, rdma.Refuse(syscall.EBUSY,
			fmt.Sprintf("%d memory windows are bound to the region", r.windows))
	}
	if refusal := checkConfig(&c); refusal != nil {
		return nil, refusal
	}
	old := r.segs
	r.set(&c)
	return old, nil
}

func (r *Region) set(c *Config) {
	r.PD, r.Access, r.Base, r.Length = c.PD, c.Access, c.IOVA, c.Length
	r.kind, r.space, r.segs, r.first = c.Kind, c.Space, c.Segments, c.Addr
}

func checkConfig(c *Config) *rdma.Refusal {
	if c.Kind == KindNull {
		return nil
	}
	switch {
	case c.Length > limits.MaxMRSize && c.Kind != KindImplicit:
		return rdma.Refuse(syscall.EINVAL, "region longer than max_mr_size")
	case c.Addr+c.Length < c.Addr || c.IOVA+c.Length < c.IOVA:
		return rdma.Refuse(syscall.EINVAL, "region wraps around the address space")
	case c.Access&(rdma.AccessRemoteWrite|rdma.AccessRemoteAtomic) != 0 &&
		!c.Access.Has(rdma.AccessLocalWrite):
		return rdma.Refuse(syscall.EINVAL, "remote write or atomic access needs local write access")
	case len(c.Segments) > limits.MaxMRSegments:
		return rdma.Refuse(syscall.EINVAL, "too many segments")
	}
	next := c.Addr
	for i := range c.Segments {
		s := &c.Segments[i]
		if s.Addr != next || s.Length == 0 || s.Length > c.Addr+c.Length-next ||
			(s.Mapped != nil && uint64(len(s.Mapped)) != s.Length) {
			return rdma.Refuse(syscall.EINVAL, "segments do not cover the region in order")
		}
		if s.Mapped == nil && c.Space == nil {
			return rdma.Refuse(syscall.EINVAL, "unmapped segment without access to the process")
		}
		next += s.Length
	}
	if next != c.Addr+c.Length {
		return rdma.Refuse(syscall.EINVAL, "segments do not cover the region in order")
	}
	return nil
}

// take returns a free slot with a new key for it.
func (t *Table) take() (uint32, rdma.Key) {
	i := t.takeSlot()
	s := &t.slots[i]
	s.variant++
	return i, rdma.Key(t.keys.seal(i)<<8 | uint32(s.variant))
}

// takeSlot returns a free slot. The free list is used from a pseudo-random place, so that keys do
// not repeat in a pattern.
func (t *Table) takeSlot() uint32 {
	if n := len(t.free); n > 0 {
		t.rand = splitmix(t.rand)
		j := t.rand % uint64(n)
		i := t.free[j]
		t.free[j] = t.free[n-1]
		t.free = t.free[:n-1]
		return i
	}
	t.rand = splitmix(t.rand)
	t.slots = append(t.slots, slot{variant: uint8(t.rand)})
	return uint32(len(t.slots) - 1)
}

// Deregister removes a region; its key is refused from now on.
//
// Preconditions: no window is bound to it.
func (t *Table) Deregister(r *Region) {
	if t.slots[r.slot].region != r {
		return
	}
	invariant.Assert(r.windows == 0, "mem: a region with windows is deregistered")
	t.slots[r.slot].region = nil
	t.free = append(t.free, r.slot)
	t.count--
}

// slotOf returns the slot that a key names, whatever its variant, or nil.
func (t *Table) slotOf(key rdma.Key) *slot {
	i := t.keys.open(key.Index())
	if int(i) >= len(t.slots) {
		return nil
	}
	return &t.slots[i]
}

// Find returns the region of a key, or nil.
func (t *Table) Find(key rdma.Key) *Region {
	s := t.slotOf(key)
	if s == nil || s.region == nil || s.region.Key != key {
		return nil
	}
	return s.region
}

// FindWindow returns the window of a key, or nil.
func (t *Table) FindWindow(key rdma.Key) *Window {
	s := t.slotOf(key)
	if s == nil || s.window == nil || s.window.Key != key {
		return nil
	}
	return s.window
}

// Check finds the region of a local key and checks protection domain, rights and bounds, in this
// order. want tells which rights are needed (0 = local read).
func (t *Table) Check(key rdma.Key, pd PD, addr, n uint64, want rdma.Access) (*Region, Fault) {
	r := t.Find(key)
	switch {
	case r == nil:
		return nil, FaultKey
	case r.PD != pd:
		return nil, FaultPD
	case !r.Access.Has(want):
		return nil, FaultRights
	case !r.contains(addr, n):
		return nil, FaultBounds
	}
	return r, FaultNone
}

// Read copies from a region into dst after all checks.
func (t *Table) Read(key rdma.Key, pd PD, addr uint64, dst []byte, want rdma.Access) Fault {
	r, f := t.Check(key, pd, addr, uint64(len(dst)), want)
	if f != FaultNone {
		return f
	}
	if !r.read(addr, dst) {
		return r.unreachable()
	}
	return FaultNone
}

// Write copies src into a region after all checks. want must include a write right.
func (t *Table) Write(key rdma.Key, pd PD, addr uint64, src []byte, want rdma.Access) Fault {
	r, f := t.Check(key, pd, addr, uint64(len(src)), want)
	if f != FaultNone {
		return f
	}
	if !r.write(addr, src) {
		return r.unreachable()
	}
	return FaultNone
}

// View returns n bytes of a region without copying, after all checks, where they are mapped and
// contiguous; else nil with FaultNone, and the caller copies with Read. The bytes may change under
// the reader and are valid until the next control command.
func (t *Table) View(key rdma.Key, pd PD, addr, n uint64, want rdma.Access) ([]byte, Fault) {
	r, f := t.Check(key, pd, addr, n, want)
	if f != FaultNone || n == 0 {
		return nil, f
	}
	v := r.view(addr, n)
	if uint64(len(v)) < n {
		return nil, FaultNone
	}
	return v, FaultNone
}
