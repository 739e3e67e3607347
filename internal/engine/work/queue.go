package work

import "github.com/softrnic/softrnic/internal/abi"

// CompletionQueue takes completions. solicited says whether an application that asked for
// solicited events only is to be woken. A queue that is full reports itself.
type CompletionQueue interface {
	Push(e *abi.CQE, solicited bool)
}

// RecvWR is a receive work request, copied out of shared memory and checked for form. List points
// into Store.
type RecvWR struct {
	WRID  uint64
	List  []abi.SGE
	Store [32]abi.SGE
}

// TakeResult says what a receive queue had.
type TakeResult uint8

// Results of ReceiveQueue.Take.
const (
	TakeEmpty     TakeResult = iota
	TakeOK                   // w is filled
	TakeMalformed            // the entry is unusable; w.WRID is what it said
)

// ReceiveQueue hands out posted receives in order, each once: a QP's own queue or one that QPs
// share.
type ReceiveQueue interface {
	Take(w *RecvWR) TakeResult
	// IsShared reports an SRQ, whose entries are not flushed with a QP.
	IsShared() bool
}

// CreditSource is a receive queue that can tell how many receives it has left; its QP advertises
// them as end-to-end credits (IBTA 9.7.7.2).
type CreditSource interface {
	Available() uint32
}
