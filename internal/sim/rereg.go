package sim

import (
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
)

// reregisterSome registers a region again while it is in use: the same memory, reached another
// way. Nobody may notice, unless a memory window is bound to it: then it is refused.
func (a *app) reregisterSome() {
	w := a.world
	if a.process.isDead || a.isGone {
		return
	}
	if len(a.endpoints) > 0 && w.chance(0.5) {
		e := a.endpoints[w.between(0, len(a.endpoints)-1)]
		d := e.door
		if e.near == nil || e.near.area.isGone || d != nil && d.state == doorMoving {
			return
		}
		a.reregister(e.near.area, d != nil && d.state == doorOpen)
		return
	}
	a.reregister(a.areas[w.between(0, len(a.areas)-1)], false)
}

func (a *app) reregister(r *area, isHeld bool) {
	w := a.world
	segs := a.segments(r.span)
	_, old, refusal := a.ctx.ReregMR(&abi.ReregMRReq{
		Handle: r.handle, Flags: uint32(rdma.ReregTranslation | rdma.ReregAccess),
		Access: uint32(r.access), Addr: a.base + uint64(r.off), Length: uint64(r.n), IOVA: r.iova,
		NumSegments: uint32(len(segs)),
	}, segs)
	switch {
	case isHeld && (refusal == nil || refusal.Errno != syscall.EBUSY):
		w.court.Failf("%s: rereg_mr of a region with a window: %v", a.name, refusal)
	case isHeld:
		w.mark("mem.rereg_held")
	case refusal != nil:
		w.court.Failf("%s: rereg_mr: %v", a.name, refusal)
	default:
		w.mark("mem.rereg")
		a.segmentsHeld += len(segs) - len(old)
	}
}
