package work

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
	// iWARP.
	CountSentTerminate // Terminates sent: the peer broke a rule, or this side cannot go on
	CountRcvdTerminate
	CountBadFPDU // FPDUs with a wrong CRC or marker
	// What libraries of programs did themselves (ADR 0026).
	CountDirectOps
	CountDirectBytes
	CounterCount // number of counters
)
