package verbs

import (
	"runtime"
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/rdma"
)

// Change says what MR.Reregister changes; nil leaves a thing as it is.
type Change struct {
	PD     *PD
	Access *Access
	// Bytes takes the place of the memory of a region that Register made.
	Bytes []byte
}

// Reregister changes a region, whose keys stay, in one step: no peer meets a key that is gone
// (ibv_rereg_mr(3)). It is refused (EBUSY) while a memory window is bound to the region, and for
// regions that are no memory of this program. After an error the region is as before. What is
// under way meanwhile is judged by what the region is at that moment.
//
// It must not run beside calls that ask for the region's address or length.
func (r *MR) Reregister(c Change) error {
	const op = "reregister memory"
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return &OpError{Op: op, Err: ErrClosed}
	}
	if why := r.whyUnchangeable(&c); why != "" {
		return refuse(op, rdma.Refuse(syscall.EINVAL, why))
	}
	var pin *runtime.Pinner
	msg := r.change(&c)
	if c.Bytes != nil {
		pin = new(runtime.Pinner)
		addr := pinBytes(pin, c.Bytes)
		n := uint64(len(c.Bytes))
		msg.Head.Addr, msg.Head.IOVA, msg.Head.Length = addr, addr, n
		msg.Segment.Addr, msg.Segment.Length = addr, n
	}
	body := ctl.Bytes(&msg.Head)
	if msg.Head.NumSegments > 0 {
		body = ctl.Bytes(msg)
	}
	_, _, err := call[abi.RegMRRsp](r.ctx, request{op: op, code: abi.OpReregMR, body: body})
	if err != nil {
		if pin != nil {
			pin.Unpin()
		}
		return err
	}
	r.changed(&c, msg, pin)
	return nil
}

func (r *MR) whyUnchangeable(c *Change) string {
	switch {
	case r.kind != regionSlice:
		return "only regions made by Register can be changed"
	case c.PD == nil && c.Access == nil && c.Bytes == nil:
		return "nothing is to be changed"
	case c.Bytes != nil && len(c.Bytes) == 0:
		return "the slice is empty"
	case c.PD != nil && c.PD.ctx != r.ctx:
		return "the protection domain belongs to another context"
	}
	return ""
}

// reregMR is a change with the one piece that the region then consists of.
type reregMR struct {
	Head    abi.ReregMRReq
	Segment abi.Segment
}

// change describes a change of all but the memory.
func (r *MR) change(c *Change) *reregMR {
	addr, n := addressOf(r.bytes), uint64(len(r.bytes))
	msg := &reregMR{
		Head: abi.ReregMRReq{
			Handle: r.handle, Access: uint32(r.access), Addr: addr, Length: n, IOVA: r.base,
		},
		Segment: abi.Segment{Addr: addr, Length: n, FD: -1},
	}
	h := &msg.Head
	if c.PD != nil {
		h.Flags, h.PD = h.Flags|uint32(rdma.ReregPD), c.PD.handle
	}
	if c.Access != nil {
		h.Flags, h.Access = h.Flags|uint32(rdma.ReregAccess), uint32(*c.Access)
		if r.access.Has(AccessZeroBased) {
			h.IOVA = addr
		}
	}
	if c.Bytes != nil {
		h.Flags |= uint32(rdma.ReregTranslation)
	}
	if c.Access != nil || c.Bytes != nil {
		h.NumSegments = 1
	}
	return msg
}

// changed notes a change that was granted.
func (r *MR) changed(c *Change, msg *reregMR, pin *runtime.Pinner) {
	r.set(msg.Head.Access, msg.Head.IOVA, msg.Head.Length)
	if c.Bytes != nil {
		r.pin.Unpin()
		r.pin, r.bytes = pin, c.Bytes
	}
}
