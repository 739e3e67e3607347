package explain

import (
	"fmt"
	"strings"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

// oneOf lists what cannot be told apart.
func oneOf(causes []string) string { return strings.Join(causes, "; or ") }

// likely is what stands behind such evidence, if anything can be said beyond it. Where the evidence
// leaves several causes, all are told.
func likely(c *abi.Cause) string {
	text := likelyCause(c)
	if text == "" {
		return ""
	}
	return "likely: " + text
}

func likelyCause(c *abi.Cause) string {
	switch {
	case mem.Fault(c.Fault) != mem.FaultNone:
		return faultCause(c)
	case vendorOf(c) == abi.VendorAlignment:
		return LikelyCauseOf(rdma.WCSuccess, c.Vendor)
	case hasTerminate(c):
		return terminateCause(c)
	case isOfPeer(c):
		return peerCause(c)
	case vendorOf(c) == abi.VendorNak:
		return nakCause(c)
	case vendorOf(c) == abi.VendorLength:
		return lengthCause(c)
	case vendorOf(c) == abi.VendorOpcode:
		return fmt.Sprintf("a queue pair of type %v has no operation %v", rdma.QPType(c.QPType),
			rdma.WROpcode(c.Opcode))
	case vendorOf(c) == abi.VendorRDAtomic:
		return "max_rd_atomic of this queue pair is 0 (ibv_modify_qp to RTS)"
	}
	return LikelyCauseOf(rdma.WCStatus(c.Status), c.Vendor)
}

// terminateCause is what a Terminate of iWARP stands for, given the request.
func terminateCause(c *abi.Cause) string {
	op := rdma.WROpcode(c.Opcode)
	isAtomic := op == rdma.WRCompareSwap || op == rdma.WRFetchAdd
	if !isOfPeer(c) && isAtomic && c.Addr%8 != 0 &&
		iwarp.Code(c.Terminate) == iwarp.CodeOperationOther {
		return unaligned(c)
	}
	if text := messageCause(c); text != "" {
		return text
	}
	e, _ := Of(KindTerminate, uint32(c.Terminate))
	return oneOf(e.Causes)
}

// messageCause is why a message of the peer was refused that has one form only, and not that one;
// "" for others. The code of the Terminate is the same for much else.
func messageCause(c *abi.Cause) string {
	op, code := iwarp.Opcode(c.Opcode), iwarp.Code(c.Terminate)
	length := op.Info().ContentLen
	isForm := code == iwarp.CodeOperationOther || code == iwarp.CodeUntaggedTooLong
	switch {
	case !isOfPeer(c) || length == 0 || !isForm:
		return ""
	case vendorOf(c) == abi.VendorLength:
		return fmt.Sprintf("%s: %v has %d bytes, and came with another length; or %s", broken, op,
			length, mangled)
	case vendorOf(c) == abi.VendorOpcode:
		return "the peer asks for an atomic operation that this adapter does not have: neither" +
			" compare and swap nor fetch and add"
	}
	return fmt.Sprintf("%s: %v came in parts, or answers another request than the oldest", broken,
		op)
}

func unaligned(c *abi.Cause) string {
	return fmt.Sprintf("the remote address %#x is not a multiple of 8", c.Addr)
}

// isBind reports a request of this side that was to bind a memory window.
func isBind(c *abi.Cause) bool {
	return !isOfPeer(c) && rdma.WROpcode(c.Opcode) == rdma.WRBindMW
}

// isInvalidate reports evidence about a key that was to be invalidated.
func isInvalidate(c *abi.Cause) bool {
	switch {
	case !isOfPeer(c):
		return rdma.WROpcode(c.Opcode) == rdma.WRLocalInvalidate
	case vendorOf(c) != abi.VendorRemoteRights:
		return false
	case hasTerminate(c):
		op := iwarp.Opcode(c.Opcode)
		return op == iwarp.OpcodeSendInvalidate || op == iwarp.OpcodeSendSolicitedInv
	}
	return ib.Opcode(c.Opcode).Info().Headers.Has(ib.HasIETH)
}

// isOfReceive reports evidence about the list of a receive, which is judged by the protection
// domain of its queue.
func isOfReceive(c *abi.Cause) bool {
	isRemote := vendorOf(c) == abi.VendorRemoteRights
	return isOfPeer(c) && c.Flags&abi.CauseTookReceive != 0 && !isRemote
}

// faultCause is why memory or a key could not be used.
func faultCause(c *abi.Cause) string {
	switch fault := mem.Fault(c.Fault); {
	case vendorOf(c) == abi.VendorAddressHandle:
		return "ibv_create_ah and ibv_create_qp were given different protection domains"
	case fault == mem.FaultRights && isBind(c):
		return "the region was registered without " + missingForBind(c).String()
	case fault == mem.FaultRights:
		return rightsCause(c)
	case fault == mem.FaultPD && isOfReceive(c):
		return "the region and the receive's queue (the shared one, else the queue pair) were made" +
			" from different PDs"
	case fault == mem.FaultPD && isOfPeer(c) && rdma.QPType(c.QPType) == rdma.QPTypeXRCRecv:
		return "the region and the shared receive queue that the peer named are of different PDs"
	case fault == mem.FaultPD && (isBind(c) || isInvalidate(c)):
		return "window and queue pair were made from different PDs"
	case fault == mem.FaultKey && isBind(c):
		return "the window was freed, or the key is not one that ibv_inc_rkey makes of the window's"
	case fault == mem.FaultKey && isInvalidate(c):
		return "the key is not the one of the window's last bind, or the window was freed"
	case fault == mem.FaultUnbound && isInvalidate(c):
		return "the window was invalidated already, or never bound"
	}
	e, _ := Of(KindFault, uint32(c.Fault))
	return oneOf(e.Causes)
}

// missingForBind is what the region of a bind should grant and does not (IBTA C10-73, C10-74).
func missingForBind(c *abi.Cause) rdma.Access {
	const (
		writing  = rdma.AccessRemoteWrite | rdma.AccessRemoteAtomic
		flushing = rdma.AccessFlushGlobal | rdma.AccessFlushPersist
	)
	asked := rdma.Access(c.Asked)
	need := rdma.AccessMWBind | asked&flushing
	if asked&writing != 0 {
		need |= rdma.AccessLocalWrite
	}
	return need &^ rdma.Access(c.Granted)
}

// rightsCause is where a right is missing: in the region, in the window, in the queue pair.
func rightsCause(c *abi.Cause) string {
	var out []string
	asked := rdma.Access(c.Asked)
	if missing := asked &^ rdma.Access(c.Granted); c.Flags&abi.CauseHasRegion != 0 && missing != 0 {
		verb := "the region was registered"
		if c.Window != 0 {
			verb = "the memory window was bound"
		}
		out = append(out, fmt.Sprintf("%s without %v", verb, missing))
	}
	// Atomics of iWARP are not the queue pair's to grant.
	isOfQP := isOfPeer(c) && (!hasTerminate(c) || asked != rdma.AccessRemoteAtomic)
	if missing := asked &^ rdma.Access(c.QPAccess); isOfQP && missing != 0 {
		out = append(out, fmt.Sprintf("qp_access_flags of this queue pair lack %v", missing))
	}
	if len(out) == 0 {
		return LikelyCause(KindFault, uint32(mem.FaultRights))
	}
	return strings.Join(out, "; and ")
}

// peerCause is why a request of the peer was refused here, where no memory was at fault.
func peerCause(c *abi.Cause) string {
	switch v := vendorOf(c); {
	case v == abi.VendorLength && c.Flags&abi.CauseHasRoom != 0:
		return "the receive is shorter than the message"
	case v == abi.VendorLength:
		return oneOf([]string{
			"path_mtu differs at the two ends", "the peer's message is not as long as it says",
		})
	case v == abi.VendorOpcode:
		return oneOf([]string{
			"this adapter does not have the operation", "the peer sends packets in a wrong order",
		})
	case v == abi.VendorRDAtomic:
		return fmt.Sprintf("max_rd_atomic of the peer is over max_dest_rd_atomic, %d, here",
			c.MaxRdAtomic)
	case v != abi.VendorNone:
		return LikelyCauseOf(rdma.WCSuccess, c.Vendor)
	}
	return ""
}

// lengthCause is why a request of this side has a wrong length.
func lengthCause(c *abi.Cause) string {
	switch {
	case isExact(c):
		return fmt.Sprintf("the local list of %v has exactly %d bytes", rdma.WROpcode(c.Opcode),
			c.RegionLength)
	case rdma.QPType(c.QPType) == rdma.QPTypeUD:
		return "a datagram is one packet, at most path MTU bytes long"
	}
	return "a message is at most max_msg_sz bytes long"
}

// isExact reports a request whose local list has one length only.
func isExact(c *abi.Cause) bool {
	switch rdma.WROpcode(c.Opcode) {
	case rdma.WRCompareSwap, rdma.WRFetchAdd, rdma.WRAtomicWrite, rdma.WRFlush:
		return !isOfPeer(c)
	default:
		return false
	}
}

// nakCause is what the peer's NAK may stand for, given the request. The peer knows more.
func nakCause(c *abi.Cause) string {
	switch ib.Syndrome(c.Syndrome) {
	case ib.NAK(ib.NAKInvalidRequest):
		return invalidCause(c)
	case ib.NAK(ib.NAKRemoteAccess):
		if rdma.WROpcode(c.Opcode) == rdma.WRSendWithInv {
			return "the key to invalidate is none that the peer's queue pair has bound to a window"
		}
	case ib.NAK(ib.NAKRemoteOp):
		const gone = "the memory of the peer's process is gone"
		if takesReceive(c) {
			return oneOf([]string{"the receive at the peer has a bad lkey or address", gone})
		}
		return gone
	}
	return LikelyCauseOf(rdma.WCStatus(c.Status), c.Vendor)
}

func takesReceive(c *abi.Cause) bool {
	op := rdma.WROpcode(c.Opcode)
	return isSend(op) || op == rdma.WRWriteWithImm
}

func isSend(op rdma.WROpcode) bool {
	return op == rdma.WRSend || op == rdma.WRSendWithImm || op == rdma.WRSendWithInv
}

// invalidCause lists what makes a request invalid for a responder (IBTA 9.7.4.1, 9.9.3).
func invalidCause(c *abi.Cause) string {
	const (
		mtu   = "path_mtu differs at the two ends"
		depth = "more READs and atomics are in flight than max_dest_rd_atomic there"
		none  = "the peer's adapter does not have the operation"
		lacks = "qp_access_flags of the peer's queue pair lack "
	)
	op := rdma.WROpcode(c.Opcode)
	isAtomic := op == rdma.WRCompareSwap || op == rdma.WRFetchAdd
	if (isAtomic || op == rdma.WRAtomicWrite) && c.Addr%8 != 0 {
		return unaligned(c)
	}
	var out []string
	switch {
	case isSend(op):
		out = []string{"the message is longer than the receive at the peer", mtu}
	case op == rdma.WRWrite, op == rdma.WRWriteWithImm:
		out = []string{lacks + rdma.AccessRemoteWrite.String(), mtu}
	case op == rdma.WRRead:
		out = []string{lacks + rdma.AccessRemoteRead.String(), depth}
	case isAtomic:
		out = []string{lacks + rdma.AccessRemoteAtomic.String(), depth, none}
	case op == rdma.WRAtomicWrite:
		out = []string{lacks + rdma.AccessRemoteWrite.String(), depth, none}
	case op == rdma.WRFlush:
		out = []string{lacks + "what it asks for (flush_global, flush_persistent)", depth, none}
	default:
		out = []string{none}
	}
	if rdma.QPType(c.QPType) == rdma.QPTypeXRCSend {
		out = append(out, "no shared receive queue of that number is in the peer's XRC domain")
	}
	return oneOf(out)
}

// severalCauses are statuses that stand for several things, none of which is the likeliest.
var severalCauses = map[rdma.WCStatus]bool{
	rdma.WCLocLenErr: true, rdma.WCLocQPOpErr: true, rdma.WCMWBindErr: true,
	rdma.WCRemInvReqErr: true, rdma.WCRemAccessErr: true, rdma.WCRemOpErr: true,
	rdma.WCLocProtErr: true,
}

// LikelyCauseOf is what stands behind a completion status with its vendor_err, or "".
func LikelyCauseOf(status rdma.WCStatus, vendor uint32) string {
	switch v := abi.Vendor(vendor & 0xff); v {
	case abi.VendorNak, abi.VendorNone, abi.VendorFlushed, abi.VendorLength, abi.VendorModified:
	default:
		if e, ok := Of(KindEvidence, uint32(v)); ok && len(e.Causes) > 0 {
			return oneOf(e.Causes)
		}
	}
	switch {
	case status == rdma.WCSuccess, status == rdma.WCWRFlushErr:
		return ""
	case severalCauses[status]:
		e, _ := Of(KindStatus, uint32(status))
		return oneOf(e.Causes)
	}
	return LikelyCause(KindStatus, uint32(status))
}
