package mem

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
)

// ListBytes returns the bytes that a scatter/gather list describes.
func ListBytes(list []abi.SGE) uint64 {
	var n uint64
	for i := range list {
		n += uint64(list[i].Length)
	}
	return n
}

// CheckList checks every entry of a list before any of it is used. Entries of length 0 are not
// checked (IBTA 10.6.3.3 asks for no valid key there).
func (t *Table) CheckList(pd PD, list []abi.SGE, want rdma.Access) Fault {
	for i := range list {
		s := &list[i]
		if s.Length == 0 {
			continue
		}
		if _, f := t.Check(rdma.Key(s.LKey), pd, s.Addr, uint64(s.Length), want); f != FaultNone {
			return f
		}
	}
	return FaultNone
}

// Gather fills dst with the bytes of a list from offset off on. A list that is too short leaves
// FaultBounds.
func (t *Table) Gather(pd PD, list []abi.SGE, off uint64, dst []byte) Fault {
	for i := range list {
		s := &list[i]
		if len(dst) == 0 {
			return FaultNone
		}
		if off >= uint64(s.Length) {
			off -= uint64(s.Length)
			continue
		}
		n := min(uint64(len(dst)), uint64(s.Length)-off)
		if f := t.Read(rdma.Key(s.LKey), pd, s.Addr+off, dst[:n], 0); f != FaultNone {
			return f
		}
		dst, off = dst[n:], 0
	}
	if len(dst) > 0 {
		return FaultBounds
	}
	return FaultNone
}

// Scatter writes src over a list from offset off on; the regions must grant local write.
func (t *Table) Scatter(pd PD, list []abi.SGE, off uint64, src []byte) Fault {
	for i := range list {
		s := &list[i]
		if len(src) == 0 {
			return FaultNone
		}
		if off >= uint64(s.Length) {
			off -= uint64(s.Length)
			continue
		}
		n := min(uint64(len(src)), uint64(s.Length)-off)
		f := t.Write(rdma.Key(s.LKey), pd, s.Addr+off, src[:n], rdma.AccessLocalWrite)
		if f != FaultNone {
			return f
		}
		src, off = src[n:], 0
	}
	if len(src) > 0 {
		return FaultBounds
	}
	return FaultNone
}

// ViewList returns n bytes of a list from offset off on without copying, where one entry holds
// them all mapped and contiguous; else nil with FaultNone, and the caller copies with Gather.
func (t *Table) ViewList(pd PD, list []abi.SGE, off, n uint64) ([]byte, Fault) {
	for i := range list {
		s := &list[i]
		if off >= uint64(s.Length) {
			off -= uint64(s.Length)
			continue
		}
		if n > uint64(s.Length)-off {
			return nil, FaultNone
		}
		return t.View(rdma.Key(s.LKey), pd, s.Addr+off, n, 0)
	}
	return nil, FaultNone
}
