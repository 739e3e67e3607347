package mem

import (
	"github.com/softrnic/softrnic/internal/invariant"
	"github.com/softrnic/softrnic/internal/rdma"
)

// PD identifies a protection domain; 0 is none.
type PD uint32

// Region is a registered memory region. Its lkey and rkey are one number.
type Region struct {
	Key    rdma.Key
	PD     PD
	Access rdma.Access
	// Base and Length bound the addresses that work requests use: Base is the IOVA, which may
	// differ from the virtual address.
	Base   uint64
	Length uint64

	kind    Kind
	space   Space
	segs    []Segment
	first   uint64 // user virtual address of Base
	slot    uint32
	windows int               // bound to it
	word    [atomicBytes]byte // the operand of an atomic on process memory, while it is executed
}

// Kind is what lies behind a region.
type Kind uint8

// Kinds of regions.
const (
	// KindMemory is an application's memory, or the device's.
	KindMemory Kind = iota
	// KindImplicit is everything that the application has or will have mapped (implicit on-demand
	// paging). Its length is not limited.
	KindImplicit
	// KindNull reads as zeros and swallows what is written. It is for this side only: its key is
	// no remote key (ibv_alloc_null_mr(3)).
	KindNull
)

func (k Kind) String() string {
	names := [...]string{"memory", "implicit", "null"}
	if int(k) < len(names) {
		return names[k]
	}
	return "unknown"
}

// Config describes a region to register. Segments cover Addr…Addr+Length in order without gaps;
// a null region has none.
type Config struct {
	Kind     Kind
	PD       PD
	Access   rdma.Access
	Addr     uint64
	Length   uint64
	IOVA     uint64
	Space    Space
	Segments []Segment
}

// Segments returns the pieces, for the shell to release mappings after Deregister.
func (r *Region) Segments() []Segment { return r.segs }

// Kind returns what lies behind the region.
func (r *Region) Kind() Kind { return r.kind }

// First returns the user virtual address of the first byte.
func (r *Region) First() uint64 { return r.first }

// Windows returns how many memory windows are bound to the region.
func (r *Region) Windows() int { return r.windows }

// Piece returns the mapped piece of the region that n bytes at addr lie in, or the longest there
// is, and the address of its beginning; nil where nothing is mapped. It is valid until the region
// changes.
func (r *Region) Piece(addr, n uint64) (start uint64, bytes []byte) {
	if r.kind != KindMemory || n == 0 || !r.contains(addr, n) {
		return 0, nil
	}
	found, off := r.at(addr)
	if found.Mapped == nil || n > found.Length-off {
		for i := range r.segs {
			if s := &r.segs[i]; len(s.Mapped) > len(found.Mapped) {
				found = s
			}
		}
	}
	return found.Addr - r.first + r.Base, found.Mapped
}

// contains reports whether n bytes at addr lie inside; it is safe for every addr and n.
func (r *Region) contains(addr, n uint64) bool {
	off := addr - r.Base
	return off <= r.Length && n <= r.Length-off
}

// at finds the segment that holds addr and the offset in it.
//
// Preconditions: contains(addr, 1).
func (r *Region) at(addr uint64) (seg *Segment, off uint64) {
	va := addr - r.Base + r.first
	for i := range r.segs {
		s := &r.segs[i]
		if va-s.Addr < s.Length {
			return s, va - s.Addr
		}
	}
	invariant.Assert(false, "region segments do not cover the region")
	return nil, 0
}

// view returns the mapped bytes from addr on, at most n and as far as they are contiguous; nil
// where addr is not mapped.
//
// Preconditions: contains(addr, n), n > 0.
func (r *Region) view(addr, n uint64) []byte {
	if r.kind == KindNull {
		return nil
	}
	s, off := r.at(addr)
	if s.Mapped == nil {
		return nil
	}
	n = min(n, s.Length-off)
	return s.Mapped[off : off+n : off+n]
}

// unreachable says why a read or write of the region has failed.
func (r *Region) unreachable() Fault {
	if r.space.IsGone() {
		return FaultGone
	}
	return FaultMemory
}

// read copies from the region.
//
// Preconditions: contains(addr, len(dst)).
func (r *Region) read(addr uint64, dst []byte) bool {
	if r.kind == KindNull {
		clear(dst)
		return true
	}
	for len(dst) > 0 {
		s, off := r.at(addr)
		n := min(uint64(len(dst)), s.Length-off)
		if s.Mapped != nil {
			move(dst[:n], s.Mapped[off:off+n])
		} else if !r.space.Read(s.Addr+off, dst[:n]) {
			return false
		}
		dst, addr = dst[n:], addr+n
	}
	return true
}

// write copies into the region.
//
// Preconditions: contains(addr, len(src)).
func (r *Region) write(addr uint64, src []byte) bool {
	if r.kind == KindNull {
		return true
	}
	for len(src) > 0 {
		s, off := r.at(addr)
		n := min(uint64(len(src)), s.Length-off)
		if s.Mapped != nil {
			move(s.Mapped[off:off+n], src[:n])
		} else if !r.space.Write(s.Addr+off, src[:n]) {
			return false
		}
		src, addr = src[n:], addr+n
	}
	return true
}
