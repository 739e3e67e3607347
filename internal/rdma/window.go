package rdma

// MWType is a memory window's type (IBTA 10.6.7.2); values of enum ibv_mw_type. Windows of type 2
// are of variant B here: one queue pair's, in its protection domain.
type MWType uint32

// Memory window types.
const (
	MWType1 MWType = 1
	MWType2 MWType = 2
)

// IsValid reports one of the two types.
func (t MWType) IsValid() bool { return t == MWType1 || t == MWType2 }

func (t MWType) String() string {
	switch t {
	case MWType1:
		return "type 1"
	case MWType2:
		return "type 2"
	}
	return "unknown"
}

// AdviceMR is advice about a range of memory; values of enum ibv_advise_mr_advice.
type AdviceMR uint32

// Advice of ibv_advise_mr(3).
const (
	AdvicePrefetch        AdviceMR = 0 // make pages present
	AdvicePrefetchWrite   AdviceMR = 1 // and writable
	AdvicePrefetchNoFault AdviceMR = 2 // use those that are
)

// AdviceFlush asks ibv_advise_mr(3) to return when the advice has been followed
// (IBV_ADVISE_MR_FLAG_FLUSH).
const AdviceFlush uint32 = 1

// ReregMask says what ibv_rereg_mr(3) changes; values of enum ibv_rereg_mr_flags.
type ReregMask uint32

// Changes to a memory region.
const (
	ReregTranslation ReregMask = 1 << 0
	ReregPD          ReregMask = 1 << 1
	ReregAccess      ReregMask = 1 << 2
	ReregAll                   = ReregTranslation | ReregPD | ReregAccess
)
