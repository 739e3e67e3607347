package mem

import (
	"fmt"
	"syscall"

	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
)

// Table is the NIC's memory protection table: every region of every context, found by key.
type Table struct {
	slots []slot
	free  []uint32
	keys  scramble
	rand  uint64
	count int
}

type slot struct {
	region *Region
	// variant counts registrations of the slot, so that a key of a dead region stays dead for the
	// next 255 registrations that reuse its slot.
	variant uint8
}

// NewTable makes an empty table. The secret decides the keys; the same secret and the same calls
// give the same keys.
func NewTable(secret uint64) *Table {
	return &Table{keys: newScramble(secret), rand: splitmix(secret ^ 0x6b6579)}
}

// Len returns the number of regions.
func (t *Table) Len() int { return t.count }

// Register adds a region and gives it a key.
func (t *Table) Register(c Config) (*Region, *rdma.Refusal) {
	if r := checkConfig(&c); r != nil {
		return nil, r
	}
	if t.count >= limits.MaxMR {
		return nil, rdma.Refuse(syscall.ENOMEM, fmt.Sprintf("limit of %d memory regions", limits.MaxMR))
	}
	i := t.take()
	s := &t.slots[i]
	s.variant++
	r := &Region{
		Key: rdma.Key(t.keys.seal(i)<<8 | uint32(s.variant)), PD: c.PD, Access: c.Access,
		Base: c.IOVA, Length: c.Length,
		space: c.Space, segs: c.Segments, first: c.Addr, slot: i,
	}
	s.region = r
	t.count++
	return r, nil
}

func checkConfig(c *Config) *rdma.Refusal {
	switch {
	case c.Length > limits.MaxMRSize:
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

// take returns a free slot. The free list is used from a pseudo-random place, so that keys do not
// repeat in a pattern.
func (t *Table) take() uint32 {
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
func (t *Table) Deregister(r *Region) {
	if t.slots[r.slot].region != r {
		return
	}
	t.slots[r.slot].region = nil
	t.free = append(t.free, r.slot)
	t.count--
}

// Find returns the region of a key, or nil.
func (t *Table) Find(key rdma.Key) *Region {
	i := t.keys.open(key.Index())
	if int(i) >= len(t.slots) {
		return nil
	}
	r := t.slots[i].region
	if r == nil || r.Key != key {
		return nil
	}
	return r
}

// Check finds the region of a key and checks protection domain, rights and bounds, in this order.
// It serves local and remote keys alike; want tells which rights are needed (0 = local read).
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
		return FaultMemory
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
		return FaultMemory
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

// Alignment of atomic operands is the caller's to check: it has an answer of its own (an invalid
// request NAK, IBTA 9.4.5).

// FetchAdd adds to the 8 bytes at addr and returns the value before (IBTA 9.4.5.2).
func (t *Table) FetchAdd(key rdma.Key, pd PD, addr, add uint64) (old uint64, f Fault) {
	r, f := t.Check(key, pd, addr, atomicBytes, rdma.AccessRemoteAtomic)
	if f != FaultNone {
		return 0, f
	}
	old, ok := r.update(addr, func(v uint64) uint64 { return v + add })
	if !ok {
		return 0, FaultMemory
	}
	return old, FaultNone
}

// CompareSwap stores swap where the 8 bytes at addr equal compare, and returns the value before
// (IBTA 9.4.5.1).
func (t *Table) CompareSwap(key rdma.Key, pd PD, addr, compare, swap uint64) (old uint64, f Fault) {
	r, f := t.Check(key, pd, addr, atomicBytes, rdma.AccessRemoteAtomic)
	if f != FaultNone {
		return 0, f
	}
	old, ok := r.update(addr, func(v uint64) uint64 {
		if v == compare {
			return swap
		}
		return v
	})
	if !ok {
		return 0, FaultMemory
	}
	return old, FaultNone
}
