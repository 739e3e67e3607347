package nic

import (
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
)

// ResizeCQ gives a completion queue other slots, which hold what was not polled at the same
// indices as before (IBTA 11.2.8.3). Header and handle stay, so that whoever arms the queue
// meanwhile arms the right one.
func (c *Context) ResizeCQ(req *abi.ResizeCQReq) (abi.CreateCQRsp, Shared, *rdma.Refusal) {
	var rsp abi.CreateCQRsp
	q := c.cqs[req.Handle]
	switch {
	case q == nil:
		return rsp, nil, refusef(syscall.EINVAL, "completion queue %d is unknown", req.Handle)
	case req.Entries == 0 || req.Entries > limits.MaxCQE:
		return rsp, nil, refusef(syscall.EINVAL, "cqe %d outside 1…%d", req.Entries, limits.MaxCQE)
	}
	q.showHeld()
	geo := ring.Geometry{Entries: ring.RoundEntries(req.Entries), Stride: abi.CQEBytes}
	if used := q.ring.Unreleased(); used > geo.Entries {
		return rsp, nil, refusef(syscall.EINVAL,
			"cqe %d: %d completions wait to be polled", req.Entries, used)
	}
	shared, err := c.nic.cfg.Memory.Alloc(geo.Bytes())
	if err != nil {
		return rsp, nil, refusef(syscall.ENOMEM, "queue memory: %v", err)
	}
	q.ring = q.ring.MoveTo(shared.Bytes(), geo)
	if q.slots != nil {
		q.slots.Release()
	}
	q.slots = shared
	return abi.CreateCQRsp{Handle: q.handle, Entries: geo.Entries}, shared, nil
}
