package sim

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/rdma"
)

// vandalDomain names the XRC domains of vandals by files of their own: who may open a file is
// trusted with all that is in its domain.
const vandalDomain = 7

// buildXRC makes an initiator and a target, with a shared queue for it.
func (v *vandal) buildXRC() *rdma.Refusal {
	xrcd, refusal := v.ctx.OpenXRCD(v.domainKey(), abi.XRCDCreate)
	if refusal != nil {
		return refusal
	}
	v.learn(xrcd, nil)
	srq, queue, refusal := v.ctx.CreateSRQ(&abi.CreateSRQReq{
		PD: v.pd, MaxWR: vandalQueue, MaxSGE: 3, Type: srqTypeXRC, XRCD: xrcd, CQ: v.cq,
	})
	if refusal != nil {
		return refusal
	}
	v.learn(srq.Handle, nil)
	for _, k := range []rdma.QPType{rdma.QPTypeXRCSend, rdma.QPTypeXRCRecv} {
		rsp, shared, refusal := v.ctx.CreateQP(v.world.now, &abi.CreateQPReq{
			Type: uint32(k), PD: v.pd, SendCQ: v.cq, MaxSendWR: vandalQueue, MaxSendSGE: 3,
			MaxInline: 64, XRCD: xrcd,
		})
		if refusal != nil {
			return refusal
		}
		v.learn(rsp.Handle, nil)
		q := &vandalQP{v: v, kind: k, rsp: rsp, shared: shared.Bytes(), srqn: srq.SRQN}
		if k == rdma.QPTypeXRCRecv {
			q.receives, q.rsp.Doorbell = queue.Bytes(), abi.DoorbellSlots-1
			q.rsp.RQEntries, q.rsp.RQOffset, q.rsp.RQStride = srq.Entries, srq.Offset, srq.Stride
		}
		v.qps = append(v.qps, q)
	}
	return nil
}

func (v *vandal) domainKey() *nic.XRCKey {
	return &nic.XRCKey{Device: vandalDomain, Inode: uint64(v.world.between(1, 2))}
}

// other returns the type of queue pair at the other end.
func (q *vandalQP) other() rdma.QPType {
	switch q.kind {
	case rdma.QPTypeXRCSend:
		return rdma.QPTypeXRCRecv
	case rdma.QPTypeXRCRecv:
		return rdma.QPTypeXRCSend
	default:
		return q.kind
	}
}

// stormXRC calls one verb of XRC.
func (v *vandal) stormXRC() {
	w := v.world
	switch w.between(0, 4) {
	case 0:
		var key *nic.XRCKey
		if w.chance(0.7) {
			key = v.domainKey()
		}
		h, refusal := v.ctx.OpenXRCD(key, uint32(w.between(0, 4)))
		v.learn(h, refusal)
	case 1:
		_ = v.ctx.CloseXRCD(v.handle())
	case 2:
		rsp, _, refusal := v.ctx.CreateQP(w.now, &abi.CreateQPReq{
			Type: uint32(rdma.QPTypeXRCRecv), XRCD: v.handle(),
		})
		v.learn(rsp.Handle, refusal)
	case 3:
		rsp, _, refusal := v.ctx.CreateSRQ(&abi.CreateSRQReq{
			PD: v.handle(), MaxWR: 16, MaxSGE: 1, Type: srqTypeXRC, XRCD: v.handle(), CQ: v.handle(),
		})
		v.learn(rsp.Handle, refusal)
	case 4:
		h, refusal := v.ctx.OpenQP(&abi.OpenQPReq{
			XRCD: v.handle(), QPN: v.qps[w.between(0, len(v.qps)-1)].rsp.QPN,
			Type: uint32(rdma.QPTypeXRCRecv),
		})
		v.learn(h, refusal)
	}
}
