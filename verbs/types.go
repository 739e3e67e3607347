package verbs

import "github.com/softrnic/softrnic/internal/rdma"

// The vocabulary is that of the NIC itself.
type (
	// Access says what may be done to a memory region or by a QP's peer.
	Access = rdma.Access
	// EventType is an asynchronous event.
	EventType = rdma.EventType
	// GID is an address of a port: on RoCE v2 an IPv6 address or an IPv4-mapped one.
	GID = rdma.GID
	// GIDType says how packets with a GID are framed.
	GIDType = rdma.GIDType
	// GUID is an EUI-64.
	GUID = rdma.GUID
	// Key is a local or remote key of a memory region.
	Key = rdma.Key
	// MWType is a memory window's type.
	MWType = rdma.MWType
	// LID is a local identifier of an InfiniBand subnet; 0 on Ethernet.
	LID = rdma.LID
	// MTU is a path MTU by its code; Bytes gives the number.
	MTU = rdma.MTU
	// PKey is a partition key.
	PKey = rdma.PKey
	// PortState is a port's logical state.
	PortState = rdma.PortState
	// PSN is a 24-bit packet sequence number.
	PSN = rdma.PSN
	// QKey is the queue key that datagrams carry.
	QKey = rdma.QKey
	// QPAttrMask says which attributes a Modify carries.
	QPAttrMask = rdma.QPAttrMask
	// QPN is a 24-bit queue pair number.
	QPN = rdma.QPN
	// QPState is a queue pair's state.
	QPState = rdma.QPState
	// QPType is a queue pair's transport service.
	QPType = rdma.QPType
	// Refusal is the NIC's answer to a verb that it cannot grant.
	Refusal = rdma.Refusal
	// SendFlags modify a send work request.
	SendFlags = rdma.SendFlags
	// TagFlags modify an operation on a matching list.
	TagFlags = rdma.TagFlags
	// WCFlags say which fields of a completion are valid.
	WCFlags = rdma.WCFlags
	// WCOpcode says what completed.
	WCOpcode = rdma.WCOpcode
	// WCStatus is a completion's status.
	WCStatus = rdma.WCStatus
	// WROpcode is the operation of a send work request.
	WROpcode = rdma.WROpcode
)

// Access rights. A region can always be read locally.
const (
	AccessLocalWrite   = rdma.AccessLocalWrite
	AccessRemoteWrite  = rdma.AccessRemoteWrite
	AccessRemoteRead   = rdma.AccessRemoteRead
	AccessRemoteAtomic = rdma.AccessRemoteAtomic
	// AccessMWBind lets memory windows be bound to a region.
	AccessMWBind = rdma.AccessMWBind
	// AccessZeroBased lets addresses in a region, or in a window, count from 0.
	AccessZeroBased = rdma.AccessZeroBased
	// AccessOnDemand registers memory that need not be there yet.
	AccessOnDemand = rdma.AccessOnDemand
	// AccessHugeTLB says that the memory consists of huge pages.
	AccessHugeTLB = rdma.AccessHugeTLB
	// AccessRelaxedOrdering lets accesses overtake each other.
	AccessRelaxedOrdering = rdma.AccessRelaxedOrder
	// AccessFlushGlobal lets the peer make what it wrote visible: WRFlush.
	AccessFlushGlobal = rdma.AccessFlushGlobal
	// AccessAll grants a peer all it can ask for.
	AccessAll = AccessLocalWrite | AccessRemoteWrite | AccessRemoteRead | AccessRemoteAtomic |
		AccessFlushGlobal
)

// Memory window types.
const (
	// MWType1 is bound to its protection domain: any queue pair in it lets peers through.
	MWType1 = rdma.MWType1
	// MWType2 is bound to the queue pair that posted the bind, and can be invalidated.
	MWType2 = rdma.MWType2
)

// Queue pair types.
const (
	QPTypeRC = rdma.QPTypeRC
	QPTypeUC = rdma.QPTypeUC
	QPTypeUD = rdma.QPTypeUD
	// The sending and the receiving half of an XRC connection: see XRCD.
	QPTypeXRCSend = rdma.QPTypeXRCSend
	QPTypeXRCRecv = rdma.QPTypeXRCRecv
)

// Queue pair states.
const (
	QPStateReset = rdma.QPStateReset
	QPStateInit  = rdma.QPStateInit
	QPStateRTR   = rdma.QPStateRTR
	QPStateRTS   = rdma.QPStateRTS
	QPStateSQD   = rdma.QPStateSQD
	QPStateSQE   = rdma.QPStateSQE
	QPStateError = rdma.QPStateError
)

// Attribute mask bits of QP.Modify.
const (
	QPAttrState            = rdma.QPAttrState
	QPAttrCurState         = rdma.QPAttrCurState
	QPAttrEnSQDAsyncNotify = rdma.QPAttrEnSQDAsyncNotify
	QPAttrAccessFlags      = rdma.QPAttrAccessFlags
	QPAttrPKeyIndex        = rdma.QPAttrPKeyIndex
	QPAttrPort             = rdma.QPAttrPort
	QPAttrQKey             = rdma.QPAttrQKey
	QPAttrAV               = rdma.QPAttrAV
	QPAttrPathMTU          = rdma.QPAttrPathMTU
	QPAttrTimeout          = rdma.QPAttrTimeout
	QPAttrRetryCnt         = rdma.QPAttrRetryCnt
	QPAttrRNRRetry         = rdma.QPAttrRNRRetry
	QPAttrRQPSN            = rdma.QPAttrRQPSN
	QPAttrMaxQPRdAtomic    = rdma.QPAttrMaxQPRdAtomic
	QPAttrMinRNRTimer      = rdma.QPAttrMinRNRTimer
	QPAttrSQPSN            = rdma.QPAttrSQPSN
	QPAttrMaxDestRdAtomic  = rdma.QPAttrMaxDestRdAtomic
	QPAttrDestQPN          = rdma.QPAttrDestQPN
)

// Operations of a send work request.
const (
	WRWrite        = rdma.WRWrite
	WRWriteWithImm = rdma.WRWriteWithImm
	WRSend         = rdma.WRSend
	WRSendWithImm  = rdma.WRSendWithImm
	WRRead         = rdma.WRRead
	WRCompareSwap  = rdma.WRCompareSwap
	WRFetchAdd     = rdma.WRFetchAdd
	WRSendWithInv  = rdma.WRSendWithInv
	// WRLocalInvalidate invalidates a window of this side.
	WRLocalInvalidate = rdma.WRLocalInvalidate
	// WRBindMW binds a memory window: see SendWR.Bind.
	WRBindMW = rdma.WRBindMW
	// WRFlush makes what was written before visible at the peer: see SendWR.Flush.
	WRFlush = rdma.WRFlush
	// WRAtomicWrite writes 8 bytes at once to an address that is a multiple of 8.
	WRAtomicWrite = rdma.WRAtomicWrite
)

// Send flags. Inline data needs no flag: see SendWR.Inline.
const (
	// SendFence starts the request only after all READs and atomics before it.
	SendFence = rdma.SendFence
	// SendSignaled asks for a completion also in case of success.
	SendSignaled = rdma.SendSignaled
	// SendSolicited raises the peer's completion event even if it asked for solicited ones only.
	SendSolicited = rdma.SendSolicited
)

// Completion statuses (IBTA 11.6.2).
const (
	WCSuccess        = rdma.WCSuccess
	WCLocLenErr      = rdma.WCLocLenErr
	WCLocQPOpErr     = rdma.WCLocQPOpErr
	WCLocProtErr     = rdma.WCLocProtErr
	WCWRFlushErr     = rdma.WCWRFlushErr
	WCMWBindErr      = rdma.WCMWBindErr
	WCBadRespErr     = rdma.WCBadRespErr
	WCLocAccessErr   = rdma.WCLocAccessErr
	WCRemInvReqErr   = rdma.WCRemInvReqErr
	WCRemAccessErr   = rdma.WCRemAccessErr
	WCRemOpErr       = rdma.WCRemOpErr
	WCRetryExcErr    = rdma.WCRetryExcErr
	WCRNRRetryExcErr = rdma.WCRNRRetryExcErr
	WCRemAbortErr    = rdma.WCRemAbortErr
	WCFatalErr       = rdma.WCFatalErr
	WCGeneralErr     = rdma.WCGeneralErr
	// WCTagErr is a TagOp that could not be carried out.
	WCTagErr = rdma.WCTagErr
	// WCTagIncomplete is a rendezvous whose data are longer than the buffer that it matched: the
	// buffer has the request, and the program fetches the data and sends the FIN.
	WCTagIncomplete = rdma.WCTagIncomplete
)

// Completion opcodes.
const (
	WCOpSend            = rdma.WCOpSend
	WCOpWrite           = rdma.WCOpWrite
	WCOpRead            = rdma.WCOpRead
	WCOpCompareSwap     = rdma.WCOpCompareSwap
	WCOpFetchAdd        = rdma.WCOpFetchAdd
	WCOpBindMW          = rdma.WCOpBindMW
	WCOpLocalInvalidate = rdma.WCOpLocalInvalidate
	WCOpFlush           = rdma.WCOpFlush
	WCOpAtomicWrite     = rdma.WCOpAtomicWrite
	WCOpRecv            = rdma.WCOpRecv
	WCOpRecvWriteImm    = rdma.WCOpRecvWriteImm
	// Of SRQ.AddTag, DeleteTag and SyncTags.
	WCOpTagAdd  = rdma.WCOpTagAdd
	WCOpTagDel  = rdma.WCOpTagDel
	WCOpTagSync = rdma.WCOpTagSync
	// WCOpTagRecv is a message with a tag. With WCTagMatch or WCTagDataValid it is in the buffer
	// that AddTag posted; with neither it was unexpected, and all of it is in an ordinary receive.
	WCOpTagRecv = rdma.WCOpTagRecv
	// WCOpTagNone is a message without a tag, all of it in an ordinary receive.
	WCOpTagNone = rdma.WCOpTagNone
)

// Completion flags.
const (
	// WCGRH says that the first 40 bytes of a datagram's buffer hold its network header.
	WCGRH = rdma.WCGRH
	// WCWithImm says that Imm is valid.
	WCWithImm = rdma.WCWithImm
	// WCWithInv says that InvalidatedKey is valid.
	WCWithInv = rdma.WCWithInv
	// WCTagSyncWanted says that the two counts of unexpected messages differ: see SRQ.SyncTags.
	WCTagSyncWanted = rdma.WCTagSyncWanted
	// WCTagMatch says that the message has found a buffer: Tag and TagContext are valid.
	WCTagMatch = rdma.WCTagMatch
	// WCTagDataValid says that the message is in the buffer, which is the program's again.
	WCTagDataValid = rdma.WCTagDataValid
)

// Flags of operations on a matching list.
const (
	// TagSignaled asks for a completion also in case of success.
	TagSignaled = rdma.TagSignaled
	// TagCounted says that TagOp.Unexpected is valid.
	TagCounted = rdma.TagCounted
)

// Asynchronous events.
const (
	EventCQErr            = rdma.EventCQErr
	EventQPFatal          = rdma.EventQPFatal
	EventQPReqErr         = rdma.EventQPReqErr
	EventQPAccessErr      = rdma.EventQPAccessErr
	EventCommEst          = rdma.EventCommEst
	EventSQDrained        = rdma.EventSQDrained
	EventDeviceFatal      = rdma.EventDeviceFatal
	EventPortActive       = rdma.EventPortActive
	EventPortErr          = rdma.EventPortErr
	EventSRQErr           = rdma.EventSRQErr
	EventSRQLimitReached  = rdma.EventSRQLimitReached
	EventQPLastWQEReached = rdma.EventQPLastWQEReached
	EventGIDChange        = rdma.EventGIDChange
)

// Path MTUs.
const (
	MTU256  = rdma.MTU256
	MTU512  = rdma.MTU512
	MTU1024 = rdma.MTU1024
	MTU2048 = rdma.MTU2048
	MTU4096 = rdma.MTU4096
)

// Port states and GID types.
const (
	PortDown   = rdma.PortDown
	PortActive = rdma.PortActive

	GIDTypeIB     = rdma.GIDTypeIB
	GIDTypeRoCEv1 = rdma.GIDTypeRoCEv1
	GIDTypeRoCEv2 = rdma.GIDTypeRoCEv2
)

// GRHBytes is the room that a datagram's network header takes at the start of its receive buffer
// (IBTA 11.4.1.2).
const GRHBytes = 40
