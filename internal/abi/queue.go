package abi

// Queue memory. A queue is one memfd that the NIC creates and seals; the first page holds the
// indices, each on a cache line pair of its own, the rings follow. Indices run freely modulo
// 2^32; a ring has a power of two entries and the reader masks with its own mask.
const (
	// QueueHeaderBytes is where the first ring of a queue memfd begins.
	QueueHeaderBytes = 4096

	// Offsets in the header of a QP's or SRQ's memfd. The application produces, the NIC consumes.
	// An SRQ uses the RQ fields, and with tag matching the SQ fields for operations on its list.
	OffSQProducer = 0x000
	OffSQConsumer = 0x080
	OffRQProducer = 0x100
	OffRQConsumer = 0x180
	// OffQPState is the QP's state as the NIC sees it (rdma.QPState), written by the NIC.
	OffQPState = 0x200
	// OffRQDoorbell is 1 while the NIC wants a doorbell for receives too (QP in error).
	OffRQDoorbell = 0x240

	// Offsets in the header of a CQ's memfd. The NIC produces, the application consumes.
	OffCQProducer = 0x000
	OffCQConsumer = 0x080
	// OffCQArm is one of the Arm values. The application stores it and polls once more; the NIC
	// stores its producer index, then takes the arm word. Both are sequentially consistent, so
	// one of the two sees the other.
	OffCQArm = 0x100
	// OffCQState is 1 once the CQ is in error (overrun); written by the NIC.
	OffCQState = 0x140
)

// Values of the CQ arm word.
const (
	ArmNone      uint32 = 0
	ArmSolicited uint32 = 1
	ArmNext      uint32 = 2
)

// Doorbell page: one per context, a memfd of one page. Bit i of the words is doorbell slot i; bit
// j of the summary is set after a bit of word j was. The NIC clears summary before words.
const (
	DoorbellPageBytes  = 4096
	DoorbellSlots      = 16384
	OffDoorbellSummary = 0x000 // DoorbellSlots/64/64 uint64
	OffDoorbellWords   = 0x100 // DoorbellSlots/64 uint64
)

// Lane page: one per NIC, read-only for applications. OffLaneSleeping is 1 while the lane waits
// in the kernel: who rang a doorbell then kicks the context's eventfd.
const (
	LanePageBytes   = 4096
	OffLaneSleeping = 0x000
	// OffLaneOrigin is where the NIC's clock is 0, in nanoseconds of CLOCK_MONOTONIC: uint64.
	OffLaneOrigin = 0x040
	// OffLaneProcessor is 1 + the number of the processor that the lane ran on last: who polls there
	// is in its way. 0 says that nobody is: the lane has a high priority.
	OffLaneProcessor = 0x0c0
)

// SendWQE is the fixed part of a send queue entry. Scatter/gather entries (SGE) or inline bytes
// follow it in the slot.
type SendWQE struct {
	WRID       uint64
	Opcode     uint8  // rdma.WROpcode
	Flags      uint8  // rdma.SendFlags
	NumSGE     uint16 // 0 when inline
	ImmOrRKey  uint32 // immediate data as verbs' raw big-endian bytes, or the rkey to invalidate
	RemoteAddr uint64 // RDMA and atomics; bind: window address
	RKey       uint32 // RDMA and atomics; bind: the window's new rkey
	InlineLen  uint32 // bytes inline, when SendInline is set
	CompareAdd uint64 // atomics; bind: window length; flush: type, and level from bit 4 on
	Swap       uint64 // atomics; bind: access flags; flush: length
	AH         uint32 // UD: address handle
	RemoteQPN  uint32 // UD
	RemoteQKey uint32 // UD
	Extra      uint32 // XRC: remote SRQ number; bind: lkey of the region
}

// SendWQEBytes is the size of SendWQE.
const SendWQEBytes = 64

// RecvWQE is the fixed part of a receive queue entry; scatter/gather entries follow.
type RecvWQE struct {
	WRID     uint64
	NumSGE   uint32
	Reserved uint32
}

// RecvWQEBytes is the size of RecvWQE.
const RecvWQEBytes = 16

// SGE is one scatter/gather entry.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}

// SGEBytes is the size of SGE.
const SGEBytes = 16

// CQE is one completion queue entry: the fields of struct ibv_wc, and a timestamp.
type CQE struct {
	WRID         uint64
	Status       uint32 // rdma.WCStatus
	Opcode       uint32 // rdma.WCOpcode; CQESkip for an entry the library has cancelled
	VendorErr    uint32 // a Vendor value: what the NIC saw
	ByteLen      uint32
	ImmOrRKey    uint32 // immediate data as raw bytes, or the invalidated rkey
	QPNum        uint32
	SrcQP        uint32 // UD receives
	WCFlags      uint32 // rdma.WCFlags
	PKeyIndex    uint16
	SLID         uint16
	SL           uint8
	DLIDPathBits uint8
	Reserved     uint16
	Timestamp    uint64 // NIC clock, ns, when the NIC wrote the entry
	// SQIndex tells, in the completion of a send, which slots of the send queue come back with
	// it: all those below this index, which runs freely as those of rings do. Other completions
	// have 0; see also SetTag.
	SQIndex   uint32
	Reserved2 uint32
}

// CQEBytes is the size of CQE.
const CQEBytes = 64

// CQESkip is the opcode that the library writes over entries of a QP that was reset or destroyed.
const CQESkip uint32 = 0xffffffff

// SQStride returns the slot size of a send queue.
func SQStride(maxSGE, maxInline uint32) uint32 {
	return SendWQEBytes + max(maxSGE*SGEBytes, (maxInline+15)&^15)
}

// RQStride returns the slot size of a receive queue.
func RQStride(maxSGE uint32) uint32 { return RecvWQEBytes + maxSGE*SGEBytes }
