package ibt

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
)

// Cause is the evidence behind an error: what the NIC saw. Fields that do not apply are zero.
type Cause struct {
	Status   rdma.WCStatus // completion status, if a work request failed
	Vendor   abi.Vendor
	Syndrome uint8     // AETH syndrome of the NAK received or sent
	Fault    mem.Fault // for key, rights, bounds
	Key      rdma.Key
	Addr     uint64
	Length   uint64
	WRID     uint64
	PSN      rdma.PSN
	Retries  uint32
	// IsResponder says that the peer's request failed here, not a request of this QP.
	IsResponder bool
}

// Counter names what the engine counts; the NIC exports them under the names that users of rxe
// and mlx5 know.
type Counter uint8

// Counters.
const (
	CountSentPackets Counter = iota
	CountRcvdPackets
	CountSentBytes // payload
	CountRcvdBytes
	CountDuplicateRequest
	CountOutOfSequence   // requests with a PSN ahead of the expected one
	CountRcvdRNR         // RNR NAKs received
	CountSentRNR         // RNR NAKs sent
	CountRcvdSeqErr      // PSN sequence NAKs received
	CountSentNak         // NAKs sent, other than RNR
	CountAckTimeout      // local ACK timeouts
	CountRetryExceeded   // work requests failed by retry_cnt
	CountRNRExceeded     // work requests failed by rnr_retry
	CountAckDeferred     // ACKs coalesced
	CountCompleterSched  // implied READ or atomic NAKs
	CountDroppedSilently // packets dropped as the standard says: wrong key, state, opcode (UC, UD)
	CountResourceMissing // UD and UC messages dropped for want of a receive
	CountECNMarked
	CountCNPSent
	CountCNPHandled
	CountRDMASends
	CountRDMARecvs
	CountFlushed
	CountBadPKey // packets dropped for their P_Key
	CountBadQKey // UD packets dropped for their Q_Key
	CounterCount // number of counters
)
