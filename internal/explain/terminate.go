package explain

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

// Whoever sends a Terminate ends the connection, and both queue pairs. What the two programs see of
// it is the same for all codes.
const (
	ends = " The connection ends, and both queue pairs are in error." // appended to what it means

	peerLog = "rnic ps --errors on both hosts: the sender of the Terminate notes what it refused"
	capture = "rnic capture, and tshark -d tcp.port==PORT,iwarp_mpa"

	noAnswer = "WRITEs and SENDs complete once TCP has them: those that were posted just before may" +
		" have completed with success and yet be the refused ones"
	broken   = "a fault of one of the two implementations"
	mangled  = "something between the hosts changes the stream: a proxy, or another middlebox"
	keyWrong = "the rkey is unknown there: mistyped, from another connection, or of a region that" +
		" was deregistered or re-registered meanwhile"
	outside   = "address or length is wrong: the range leaves the region that the rkey names"
	otherPD   = "region (or window) and queue pair belong to different protection domains"
	wrapped   = "remote address plus length is beyond 2^64: an address that was never set, or −1"
	notWindow = "the rkey is not of a memory window of type 2"
	versioned = "the peer is no iWARP adapter of the RFCs (the older RDMA Consortium's version is 0)" +
		", or the stream is out of step"
)

//tidy:table
var terminates = []Entry{
	{
		Code: uint32(iwarp.CodeRDMAPLocal), Name: "TERM_RDMAP_LOCAL_CATASTROPHIC", Words: "RDMAP local catastrophic error",
		Means:  "The sender of the Terminate failed by itself; no message of the other side was at fault." + ends,
		Causes: []string{"the adapter there ran out of something, or its program or device went away"},
		Look:   []string{"the log of that host (dmesg, if it is the kernel's siw)"},
	},
	{
		Code: uint32(iwarp.CodeProtectionSTag), Name: "TERM_RDMAP_INVALID_STAG", Words: "RDMAP remote protection error: invalid STag",
		Means:  "A READ or an atomic names memory (STag: the rkey) that the other side does not have." + ends,
		Causes: []string{keyWrong},
		Look:   []string{"what the peer sent as rkey, byte order included", peerLog},
	},
	{
		Code: uint32(iwarp.CodeProtectionBounds), Name: "TERM_RDMAP_BASE_OR_BOUNDS", Words: "RDMAP remote protection error: base or bounds violation",
		Means:  "A READ or an atomic reaches outside the memory that its rkey names." + ends,
		Causes: []string{outside}, Look: []string{"remote_addr and length of the work request", peerLog},
	},
	{
		Code: uint32(iwarp.CodeProtectionAccess), Name: "TERM_RDMAP_ACCESS_RIGHTS", Words: "RDMAP remote protection error: access rights violation",
		Means:  "A READ or an atomic wants a right that the memory does not grant." + ends,
		Causes: []string{"the region there was registered without IBV_ACCESS_REMOTE_READ or IBV_ACCESS_REMOTE_ATOMIC", "the queue pair there does not grant it (qp_access_flags)"},
		Look:   []string{"access flags of ibv_reg_mr there", peerLog},
	},
	{
		Code: uint32(iwarp.CodeProtectionStream), Name: "TERM_RDMAP_STAG_OTHER_STREAM", Words: "RDMAP remote protection error: STag not associated with the stream",
		Means:  "A READ or an atomic names memory that this connection may not use." + ends,
		Causes: []string{otherPD, "a memory window of type 2 is bound to another queue pair"}, Look: []string{"with which PD the peer registered the memory and made the queue pair", peerLog},
	},
	{
		Code: uint32(iwarp.CodeProtectionWrap), Name: "TERM_RDMAP_TO_WRAP", Words: "RDMAP remote protection error: TO wrap",
		Means:  "Address plus length of a READ or an atomic goes beyond the end of the address space." + ends,
		Causes: []string{wrapped}, Look: []string{"remote_addr of the work request"},
	},
	{
		Code: uint32(iwarp.CodeProtectionInvalidate), Name: "TERM_RDMAP_PROTECTION_CANNOT_INVALIDATE", Words: "RDMAP remote protection error: STag cannot be invalidated",
		Means:  "A SEND with invalidate names memory whose rights this connection may not take away." + ends,
		Causes: []string{otherPD, notWindow},
		Look:   []string{"invalidate_rkey of the work request", peerLog},
	},
	{
		Code: uint32(iwarp.CodeProtectionOther), Name: "TERM_RDMAP_PROTECTION_UNSPECIFIED", Words: "RDMAP remote protection error: unspecified error",
		Means:  "A request was refused for reasons of protection that its receiver does not tell." + ends,
		Causes: []string{"rkey, range, rights or protection domain"}, Look: []string{peerLog},
	},
	{
		Code: uint32(iwarp.CodeRDMAPVersion), Name: "TERM_RDMAP_VERSION", Words: "RDMAP remote operation error: invalid RDMAP version",
		Means: "A message has another version of RDMAP than 1." + ends, Causes: []string{versioned, mangled}, Look: []string{capture},
	},
	{
		Code: uint32(iwarp.CodeOpcode), Name: "TERM_RDMAP_OPCODE", Words: "RDMAP remote operation error: unexpected opcode",
		Means:  "A message is of a kind that its receiver does not know, or came on the wrong queue." + ends,
		Causes: []string{"an atomic or immediate data (RFC 7306), sent to an adapter that has neither, such as the kernel's siw", "a READ response that nobody asked for: " + broken},
		Look:   []string{"what operations the peer's device supports; " + capture},
	},
	{
		Code: uint32(iwarp.CodeCatastropheStream), Name: "TERM_RDMAP_CATASTROPHIC_STREAM", Words: "RDMAP remote operation error: catastrophic error of the stream",
		Means:  "The receiver could not carry a request out, and only this connection is affected." + ends,
		Causes: []string{"an atomic on an address that is not a multiple of 8", "more READs at once than the connection agreed on (IRD)", "the memory of the process there is gone"},
		Look:   []string{peerLog},
	},
	{
		Code: uint32(iwarp.CodeCatastropheGlobal), Name: "TERM_RDMAP_CATASTROPHIC_GLOBAL", Words: "RDMAP remote operation error: catastrophic error of the device",
		Means:  "The receiver's adapter failed as a whole; its other connections end as well." + ends,
		Causes: []string{"a device that was reset or removed"}, Look: []string{"the log of that host"},
	},
	{
		Code: uint32(iwarp.CodeOperationInvalidate), Name: "TERM_RDMAP_CANNOT_INVALIDATE", Words: "RDMAP remote operation error: STag cannot be invalidated",
		Means:  "A SEND with invalidate names an rkey whose rights cannot be taken away." + ends,
		Causes: []string{"the rkey is unknown there, or was invalidated already", notWindow},
		Look:   []string{"invalidate_rkey of the work request", peerLog},
	},
	{
		Code: uint32(iwarp.CodeOperationOther), Name: "TERM_RDMAP_OPERATION_UNSPECIFIED", Words: "RDMAP remote operation error: unspecified error",
		Means:  "A request could not be carried out, and its receiver does not tell why." + ends,
		Causes: []string{"a fault of the receiver, or a limit of it", "an atomic whose remote address is not a multiple of 8"}, Look: []string{peerLog},
	},
	{
		Code: uint32(iwarp.CodeDDPLocal), Name: "TERM_DDP_LOCAL_CATASTROPHIC", Words: "DDP local catastrophic error",
		Means:  "The receiver cannot make sense of a segment, or failed by itself while it placed it." + ends,
		Causes: []string{broken, mangled, "the memory of the process there could not be written"}, Look: []string{peerLog, capture},
	},
	{
		Code: uint32(iwarp.CodeTaggedSTag), Name: "TERM_DDP_INVALID_STAG", Words: "DDP tagged buffer error: invalid STag",
		Means:  "A WRITE (or the answer to a READ) names memory (STag: the rkey) that its receiver does not have." + ends,
		Causes: []string{keyWrong, "the region lacks IBV_ACCESS_REMOTE_WRITE, or the queue pair does not grant it: DDP has no code of its own for rights", "the answer to a READ: some iWARP adapters want IBV_ACCESS_REMOTE_WRITE on the local buffer of a READ", noAnswer},
		Look:   []string{"what the peer sent as rkey, byte order included; access flags of ibv_reg_mr there", peerLog},
	},
	{
		Code: uint32(iwarp.CodeTaggedBounds), Name: "TERM_DDP_BASE_OR_BOUNDS", Words: "DDP tagged buffer error: base or bounds violation",
		Means:  "A WRITE reaches outside the memory that its rkey names." + ends,
		Causes: []string{outside, noAnswer}, Look: []string{"remote_addr and length of the work request", peerLog},
	},
	{
		Code: uint32(iwarp.CodeTaggedStream), Name: "TERM_DDP_STAG_OTHER_STREAM", Words: "DDP tagged buffer error: STag not associated with the stream",
		Means:  "A WRITE names memory that this connection may not use." + ends,
		Causes: []string{otherPD, "a memory window of type 2 is bound to another queue pair"}, Look: []string{"with which PD the peer registered the memory and made the queue pair", peerLog},
	},
	{
		Code: uint32(iwarp.CodeTaggedWrap), Name: "TERM_DDP_TO_WRAP", Words: "DDP tagged buffer error: TO wrap",
		Means:  "Address plus length of a WRITE goes beyond the end of the address space." + ends,
		Causes: []string{wrapped}, Look: []string{"remote_addr of the work request"},
	},
	{
		Code: uint32(iwarp.CodeTaggedVersion), Name: "TERM_DDP_TAGGED_VERSION", Words: "DDP tagged buffer error: invalid DDP version",
		Means: "A tagged segment has another version of DDP than 1." + ends, Causes: []string{versioned, mangled}, Look: []string{capture},
	},
	{
		Code: uint32(iwarp.CodeUntaggedQN), Name: "TERM_DDP_INVALID_QN", Words: "DDP untagged buffer error: invalid QN",
		Means:  "A segment is for a queue that does not exist." + ends,
		Causes: []string{broken, "an answer to an atomic (queue 3), sent to an adapter that has no atomics"}, Look: []string{capture},
	},
	{
		Code: uint32(iwarp.CodeUntaggedNoBuffer), Name: "TERM_DDP_NO_BUFFER", Words: "DDP untagged buffer error: invalid MSN: no buffer available",
		Also:   []string{"iwarp no receive posted", "invalid MSN, no buffer available"},
		Means:  "A SEND arrived and no receive was posted. iWARP has no receiver-not-ready and no retry: an adapter ends the connection at once, a SoftRNIC when no receive has come for a second." + ends,
		Causes: []string{"receives are posted too late, or too few: post them before the connection is accepted", "the receive is shorter than the message, and the receiver is the kernel's siw, which has one answer for both", "more READs at once than the connection agreed on (IRD), if the refused message is a READ request"},
		Look:   []string{"flow control of the application: credits for every SEND", peerLog},
	},
	{
		Code: uint32(iwarp.CodeUntaggedMSN), Name: "TERM_DDP_MSN_RANGE", Words: "DDP untagged buffer error: invalid MSN: range is not valid",
		Means:  "A message has a number that is not the next one of its queue." + ends,
		Causes: []string{broken, mangled}, Look: []string{capture},
	},
	{
		Code: uint32(iwarp.CodeUntaggedMO), Name: "TERM_DDP_INVALID_MO", Words: "DDP untagged buffer error: invalid MO",
		Means:  "A segment of a message does not begin where the one before it ended." + ends,
		Causes: []string{broken, mangled}, Look: []string{capture},
	},
	{
		Code: uint32(iwarp.CodeUntaggedTooLong), Name: "TERM_DDP_TOO_LONG", Words: "DDP untagged buffer error: message too long for the buffer",
		Also:   []string{"DDP message too long for available buffer"},
		Means:  "A SEND is longer than the receive that was posted for it." + ends,
		Causes: []string{"the two programs disagree about the largest message"}, Look: []string{"lengths of the receives posted there", peerLog},
	},
	{
		Code: uint32(iwarp.CodeUntaggedVersion), Name: "TERM_DDP_UNTAGGED_VERSION", Words: "DDP untagged buffer error: invalid DDP version",
		Means: "An untagged segment has another version of DDP than 1." + ends, Causes: []string{versioned, mangled}, Look: []string{capture},
	},
	{
		Code: uint32(iwarp.CodeMPAClosed), Name: "TERM_MPA_CLOSED", Words: "MPA TCP connection lost",
		Means:  "The TCP connection below was closed, reset or given up. No such Terminate can travel; it is the local record of the end." + ends,
		Causes: []string{"the peer's program or host went away", "a firewall or NAT forgot the connection"}, Look: []string{"ss -ti on both hosts"}, Source: "RFC 5044 8",
	},
	{
		Code: uint32(iwarp.CodeMPACRC), Name: "TERM_MPA_CRC", Words: "MPA wrong CRC",
		Also:   []string{"MPA CRC error"},
		Means:  "The CRC of an FPDU is not that of its bytes." + ends,
		Causes: []string{mangled, "the sender's program changed a buffer while it was being sent, and the adapter there computes the CRC over memory rather than over a copy", "bad memory: TCP's own checksum misses more than the CRC does"},
		Look:   []string{"whether it comes again: with the same sizes it is software", capture}, Source: "RFC 5044 8",
	},
	{
		Code: uint32(iwarp.CodeMPAMarker), Name: "TERM_MPA_MARKER", Words: "MPA marker and ULPDU length disagree",
		Means:  "A marker of the stream does not point to the beginning of the FPDU that it is in." + ends,
		Causes: []string{broken, mangled}, Look: []string{capture}, Source: "RFC 5044 8",
	},
	{
		Code: uint32(iwarp.CodeMPAFrame), Name: "TERM_MPA_FRAME", Words: "MPA invalid MPA request or reply",
		Also:   []string{"invalid MPA request frame or MPA response frame"},
		Means:  "What came first on the connection is no MPA request or reply, so no connection was made.",
		Causes: []string{"the port belongs to another protocol: a client of HTTP or TLS on an iWARP port, or the other way round", "an MPA revision that the receiver does not speak"},
		Look:   []string{"the port number; ss -tlnp on the server's host", capture}, Source: "RFC 5044 8",
	},
	{
		Code: uint32(iwarp.CodeMPALocal), Name: "TERM_MPA_LOCAL_CATASTROPHIC", Words: "MPA local catastrophic error",
		Means:  "One side could not finish the connection by its own fault.",
		Causes: []string{"a lack of memory or queue pairs there"}, Look: []string{"the log of that host"}, Source: "RFC 6581 8",
	},
	{
		Code: uint32(iwarp.CodeMPAIRD), Name: "TERM_MPA_INSUFFICIENT_IRD", Words: "MPA insufficient IRD",
		Also:   []string{"insufficient IRD resources"},
		Means:  "The responder wants to have more READs and atomics under way (its ORD) than the initiator serves at once (its IRD), so no connection was made.",
		Causes: []string{"initiator_depth of rdma_accept is above responder_resources of the peer's rdma_connect"}, Look: []string{"max_qp_rd_atom of both devices"}, Source: "RFC 6581 8",
	},
	{
		Code: uint32(iwarp.CodeMPARTR), Name: "TERM_MPA_NO_RTR", Words: "MPA no matching RTR option",
		Also:   []string{"no matching RTR option"},
		Means:  "The two sides have no kind of first message (SEND, WRITE or READ of no bytes) in common that both take as ready-to-receive, so no connection was made.",
		Causes: []string{"an adapter of one kind, set to peer-to-peer mode with one fixed option"}, Look: []string{"the peer-to-peer settings of that adapter's driver"}, Source: "RFC 6581 8",
	},
}

// terminateParts finds a Terminate by its three numbers, as the kernel's siw logs them:
// "layer 1, type 2, code 2".
func terminateParts(query string) []Entry {
	words := strings.Fields(plain(query))
	after := func(names ...string) (uint8, bool) {
		at := slices.IndexFunc(words, func(w string) bool { return slices.Contains(names, w) })
		if at < 0 || at+1 >= len(words) {
			return 0, false
		}
		n, err := strconv.ParseUint(words[at+1], 0, 8)
		return uint8(n), err == nil
	}
	layer, hasLayer := after("layer")
	etype, hasType := after("type", "etype")
	code, hasCode := after("code", "ecode", "errcode")
	if !hasLayer || !hasType || !hasCode || layer > 0xf || etype > 0xf {
		return nil
	}
	e, ok := terminateOf(uint32(iwarp.CodeOfParts(iwarp.Layer(layer), etype, code)))
	if !ok {
		return nil
	}
	return []Entry{e}
}

// terminateOf finds a Terminate by its number, also by the one that siw has on the wire.
func terminateOf(number uint32) (Entry, bool) {
	if e, ok := Of(KindTerminate, number); ok || number > 0xffff {
		return e, ok
	}
	e, ok := Of(KindTerminate, uint32(iwarp.Code(number).Mirrored()))
	if ok {
		e.Means = fmt.Sprintf("The kernel's siw exchanges layer and type: its 0x%04x is the 0x%04x of"+
			" the standards. ", number, e.Code) + e.Means
	}
	return e, ok
}
