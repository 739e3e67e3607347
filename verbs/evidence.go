package verbs

import (
	"fmt"

	"github.com/softrnic/softrnic/internal/abi"
)

// Evidence is what the NIC saw when a work request failed: the vendor_err of a completion. The
// low byte is a code of SoftRNIC; bits 8–15 hold the AETH syndrome of the peer's NAK, if one came.
type Evidence uint32

// Syndrome returns the AETH syndrome of the peer's NAK (IBTA 9.7.5.1), or 0.
func (e Evidence) Syndrome() uint8 { return uint8(e >> 8) }

func (e Evidence) vendor() abi.Vendor { return abi.Vendor(e & 0xff) }

var vendorText = [...]string{
	abi.VendorNone:          "",
	abi.VendorNak:           "the peer answered with a NAK",
	abi.VendorAckTimeout:    "the peer did not answer within timeout × (retry_cnt + 1)",
	abi.VendorSequence:      "packets kept getting lost: sequence NAKs used up retry_cnt",
	abi.VendorRNR:           "the peer kept answering receiver-not-ready until rnr_retry was used up",
	abi.VendorNoNIC:         "no NIC listens at the peer's address: it answered port unreachable",
	abi.VendorLocalKey:      "an lkey is unknown, belongs to another PD, or lacks the right",
	abi.VendorLocalBounds:   "a scatter/gather entry reaches outside its memory region",
	abi.VendorLocalFault:    "the NIC could not read or write this process's memory",
	abi.VendorLength:        "the message is longer than allowed, or than the receive buffers",
	abi.VendorOpcode:        "the operation is not allowed on this QP type or in this state",
	abi.VendorAddressHandle: "the address handle is unknown or belongs to another PD",
	abi.VendorBadWQE:        "the work request is malformed",
	abi.VendorBadResponse:   "the peer's response does not fit the request",
	abi.VendorNoRoute:       "the source GID is gone, or there is no route to the destination",
	abi.VendorRemoteRights:  "the peer asked for more than the QP or the key grants",
	abi.VendorRDAtomic:      "max_rd_atomic is 0, or the peer exceeded ours",
	abi.VendorFlushed:       "the QP was in error",
	abi.VendorWindow: "the memory window could not be bound or invalidated: its type, state or" +
		" key, or the region's rights do not allow it",
}

// nakText names the NAK codes of the AETH (IBTA 9.7.5.2.8).
var nakText = [...]string{
	"PSN sequence error", "invalid request", "remote access error", "remote operational error",
	"invalid RD request",
}

// String says it in plain words; it is empty where there is no evidence.
func (e Evidence) String() string {
	v := e.vendor()
	if int(v) >= len(vendorText) {
		return fmt.Sprintf("vendor error %#x", uint32(e))
	}
	text := vendorText[v]
	if s := e.Syndrome(); s>>5 == 3 && int(s&0x1f) < len(nakText) {
		text += ": " + nakText[s&0x1f]
	}
	return text
}

// causeText is what most often stands behind a status.
var causeText = map[WCStatus]string{
	WCLocLenErr: "likely cause: the receive buffer is shorter than the message," +
		" or a datagram exceeds the path MTU",
	WCLocQPOpErr: "likely cause: the work request does not fit the QP",
	WCLocProtErr: "likely cause: wrong lkey, address or length in the scatter/gather list," +
		" or a region without local write",
	WCLocAccessErr: "likely cause: the peer's request broke a right of this QP or region",
	WCRemInvReqErr: "likely cause: the message is longer than the peer's receive buffer," +
		" or the operation is not enabled on its QP",
	WCRemAccessErr: "likely cause: wrong rkey or remote address, or the region or QP at the peer" +
		" lacks the access right",
	WCRemOpErr: "likely cause: a posted receive of the peer has a bad lkey or address",
	WCRetryExcErr: "likely cause: the peer's QP is not yet ready or already in error or gone," +
		" or a wrong GID, QPN or PSN",
	WCRNRRetryExcErr: "likely cause: the peer posted no receive; post it before the peer sends," +
		" or raise rnr_retry (7 = for ever)",
}

// LikelyCause says what most often stands behind the status; empty where that says nothing more.
func (e *StatusError) LikelyCause() string {
	switch e.Evidence.vendor() {
	case abi.VendorNoNIC:
		return "likely cause: SoftRNIC is not running there, or a firewall rejects UDP port 4791"
	case abi.VendorLocalFault:
		return "likely cause: the memory was unmapped after it was registered"
	case abi.VendorNoRoute:
		return "likely cause: an address change; read the GID table again"
	case abi.VendorRemoteRights:
		return "likely cause: the peer uses a wrong or stale rkey, or one that lacks the right"
	case abi.VendorRDAtomic:
		return "likely cause: max_rd_atomic of the requester exceeds the responder's" +
			" max_dest_rd_atomic, or is 0"
	}
	return causeText[e.Status]
}
