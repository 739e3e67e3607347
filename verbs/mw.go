package verbs

import (
	"sync/atomic"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/rdma"
)

// MW is a memory window: a remote key that opens a part of a memory region while it is bound to
// it. Binding and revoking one is a work request, so it costs no system call and keeps its place
// among other requests (IBTA 10.6.7.2).
type MW struct {
	ctx    *Context
	pd     *PD
	handle uint32
	typ    MWType
	key    atomic.Uint32
}

// Bind is the work request that binds a window, or with Length 0 unbinds one of type 1. A window
// of type 2 is unbound by WRLocalInvalidate, or by the peer's WRSendWithInv.
type Bind struct {
	Window *MW
	// Region is the memory that the window opens; it has AccessMWBind. Addr is in its addresses.
	Region *MR
	Addr   uint64
	Length uint64
	// Access are rights of the peer, and AccessZeroBased if its addresses are to count from 0,
	// which a window of type 1 cannot.
	Access Access
	// Key is the new remote key: MW.RKey with another lowest byte. 0 lets the library choose.
	Key Key
}

// AllocWindow makes a window that is not bound.
func (p *PD) AllocWindow(t MWType) (*MW, error) {
	req := abi.AllocMWReq{PD: p.handle, Type: uint32(t)}
	rsp, _, err := call[abi.AllocMWRsp](p.ctx, request{
		op: "allocate memory window", code: abi.OpAllocMW, body: ctl.Bytes(&req), of: p,
	})
	if err != nil {
		return nil, err
	}
	w := &MW{ctx: p.ctx, pd: p, handle: rsp.Handle, typ: t}
	w.key.Store(rsp.RKey)
	if !p.ctx.adopt(w) {
		_ = p.ctx.destroy("free memory window", abi.OpDeallocMW, w.handle)
		return nil, ErrClosed
	}
	return w, nil
}

// Type returns the window's type.
func (w *MW) Type() MWType { return w.typ }

// RKey returns the remote key of the last bind that was posted; it opens something once that has
// completed. It may be sent to the peer on the same queue pair before.
func (w *MW) RKey() Key { return Key(w.key.Load()) }

// Close unbinds and frees the window.
func (w *MW) Close() error {
	if err := w.ctx.destroy("free memory window", abi.OpDeallocMW, w.handle); err != nil {
		return err
	}
	w.ctx.disown(w)
	return nil
}

// keyVariant are the bits of a window's key that a bind changes.
const keyVariant = 0xff

func (w *MW) nextKey() Key {
	k := w.RKey()
	return k&^keyVariant | (k+1)&keyVariant
}

// check tells why a bind cannot be posted.
func (b *Bind) check() error {
	switch {
	case b == nil || b.Window == nil:
		return badSend("a bind needs SendWR.Bind with a window")
	case b.Region == nil && b.Length > 0:
		return badSend("a bind of %d bytes needs a region", b.Length)
	case b.Region != nil && b.Region.ctx != b.Window.ctx:
		return badSend("window and region belong to different contexts")
	case b.Access&^rdma.AccessWindow != 0:
		return badSend("a window cannot have access %v", b.Access&^rdma.AccessWindow)
	case b.Key != 0 && (b.Key^b.Window.RKey())&^keyVariant != 0:
		return badSend("key %v differs from the window's %v in more than the lowest byte", b.Key,
			b.Window.RKey())
	}
	return nil
}

// put fills a work request and takes the new key over.
func (b *Bind) put(e *abi.SendWQE) {
	key := b.Key
	if key == 0 {
		key = b.Window.nextKey()
	}
	e.RKey, e.RemoteAddr, e.CompareAdd, e.Swap = uint32(key), b.Addr, b.Length, uint64(b.Access)
	if b.Region != nil {
		e.Extra = uint32(b.Region.lkey)
	}
	b.Window.key.Store(uint32(key))
}
