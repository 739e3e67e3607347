package nic

import (
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
)

// supportedAccess are the flags that ibv_reg_mr may carry here; the optional range is ignored as
// its name promises.
const supportedAccess = rdma.AccessLocalWrite | rdma.AccessRemoteWrite | rdma.AccessRemoteRead |
	rdma.AccessRemoteAtomic | rdma.AccessHugeTLB | rdma.AccessOptional

// RegMR registers memory. segs are the request's segments as the shell could map them.
func (c *Context) RegMR(req *abi.RegMRReq, segs []mem.Segment) (abi.RegMRRsp, *rdma.Refusal) {
	var rsp abi.RegMRRsp
	p := c.pds[req.PD]
	if p == nil {
		return rsp, refusef(syscall.EINVAL, "protection domain %d is unknown", req.PD)
	}
	access := rdma.Access(req.Access)
	if extra := access &^ supportedAccess; extra != 0 {
		return rsp, refusef(syscall.EOPNOTSUPP, "access flags %v are not supported", extra)
	}
	if req.Length == 0 {
		return rsp, refusef(syscall.EINVAL, "a region needs at least one byte")
	}
	r, refusal := c.nic.memory.Register(mem.Config{
		PD: mem.PD(req.PD), Access: access, Addr: req.Addr, Length: req.Length, IOVA: req.IOVA,
		Space: c.cfg.Space, Segments: segs,
	})
	if refusal != nil {
		return rsp, refusal
	}
	p.users++
	h := c.nic.id()
	c.mrs[h] = r
	rsp = abi.RegMRRsp{Handle: h, LKey: uint32(r.Key), RKey: uint32(r.Key)}
	for i := range segs {
		if segs[i].Mapped != nil {
			rsp.Mapped++
		}
	}
	return rsp, nil
}

// DeregMR kills a region's key and returns its segments, whose mappings the shell may now drop.
func (c *Context) DeregMR(handle uint32) ([]mem.Segment, *rdma.Refusal) {
	r := c.mrs[handle]
	if r == nil {
		return nil, refusef(syscall.EINVAL, "memory region %d is unknown", handle)
	}
	c.nic.memory.Deregister(r)
	delete(c.mrs, handle)
	c.pds[uint32(r.PD)].users--
	return r.Segments(), nil
}
