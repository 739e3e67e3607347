package nic

import (
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
)

// InitQPAttr returns the attributes and mask that move the identifier's queue pair to a state, for
// the program to apply (rdma_init_qp_attr(3)).
func (s *CMSession) InitQPAttr(req *abi.CMInitQPAttrReq) (abi.CMInitQPAttrRsp, *rdma.Refusal) {
	var rsp abi.CMInitQPAttrRsp
	i, r := s.find(req.ID)
	if r != nil {
		return rsp, r
	}
	if !i.binding.isBound {
		return rsp, refusef(syscall.EINVAL, "init_qp_attr: the identifier is bound to no device")
	}
	if i.isStreamed() {
		return i.streamAttr(req)
	}
	mask := rdma.QPAttrMask(0)
	switch to := rdma.QPState(req.State); {
	case i.isDatagram() && (to == sInit || to == sRTR || to == sRTS):
		_ = i.setQKey(0)
		rsp.Attr.QKey, rsp.Attr.Port = uint32(i.qkey), thePort
		mask = aPKey | aPort | aQKey
	case to == sInit:
		mask = i.initAttr(&rsp.Attr)
	case to == sRTR && i.isConnectable():
		mask = i.rtrAttr(&rsp.Attr)
	case to == sRTS && i.isConnectable():
		mask = i.rtsAttr(&rsp.Attr)
	default:
		return rsp, refusef(syscall.EINVAL, "init_qp_attr: no attributes for %v: the identifier is %v",
			to, i.state)
	}
	rsp.Attr.State = req.State
	rsp.Mask = uint32(mask | rdma.QPAttrState)
	return rsp, nil
}

// isConnectable reports that the peer is known and the connection not over.
func (i *identifier) isConnectable() bool {
	switch i.state {
	case idRequested, idReplied, idAccepted, idEstablished:
		return i.peer.isKnown
	default:
		return false
	}
}

// initAttr opens a queue pair of a connection for WRITE, and for READ and atomics if there are to
// be any.
func (i *identifier) initAttr(a *abi.QPAttr) rdma.QPAttrMask {
	a.Port = thePort
	if i.call != 0 {
		access := rdma.AccessRemoteWrite
		if i.peer.responderResources > 0 {
			access |= rdma.AccessRemoteRead | rdma.AccessRemoteAtomic
		}
		a.AccessFlags = uint32(access)
	}
	return aPKey | aPort | aAccess
}

// rtrAttr directs a queue pair at the peer. PSNs are chosen by who receives them: the starting PSN
// of REQ and REP is where its sender expects the other side to begin (IBTA 12.7.31).
func (i *identifier) rtrAttr(a *abi.QPAttr) rdma.QPAttrMask {
	a.AH, a.PathMTU = i.ah(i.binding.remote), uint32(i.peer.mtu)
	a.DestQPN, a.RQPSN = uint32(i.peer.qpn), uint32(i.startPSN)
	mask := aAV | aMTU | aDest | aRQPSN
	if i.qpType == rdma.QPTypeRC || i.qpType == rdma.QPTypeXRCRecv {
		// RNR timer code 0 is 655 ms, as the Linux kernel has it: programs with few RNR retries
		// count on it.
		a.MaxDestRdAtomic, a.MinRNRTimer = i.peer.responderResources, 0
		mask |= aDestRd | aMinRNR
	}
	return mask
}

func (i *identifier) rtsAttr(a *abi.QPAttr) rdma.QPAttrMask {
	a.SQPSN = uint32(i.peer.psn)
	mask := aSQPSN
	if i.qpType == rdma.QPTypeRC || i.qpType == rdma.QPTypeXRCSend {
		a.RetryCnt, a.RNRRetry = i.peer.retryCount, i.peer.rnrRetry
		a.MaxRdAtomic = i.peer.initiatorDepth
		mask |= aRetry | aRNR | aRdAtom
	}
	if i.qpType != rdma.QPTypeUC {
		a.Timeout = i.peer.ackTimeout
		if i.options.isAckTimeoutSet {
			a.Timeout = i.options.ackTimeout
		}
		mask |= aTimeout
	}
	return mask
}
