package nic

import (
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
)

// Widest values of the modify attributes (IBTA 9.7.5.2.8, 9.7.6.1.3, 11.2.5.2).
const (
	timeoutMax     = 31
	rnrTimerMax    = 31
	retryMax       = 7
	accessQP       = rdma.AccessLocalWrite | rdma.AccessRemoteAny | rdma.AccessMWBind
	numberMask     = 0xffffff
	localMTUCeling = rdma.MTU4096
)

// ModifyQP changes attributes and state, or refuses all of it.
func (c *Context) ModifyQP(now clock.Time, req *abi.ModifyQPReq) (abi.QPAttr, *rdma.Refusal) {
	c.nic.now = now
	q := c.qps[req.Handle]
	if q == nil {
		return abi.QPAttr{}, refusef(syscall.EINVAL, "queue pair %d is unknown", req.Handle)
	}
	mask := rdma.QPAttrMask(req.Mask)
	var r *rdma.Refusal
	if q.ibt != nil {
		r = q.modifyPackets(now, req, mask)
	} else {
		r = q.modifyStreamed(now, &req.Attr, mask)
	}
	if r != nil {
		return abi.QPAttr{}, r
	}
	c.nic.settle(q)
	c.nic.direct.follow(q) // also where the state is the same
	c.nic.failDoomed()
	return q.query(), nil
}

// modifyPackets is ModifyQP for a queue pair whose wire is one of packets.
func (q *qp) modifyPackets(
	now clock.Time, req *abi.ModifyQPReq, mask rdma.QPAttrMask,
) *rdma.Refusal {
	to, r := q.target(&req.Attr, mask)
	if r != nil {
		return r
	}
	attr := *q.ibt.Attr()
	if r := q.apply(&attr, &req.Attr, mask); r != nil {
		return r
	}
	if q.qpType == rdma.QPTypeUD && to == sRTR {
		// A datagram's path MTU is the port's (IBTA 9.8.3.1); verbs have no attribute for it.
		attr.PathMTU = q.device.port.MTU
		mask |= rdma.QPAttrPathMTU
	}
	if mask&rdma.QPAttrPort != 0 {
		q.port = req.Attr.Port
	}
	if mask&rdma.QPAttrAV != 0 {
		q.av = req.Attr.AH
	}
	if to == sReset {
		q.av, q.port = abi.AHAttr{}, 0
	}
	q.noteModified(to)
	q.ibt.Modify(now, &attr, mask, to)
	return nil
}

// target returns the state to go to after the mask and the edge were checked.
func (q *qp) target(a *abi.QPAttr, mask rdma.QPAttrMask) (rdma.QPState, *rdma.Refusal) {
	from := q.state()
	if mask&rdma.QPAttrCurState != 0 && rdma.QPState(a.CurState) != from {
		return from, refusef(syscall.EINVAL, "modify_qp: cur_qp_state is %v, the QP is in %v",
			rdma.QPState(a.CurState), from)
	}
	to := from
	if mask&rdma.QPAttrState != 0 {
		to = rdma.QPState(a.State)
	}
	if !to.IsValid() || to == sSQE && from != sSQE {
		return from, refusef(syscall.EINVAL, "modify_qp: qp_state %d cannot be set", a.State)
	}
	return to, checkTransition(q.qpType, edge{from, to}, mask)
}

// apply checks every attribute in the mask and puts it into attr.
func (q *qp) apply(attr *ibt.Attr, a *abi.QPAttr, mask rdma.QPAttrMask) *rdma.Refusal {
	for _, s := range setters {
		if mask&s.bit == 0 {
			continue
		}
		if !s.ok(a) {
			return refusef(syscall.EINVAL, "modify_qp: %v has a value out of range", s.bit)
		}
		if s.set != nil {
			s.set(attr, a)
		}
	}
	if mask&rdma.QPAttrAV != 0 {
		addr, r := q.device.port.resolve(&a.AH, uint32(q.qpn))
		if r == nil {
			r = checkPeer(addr.DGID)
		}
		if r != nil {
			return r
		}
		attr.AV, attr.Segment = addr, 0
		if q.nic.IsLocal(addr.DGID) {
			attr.Segment = q.nic.cfg.LocalSegment
		}
	}
	if mask&rdma.QPAttrPathMTU != 0 {
		return q.checkMTU(attr)
	}
	return nil
}

// checkMTU refuses a path MTU whose packets the interface cannot carry. Between QPs of this NIC
// no interface is involved.
func (q *qp) checkMTU(attr *ibt.Attr) *rdma.Refusal {
	most := q.device.port.MTU
	if q.nic.IsLocal(attr.AV.DGID) {
		most = localMTUCeling
	}
	if attr.PathMTU > most {
		return refusef(syscall.EINVAL, "modify_qp: path_mtu %v is over the port's active MTU %v",
			attr.PathMTU, most)
	}
	return nil
}

// setter checks and takes over one attribute.
type setter struct {
	bit rdma.QPAttrMask
	ok  func(a *abi.QPAttr) bool
	set func(t *ibt.Attr, a *abi.QPAttr)
}

func always(*abi.QPAttr) bool { return true }

func never(*abi.QPAttr) bool { return false }

// setters are in the order of the mask's bits. There is no automatic path migration, which is
// optional (IBTA 17.2.8), and no capability bit for it: no alternate path can be set, and no
// state of migration but the one without.
var setters = []setter{
	{rdma.QPAttrEnSQDAsyncNotify, always, func(t *ibt.Attr, a *abi.QPAttr) {
		t.SQDAsyncNotify = a.EnSQDAsyncNotify != 0
	}},
	{rdma.QPAttrAccessFlags, func(a *abi.QPAttr) bool {
		return rdma.Access(a.AccessFlags)&^knownAccess == 0
	}, func(t *ibt.Attr, a *abi.QPAttr) { t.Access = rdma.Access(a.AccessFlags) & accessQP }},
	{rdma.QPAttrPKeyIndex, func(a *abi.QPAttr) bool {
		return a.PKeyIndex < limits.MaxPKeys
	}, func(t *ibt.Attr, a *abi.QPAttr) { t.PKeyIndex, t.PKey = a.PKeyIndex, rdma.PKeyDefault }},
	{rdma.QPAttrPort, func(a *abi.QPAttr) bool { return a.Port == thePort }, nil},
	{rdma.QPAttrQKey, always, func(t *ibt.Attr, a *abi.QPAttr) { t.QKey = rdma.QKey(a.QKey) }},
	{rdma.QPAttrPathMTU, func(a *abi.QPAttr) bool {
		return a.PathMTU <= uint32(rdma.MTU4096) && rdma.MTU(a.PathMTU).IsValid()
	}, func(t *ibt.Attr, a *abi.QPAttr) { t.PathMTU = rdma.MTU(a.PathMTU) }},
	{rdma.QPAttrTimeout, func(a *abi.QPAttr) bool {
		return a.Timeout <= timeoutMax
	}, func(t *ibt.Attr, a *abi.QPAttr) { t.Timeout = a.Timeout }},
	{rdma.QPAttrRetryCnt, func(a *abi.QPAttr) bool {
		return a.RetryCnt <= retryMax
	}, func(t *ibt.Attr, a *abi.QPAttr) { t.RetryCnt = a.RetryCnt }},
	{rdma.QPAttrRNRRetry, func(a *abi.QPAttr) bool {
		return a.RNRRetry <= retryMax
	}, func(t *ibt.Attr, a *abi.QPAttr) { t.RNRRetry = a.RNRRetry }},
	{rdma.QPAttrRQPSN, always, func(t *ibt.Attr, a *abi.QPAttr) {
		t.RQPSN = rdma.PSN(a.RQPSN & rdma.PSNMask)
	}},
	{rdma.QPAttrMaxQPRdAtomic, func(a *abi.QPAttr) bool {
		return a.MaxRdAtomic <= limits.MaxRDAtomic
	}, func(t *ibt.Attr, a *abi.QPAttr) { t.MaxRdAtomic = a.MaxRdAtomic }},
	{rdma.QPAttrAltPath, never, nil},
	{rdma.QPAttrMinRNRTimer, func(a *abi.QPAttr) bool {
		return a.MinRNRTimer <= rnrTimerMax
	}, func(t *ibt.Attr, a *abi.QPAttr) { t.MinRNRTimer = a.MinRNRTimer }},
	{rdma.QPAttrSQPSN, always, func(t *ibt.Attr, a *abi.QPAttr) {
		t.SQPSN = rdma.PSN(a.SQPSN & rdma.PSNMask)
	}},
	{rdma.QPAttrMaxDestRdAtomic, func(a *abi.QPAttr) bool {
		return a.MaxDestRdAtomic <= limits.MaxRDAtomic
	}, func(t *ibt.Attr, a *abi.QPAttr) { t.MaxDestRdAtomic = a.MaxDestRdAtomic }},
	{rdma.QPAttrPathMigState, func(a *abi.QPAttr) bool {
		return a.PathMigState == uint32(rdma.MigrationMigrated)
	}, nil},
	{rdma.QPAttrDestQPN, func(a *abi.QPAttr) bool {
		return a.DestQPN <= numberMask
	}, func(t *ibt.Attr, a *abi.QPAttr) { t.DestQPN = rdma.QPN(a.DestQPN) }},
}

// QueryQP answers ibv_query_qp.
func (c *Context) QueryQP(handle uint32) (abi.QPAttr, *rdma.Refusal) {
	q := c.qps[handle]
	if q == nil {
		return abi.QPAttr{}, refusef(syscall.EINVAL, "queue pair %d is unknown", handle)
	}
	return q.query(), nil
}

func (q *qp) query() abi.QPAttr {
	if q.ibt == nil {
		return q.queryStreamed()
	}
	t, s := q.ibt.Attr(), q.state()
	out := abi.QPAttr{
		State: uint32(s), CurState: uint32(s), PathMTU: uint32(t.PathMTU),
		PathMigState: uint32(rdma.MigrationMigrated), QKey: uint32(t.QKey),
		RQPSN: uint32(t.RQPSN), SQPSN: uint32(t.SQPSN), DestQPN: uint32(t.DestQPN),
		AccessFlags: uint32(t.Access), MaxSendWR: q.init.MaxSendWR, MaxRecvWR: q.init.MaxRecvWR,
		MaxSendSGE: q.init.MaxSendSGE, MaxRecvSGE: q.init.MaxRecvSGE, MaxInline: q.init.MaxInline,
		AH: q.av, PKeyIndex: t.PKeyIndex, MaxRdAtomic: t.MaxRdAtomic,
		MaxDestRdAtomic: t.MaxDestRdAtomic, MinRNRTimer: t.MinRNRTimer, Port: q.port,
		Timeout: t.Timeout, RetryCnt: t.RetryCnt, RNRRetry: t.RNRRetry,
	}
	if t.SQDAsyncNotify {
		out.EnSQDAsyncNotify = 1
	}
	if s == rdma.QPStateSQD && !q.ibt.Stats().IsDrained {
		out.SQDraining = 1
	}
	return out
}
