package mem

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
)

// Copy copies min(len(dst), len(src)) bytes, of which src may be a View: the application may write
// there at the same instant, as it may with hardware.
func Copy(dst, src []byte) {
	n := min(len(dst), len(src))
	move(dst[:n], src[:n])
}

// ViewScatter is ViewList for a writer: the bytes of a list from offset off on, at most n and as
// far as one entry holds them mapped and contiguous, for somebody else to fill. The regions must
// grant local write. nil with FaultNone: they have to go through Scatter.
func (t *Table) ViewScatter(pd PD, list []abi.SGE, off, n uint64) ([]byte, Fault) {
	for i := range list {
		s := &list[i]
		if off >= uint64(s.Length) {
			off -= uint64(s.Length)
			continue
		}
		n = min(n, uint64(s.Length)-off)
		r, f := t.Check(rdma.Key(s.LKey), pd, s.Addr+off, n, rdma.AccessLocalWrite)
		if f != FaultNone || n == 0 {
			return nil, f
		}
		return r.view(s.Addr+off, n), FaultNone
	}
	return nil, FaultNone
}

// ViewForRemote is ViewRemote for a writer behind a remote key: at most n bytes from addr on, as
// far as they are mapped and contiguous, after the checks of a write of n bytes.
func (t *Table) ViewForRemote(key rdma.Key, who Accessor, addr, n uint64) ([]byte, Fault) {
	r, at, f := t.CheckRemote(key, who, addr, n, rdma.AccessRemoteWrite)
	if f != FaultNone || n == 0 {
		return nil, f
	}
	return r.view(at, n), FaultNone
}

// UpdateRemote replaces the 8 bytes at addr by what f makes of them and returns the value before.
// Towards the application it is as atomic as FetchAdd.
//
// Preconditions: addr is 8-byte aligned.
func (t *Table) UpdateRemote(
	key rdma.Key, who Accessor, addr uint64, f func(old uint64) uint64,
) (old uint64, fault Fault) {
	r, at, fault := t.CheckRemote(key, who, addr, atomicBytes, rdma.AccessRemoteAtomic)
	if fault != FaultNone {
		return 0, fault
	}
	old, ok := r.update(at, f)
	if !ok {
		return 0, r.unreachable()
	}
	return old, FaultNone
}
