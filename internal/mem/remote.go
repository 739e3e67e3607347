package mem

import "github.com/softrnic/softrnic/internal/rdma"

// Accessor is who uses a remote key: a queue pair in its protection domain.
type Accessor struct {
	PD PD
	QP rdma.QPN
}

// CheckRemote finds the region behind a remote key, which is its own or that of a window bound to
// it, and checks who asks, rights and bounds (IBTA 10.6.3.3, 10.6.7.2). at is the address in the
// region. want is at least one remote right.
func (t *Table) CheckRemote(key rdma.Key, who Accessor, addr, n uint64, want rdma.Access) (
	r *Region, at uint64, f Fault,
) {
	s := t.slotOf(key)
	switch {
	case s == nil:
		return nil, 0, FaultKey
	case s.window != nil && s.window.Key == key:
		return s.window.check(who, addr, n, want)
	case s.region == nil || s.region.Key != key:
		return nil, 0, FaultKey
	}
	r = s.region
	switch {
	case r.PD != who.PD:
		return nil, 0, FaultPD
	case r.kind == KindNull || !r.Access.Has(want):
		return nil, 0, FaultRights
	case !r.contains(addr, n):
		return nil, 0, FaultBounds
	}
	return r, addr, FaultNone
}

// ReadRemote copies from what a remote key opens into dst after all checks.
func (t *Table) ReadRemote(key rdma.Key, who Accessor, addr uint64, dst []byte) Fault {
	r, at, f := t.CheckRemote(key, who, addr, uint64(len(dst)), rdma.AccessRemoteRead)
	if f != FaultNone {
		return f
	}
	if !r.read(at, dst) {
		return r.unreachable()
	}
	return FaultNone
}

// WriteRemote copies src to what a remote key opens after all checks.
func (t *Table) WriteRemote(key rdma.Key, who Accessor, addr uint64, src []byte) Fault {
	r, at, f := t.CheckRemote(key, who, addr, uint64(len(src)), rdma.AccessRemoteWrite)
	if f != FaultNone {
		return f
	}
	if !r.write(at, src) {
		return r.unreachable()
	}
	return FaultNone
}

// ViewRemote is View for the reader behind a remote key.
func (t *Table) ViewRemote(key rdma.Key, who Accessor, addr, n uint64) ([]byte, Fault) {
	r, at, f := t.CheckRemote(key, who, addr, n, rdma.AccessRemoteRead)
	if f != FaultNone || n == 0 {
		return nil, f
	}
	v := r.view(at, n)
	if uint64(len(v)) < n {
		return nil, FaultNone
	}
	return v, FaultNone
}

// Alignment of atomic operands is the caller's to check: it has an answer of its own (an invalid
// request NAK, IBTA 9.4.5).

// FetchAdd adds to the 8 bytes at addr and returns the value before (IBTA 9.4.5.2).
func (t *Table) FetchAdd(key rdma.Key, who Accessor, addr, add uint64) (old uint64, f Fault) {
	r, at, f := t.CheckRemote(key, who, addr, atomicBytes, rdma.AccessRemoteAtomic)
	if f != FaultNone {
		return 0, f
	}
	old, ok := r.update(at, func(v uint64) uint64 { return v + add })
	if !ok {
		return 0, r.unreachable()
	}
	return old, FaultNone
}

// CompareSwap stores swap where the 8 bytes at addr equal compare, and returns the value before
// (IBTA 9.4.5.1).
func (t *Table) CompareSwap(key rdma.Key, who Accessor, addr, compare, swap uint64) (
	old uint64, f Fault,
) {
	r, at, f := t.CheckRemote(key, who, addr, atomicBytes, rdma.AccessRemoteAtomic)
	if f != FaultNone {
		return 0, f
	}
	old, ok := r.update(at, func(v uint64) uint64 {
		if v == compare {
			return swap
		}
		return v
	})
	if !ok {
		return 0, r.unreachable()
	}
	return old, FaultNone
}
