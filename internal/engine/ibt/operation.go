package ibt

import (
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

// kind is what a send work request does, as far as the requester treats it differently.
type kind uint8

const (
	kindNone kind = iota
	kindSend
	kindWrite
	kindRead
	kindAtomic
	// kindPlace is an ATOMIC WRITE or a FLUSH, which an empty READ response answers.
	kindPlace
	// kindLocal is done on this side alone, in its turn: bind and local invalidate.
	kindLocal
)

// operation is a row of the table of send work request opcodes.
type operation struct {
	kind  kind
	wc    rdma.WCOpcode
	types qpTypes
	// isMoving says that the local bytes go to the peer.
	isMoving bool
	// Opcodes without the bits of the service. Only stands for the packets that are alone by nature.
	first, middle, last, only ib.Opcode
	// takesReceive says that the peer needs a receive for it (IBTA 9.7.7.2: end-to-end credits).
	takesReceive bool
}

// qpTypes is a set of rdma.QPType.
type qpTypes uint32

func typeSet(types ...rdma.QPType) qpTypes {
	var s qpTypes
	for _, t := range types {
		s |= 1 << t
	}
	return s
}

func (s qpTypes) has(t rdma.QPType) bool { return s>>t&1 != 0 }

var (
	typesReliable  = typeSet(rdma.QPTypeRC, rdma.QPTypeXRCSend)
	typesConnected = typesReliable | typeSet(rdma.QPTypeUC)
	typesAny       = typesConnected | typeSet(rdma.QPTypeUD)
)

// operations is indexed by rdma.WROpcode (IBTA 10.8.2 and table 38); a row without a kind is an
// operation that no queue pair here has.
//
//tidy:table
var operations = [...]operation{
	rdma.WRWrite: {
		kind: kindWrite, isMoving: true, wc: rdma.WCOpWrite, types: typesConnected,
		first: ib.RCWriteFirst, middle: ib.RCWriteMiddle, last: ib.RCWriteLast, only: ib.RCWriteOnly,
	},
	rdma.WRWriteWithImm: {
		kind: kindWrite, isMoving: true, wc: rdma.WCOpWrite, types: typesConnected, takesReceive: true,
		first: ib.RCWriteFirst, middle: ib.RCWriteMiddle,
		last: ib.RCWriteLastImm, only: ib.RCWriteOnlyImm,
	},
	rdma.WRSend: {
		kind: kindSend, isMoving: true, wc: rdma.WCOpSend, types: typesAny, takesReceive: true,
		first: ib.RCSendFirst, middle: ib.RCSendMiddle, last: ib.RCSendLast, only: ib.RCSendOnly,
	},
	rdma.WRSendWithImm: {
		kind: kindSend, isMoving: true, wc: rdma.WCOpSend, types: typesAny, takesReceive: true,
		first: ib.RCSendFirst, middle: ib.RCSendMiddle,
		last: ib.RCSendLastImm, only: ib.RCSendOnlyImm,
	},
	rdma.WRSendWithInv: {
		kind: kindSend, isMoving: true, wc: rdma.WCOpSend, types: typesReliable, takesReceive: true,
		first: ib.RCSendFirst, middle: ib.RCSendMiddle,
		last: ib.RCSendLastInv, only: ib.RCSendOnlyInv,
	},
	rdma.WRRead: {
		kind: kindRead, wc: rdma.WCOpRead, types: typesReliable, only: ib.RCReadRequest,
	},
	rdma.WRCompareSwap: {
		kind: kindAtomic, wc: rdma.WCOpCompareSwap, types: typesReliable, only: ib.RCCompareSwap,
	},
	rdma.WRFetchAdd: {
		kind: kindAtomic, wc: rdma.WCOpFetchAdd, types: typesReliable, only: ib.RCFetchAdd,
	},
	rdma.WRAtomicWrite: {
		kind: kindPlace, wc: rdma.WCOpAtomicWrite, types: typeSet(rdma.QPTypeRC),
		only: ib.RCAtomicWrite, isMoving: true,
	},
	rdma.WRFlush: {
		kind: kindPlace, wc: rdma.WCOpFlush, types: typesReliable, only: ib.RCFlush,
	},
	rdma.WRBindMW:          {kind: kindLocal, wc: rdma.WCOpBindMW, types: typesConnected},
	rdma.WRLocalInvalidate: {kind: kindLocal, wc: rdma.WCOpLocalInvalidate, types: typesConnected},
}

// isAnswered reports a request that only its own answer completes: an acknowledge of a later one
// shows that the answer was lost. Such requests take responder resources (IBTA 9.4.4, A19.4.3).
func (o *operation) isAnswered() bool {
	return o.kind == kindRead || o.kind == kindAtomic || o.kind == kindPlace
}

// allows reports that a request may have n local bytes (IBTA 9.4.5, A19.4.3, A19.4.4).
func (o *operation) allows(n uint64) bool {
	switch {
	case o.kind == kindAtomic, o.wc == rdma.WCOpAtomicWrite:
		return n == 8
	case o.kind == kindPlace:
		return n == 0
	}
	return true
}

var noOperation operation

// operationOf returns the row of an opcode; that of an unknown one has kind kindNone.
func operationOf(code uint8) *operation {
	if int(code) < len(operations) {
		return &operations[code]
	}
	return &noOperation
}

// serviceBase returns the upper three bits of the opcodes that a type of QP sends (IBTA 9.2.1).
func serviceBase(t rdma.QPType) ib.Opcode {
	switch t {
	case rdma.QPTypeUC:
		return ib.UCSendFirst
	case rdma.QPTypeUD:
		return ib.UDSendOnly &^ 0x1f
	case rdma.QPTypeXRCSend, rdma.QPTypeXRCRecv:
		return ib.XRCSendFirst
	default:
		return ib.RCSendFirst
	}
}
