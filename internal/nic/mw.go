package nic

import (
	"maps"
	"slices"
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
)

// Memory windows are of types 1 and 2B, as on rdma_rxe and mlx5. The extensions stand for local
// invalidate and SEND with invalidate here.
const (
	capMemWindow        = 1 << 17
	capMemMgtExtensions = 1 << 21
	capMemWindow2B      = 1 << 24
	memoryCaps          = capMemWindow | capMemMgtExtensions | capMemWindow2B
)

// memoryObjects are what a context has beside regions.
type memoryObjects struct {
	windows map[uint32]*mem.Window
	dms     map[uint32]*deviceMemory
	dmBytes uint64
	dmOf    map[uint32]*deviceMemory // by handle of a region in it
}

func newMemoryObjects() memoryObjects {
	return memoryObjects{
		windows: make(map[uint32]*mem.Window), dms: make(map[uint32]*deviceMemory),
		dmOf: make(map[uint32]*deviceMemory),
	}
}

// AllocMW makes a memory window that is not bound.
func (c *Context) AllocMW(req *abi.AllocMWReq) (abi.AllocMWRsp, *rdma.Refusal) {
	p := c.pds[req.PD]
	if p == nil {
		return abi.AllocMWRsp{}, refusef(syscall.EINVAL, "protection domain %d is unknown", req.PD)
	}
	if r := mayHave("memory windows", len(c.memory.windows), c.most().MWs); r != nil {
		return abi.AllocMWRsp{}, r
	}
	w, r := c.nic.memory.AllocWindow(mem.PD(req.PD), rdma.MWType(req.Type))
	if r != nil {
		return abi.AllocMWRsp{}, r
	}
	p.users++
	h := c.nic.id()
	c.memory.windows[h] = w
	return abi.AllocMWRsp{Handle: h, RKey: uint32(w.Key)}, nil
}

// DeallocMW unbinds and frees a window.
func (c *Context) DeallocMW(handle uint32) *rdma.Refusal {
	w := c.memory.windows[handle]
	if w == nil {
		return refusef(syscall.EINVAL, "memory window %d is unknown", handle)
	}
	c.nic.memory.FreeWindow(w)
	delete(c.memory.windows, handle)
	c.pds[uint32(w.PD)].users--
	return nil
}

// releaseMemory drops regions, windows and device memory of a context that closes; its queue pairs
// are gone.
func (c *Context) releaseMemory() {
	n := c.nic
	for _, h := range slices.Sorted(maps.Keys(c.memory.windows)) {
		w := c.memory.windows[h]
		n.memory.FreeWindow(w)
		c.pds[uint32(w.PD)].users--
	}
	for _, h := range slices.Sorted(maps.Keys(c.mrs)) {
		r := c.mrs[h]
		// A context that has imported the protection domain may have windows there.
		n.memory.UnbindFrom(r)
		n.direct.revoke(r)
		n.memory.Deregister(r)
		c.pds[uint32(r.PD)].users--
		if c.cfg.ReleaseSegments != nil && c.memory.dmOf[h] == nil {
			c.cfg.ReleaseSegments(r.Segments())
		}
	}
	for _, h := range slices.Sorted(maps.Keys(c.memory.dms)) {
		c.memory.dms[h].shared.Release()
	}
	n.counts.dmBytes -= c.memory.dmBytes
}
