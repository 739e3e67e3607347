package rdma

// WROpcode is the operation of a send work request; values of enum ibv_wr_opcode.
type WROpcode uint8

// Send work request opcodes.
const (
	WRWrite           WROpcode = 0
	WRWriteWithImm    WROpcode = 1
	WRSend            WROpcode = 2
	WRSendWithImm     WROpcode = 3
	WRRead            WROpcode = 4
	WRCompareSwap     WROpcode = 5
	WRFetchAdd        WROpcode = 6
	WRLocalInvalidate WROpcode = 7
	WRBindMW          WROpcode = 8
	WRSendWithInv     WROpcode = 9
	WRTSO             WROpcode = 10
	WRDriver1         WROpcode = 11
	WRFlush           WROpcode = 14
	WRAtomicWrite     WROpcode = 15
)

var wrOpcodeNames = map[WROpcode]string{
	WRWrite: "WRITE", WRWriteWithImm: "WRITE_WITH_IMM", WRSend: "SEND",
	WRSendWithImm: "SEND_WITH_IMM", WRRead: "READ", WRCompareSwap: "CMP_SWAP",
	WRFetchAdd: "FETCH_ADD", WRLocalInvalidate: "LOCAL_INV", WRBindMW: "BIND_MW",
	WRSendWithInv: "SEND_WITH_INV", WRFlush: "FLUSH", WRAtomicWrite: "ATOMIC_WRITE",
}

func (o WROpcode) String() string {
	if s, ok := wrOpcodeNames[o]; ok {
		return s
	}
	return "unknown"
}

// SendFlags modify a send work request; values of enum ibv_send_flags.
type SendFlags uint8

// Send flags.
const (
	SendFence     SendFlags = 1 << 0
	SendSignaled  SendFlags = 1 << 1
	SendSolicited SendFlags = 1 << 2
	SendInline    SendFlags = 1 << 3
)

// WCStatus is a work completion's status; values of enum ibv_wc_status.
type WCStatus uint32

// Completion statuses (IBTA 11.6.2).
const (
	WCSuccess WCStatus = iota
	WCLocLenErr
	WCLocQPOpErr
	WCLocEECOpErr
	WCLocProtErr
	WCWRFlushErr
	WCMWBindErr
	WCBadRespErr
	WCLocAccessErr
	WCRemInvReqErr
	WCRemAccessErr
	WCRemOpErr
	WCRetryExcErr
	WCRNRRetryExcErr
	WCLocRDDViolErr
	WCRemInvRDReqErr
	WCRemAbortErr
	WCInvEECNErr
	WCInvEECStateErr
	WCFatalErr
	WCRespTimeoutErr
	WCGeneralErr
)

var wcStatusNames = [...]string{
	"success", "local length error", "local QP operation error", "local EE context operation error",
	"local protection error", "work request flushed", "memory window bind error",
	"bad response error", "local access error", "remote invalid request", "remote access error",
	"remote operation error", "transport retry counter exceeded", "RNR retry counter exceeded",
	"local RDD violation", "remote invalid RD request", "remote aborted", "invalid EE context number",
	"invalid EE context state", "fatal error", "response timeout error", "general error",
	"tag matching error", "tag matching rendezvous incomplete",
}

func (s WCStatus) String() string {
	if int(s) < len(wcStatusNames) {
		return wcStatusNames[s]
	}
	return "unknown status"
}

// WCOpcode says what completed; values of enum ibv_wc_opcode.
type WCOpcode uint32

// Completion opcodes.
const (
	WCOpSend            WCOpcode = 0
	WCOpWrite           WCOpcode = 1
	WCOpRead            WCOpcode = 2
	WCOpCompareSwap     WCOpcode = 3
	WCOpFetchAdd        WCOpcode = 4
	WCOpBindMW          WCOpcode = 5
	WCOpLocalInvalidate WCOpcode = 6
	WCOpTSO             WCOpcode = 7
	WCOpFlush           WCOpcode = 8
	WCOpAtomicWrite     WCOpcode = 9
	WCOpRecv            WCOpcode = 128
	WCOpRecvWriteImm    WCOpcode = 129
)

// WCFlags say which fields of a completion are valid; values of enum ibv_wc_flags.
type WCFlags uint32

// Completion flags.
const (
	WCGRH     WCFlags = 1 << 0
	WCWithImm WCFlags = 1 << 1
	WCWithInv WCFlags = 1 << 3
)
