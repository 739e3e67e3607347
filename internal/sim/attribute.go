package sim

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
)

// attribute is one that query_qp has to report as modify_qp set it.
type attribute struct {
	mask rdma.QPAttrMask
	copy func(to, from *abi.QPAttr)
	same func(a, b *abi.QPAttr) bool
}

//tidy:table
var attributes = []attribute{
	{
		rdma.QPAttrDestQPN, func(to, from *abi.QPAttr) { to.DestQPN = from.DestQPN },
		func(a, b *abi.QPAttr) bool { return a.DestQPN == b.DestQPN },
	},
	{
		rdma.QPAttrPathMTU, func(to, from *abi.QPAttr) { to.PathMTU = from.PathMTU },
		func(a, b *abi.QPAttr) bool { return a.PathMTU == b.PathMTU },
	},
	{
		rdma.QPAttrQKey, func(to, from *abi.QPAttr) { to.QKey = from.QKey },
		func(a, b *abi.QPAttr) bool { return a.QKey == b.QKey },
	},
	{
		rdma.QPAttrAV, func(to, from *abi.QPAttr) { to.AH = from.AH },
		func(a, b *abi.QPAttr) bool { return a.AH == b.AH },
	},
	{
		rdma.QPAttrAccessFlags, func(to, from *abi.QPAttr) { to.AccessFlags = from.AccessFlags },
		func(a, b *abi.QPAttr) bool { return a.AccessFlags == b.AccessFlags },
	},
	{
		rdma.QPAttrTimeout, func(to, from *abi.QPAttr) { to.Timeout = from.Timeout },
		func(a, b *abi.QPAttr) bool { return a.Timeout == b.Timeout },
	},
	{
		rdma.QPAttrRetryCnt, func(to, from *abi.QPAttr) { to.RetryCnt = from.RetryCnt },
		func(a, b *abi.QPAttr) bool { return a.RetryCnt == b.RetryCnt },
	},
	{
		rdma.QPAttrRNRRetry, func(to, from *abi.QPAttr) { to.RNRRetry = from.RNRRetry },
		func(a, b *abi.QPAttr) bool { return a.RNRRetry == b.RNRRetry },
	},
	{
		rdma.QPAttrMinRNRTimer, func(to, from *abi.QPAttr) { to.MinRNRTimer = from.MinRNRTimer },
		func(a, b *abi.QPAttr) bool { return a.MinRNRTimer == b.MinRNRTimer },
	},
	{
		rdma.QPAttrMaxQPRdAtomic, func(to, from *abi.QPAttr) { to.MaxRdAtomic = from.MaxRdAtomic },
		func(a, b *abi.QPAttr) bool { return a.MaxRdAtomic == b.MaxRdAtomic },
	},
	{
		rdma.QPAttrMaxDestRdAtomic, func(to, from *abi.QPAttr) { to.MaxDestRdAtomic = from.MaxDestRdAtomic },
		func(a, b *abi.QPAttr) bool { return a.MaxDestRdAtomic == b.MaxDestRdAtomic },
	},
}

// remember keeps what a modify set.
func (e *endpoint) remember(a *abi.QPAttr, mask rdma.QPAttrMask) {
	if mask&rdma.QPAttrState != 0 && rdma.QPState(a.State) == rdma.QPStateReset {
		e.asked = abi.QPAttr{}
	}
	for _, x := range attributes {
		if mask&x.mask != 0 {
			x.copy(&e.asked, a)
		}
	}
}

// inspect compares what query_qp says with what was set and with the state in shared memory.
func (e *endpoint) inspect() {
	w := e.app.world
	got, refusal := e.app.ctx.QueryQP(e.handle)
	if refusal != nil {
		w.court.Failf("%s: query_qp: %v", e.name, refusal)
		return
	}
	if s := e.qpState(); got.State != uint32(s) {
		w.court.Failf("%s: query_qp says state %d, shared memory %v", e.name, got.State, s)
	}
	for _, x := range attributes {
		if !x.same(&got, &e.asked) {
			w.court.Failf("%s: query_qp: %v differs from what was set", e.name, x.mask)
		}
	}
}

// retune changes attributes while the send queue is drained (IBTA 11.2.5.2).
func (e *endpoint) retune() {
	w := e.app.world
	if !e.isReliable() || e.isTarget() {
		return
	}
	w.mark("cycle.retune")
	w.observe.retuned(e)
	e.modify(&abi.QPAttr{
		State: uint32(rdma.QPStateSQD), AH: e.asked.AH, Timeout: 14, RetryCnt: 7, RNRRetry: 7,
		MaxRdAtomic: uint8(w.pick(1, 4, 16)), MinRNRTimer: uint8(w.pick(1, 4, 8, 12)),
	}, rdma.QPAttrState|rdma.QPAttrAV|rdma.QPAttrTimeout|rdma.QPAttrRetryCnt|rdma.QPAttrRNRRetry|
		rdma.QPAttrMaxQPRdAtomic|rdma.QPAttrMinRNRTimer)
}
