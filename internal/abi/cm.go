package abi

// Connection management requests. A process opens one connection for them, beside the ones of its
// device contexts: OpOpenCM takes the place of OpOpenDevice, and everything made on it ends with
// it. Queue pairs are named by number, as in rdma_cm(7): the connection manager never touches
// them, the library moves them with the attributes of OpInitQPAttr.
const (
	OpOpenCM              Op = 32 // reply HandleMsg
	OpCreateEventChannel  Op = 33 // reply HandleMsg, with the read end of a pipe of CMEvents
	OpDestroyEventChannel Op = 34 // HandleMsg
	OpCreateID            Op = 35 // CreateIDReq; reply HandleMsg
	OpDestroyID           Op = 36 // HandleMsg
	OpBindAddr            Op = 37 // CMAddrReq, Src; reply CMRoute
	OpResolveAddr         Op = 38 // CMAddrReq; then ADDR_RESOLVED or ADDR_ERROR
	OpResolveRoute        Op = 39 // CMAddrReq, Timeout; then ROUTE_RESOLVED or ROUTE_ERROR
	OpQueryID             Op = 40 // HandleMsg; reply CMRoute
	OpListen              Op = 41 // CMListenReq; reply CMRoute
	OpConnect             Op = 42 // CMConnReq; then CONNECT_RESPONSE, ESTABLISHED, REJECTED …
	OpAccept              Op = 43 // CMConnReq
	OpReject              Op = 44 // CMConnReq, private data and Reason
	OpDisconnect          Op = 45 // HandleMsg
	OpEstablish           Op = 46 // HandleMsg: the application has moved its QP itself; sends the RTU
	OpNotify              Op = 47 // CMNotifyReq: an asynchronous event (COMM_EST) seen on the QP
	OpInitQPAttr          Op = 48 // CMInitQPAttrReq; reply CMInitQPAttrRsp
	OpSetOption           Op = 49 // CMOptionReq
	OpMigrateID           Op = 50 // CMMigrateReq
	OpJoinMulticast       Op = 51 // CMMulticastReq; reply HandleMsg; then MULTICAST_JOIN or _ERROR
	OpLeaveMulticast      Op = 52 // HandleMsg of the join
	OpAttachMulticast     Op = 53 // on a device context: AttachMulticastReq
	OpDetachMulticast     Op = 54 // on a device context: AttachMulticastReq
)

// CMAddr is a socket address. Family 0 means none.
type CMAddr struct {
	Family   uint16 // AF_INET or AF_INET6
	Port     uint16 // host byte order
	Scope    uint32 // IPv6 interface index
	FlowInfo uint32
	Reserved uint32
	Addr     [16]byte // IPv4 in the first four bytes
}

// CreateIDReq makes a communication identifier whose events go to a channel.
type CreateIDReq struct {
	Channel   uint32
	PortSpace uint32 // enum rdma_port_space: TCP 0x0106, UDP 0x0111, IB 0x013f, IPOIB 0x0002
	QPType    uint32 // enum ibv_qp_type
	Reserved  uint32
	Device    [64]byte // the only one that will do; empty leaves the choice to the address
}

// CMAddrReq carries addresses for bind and resolve.
type CMAddrReq struct {
	ID        uint32
	TimeoutMS uint32
	Src       CMAddr
	Dst       CMAddr
}

// CMRoute is what an identifier knows about its path.
type CMRoute struct {
	Device       [64]byte // empty while not bound to one
	Src          CMAddr
	Dst          CMAddr
	SGID         [16]byte
	DGID         [16]byte
	SGIDIndex    uint32
	Port         uint32 // of the device; 0 while not bound
	PathMTU      uint32 // enum ibv_mtu
	PKey         uint32
	FlowLabel    uint32
	TrafficClass uint32
	HopLimit     uint32
	SL           uint32
	PacketLife   uint32 // 4.096 µs × 2^n, as in a path record
	HasRoute     uint32
}

// CMListenReq listens for requests to the bound address.
type CMListenReq struct {
	ID      uint32
	Backlog uint32
}

// CMParam is struct rdma_conn_param, or rdma_ud_param in events about datagrams.
type CMParam struct {
	PrivateData        [256]byte
	PrivateDataLen     uint8
	ResponderResources uint8
	InitiatorDepth     uint8
	FlowControl        uint8
	RetryCount         uint8
	RNRRetryCount      uint8
	SRQ                uint8
	QPType             uint8
	QPN                uint32
	QKey               uint32
	ECEVendor          uint32 // struct ibv_ece; 24 bits, 0 is none
	ECEOptions         uint32
	AH                 AHAttr // events about datagrams and multicast
}

// CMConnReq connects, accepts or rejects.
type CMConnReq struct {
	ID     uint32
	Reason uint32 // reject: a reason of IBTA 12.6.7.2, 0 for "consumer"
	Param  CMParam
}

// CMNotifyReq reports an asynchronous event on the identifier's QP.
type CMNotifyReq struct {
	ID    uint32
	Event uint32
}

// CMInitQPAttrReq asks for the attributes that move the QP to a state.
type CMInitQPAttrReq struct {
	ID    uint32
	State uint32
}

// CMInitQPAttrRsp answers it.
type CMInitQPAttrRsp struct {
	Mask     uint32
	Reserved uint32
	Attr     QPAttr
}

// CMOptionReq sets an option of rdma_set_option(3); values up to 8 bytes, host order.
type CMOptionReq struct {
	ID    uint32
	Level uint32
	Name  uint32
	Len   uint32
	Value uint64
}

// CMMigrateReq moves an identifier's events to another channel.
type CMMigrateReq struct {
	ID      uint32
	Channel uint32
}

// CMMulticastReq joins a group.
type CMMulticastReq struct {
	ID       uint32
	Flags    uint32 // enum of rdma_join_multicast_ex: 1 = full member, 2 = send-only
	Addr     CMAddr
	Reserved uint64
}

// AttachMulticastReq attaches a UD QP to a group, or detaches it.
type AttachMulticastReq struct {
	GID  [16]byte
	QP   uint32
	MLID uint32
}

// CMEvent is one record in an event channel's pipe. A record about an identifier that is gone is
// to be skipped; a CONNECT_REQUEST whose listener is gone leaves ID to be destroyed.
type CMEvent struct {
	ID       uint32 // CONNECT_REQUEST: the new identifier
	ListenID uint32 // CONNECT_REQUEST: the listener
	Event    uint32 // enum rdma_cm_event_type
	Status   int32  // negative errno, or a reject reason
	Join     uint32 // MULTICAST_*: handle of the join
	Reserved uint32
	Param    CMParam
}
