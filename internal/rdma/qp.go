package rdma

// QPType is a queue pair's transport service; values of enum ibv_qp_type.
type QPType uint32

// Queue pair types.
const (
	QPTypeRC      QPType = 2
	QPTypeUC      QPType = 3
	QPTypeUD      QPType = 4
	QPTypeXRCSend QPType = 9
	QPTypeXRCRecv QPType = 10
)

func (t QPType) String() string {
	switch t {
	case QPTypeRC:
		return "RC"
	case QPTypeUC:
		return "UC"
	case QPTypeUD:
		return "UD"
	case QPTypeXRCSend:
		return "XRC_SEND"
	case QPTypeXRCRecv:
		return "XRC_RECV"
	}
	return "unknown"
}

// QPState is a queue pair's state (IBTA 10.3.1); values of enum ibv_qp_state.
type QPState uint32

// Queue pair states.
const (
	QPStateReset QPState = iota
	QPStateInit
	QPStateRTR
	QPStateRTS
	QPStateSQD
	QPStateSQE
	QPStateError
)

// IsValid reports one of the seven states.
func (s QPState) IsValid() bool { return s <= QPStateError }

func (s QPState) String() string {
	names := [...]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}
	if s.IsValid() {
		return names[s]
	}
	return "unknown"
}

// QPAttrMask says which attributes a modify carries; values of enum ibv_qp_attr_mask.
type QPAttrMask uint32

// Attribute mask bits.
const (
	QPAttrState QPAttrMask = 1 << iota
	QPAttrCurState
	QPAttrEnSQDAsyncNotify
	QPAttrAccessFlags
	QPAttrPKeyIndex
	QPAttrPort
	QPAttrQKey
	QPAttrAV
	QPAttrPathMTU
	QPAttrTimeout
	QPAttrRetryCnt
	QPAttrRNRRetry
	QPAttrRQPSN
	QPAttrMaxQPRdAtomic
	QPAttrAltPath
	QPAttrMinRNRTimer
	QPAttrSQPSN
	QPAttrMaxDestRdAtomic
	QPAttrPathMigState
	QPAttrCap
	QPAttrDestQPN
	_ // smac, kernel only
	_ // alt smac, kernel only
	_ // vid, kernel only
	_ // alt vid, kernel only
	QPAttrRateLimit
	qpAttrEnd
)

// QPAttrAll is every bit that has a meaning.
const QPAttrAll = (qpAttrEnd - 1) &^ (QPAttrMask(0xf) << 21)

var qpAttrNames = [...]string{
	"state", "cur_qp_state", "en_sqd_async_notify", "qp_access_flags", "pkey_index", "port_num",
	"qkey", "ah_attr", "path_mtu", "timeout", "retry_cnt", "rnr_retry", "rq_psn", "max_rd_atomic",
	"alt_ah_attr", "min_rnr_timer", "sq_psn", "max_dest_rd_atomic", "path_mig_state", "cap",
	"dest_qp_num", "smac", "alt_smac", "vid", "alt_vid", "rate_limit",
}

// String lists the attributes by their names in struct ibv_qp_attr.
func (m QPAttrMask) String() string {
	out := ""
	for i := range 32 {
		if m&(1<<i) == 0 {
			continue
		}
		name := "bit" + string(rune('0'+i/10)) + string(rune('0'+i%10))
		if i < len(qpAttrNames) {
			name = qpAttrNames[i]
		}
		if out != "" {
			out += "|"
		}
		out += name
	}
	return out
}

// MigrationState is the path migration state (IBTA 17.2.8); values of enum ibv_mig_state.
type MigrationState uint32

// Path migration states.
const (
	MigrationMigrated MigrationState = iota
	MigrationRearm
	MigrationArmed
)
