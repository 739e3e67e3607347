package nic

import (
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
)

// Import lets a context use objects of another, as far as it imports them one by one. The shell has
// seen that who asks holds the other's command descriptor (ibv_import_device(3)).
func (c *Context) Import(source *Context) *rdma.Refusal {
	switch {
	case source == c:
		return refusef(syscall.EINVAL, "a context cannot be imported into itself")
	case source.device != c.device:
		return refusef(syscall.EINVAL, "a context of %s cannot be imported into one of %s",
			source.device.name, c.device.name)
	case c.source != nil:
		return refusef(syscall.EBUSY, "the context has imported another")
	}
	c.source = source
	return nil
}

// ImportPD makes a protection domain of the source one of this context too. It is one and the same:
// it goes when either deallocates it, or when the last context that has it is closed.
func (c *Context) ImportPD(handle uint32) (uint32, *rdma.Refusal) {
	if c.pds[handle] != nil {
		return handle, nil
	}
	if c.source == nil || c.source.pds[handle] == nil {
		return 0, refusef(syscall.EINVAL, "the source context has no protection domain %d", handle)
	}
	if r := mayHave("protection domains", len(c.pds), c.most().PDs); r != nil {
		return 0, r
	}
	p := c.source.pds[handle]
	p.holders++
	c.pds[handle] = p
	return handle, nil
}

// ImportMR tells the keys of a region of the source, which stays the source's.
func (c *Context) ImportMR(req *abi.ImportMRReq) (abi.ImportMRRsp, *rdma.Refusal) {
	var rsp abi.ImportMRRsp
	if c.source == nil || c.source.mrs[req.Handle] == nil {
		return rsp, refusef(syscall.EINVAL, "the source context has no memory region %d", req.Handle)
	}
	r := c.source.mrs[req.Handle]
	if c.pds[req.PD] == nil || mem.PD(req.PD) != r.PD {
		return rsp, refusef(syscall.EINVAL, "memory region %d is not one of protection domain %d",
			req.Handle, req.PD)
	}
	return abi.ImportMRRsp{
		Handle: req.Handle, LKey: uint32(r.Key), RKey: uint32(r.Key), Length: r.Length, IOVA: r.Base,
	}, nil
}

// ImportDM tells the size of device memory of the source; the shell hands it out.
func (c *Context) ImportDM(handle uint32) (abi.AllocDMRsp, *rdma.Refusal) {
	if c.source == nil || c.source.memory.dms[handle] == nil {
		return abi.AllocDMRsp{}, refusef(syscall.EINVAL,
			"the source context has no device memory %d", handle)
	}
	return abi.AllocDMRsp{Handle: handle, Length: c.source.memory.dms[handle].length}, nil
}

// owns reports whether a region is one of this context's memory. Those that it imported lie in the
// memory of another process.
func (c *Context) owns(r *mem.Region) bool {
	for _, own := range c.mrs {
		if own == r {
			return true
		}
	}
	return false
}

// Source returns the context that this one imports from, or nil.
func (c *Context) Source() *Context { return c.source }

// forgetSource ends imports from a context that is closed.
func (n *NIC) forgetSource(gone *Context) {
	for _, c := range n.contexts {
		if c.source == gone {
			c.source = nil
		}
	}
}

// dropPD takes a protection domain out of the contexts that have it.
func (n *NIC) dropPD(handle uint32, p *pd) {
	for _, c := range n.contexts {
		if c.pds[handle] == p {
			delete(c.pds, handle)
		}
	}
	n.counts.pds--
}
