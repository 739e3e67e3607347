package mem

import (
	"fmt"
	"syscall"

	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
)

// Window is a memory window (IBTA 10.6.7.2): a remote key that opens a part of a region while it
// is bound to it. Its owner binds it by work requests, without the cost of a registration.
type Window struct {
	Key  rdma.Key
	PD   PD
	Type rdma.MWType
	// Access, Base and Length are those of the last bind; Base is the address that peers use.
	Access rdma.Access
	Base   uint64
	Length uint64

	region *Region // nil while it is not bound
	start  uint64  // address of Base in the region
	slot   uint32
	// Of a bound window of type 2: the queue pair, and the others that it has bound.
	qp         rdma.QPN
	prev, next *Window
}

// Binding is what a bind asks for. Length 0 unbinds a window of type 1.
type Binding struct {
	// Key is the window's new remote key: the index of the one before, another variant.
	Key    rdma.Key
	Region rdma.Key // lkey
	Addr   uint64   // in the region
	Length uint64
	Access rdma.Access
}

// IsBound reports whether the window opens anything.
func (w *Window) IsBound() bool { return w.region != nil }

// AllocWindow makes a window that is not bound.
func (t *Table) AllocWindow(pd PD, typ rdma.MWType) (*Window, *rdma.Refusal) {
	switch {
	case !typ.IsValid():
		return nil, rdma.Refuse(syscall.EINVAL, fmt.Sprintf("memory window type %d", typ))
	case t.windows >= limits.MaxMW:
		return nil, rdma.Refuse(syscall.ENOMEM, fmt.Sprintf("limit of %d memory windows", limits.MaxMW))
	}
	i, key := t.take()
	w := &Window{Key: key, PD: pd, Type: typ, slot: i}
	t.slots[i].window = w
	t.windows++
	return w, nil
}

// FreeWindow unbinds and removes a window.
func (t *Table) FreeWindow(w *Window) {
	s := &t.slots[w.slot]
	if s.window != w {
		return
	}
	t.unbind(w)
	s.window = nil
	s.variant = uint8(w.Key) // the variants before it are dead, too
	t.free = append(t.free, w.slot)
	t.windows--
}

// ReleaseQP unbinds the windows that a queue pair has bound; it is about to go.
func (t *Table) ReleaseQP(qpn rdma.QPN) {
	for w := t.bound[qpn]; w != nil; w = t.bound[qpn] {
		t.unbind(w)
	}
}

// Bind executes a bind by a queue pair (IBTA 10.6.7.2.2, 11.4.1.1).
func (t *Table) Bind(who Accessor, b *Binding) Fault {
	s := t.slotOf(b.Key)
	if s == nil || s.window == nil {
		return FaultKey
	}
	w := s.window
	r, f := t.checkBinding(w, who, b)
	if f != FaultNone {
		return f
	}
	t.unbind(w)
	w.Key, w.Access, w.Length = b.Key, b.Access, b.Length
	if r == nil {
		return FaultNone
	}
	w.region, w.start, w.Base = r, b.Addr, b.Addr
	if b.Access.Has(rdma.AccessZeroBased) {
		w.Base = 0
	}
	r.windows++
	if w.Type == rdma.MWType2 {
		t.enlist(w, who.QP)
	}
	return FaultNone
}

// checkBinding returns the region to bind to, or nil for an unbind.
func (t *Table) checkBinding(w *Window, who Accessor, b *Binding) (*Region, Fault) {
	isZeroBased := b.Access.Has(rdma.AccessZeroBased)
	switch {
	case w.PD != who.PD:
		return nil, FaultPD // C10-72
	case w.Type == rdma.MWType2 && w.IsBound():
		// It is invalidated before it is bound again (o10-37.2.30, -37.2.40).
		return nil, FaultWindowBound
	case uint8(b.Key) == uint8(w.Key):
		return nil, FaultWindowKey
	case b.Access&^rdma.AccessWindow != 0,
		w.Type == rdma.MWType1 && isZeroBased: // o10-36.2.2
		return nil, FaultWindowAccess
	case w.Type == rdma.MWType2 && b.Length == 0:
		return nil, FaultWindowEmpty
	case b.Length == 0:
		return nil, FaultNone
	}
	r := t.Find(b.Region)
	const (
		writing  = rdma.AccessRemoteWrite | rdma.AccessRemoteAtomic
		flushing = rdma.AccessFlushGlobal | rdma.AccessFlushPersist
	)
	switch {
	case r == nil || r.kind == KindNull:
		return nil, FaultRegionKey
	case r.PD != who.PD:
		return nil, FaultRegionPD
	case r.Access.Has(rdma.AccessZeroBased):
		return nil, FaultRegionBased
	// C10-73, C10-74; and no window makes memory what it is not.
	case !r.Access.Has(rdma.AccessMWBind),
		b.Access&writing != 0 && !r.Access.Has(rdma.AccessLocalWrite),
		b.Access&flushing&^r.Access != 0:
		return nil, FaultRights
	case !r.contains(b.Addr, b.Length): // C10-75
		return nil, FaultBounds
	}
	return r, FaultNone
}

// Invalidate unbinds a window of type 2 by its remote key: a local invalidate by its queue pair,
// or one that the peer of the queue pair sent (IBTA 10.6.5). Regions and windows of type 1 cannot
// be invalidated (o10-37.2.26).
func (t *Table) Invalidate(who Accessor, key rdma.Key) Fault {
	s := t.slotOf(key)
	if s == nil {
		return FaultKey
	}
	if s.window == nil {
		if s.region != nil && s.region.Key == key {
			return FaultNotWindow
		}
		return FaultKey
	}
	w := s.window
	switch {
	case w.Key != key:
		return FaultKey
	case w.PD != who.PD:
		return FaultPD
	case w.Type != rdma.MWType2:
		return FaultWindow
	case !w.IsBound():
		return FaultUnbound
	case w.qp != who.QP:
		return FaultQP
	}
	t.unbind(w)
	return FaultNone
}

// check judges an access through the window.
func (w *Window) check(who Accessor, addr, n uint64, want rdma.Access) (*Region, uint64, Fault) {
	off := addr - w.Base
	switch {
	case w.PD != who.PD:
		return nil, 0, FaultPD
	case w.region == nil:
		return nil, 0, FaultUnbound
	case w.Type == rdma.MWType2 && w.qp != who.QP:
		return nil, 0, FaultQP
	case !w.Access.Has(want):
		return nil, 0, FaultRights
	case off > w.Length || n > w.Length-off:
		return nil, 0, FaultBounds
	}
	return w.region, w.start + off, FaultNone
}

// UnbindFrom unbinds every window that is bound to a region whose owner vanishes.
func (t *Table) UnbindFrom(r *Region) {
	for i := range t.slots {
		if r.windows == 0 {
			return
		}
		if w := t.slots[i].window; w != nil && w.region == r {
			t.unbind(w)
		}
	}
}

func (t *Table) unbind(w *Window) {
	if w.region == nil {
		return
	}
	w.region.windows--
	w.region = nil
	w.Access, w.Base, w.Length, w.start = 0, 0, 0, 0
	if w.Type == rdma.MWType2 {
		t.delist(w)
	}
}

func (t *Table) enlist(w *Window, qpn rdma.QPN) {
	w.qp = qpn
	w.next = t.bound[qpn]
	if w.next != nil {
		w.next.prev = w
	}
	t.bound[qpn] = w
}

func (t *Table) delist(w *Window) {
	switch {
	case w.prev != nil:
		w.prev.next = w.next
	case w.next != nil:
		t.bound[w.qp] = w.next
	default:
		delete(t.bound, w.qp)
	}
	if w.next != nil {
		w.next.prev = w.prev
	}
	w.prev, w.next, w.qp = nil, nil, 0
}
