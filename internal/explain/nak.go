package explain

import (
	"fmt"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

//tidy:table
var naks = []Entry{
	{
		Code: uint32(ib.NAKSequence), Name: "NAK_PSN_SEQUENCE_ERROR", Words: "PSN sequence error",
		Also:   []string{"sequence NAK", "sequence error", "psn error"},
		Means:  "The responder got a packet ahead of the one that it expects: something was lost or overtaken. The requester goes back and sends again; programs notice nothing until retry_cnt is used up.",
		Causes: []string{"packets lost on the network, or in a full socket buffer", "reordering by the network", "first PSNs that do not agree (sq_psn here, rq_psn there), when it happens from the start"},
		Look:   []string{"rnic stat: out_of_seq_request, rcvd_seq_err; socket buffers in rnic devinfo"},
	},
	{
		Code: uint32(ib.NAKInvalidRequest), Name: "NAK_INVALID_REQUEST", Words: "invalid request",
		Means:  "The responder does not take such a request. Both queue pairs are in error; the requester sees IBV_WC_REM_INV_REQ_ERR.",
		Causes: []string{"the message is longer than the receive", "more READs or atomics than max_dest_rd_atomic", "an atomic address that is not a multiple of 8", "an operation that the responder does not have"},
		Look:   []string{"rnic ps --errors on the responder's host"},
	},
	{
		Code: uint32(ib.NAKRemoteAccess), Name: "NAK_REMOTE_ACCESS_ERROR", Words: "remote access error",
		Means:  "The responder refuses the memory that the request names. Both queue pairs are in error; the requester sees IBV_WC_REM_ACCESS_ERR.",
		Causes: []string{"rkey unknown or outdated, range outside the region, right missing on region or queue pair, other protection domain"},
		Look:   []string{"rnic ps --errors on the responder's host tells which"},
	},
	{
		Code: uint32(ib.NAKRemoteOp), Name: "NAK_REMOTE_OPERATIONAL_ERROR", Words: "remote operational error",
		Means:  "The responder failed by its own fault. Both queue pairs are in error; the requester sees IBV_WC_REM_OP_ERR.",
		Causes: []string{"the receive there has a bad lkey or address", "the memory of the process there is gone"},
		Look:   []string{"completions and rnic ps --errors at the responder"},
	},
	{Code: uint32(ib.NAKInvalidRD), Name: "NAK_INVALID_RD_REQUEST", Words: "invalid RD request", Means: reserved},
}

// syndromes are all that an AETH can begin with: the NAKs, the waits of receiver-not-ready, and
// the acknowledges.
func syndromes() []Entry {
	var out []Entry
	for c := ib.NAKSequence; c.IsKnown(); c++ {
		nak := naks[c]
		nak.Code = uint32(ib.NAK(c))
		nak.Name = fmt.Sprintf("SYNDROME_%#02x", nak.Code)
		nak.Words = "NAK " + nak.Words
		nak.Also = nil
		out = append(out, nak)
	}
	for t := ib.RNRTimer(0); t.IsValid(); t++ {
		out = append(out, Entry{
			Code: uint32(ib.RNRNAK(t)), Name: fmt.Sprintf("SYNDROME_%#02x", uint8(ib.RNRNAK(t))),
			Words: fmt.Sprintf("RNR NAK, timer code %d", t),
			Also:  []string{fmt.Sprintf("min_rnr_timer %d", t), fmt.Sprintf("rnr timer %d", t)},
			Means: fmt.Sprintf("Receiver not ready: the responder has no receive posted, and the"+
				" requester is to wait at least %v before it tries again (code %d, min_rnr_timer of"+
				" the responder's queue pair). It counts against rnr_retry; 7 means for ever.",
				t.Duration(), t),
			Causes: []string{"receives are posted too late, or too few"},
			Look:   []string{"receives posted at the responder; rnic stat: send_rnr_err, rcvd_rnr_err"},
			Source: "IBTA 9.7.5.2.8",
		})
	}
	for c := ib.CreditCode(0); c <= ib.CreditsInvalid; c++ {
		means := "Acknowledge without credits: the responder has no end-to-end flow control (as with a" +
			" shared receive queue), so the requester sends as it likes."
		if n, ok := c.Decode(); ok {
			means = fmt.Sprintf("Acknowledge: the responder has receives for %d more messages. Above"+
				" that, the requester sends one packet at a time and waits.", n)
		}
		out = append(out, Entry{
			Code: uint32(ib.ACK(c)), Name: fmt.Sprintf("SYNDROME_%#02x", uint8(c)),
			Words: "ACK, " + c.String(), Means: means, Source: "IBTA 9.7.7.2",
		})
	}
	return out
}

//tidy:table
var evidence = []Entry{
	{Code: uint32(abi.VendorNone), Name: "RNIC_VENDOR_NONE", Words: "no evidence", Means: "Nothing more is known than the status says."},
	{Code: uint32(abi.VendorNak), Name: "RNIC_VENDOR_NAK", Words: "the peer answered with a NAK", Means: "The peer's adapter refused the request. Bits 8–15 of vendor_err hold the syndrome.", Look: []string{"rnic explain syndrome 0xNN", "rnic ps --errors on the peer's host"}},
	{Code: uint32(abi.VendorAckTimeout), Name: "RNIC_VENDOR_ACK_TIMEOUT", Words: "no answer within timeout × (retry_cnt + 1)", Means: "Packets were sent again and again, and nothing came back.", Causes: []string{"the peer's queue pair is not ready, in error or gone", "wrong GID or QP number", "a firewall drops UDP port 4791"}},
	{Code: uint32(abi.VendorSequence), Name: "RNIC_VENDOR_SEQUENCE", Words: "packets were lost until retry_cnt ran out", Means: "The peer answers, but packets kept getting lost: it reported gaps more often than retry_cnt allows.", Causes: []string{"heavy loss on the path", "first PSNs that do not agree", "a path MTU that the path does not carry: only full packets are lost"}},
	{Code: uint32(abi.VendorRNR), Name: "RNIC_VENDOR_RNR", Words: "no receive at the peer until rnr_retry ran out", Means: "The peer answered receiver-not-ready more often than rnr_retry allows.", Causes: []string{"the peer posted no receive"}},
	{Code: uint32(abi.VendorNoNIC), Name: "RNIC_VENDOR_NO_NIC", Words: "no NIC at the peer's address", Means: "The peer's host answered that nothing listens on UDP port 4791 (ICMP port unreachable).", Causes: []string{"SoftRNIC or rdma_rxe is not running there", "a firewall rejects the port"}, Look: []string{"rnic devinfo on the peer's host"}},
	{Code: uint32(abi.VendorLocalKey), Name: "RNIC_VENDOR_LOCAL_KEY", Words: "an lkey is unknown, of another PD, or lacks the right", Means: "A scatter/gather entry of this side cannot be used.", Look: []string{"rnic ps --errors: the key, and the rights asked and held"}},
	{Code: uint32(abi.VendorLocalBounds), Name: "RNIC_VENDOR_LOCAL_BOUNDS", Words: "an entry lies outside its region", Means: "Address and length of a scatter/gather entry leave the region of its lkey.", Look: []string{"rnic ps --errors: both ranges"}},
	{Code: uint32(abi.VendorLocalFault), Name: "RNIC_VENDOR_LOCAL_FAULT", Words: "the program's memory cannot be reached", Means: "The region exists, but its memory does not: reading or writing the process failed.", Causes: []string{"the memory was unmapped, or made read-only, after it was registered"}},
	{Code: uint32(abi.VendorLength), Name: "RNIC_VENDOR_LENGTH", Words: "a length is wrong", Means: "The message is longer than allowed, or than the receive buffers, or a packet is not as long as its place in the message asks for.", Causes: []string{"the receive is shorter than the message", "different path MTUs at the two ends"}},
	{Code: uint32(abi.VendorOpcode), Name: "RNIC_VENDOR_OPCODE", Words: "the operation is not allowed on this QP", Means: "The queue pair type does not have the operation, or its packets came in an impossible order."},
	{Code: uint32(abi.VendorAddressHandle), Name: "RNIC_VENDOR_ADDRESS_HANDLE", Words: "the address handle is unknown or of another PD", Means: "A datagram's address handle cannot be used.", Causes: []string{"it was destroyed before its sends completed", "it was made in another protection domain than the queue pair"}, Look: []string{"rnic ps --errors tells which"}},
	{Code: uint32(abi.VendorNoAddress), Name: "RNIC_VENDOR_NO_ADDRESS", Words: "the datagram has no address handle", Means: "A datagram was posted without an address.", Causes: []string{"ibv_wr_set_ud_addr was not called"}},
	{Code: uint32(abi.VendorInline), Name: "RNIC_VENDOR_INLINE", Words: "inline data with an operation that sends none", Means: "READs and atomics bring data back, so they cannot have any inside the work request. Libraries refuse such a post (EINVAL).", Causes: []string{"IBV_SEND_INLINE with a READ or an atomic"}},
	{Code: uint32(abi.VendorAlignment), Name: "RNIC_VENDOR_ALIGNMENT", Words: "the remote address is not a multiple of 8", Means: "An atomic or an atomic write of the peer names an address that is not a multiple of 8.", Causes: []string{"the peer's remote address is not a multiple of 8"}},
	{Code: uint32(abi.VendorBadWQE), Name: "RNIC_VENDOR_BAD_WQE", Words: "the work request is malformed", Means: "What lies in the shared queue is no work request for it. Libraries refuse to post such requests.", Causes: []string{"flags or counts that the queue pair was not made for", "the program wrote over the queue"}},
	{Code: uint32(abi.VendorBadResponse), Name: "RNIC_VENDOR_BAD_RESPONSE", Words: "the response does not fit the request", Means: "The peer's answer has a wrong length or order.", Causes: []string{"different path MTUs at the two ends"}},
	{Code: uint32(abi.VendorNoRoute), Name: "RNIC_VENDOR_NO_ROUTE", Words: "the source GID is gone, or there is no route", Means: "The packet could not be addressed.", Causes: []string{"an IP address was taken away from the interface"}, Look: []string{"rnic devinfo: the GID table"}},
	{Code: uint32(abi.VendorRemoteRights), Name: "RNIC_VENDOR_REMOTE_RIGHTS", Words: "the peer asked for more than key or QP grants", Means: "A request of the peer was refused here.", Causes: []string{"the peer uses a wrong or outdated rkey, or one that lacks the right"}, Look: []string{"rnic ps --errors"}},
	{Code: uint32(abi.VendorRDAtomic), Name: "RNIC_VENDOR_RD_ATOMIC", Words: "more READs or atomics than agreed", Means: "max_rd_atomic of this queue pair is 0, or the peer has more READs and atomics in flight than max_dest_rd_atomic allows.", Causes: []string{"max_rd_atomic of the requester exceeds max_dest_rd_atomic of the responder", "max_rd_atomic of the requester is 0"}},
	{Code: uint32(abi.VendorFlushed), Name: "RNIC_VENDOR_FLUSHED", Words: "the QP was in error before", Means: "The request was flushed. The first failed completion of the queue pair says why.", Look: []string{"rnic ps --errors"}},
	{Code: uint32(abi.VendorWindow), Name: "RNIC_VENDOR_WINDOW", Words: "a memory window could not be bound or invalidated", Means: "Binding a window, or invalidating its key, was refused.", Causes: []string{"the region lacks IBV_ACCESS_MW_BIND, or the window asks for more than the region grants", "a key that is unknown, or of a window of type 1"}},
	{Code: uint32(abi.VendorCQOverrun), Name: "RNIC_VENDOR_CQ_OVERRUN", Words: "the completion queue overran", Means: "A completion found no room in the completion queue, so its queue pairs went into error.", Causes: []string{"the queue has fewer entries than requests were in flight"}},
	{Code: uint32(abi.VendorSharedQueue), Name: "RNIC_VENDOR_SHARED_QUEUE", Words: "the XRC request names no shared receive queue of the domain", Means: "An XRC request of the peer named a shared receive queue that is not there, or is of another XRC domain.", Causes: []string{"the peer sends with an old or wrong SRQ number", "queue pair and shared receive queue were made in different XRC domains"}},
	{Code: uint32(abi.VendorTagsFull), Name: "RNIC_VENDOR_TAGS_FULL", Words: "the matching list is full", Means: "A tagged buffer was posted to a matching list that had no room for it. The library refuses such a post (ENOMEM), so something wrote into the queue beside it.", Causes: []string{"the program wrote over the queue"}},
	{Code: uint32(abi.VendorTagGone), Name: "RNIC_VENDOR_TAG_GONE", Words: "the tagged buffer is not in the list", Means: "A tagged buffer was to be deleted that is not in the matching list, or not any more.", Causes: []string{"a message has matched it meanwhile: its completion is there, or comes", "the handle is not one that an IBV_WR_TAG_ADD of this queue has returned"}},
	{
		Code: uint32(abi.VendorTerminate), Name: "RNIC_VENDOR_TERMINATE", Words: "the peer ended the connection with a Terminate message",
		Means:  "iWARP: the peer refused a message and ended the connection with a Terminate, whose code says why. A READ or an atomic that it names fails with a status of its own; what else was under way is flushed.",
		Causes: []string{"a key, address or length that the peer does not grant", "no receive at the peer, or one that is too short: iWARP does not wait for one"},
		Look:   []string{"rnic ps --errors tells the code; rnic explain terminate CODE what it means"},
	},
	{
		Code: uint32(abi.VendorProtocol), Name: "RNIC_VENDOR_PROTOCOL", Words: "the peer broke a rule of the protocol",
		Means:  "iWARP: what came from the peer is not what the RFCs allow, and this end terminated the connection.",
		Causes: []string{mangled, "a fault of the peer's adapter"},
		Look:   []string{"rnic ps --errors tells the code; rnic explain terminate CODE what it means", capture},
	},
	{
		Code: uint32(abi.VendorPeerEnded), Name: "RNIC_VENDOR_PEER_ENDED", Words: "the peer ended the connection",
		Means:  "iWARP: the peer's direction of the TCP connection ended (FIN), without a Terminate before. What was under way, and receives that were posted, are flushed; there is no other completion that says why.",
		Causes: []string{"the program at the other side ended, crashed or was killed (timeout(1))", "it disconnected, or destroyed its queue pair, before it had all"},
		Look:   []string{"what the program at the other side printed last", "rnic ps --errors on the peer's host"},
	},
	{
		Code: uint32(abi.VendorStreamLost), Name: "RNIC_VENDOR_STREAM_LOST", Words: "the TCP connection was lost",
		Means:  "iWARP: TCP reset the connection or gave it up, or an end in order took too long. What was under way, and receives that were posted, are flushed; the connection event carries the errno.",
		Causes: []string{"the peer's NIC or host went away", "the path is interrupted", "a firewall forgot the connection"},
		Look:   []string{"rnic ps --errors: the connection event's errno", capture},
	},
	{Code: uint32(abi.VendorModified), Name: "RNIC_VENDOR_MODIFIED", Words: "the program moved the QP to ERR", Means: "The program itself ended the queue pair: ibv_modify_qp to ERR, which rdma_disconnect does too."},
}

//tidy:table
var faults = []Entry{
	{Code: uint32(mem.FaultKey), Name: "FAULT_KEY", Words: "unknown key", Means: "No region or window has this key now. Keys of deregistered regions stay invalid.", Causes: []string{"the key was mistyped or sent in the wrong byte order", "the region was deregistered"}},
	{Code: uint32(mem.FaultPD), Name: "FAULT_PD", Words: "key of another protection domain", Means: "The key exists, but its protection domain is not the queue pair's; that of a shared queue counts for its receives.", Causes: []string{"region and queue pair were made from different PDs"}},
	{Code: uint32(mem.FaultQP), Name: "FAULT_QP", Words: "memory window of another queue pair", Means: "A window of type 2 serves only the queue pair that bound it.", Causes: []string{"its rkey was given to the peer of another connection"}},
	{Code: uint32(mem.FaultUnbound), Name: "FAULT_UNBOUND", Words: "memory window is not bound", Means: "The window exists and grants nothing now.", Causes: []string{"it was not bound yet, or was invalidated, by this side or by the peer's SEND with invalidate"}},
	{Code: uint32(mem.FaultRights), Name: "FAULT_RIGHTS", Words: "access right missing", Means: "The region or the queue pair does not grant the access.", Causes: []string{"access flags of ibv_reg_mr or of the window's bind, or qp_access_flags of the responder's queue pair"}},
	{Code: uint32(mem.FaultBounds), Name: "FAULT_BOUNDS", Words: "range outside the region", Means: "Address and length leave the region.", Causes: []string{"an offset was counted from the wrong start", "the length is that of another buffer"}},
	{Code: uint32(mem.FaultMemory), Name: "FAULT_MEMORY", Words: "process memory unreachable", Means: "The region is fine, but the process's memory could not be read or written.", Causes: []string{"it was unmapped or protected after registration"}},
	{Code: uint32(mem.FaultWindow), Name: "FAULT_WINDOW", Words: "memory window of type 1", Means: "Only windows of type 2 can be invalidated.", Causes: []string{"the key is that of a window of type 1: ibv_bind_mw with length 0 takes it back"}},
	{Code: uint32(mem.FaultWindowBound), Name: "FAULT_WINDOW_BOUND", Words: "memory window is bound already", Means: "A window of type 2 can be bound only after it was invalidated.", Causes: []string{"no IBV_WR_LOCAL_INV, nor the peer's SEND with invalidate, came before the bind"}},
	{Code: uint32(mem.FaultWindowKey), Name: "FAULT_WINDOW_KEY", Words: "the memory window has that key now", Means: "Each bind gives a window another key: the last byte changes.", Causes: []string{"the bind was posted with the window's old rkey, without ibv_inc_rkey"}},
	{Code: uint32(mem.FaultWindowEmpty), Name: "FAULT_WINDOW_EMPTY", Words: "memory window of no bytes", Means: "A window of type 2 cannot be bound to no bytes; length 0 takes back one of type 1 only.", Causes: []string{"length 0 was meant to take the window back: IBV_WR_LOCAL_INV does"}},
	{Code: uint32(mem.FaultWindowAccess), Name: "FAULT_WINDOW_ACCESS", Words: "access flags that the memory window cannot have", Means: "Windows have remote access only, and only those of type 2 are zero-based.", Causes: []string{"mw_access_flags with IBV_ACCESS_ZERO_BASED on type 1, or with a flag that is for regions"}},
	{Code: uint32(mem.FaultNotWindow), Name: "FAULT_NOT_WINDOW", Words: "key of a region", Means: "The key belongs to a memory region. Only those of windows of type 2 can be invalidated here.", Causes: []string{"the rkey of ibv_reg_mr was given where that of a window of type 2 belongs"}},
	{Code: uint32(mem.FaultRegionKey), Name: "FAULT_REGION_KEY", Words: "unknown lkey of the region", Means: "The region that the window was to be bound to does not exist now, or is a null region.", Causes: []string{"the region was deregistered before the bind was executed"}},
	{Code: uint32(mem.FaultRegionPD), Name: "FAULT_REGION_PD", Words: "region of another protection domain", Means: "The region that the window was to be bound to is of another protection domain than the queue pair.", Causes: []string{"region and queue pair were made from different PDs"}},
	{Code: uint32(mem.FaultRegionBased), Name: "FAULT_REGION_BASED", Words: "region is zero-based", Means: "No window can be bound to a zero-based region.", Causes: []string{"the region was registered with IBV_ACCESS_ZERO_BASED"}},
	{Code: uint32(mem.FaultGone), Name: "FAULT_GONE", Words: "process has ended", Means: "The process whose memory it was has ended. Its peers hear nothing more, as of a host that vanished.", Causes: []string{"the program was killed, or ended with a connection open"}},
}
