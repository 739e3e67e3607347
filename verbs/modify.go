package verbs

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/rdma"
)

// QPAttr are the attributes of a queue pair (ibv_modify_qp(3), IBTA 11.2.5.2). Modify sets those
// that its mask names; Query fills all.
type QPAttr struct {
	State QPState
	// CurState is what the caller believes the state to be.
	CurState QPState
	PathMTU  MTU
	QKey     QKey
	// RQPSN is the first PSN that the peer will send, SQPSN the first that this side will.
	RQPSN, SQPSN PSN
	DestQPN      QPN
	// Access says what the peer may do at all.
	Access    Access
	Path      AHAttr
	PKeyIndex uint16
	Port      uint8
	// EnSQDAsyncNotify asks for EventSQDrained.
	EnSQDAsyncNotify bool
	// SQDraining says, in a query, that state SQD is not yet drained.
	SQDraining bool
	// MaxRdAtomic bounds READs and atomics in flight from here, MaxDestRdAtomic those from the
	// peer.
	MaxRdAtomic, MaxDestRdAtomic uint8
	// MinRNRTimer is how long the peer shall wait after receiver-not-ready, by the code of IBTA
	// table 46; 12 is 0.64 ms.
	MinRNRTimer uint8
	// Timeout is the local ACK timeout, 4.096 µs × 2^Timeout; 0 is for ever.
	Timeout uint8
	// RetryCnt bounds retries for want of an answer; RNRRetry those for receiver-not-ready, 7 is
	// for ever.
	RetryCnt, RNRRetry uint8

	// Sizes, in a query.
	MaxSendWR, MaxRecvWR, MaxSendSGE, MaxRecvSGE, MaxInline int
}

func (a *QPAttr) abi() abi.QPAttr {
	out := abi.QPAttr{
		State: uint32(a.State), CurState: uint32(a.CurState), PathMTU: uint32(a.PathMTU),
		QKey: uint32(a.QKey), RQPSN: uint32(a.RQPSN), SQPSN: uint32(a.SQPSN),
		DestQPN: uint32(a.DestQPN), AccessFlags: uint32(a.Access), AH: a.Path.abi(),
		PKeyIndex: a.PKeyIndex, MaxRdAtomic: a.MaxRdAtomic, MaxDestRdAtomic: a.MaxDestRdAtomic,
		MinRNRTimer: a.MinRNRTimer, Port: a.Port, Timeout: a.Timeout, RetryCnt: a.RetryCnt,
		RNRRetry: a.RNRRetry,
	}
	if a.EnSQDAsyncNotify {
		out.EnSQDAsyncNotify = 1
	}
	return out
}

func qpAttrFrom(a *abi.QPAttr) QPAttr {
	return QPAttr{
		State: QPState(a.State), CurState: QPState(a.CurState), PathMTU: MTU(a.PathMTU),
		QKey: QKey(a.QKey), RQPSN: PSN(a.RQPSN), SQPSN: PSN(a.SQPSN), DestQPN: QPN(a.DestQPN),
		Access: Access(a.AccessFlags), Path: ahAttrFrom(&a.AH), PKeyIndex: a.PKeyIndex,
		Port: a.Port, EnSQDAsyncNotify: a.EnSQDAsyncNotify != 0, SQDraining: a.SQDraining != 0,
		MaxRdAtomic: a.MaxRdAtomic, MaxDestRdAtomic: a.MaxDestRdAtomic,
		MinRNRTimer: a.MinRNRTimer, Timeout: a.Timeout, RetryCnt: a.RetryCnt, RNRRetry: a.RNRRetry,
		MaxSendWR: int(a.MaxSendWR), MaxRecvWR: int(a.MaxRecvWR), MaxSendSGE: int(a.MaxSendSGE),
		MaxRecvSGE: int(a.MaxRecvSGE), MaxInline: int(a.MaxInline),
	}
}

// Modify sets the attributes that mask names. Masks and transitions are those of
// ibv_modify_qp(3); a wrong one is refused with EINVAL and the attribute's name.
func (q *QP) Modify(attr QPAttr, mask QPAttrMask) error {
	req := abi.ModifyQPReq{Handle: q.handle, Mask: uint32(mask), Attr: attr.abi()}
	_, _, err := call[abi.QueryQPRsp](q.pd.ctx, request{
		op: "modify queue pair", code: abi.OpModifyQP, body: ctl.Bytes(&req), of: q,
	})
	if err == nil && mask&rdma.QPAttrState != 0 && attr.State == rdma.QPStateReset {
		q.forget()
	}
	return err
}

// Query asks the NIC for all attributes.
func (q *QP) Query() (QPAttr, error) {
	req := abi.HandleMsg{Handle: q.handle}
	rsp, _, err := call[abi.QueryQPRsp](q.pd.ctx, request{
		op: "query queue pair", code: abi.OpQueryQP, body: ctl.Bytes(&req), of: q,
	})
	if err != nil {
		return QPAttr{}, err
	}
	return qpAttrFrom(&rsp.Attr), nil
}

// ToInit takes the queue pair from RESET to INIT. Port, PKeyIndex, and Access or, for UD, QKey
// count; Port 0 means 1.
func (q *QP) ToInit(attr QPAttr) error {
	attr.State = rdma.QPStateInit
	if attr.Port == 0 {
		attr.Port = 1
	}
	mask := QPAttrState | QPAttrPKeyIndex | QPAttrPort
	if q.cfg.Type == rdma.QPTypeUD {
		mask |= QPAttrQKey
	} else {
		mask |= QPAttrAccessFlags
	}
	return q.Modify(attr, mask)
}

// ToRTR takes the queue pair from INIT to RTR, ready to receive. For RC and UC Path, PathMTU,
// DestQPN and RQPSN count; for RC also MaxDestRdAtomic and MinRNRTimer; for UD nothing.
func (q *QP) ToRTR(attr QPAttr) error {
	attr.State = rdma.QPStateRTR
	mask := QPAttrState
	if q.cfg.Type != rdma.QPTypeUD {
		mask |= QPAttrAV | QPAttrPathMTU | QPAttrDestQPN | QPAttrRQPSN
	}
	if q.cfg.Type == rdma.QPTypeRC {
		mask |= QPAttrMaxDestRdAtomic | QPAttrMinRNRTimer
	}
	return q.Modify(attr, mask)
}

// ToRTS takes the queue pair from RTR to RTS, ready to send. SQPSN counts; for RC also Timeout,
// RetryCnt, RNRRetry and MaxRdAtomic.
func (q *QP) ToRTS(attr QPAttr) error {
	attr.State = rdma.QPStateRTS
	mask := QPAttrState | QPAttrSQPSN
	if q.cfg.Type == rdma.QPTypeRC {
		mask |= QPAttrTimeout | QPAttrRetryCnt | QPAttrRNRRetry | QPAttrMaxQPRdAtomic
	}
	return q.Modify(attr, mask)
}

// ToReset takes the queue pair back to RESET. Its work requests and completions vanish.
func (q *QP) ToReset() error { return q.Modify(QPAttr{State: rdma.QPStateReset}, QPAttrState) }

// ToError takes the queue pair to ERR: every outstanding work request completes, flushed.
func (q *QP) ToError() error { return q.Modify(QPAttr{State: rdma.QPStateError}, QPAttrState) }
