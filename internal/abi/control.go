package abi

// Op is a control request. One SOCK_SEQPACKET connection carries one context's requests, one at a
// time; each gets one reply with the same Op and Seq.
//
// A reply's Status is 0 or an errno; with an errno the body is a sentence in UTF-8 that names what
// was wrong. Descriptors travel as SCM_RIGHTS in the order that the message's comment gives.
type Op uint16

// Control requests.
const (
	OpHello              Op = 1
	OpListDevices        Op = 2
	OpOpenDevice         Op = 3
	OpQueryDevice        Op = 4
	OpQueryPort          Op = 5
	OpQueryGIDTable      Op = 6
	OpQueryPKey          Op = 7
	OpAllocPD            Op = 8
	OpDeallocPD          Op = 9
	OpRegMR              Op = 10
	OpDeregMR            Op = 11
	OpCreateCompChannel  Op = 12
	OpDestroyCompChannel Op = 13
	OpCreateCQ           Op = 14
	OpDestroyCQ          Op = 15
	OpCreateQP           Op = 16
	OpModifyQP           Op = 17
	OpQueryQP            Op = 18
	OpDestroyQP          Op = 19
	OpCreateAH           Op = 20
	OpDestroyAH          Op = 21
	OpCreateSRQ          Op = 22
	OpModifySRQ          Op = 23
	OpQuerySRQ           Op = 24
	OpDestroySRQ         Op = 25
	OpStatus             Op = 64 // whole NIC as JSON in a memfd; for rnic ps, devinfo, stat
	OpShutdown           Op = 65 // rnic down
	OpCapture            Op = 66 // CaptureReq; the reply has the read end of a pipe of pcapng
	OpEndCapture         Op = 67 // reply CaptureRsp
	OpWaits              Op = 68 // WaitsReq, for the log
)

// Header begins every control message; Length counts the bytes after it.
type Header struct {
	Op     uint16
	Flags  uint16
	Seq    uint32
	Status int32 // replies: 0 or an errno
	Length uint32
}

// HelloReq is the first message of a connection. An application gives its own pid for the log
// only: rights come from the socket's credentials.
type HelloReq struct {
	Magic   uint32
	Version uint32
	PID     uint32
	Flags   uint32
	Name    [64]byte // program name, NUL padded
}

// HelloRsp carries the lane page (read-only memfd) as its descriptor.
type HelloRsp struct {
	Version uint32
	NICPID  uint32 // so that the client may let it in past Yama (PR_SET_PTRACER)
	Devices uint32
	Flags   uint32
}

// DeviceInfo is one device in the reply to OpListDevices, which is an array of them.
type DeviceInfo struct {
	Name      [64]byte
	NodeGUID  uint64
	NodeType  uint32 // enum ibv_node_type: 1 = CA, 4 = RNIC
	Transport uint32 // enum ibv_transport_type: 0 = IB, 1 = iWARP
	Ports     uint32
	Index     uint32
}

// OpenDeviceReq makes the connection the context of a device.
type OpenDeviceReq struct {
	Name [64]byte
}

// OpenDeviceRsp comes with the doorbell page (memfd), the kick eventfd, and the read end of the
// asynchronous event pipe, in this order.
type OpenDeviceRsp struct {
	Context  uint32
	Reserved uint32
}

// DeviceAttr answers OpQueryDevice: struct ibv_device_attr and the parts of its extension that a
// RoCE device has.
type DeviceAttr struct {
	FWVersion           [64]byte
	NodeGUID            uint64
	SysImageGUID        uint64
	MaxMRSize           uint64
	PageSizeCap         uint64
	CapFlags            uint64 // enum ibv_device_cap_flags and _ex
	HCACoreClockKHz     uint64
	CompletionTSMask    uint64
	MaxDMSize           uint64 // bytes of device memory
	ODPCaps             uint64 // enum ibv_odp_general_caps
	VendorID            uint32
	VendorPartID        uint32
	HWVersion           uint32
	MaxQP               uint32
	MaxQPWR             uint32
	MaxSGE              uint32
	MaxSGERead          uint32
	MaxCQ               uint32
	MaxCQE              uint32
	MaxMR               uint32
	MaxPD               uint32
	MaxQPReadAtomic     uint32
	MaxResReadAtomic    uint32
	MaxQPInitReadAtomic uint32
	AtomicCap           uint32 // enum ibv_atomic_cap
	MaxMW               uint32
	MaxAH               uint32
	MaxSRQ              uint32
	MaxSRQWR            uint32
	MaxSRQSGE           uint32
	MaxMcastGrp         uint32
	MaxMcastQPAttach    uint32
	MaxTotalMcastAttach uint32
	MaxPKeys            uint32
	LocalCAAckDelay     uint32
	ODPCapsRC           uint32 // enum ibv_odp_transport_cap_bits
	ODPCapsUC           uint32
	ODPCapsUD           uint32
	ODPCapsXRC          uint32
	Ports               uint32
	MaxInline           uint32
	MaxCQModeration     uint32 // completions, and microseconds, in a ModifyCQReq
	// Of tag matching: struct ibv_tm_caps.
	MaxRendezvousHeader uint32
	MaxTags             uint32
	TagCaps             uint32 // enum ibv_tm_cap_flags
	MaxTagOps           uint32
	MaxTagSGE           uint32
	Reserved            uint32
}

// PortReq selects a port, numbered from 1.
type PortReq struct {
	Port  uint32
	Index uint32
}

// PortAttr answers OpQueryPort: struct ibv_port_attr.
type PortAttr struct {
	State         uint32
	MaxMTU        uint32 // enum ibv_mtu
	ActiveMTU     uint32
	GIDTableLen   uint32
	CapFlags      uint32
	MaxMsgSize    uint32
	BadPKeys      uint32
	QKeyViolation uint32
	PKeyTableLen  uint32
	LID           uint32
	SMLID         uint32
	LMC           uint32
	MaxVL         uint32
	SMSL          uint32
	ActiveWidth   uint32
	ActiveSpeed   uint32
	PhysState     uint32
	LinkLayer     uint32 // 1 = InfiniBand, 2 = Ethernet
	Flags         uint32
	CapFlags2     uint32
}

// GIDEntry is one entry in the reply to OpQueryGIDTable, an array of the valid entries.
type GIDEntry struct {
	GID     [16]byte
	Index   uint32
	Port    uint32
	Type    uint32 // rdma.GIDType
	IfIndex uint32
	IfName  [16]byte
}

// PKeyRsp answers OpQueryPKey.
type PKeyRsp struct {
	PKey     uint32
	Reserved uint32
}

// HandleMsg carries one object handle: requests that destroy or query, replies that create.
type HandleMsg struct {
	Handle   uint32
	Reserved uint32
}

// Segment is one piece of a region. FD indexes the descriptors of the message, or is −1: then
// the NIC reaches the piece as process memory at Addr.
type Segment struct {
	Addr     uint64 // user virtual address of the piece
	Length   uint64
	FDOffset uint64 // where the piece lies in the memfd
	FD       int32
	Reserved uint32
}

// RegMRReq is followed by NumSegments Segments, in address order and without gaps.
type RegMRReq struct {
	PD          uint32
	Access      uint32
	Addr        uint64 // user virtual address
	Length      uint64
	IOVA        uint64 // address that work requests and peers use
	NumSegments uint32
	Reserved    uint32
}

// RegMRRsp names the new region.
type RegMRRsp struct {
	Handle uint32
	LKey   uint32
	RKey   uint32
	Mapped uint32 // segments that the NIC has mapped
}

// CompEvent is one record in a completion channel's pipe; the reply to OpCreateCompChannel is a
// HandleMsg with the pipe's read end.
type CompEvent struct {
	CQ       uint32 // CQ handle; handles are not reused soon
	Reserved uint32
}

// AsyncEvent is one record in a context's asynchronous event pipe.
type AsyncEvent struct {
	Type   uint32 // rdma.EventType
	Handle uint32 // QP, CQ or SRQ handle, or port number
}

// CreateCQReq asks for a completion queue. Channel is 0 for none.
type CreateCQReq struct {
	Entries    uint32
	Channel    uint32
	CompVector uint32
	Flags      uint32 // enum ibv_create_cq_attr_flags
}

// CreateCQRsp comes with the queue's memfd: QueueHeaderBytes, then Entries × CQEBytes.
type CreateCQRsp struct {
	Handle  uint32
	Entries uint32 // power of two
}

// CreateQPReq asks for a queue pair.
type CreateQPReq struct {
	Type         uint32
	PD           uint32
	SendCQ       uint32
	RecvCQ       uint32
	SRQ          uint32 // 0: own receive queue
	MaxSendWR    uint32
	MaxRecvWR    uint32
	MaxSendSGE   uint32
	MaxRecvSGE   uint32
	MaxInline    uint32
	SignalAll    uint32
	XRCD         uint32
	CreateFlags  uint32
	SendOpsFlags uint32
}

// CreateQPRsp comes with the queue pair's memfd.
type CreateQPRsp struct {
	Handle     uint32
	QPN        uint32
	Doorbell   uint32 // doorbell slot
	SQEntries  uint32 // power of two; 0 without a send queue
	SQStride   uint32
	SQOffset   uint32
	RQEntries  uint32 // 0 with an SRQ
	RQStride   uint32
	RQOffset   uint32
	MaxSendSGE uint32
	MaxRecvSGE uint32
	MaxInline  uint32
	Bytes      uint32 // of the memfd
	Reserved   uint32
}

// AHAttr is struct ibv_ah_attr.
type AHAttr struct {
	DGID         [16]byte
	FlowLabel    uint32
	SGIDIndex    uint8
	HopLimit     uint8
	TrafficClass uint8
	IsGlobal     uint8
	DLID         uint16
	SL           uint8
	SrcPathBits  uint8
	StaticRate   uint8
	Port         uint8
	Reserved     uint16
}

// QPAttr is struct ibv_qp_attr.
type QPAttr struct {
	State            uint32
	CurState         uint32
	PathMTU          uint32
	PathMigState     uint32
	QKey             uint32
	RQPSN            uint32
	SQPSN            uint32
	DestQPN          uint32
	AccessFlags      uint32
	MaxSendWR        uint32
	MaxRecvWR        uint32
	MaxSendSGE       uint32
	MaxRecvSGE       uint32
	MaxInline        uint32
	AH               AHAttr
	AltAH            AHAttr
	PKeyIndex        uint16
	AltPKeyIndex     uint16
	EnSQDAsyncNotify uint8
	SQDraining       uint8
	MaxRdAtomic      uint8
	MaxDestRdAtomic  uint8
	MinRNRTimer      uint8
	Port             uint8
	Timeout          uint8
	RetryCnt         uint8
	RNRRetry         uint8
	AltPort          uint8
	AltTimeout       uint8
	Reserved         uint8
	RateLimit        uint32
}

// ModifyQPReq changes the attributes in Mask (rdma.QPAttrMask).
type ModifyQPReq struct {
	Handle uint32
	Mask   uint32
	Attr   QPAttr
}

// QueryQPRsp answers OpQueryQP and OpModifyQP with the state after it.
type QueryQPRsp struct {
	Attr QPAttr
}

// CreateAHReq makes an address handle.
type CreateAHReq struct {
	PD       uint32
	Reserved uint32
	Attr     AHAttr
}

// CreateSRQReq makes a shared receive queue.
type CreateSRQReq struct {
	PD     uint32
	MaxWR  uint32
	MaxSGE uint32
	Limit  uint32
	Type   uint32 // enum ibv_srq_type
	XRCD   uint32
	CQ     uint32
	Flags  uint32
	// Of tag matching: tagged buffers, and operations on the list that have not been carried out.
	MaxTags   uint32
	MaxTagOps uint32
}

// CreateSRQRsp comes with the queue's memfd.
type CreateSRQRsp struct {
	Handle  uint32
	SRQN    uint32
	Entries uint32
	Stride  uint32
	Offset  uint32
	MaxSGE  uint32
	Bytes   uint32
	// Of tag matching: the doorbell slot and the ring of operations on the list, see TagWQE.
	Doorbell  uint32
	TagOps    uint32 // power of two; 0 without tag matching
	TagStride uint32
	TagOffset uint32
	MaxTags   uint32
	MaxTagSGE uint32
	Reserved  uint32
}

// SRQAttr modifies and answers queries of a shared receive queue.
type SRQAttr struct {
	Handle   uint32
	Mask     uint32 // enum ibv_srq_attr_mask
	MaxWR    uint32
	MaxSGE   uint32
	Limit    uint32
	Reserved uint32
}

// StatusRsp comes with a sealed memfd that holds Bytes of JSON.
type StatusRsp struct {
	Bytes    uint32
	Reserved uint32
}

// CaptureReq lets packets flow into a pipe, all or those that meet each condition. The file ends
// after Count packets, with OpEndCapture, or with the connection.
type CaptureReq struct {
	Count       uint64   // 0: no end
	Address     [16]byte // from or to this GID; zero: any
	QPN         uint32   // from or to this QP of the NIC; 0: any
	BufferBytes uint32   // what may wait for the reader before packets are dropped; 0: default
}

// WaitsReq says that a call of the program hangs until the program acknowledges events, as verbs
// and rdma_cm have it. Texts are padded with NUL.
type WaitsReq struct {
	Call     [32]byte // such as rdma_destroy_id
	Ack      [32]byte // the call that it waits for
	Event    [40]byte // an event that is not acknowledged
	Count    uint32   // how many there are
	Reserved uint32
}

// CaptureRsp tells how many packets went into the file, and how many were dropped because the
// reader did not keep up.
type CaptureRsp struct {
	Captured uint64
	Dropped  uint64
}
