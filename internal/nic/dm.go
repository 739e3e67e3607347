package nic

import (
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
)

// dmAccess are the flags that a region of device memory may have (ibv_alloc_dm(3)).
const dmAccess = rdma.AccessLocalWrite | rdma.AccessRemoteWrite | rdma.AccessRemoteRead |
	rdma.AccessRemoteAtomic | rdma.AccessFlushGlobal | rdma.AccessZeroBased | rdma.AccessOptional

// deviceMemory is memory of the NIC that an application has allocated; both map it.
type deviceMemory struct {
	length uint64 // as asked for
	shared Shared
	users  int // regions in it
}

// AllocDM makes device memory; it goes to the application.
func (c *Context) AllocDM(req *abi.AllocDMReq) (abi.AllocDMRsp, Shared, *rdma.Refusal) {
	var rsp abi.AllocDMRsp
	const page = 1 << limits.DMAlignLog
	bytes := (req.Length + page - 1) &^ (page - 1)
	most := c.most().DeviceMemory
	switch {
	case req.Length == 0 || req.Length > most:
		return rsp, nil, refusef(syscall.EINVAL, "%d bytes of device memory; max_dm_size is %d",
			req.Length, most)
	case req.AlignLog > limits.DMAlignLog:
		return rsp, nil, refusef(syscall.EINVAL, "log_align_req %d over %d", req.AlignLog,
			limits.DMAlignLog)
	case c.memory.dmBytes+req.Length > most:
		return rsp, nil, refusef(syscall.ENOMEM, "the context has %d bytes of device memory of %d",
			c.memory.dmBytes, most)
	case c.nic.counts.dmBytes+bytes > limits.MaxDMBytes:
		return rsp, nil, refusef(syscall.ENOMEM, "the device has %d bytes of device memory left",
			limits.MaxDMBytes-c.nic.counts.dmBytes)
	case len(c.memory.dms) >= limits.MaxDMPerContext:
		return rsp, nil, refusef(syscall.ENOMEM, "limit of %d pieces of device memory a context",
			limits.MaxDMPerContext)
	}
	shared, err := c.nic.cfg.Memory.Alloc(int(bytes))
	if err != nil {
		return rsp, nil, refusef(syscall.ENOMEM, "device memory: %v", err)
	}
	h := c.nic.id()
	c.memory.dms[h] = &deviceMemory{length: req.Length, shared: shared}
	c.memory.dmBytes += bytes
	c.nic.counts.dmBytes += bytes
	return abi.AllocDMRsp{Handle: h, Length: bytes}, shared, nil
}

// FreeDM frees device memory that no region uses.
func (c *Context) FreeDM(handle uint32) *rdma.Refusal {
	d := c.memory.dms[handle]
	switch {
	case d == nil:
		return refusef(syscall.EINVAL, "device memory %d is unknown", handle)
	case d.users > 0:
		return refusef(syscall.EBUSY, "device memory %d still has %d regions", handle, d.users)
	}
	bytes := uint64(len(d.shared.Bytes()))
	c.memory.dmBytes -= bytes
	c.nic.counts.dmBytes -= bytes
	delete(c.memory.dms, handle)
	d.shared.Release()
	return nil
}

// RegDM registers a part of device memory, whose addresses count from 0.
func (c *Context) RegDM(req *abi.RegDeviceMRReq) (abi.RegMRRsp, *rdma.Refusal) {
	d := c.memory.dms[req.DM]
	access := rdma.Access(req.Access)
	switch {
	case d == nil:
		return abi.RegMRRsp{}, refusef(syscall.EINVAL, "device memory %d is unknown", req.DM)
	case !access.Has(rdma.AccessZeroBased):
		return abi.RegMRRsp{}, refusef(syscall.EINVAL, "a region of device memory is zero-based")
	case access&^dmAccess != 0:
		return abi.RegMRRsp{}, refusef(syscall.EINVAL, "access flags %v for device memory",
			access&^dmAccess)
	case req.Offset > d.length || req.Length > d.length-req.Offset:
		return abi.RegMRRsp{}, refusef(syscall.EINVAL, "%d bytes at %d lie outside device memory"+
			" of %d", req.Length, req.Offset, d.length)
	case req.Flags != 0:
		return abi.RegMRRsp{}, refusef(syscall.EINVAL, "flags %#x", req.Flags)
	}
	var segs []mem.Segment
	if req.Length > 0 {
		end := req.Offset + req.Length
		segs = []mem.Segment{{Length: req.Length, Mapped: d.shared.Bytes()[req.Offset:end:end]}}
	}
	rsp, r := c.register(&mem.Config{
		PD: mem.PD(req.PD), Access: access, Length: req.Length, Segments: segs,
	})
	if r == nil {
		d.users++
		c.memory.dmOf[rsp.Handle] = d
	}
	return rsp, r
}
