package verbs

import (
	"encoding/binary"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
)

// SGE is one piece of registered memory. MR.SGE makes one.
type SGE struct {
	Addr   uint64 // as the region's addresses count, see MR.Addr
	Length uint32
	LKey   Key
}

// SendWR is a send work request. Which fields count depends on Opcode.
type SendWR struct {
	// ID comes back in the completion.
	ID     uint64
	Opcode WROpcode
	Flags  SendFlags
	// SGE is the data to send or write, or for READ and atomics the place of the result.
	SGE []SGE
	// Inline, when not nil, is sent instead of SGE: it is copied before PostSend returns, may be
	// any memory, and holds at most QPConfig.MaxInline bytes.
	Inline []byte
	// Imm is the immediate data of the WITH_IMM operations, as a number.
	Imm uint32
	// InvalidateKey is the peer's key for SEND_WITH_INV, or this side's for LOCAL_INV: that of a
	// memory window of type 2.
	InvalidateKey Key
	// RemoteAddr and RKey are the peer's memory for WRITE, READ and atomics.
	RemoteAddr uint64
	RKey       Key
	// CompareAdd is what CMP_SWAP compares with, or what FETCH_ADD adds.
	CompareAdd uint64
	// Swap is the new value of CMP_SWAP.
	Swap uint64
	// Bind says what BIND_MW does.
	Bind *Bind
	// Flush says what FLUSH does.
	Flush *Flush
	// SRQN is the peer's shared receive queue that an XRC request goes to: SRQ.Number there.
	SRQN uint32
	// AH, RemoteQPN and RemoteQKey address a datagram.
	AH         *AH
	RemoteQPN  QPN
	RemoteQKey QKey
}

// RecvWR is a receive work request: where the next message is to go.
type RecvWR struct {
	ID  uint64
	SGE []SGE
}

// WC is a work completion. Only ID, Status, QPN and Evidence are valid if Status is not WCSuccess.
type WC struct {
	ID       uint64
	Status   WCStatus
	Opcode   WCOpcode
	Evidence Evidence
	// ByteLen counts the bytes received, READ, or fetched; with a GRH, its 40 bytes too.
	ByteLen uint32
	// Imm is the immediate data, if Flags has WCWithImm.
	Imm uint32
	// InvalidatedKey is the key that the peer invalidated, if Flags has WCWithInv.
	InvalidatedKey Key
	QPN            QPN
	// SrcQPN is a datagram's sender.
	SrcQPN       QPN
	Flags        WCFlags
	PKeyIndex    uint16
	SLID         LID
	SL           uint8
	DLIDPathBits uint8
	// Timestamp is the NIC's clock in nanoseconds when it wrote the completion.
	Timestamp uint64
	// Tag and TagContext are those of the message, if Flags has WCTagMatch.
	Tag        uint64
	TagContext uint32

	cause *Cause
}

// Cause returns what the NIC saw when the work request failed or, for a flushed one, when its queue
// pair did; nil for success and where nothing is known.
func (w *WC) Cause() *Cause { return w.cause }

// Err returns nil for success, else a *StatusError.
func (w *WC) Err() error {
	if w.Status == WCSuccess {
		return nil
	}
	return &StatusError{
		Status: w.Status, ID: w.ID, Opcode: w.Opcode, QPN: w.QPN, Evidence: w.Evidence,
		Cause: w.cause,
	}
}

func (w *WC) set(e *abi.CQE) {
	*w = WC{
		ID: e.WRID, Status: WCStatus(e.Status), Opcode: WCOpcode(e.Opcode),
		Evidence: Evidence(e.VendorErr), ByteLen: e.ByteLen, QPN: QPN(e.QPNum),
		SrcQPN: QPN(e.SrcQP), Flags: WCFlags(e.WCFlags), PKeyIndex: e.PKeyIndex,
		SLID: LID(e.SLID), SL: e.SL, DLIDPathBits: e.DLIDPathBits, Timestamp: e.Timestamp,
	}
	if w.Flags&rdma.WCWithInv != 0 {
		w.InvalidatedKey = Key(e.ImmOrRKey)
	} else {
		w.Imm = swapImm(e.ImmOrRKey)
	}
	if w.Flags&rdma.WCTagMatch != 0 {
		w.Tag, w.TagContext = e.Tag()
		w.SrcQPN = 0
	}
}

// swapImm converts between the number and the raw big-endian bytes that the queues carry. It is
// its own inverse.
func swapImm(v uint32) uint32 {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], v)
	return binary.NativeEndian.Uint32(b[:])
}

// services says which queue pair types have an operation (IBTA table 38).
type services uint8

const (
	onRC services = 1 << iota
	onUC
	onUD
	onXRC
)

var opcodeServices = [...]services{
	WRWrite:           onRC | onXRC | onUC,
	WRWriteWithImm:    onRC | onXRC | onUC,
	WRSend:            onRC | onXRC | onUC | onUD,
	WRSendWithImm:     onRC | onXRC | onUC | onUD,
	WRRead:            onRC | onXRC,
	WRCompareSwap:     onRC | onXRC,
	WRFetchAdd:        onRC | onXRC,
	WRLocalInvalidate: onRC | onXRC | onUC,
	WRBindMW:          onRC | onXRC | onUC,
	WRSendWithInv:     onRC | onXRC,
	WRFlush:           onRC,
	WRAtomicWrite:     onRC,
}

func serviceOf(t QPType) services {
	switch t {
	case rdma.QPTypeRC:
		return onRC
	case rdma.QPTypeXRCSend:
		return onXRC
	case rdma.QPTypeXRCRecv: // sends nothing
	case rdma.QPTypeUC:
		return onUC
	case rdma.QPTypeUD:
		return onUD
	}
	return 0
}

func (s services) has(op WROpcode) bool {
	return int(op) < len(opcodeServices) && opcodeServices[op]&s != 0
}
