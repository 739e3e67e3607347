package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
	meaning "github.com/softrnic/softrnic/internal/explain"
	"github.com/softrnic/softrnic/internal/wire/mad"
	"github.com/softrnic/softrnic/verbs"
)

var (
	// ErrUnreachable says that the peer did not answer: its host is down, has no NIC, or packets
	// are lost. Where the host told that it has no NIC, the error is ECONNREFUSED too.
	ErrUnreachable = errors.New("the peer does not answer")
	// ErrNoRoute says that no path leads to the address; the errno says why.
	ErrNoRoute = errors.New("the address cannot be reached")
	// ErrDisconnected says that the connection is over.
	ErrDisconnected = errors.New("the connection is disconnected")
	// ErrRejected is what every *RejectedError is.
	ErrRejected = errors.New("the peer rejected the connection")
)

// Reason is why a connection was rejected (IBTA 12.6.7.2).
type Reason = mad.Reason

// Reasons that programs meet. Every other value of the standard may come as well.
const (
	// ReasonNoResources: the peer's backlog is full, or it has no room.
	ReasonNoResources = mad.ReasonNoResources
	// ReasonTimeout: one of the sides gave up waiting.
	ReasonTimeout = mad.ReasonTimeout
	// ReasonInvalidServiceID: nobody listens at the address.
	ReasonInvalidServiceID = mad.ReasonInvalidServiceID
	// ReasonStaleConnection: the peer still believes in an older connection.
	ReasonStaleConnection = mad.ReasonStaleConnection
	// ReasonInvalidMTU: the path MTU is larger than the peer's port carries.
	ReasonInvalidMTU = mad.ReasonInvalidMTU
	// ReasonConsumer: the program at the other side said no.
	ReasonConsumer = mad.ReasonConsumer
)

// RejectedError is the peer's no.
type RejectedError struct {
	Reason Reason
	// Service is the answer of a datagram service; it is what counts where Reason is 0.
	Service ServiceStatus
	// PrivateData is all that the message had room for: the program's bytes, then zeros.
	PrivateData []byte
}

// ServiceStatus is the answer to a service query (IBTA 12.11.2.1).
type ServiceStatus = mad.SIDRStatus

func (e *RejectedError) Error() string {
	text := fmt.Sprintf("%v: %v (reason %d)", ErrRejected, e.Reason, uint16(e.Reason))
	if e.Reason == 0 {
		text = fmt.Sprintf("%v: %v (status %d)", ErrRejected, e.Service, uint8(e.Service))
	}
	if cause := e.LikelyCause(); cause != "" {
		text += "; likely cause: " + cause
	}
	return text
}

// LikelyCause says what most often stands behind such an answer, or "".
func (e *RejectedError) LikelyCause() string {
	if e.Reason == 0 {
		return meaning.LikelyCause(meaning.KindService, uint32(e.Service))
	}
	return meaning.LikelyCause(meaning.KindReject, uint32(e.Reason))
}

// Is makes a rejection ErrRejected, and what programs of sockets know as refused.
func (e *RejectedError) Is(target error) bool {
	return target == ErrRejected || target == error(syscall.ECONNREFUSED)
}

// OpError is what failed, between whom, and why.
type OpError struct {
	Op, Network   string
	Local, Remote net.Addr // nil where not known
	Err           error
}

func (e *OpError) Error() string {
	s := "rdmacm: " + e.Op
	if e.Network != "" {
		s += " " + e.Network
	}
	if e.Local != nil {
		s += " " + e.Local.String()
	}
	if e.Remote != nil {
		if e.Local != nil {
			s += "->"
		} else {
			s += " "
		}
		s += e.Remote.String()
	}
	return s + ": " + e.Err.Error()
}

// Unwrap returns the reason.
func (e *OpError) Unwrap() error { return e.Err }

// Timeout reports a deadline that passed, or a peer that did not answer in time.
func (e *OpError) Timeout() bool {
	return errors.Is(e.Err, os.ErrDeadlineExceeded) || errors.Is(e.Err, context.DeadlineExceeded) ||
		errors.Is(e.Err, syscall.ETIMEDOUT)
}

// explain makes an error of ours from one of the control connection.
func explain(err error) error {
	var refused *ctl.Error
	switch {
	case errors.As(err, &refused):
		return refused.Refusal
	case errors.Is(err, ctl.ErrGone):
		return verbs.ErrDeviceFatal
	}
	return err
}

// failureOf is the error that an event reports, or nil for one that reports none.
func failureOf(e *abi.CMEvent) error {
	switch EventType(e.Event) {
	case EventAddrError, EventRouteError:
		return withErrno(ErrNoRoute, e.Status)
	case EventUnreachable:
		if e.Status > 0 {
			return &RejectedError{Service: ServiceStatus(e.Status), PrivateData: privateOf(e)}
		}
		return withErrno(ErrUnreachable, e.Status)
	case EventConnectError, EventMulticastError:
		return withErrno(errors.New("the NIC failed"), e.Status)
	case EventRejected:
		return rejectionOf(e)
	case EventDisconnected:
		return withErrno(ErrDisconnected, e.Status)
	case EventDeviceRemoval:
		return verbs.ErrDeviceFatal
	default:
		return nil
	}
}

// rejectionOf is the error of a rejection. iWARP has no reasons: what tells a program's no from a
// port that nobody listens at is the errno that the Linux kernel has for it.
func rejectionOf(e *abi.CMEvent) error {
	no := &RejectedError{Reason: Reason(e.Status), PrivateData: privateOf(e)}
	switch {
	case e.Status == -int32(syscall.ECONNRESET):
		no.Reason = ReasonConsumer
	case e.Status == -int32(syscall.ECONNREFUSED):
		no.Reason = ReasonInvalidServiceID
	case e.Status < 0:
		return withErrno(ErrRejected, e.Status)
	}
	return no
}

// withErrno adds what a status says.
func withErrno(err error, status int32) error {
	if status >= 0 {
		return err
	}
	errno := syscall.Errno(-status)
	if cause := meaning.LikelyErrno(errno); cause != "" {
		return fmt.Errorf("%w: %w (likely cause: %s)", err, errno, cause)
	}
	return fmt.Errorf("%w: %w", err, errno)
}
