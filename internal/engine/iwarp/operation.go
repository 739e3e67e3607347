package iwarp

import (
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

// kind is what a send work request does, as far as the requester treats it differently.
type kind uint8

const (
	kindNone kind = iota
	kindSend
	kindWrite
	kindRead
	kindAtomic
	// kindLocal is done on this side alone, in its turn: bind and local invalidate.
	kindLocal
)

// operation is a row of the table of send work request opcodes.
type operation struct {
	kind   kind
	wc     rdma.WCOpcode
	hasImm bool
	hasInv bool
}

// operations is indexed by rdma.WROpcode; a row without a kind is an operation that iWARP does not
// have.
//
//tidy:table
var operations = [...]operation{
	rdma.WRWrite:           {kind: kindWrite, wc: rdma.WCOpWrite},
	rdma.WRWriteWithImm:    {kind: kindWrite, wc: rdma.WCOpWrite, hasImm: true},
	rdma.WRSend:            {kind: kindSend, wc: rdma.WCOpSend},
	rdma.WRSendWithImm:     {kind: kindSend, wc: rdma.WCOpSend, hasImm: true},
	rdma.WRSendWithInv:     {kind: kindSend, wc: rdma.WCOpSend, hasInv: true},
	rdma.WRRead:            {kind: kindRead, wc: rdma.WCOpRead},
	rdma.WRCompareSwap:     {kind: kindAtomic, wc: rdma.WCOpCompareSwap},
	rdma.WRFetchAdd:        {kind: kindAtomic, wc: rdma.WCOpFetchAdd},
	rdma.WRBindMW:          {kind: kindLocal, wc: rdma.WCOpBindMW},
	rdma.WRLocalInvalidate: {kind: kindLocal, wc: rdma.WCOpLocalInvalidate},
}

var noOperation operation

// operationOf returns the row of an opcode; that of an unknown one has kind kindNone.
func operationOf(code uint8) *operation {
	if int(code) < len(operations) {
		return &operations[code]
	}
	return &noOperation
}

// isAnswered reports a request that only the peer's answer completes.
func (o *operation) isAnswered() bool { return o.kind == kindRead || o.kind == kindAtomic }

// isMoving reports that the local bytes go to the peer.
func (o *operation) isMoving() bool { return o.kind == kindSend || o.kind == kindWrite }

// sendOpcode returns the message that a SEND is.
func (o *operation) sendOpcode(isSolicited bool) iwarp.Opcode {
	switch {
	case o.hasInv && isSolicited:
		return iwarp.OpcodeSendSolicitedInv
	case o.hasInv:
		return iwarp.OpcodeSendInvalidate
	case isSolicited:
		return iwarp.OpcodeSendSolicited
	}
	return iwarp.OpcodeSend
}
