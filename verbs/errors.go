package verbs

import (
	"errors"
	"fmt"
	"strings"

	"github.com/softrnic/softrnic/internal/rdma"
)

var (
	// ErrQueueFull says that a send or receive queue has no free entry: poll completions first.
	ErrQueueFull = errors.New("verbs: the queue is full; poll completions, then post again")
	// ErrDeviceFatal says that the NIC is gone: its process ended, or the embedded NIC was closed.
	ErrDeviceFatal = errors.New("verbs: the NIC is gone")
	// ErrClosed says that the object, or something it belongs to, was closed by this program.
	ErrClosed = errors.New("verbs: object is closed")
	// ErrCQOverrun says that more completions came than the completion queue has entries; its
	// queue pairs are in error.
	ErrCQOverrun = errors.New("verbs: the completion queue overran: it has too few entries" +
		" for the work requests in flight")
	// ErrNoNIC says that no NIC process answers, with the remedy.
	ErrNoNIC = errors.New("verbs: no NIC process answers; start one with `rnic up`," +
		" or run the program by `rnic run -- PROGRAM`")
	// ErrNoDevice says that the NIC has no device of the name.
	ErrNoDevice = errors.New("verbs: no such device")
	// ErrNoChannel says that a completion queue cannot be waited for by itself: it has no channel
	// of its own.
	ErrNoChannel = errors.New("verbs: the completion queue has no channel of its own")
)

// OpError is a verb that failed: which one, and why. Err is a *Refusal where the NIC refused.
type OpError struct {
	Op  string
	Err error
}

func (e *OpError) Error() string { return "verbs: " + e.Op + ": " + e.Err.Error() }

// Unwrap returns the reason.
func (e *OpError) Unwrap() error { return e.Err }

func refuse(op string, r *rdma.Refusal) error { return &OpError{Op: op, Err: r} }

// Statuses as errors, for errors.Is on what WC.Err returns.
var (
	ErrLocalLength      error = statusClass(WCLocLenErr)
	ErrLocalOperation   error = statusClass(WCLocQPOpErr)
	ErrLocalProtection  error = statusClass(WCLocProtErr)
	ErrFlushed          error = statusClass(WCWRFlushErr)
	ErrBind             error = statusClass(WCMWBindErr)
	ErrBadResponse      error = statusClass(WCBadRespErr)
	ErrLocalAccess      error = statusClass(WCLocAccessErr)
	ErrRemoteInvalid    error = statusClass(WCRemInvReqErr)
	ErrRemoteAccess     error = statusClass(WCRemAccessErr)
	ErrRemoteOperation  error = statusClass(WCRemOpErr)
	ErrRetryExceeded    error = statusClass(WCRetryExcErr)
	ErrRNRRetryExceeded error = statusClass(WCRNRRetryExcErr)
	ErrTag              error = statusClass(WCTagErr)
	ErrTagIncomplete    error = statusClass(WCTagIncomplete)
)

type statusClass WCStatus

func (s statusClass) Error() string { return "verbs: " + WCStatus(s).String() }

// StatusError is a work request that failed.
type StatusError struct {
	Status   WCStatus
	ID       uint64 // the work request's
	Opcode   WCOpcode
	QPN      QPN
	Evidence Evidence
	// Cause is all that the NIC saw, or nil.
	Cause *Cause
}

// Error says what failed, what the NIC saw, and what is the likely cause.
func (e *StatusError) Error() string {
	s := fmt.Sprintf("verbs: work request %d on QP %v: %v", e.ID, e.QPN, e.Status)
	switch {
	case e.Cause != nil && e.Status == WCWRFlushErr:
		return s + ", because " + strings.Join(e.Cause.chain, "; ")
	case e.Cause != nil && len(e.Cause.chain) > 1:
		// The chain begins with the request and its status.
		return s + ": " + strings.Join(e.Cause.chain[1:], "; ")
	}
	if seen := e.Evidence.String(); seen != "" {
		s += ": " + seen
	}
	if cause := e.LikelyCause(); cause != "" {
		s += " (likely cause: " + cause + ")"
	}
	return s
}

// Unwrap returns the cause, where it is known.
func (e *StatusError) Unwrap() error {
	if e.Cause == nil {
		return nil
	}
	return e.Cause
}

// Is makes errors.Is(err, ErrRemoteAccess) and its like work.
func (e *StatusError) Is(target error) bool {
	class, ok := target.(statusClass)
	return ok && WCStatus(class) == e.Status
}
