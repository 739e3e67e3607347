package rdmacm

import (
	"fmt"

	"github.com/softrnic/softrnic/internal/abi"
)

// EventType is what happened; values of enum rdma_cm_event_type.
type EventType uint32

// Event types.
const (
	EventAddrResolved EventType = iota
	EventAddrError
	EventRouteResolved
	EventRouteError
	EventConnectRequest
	EventConnectResponse
	EventConnectError
	EventUnreachable
	EventRejected
	EventEstablished
	EventDisconnected
	EventDeviceRemoval
	EventMulticastJoin
	EventMulticastError
	EventAddrChange
	EventTimewaitExit
)

var eventNames = [...]string{
	"address resolved", "address error", "route resolved", "route error", "connect request",
	"connect response", "connect error", "unreachable", "rejected", "established", "disconnected",
	"device removal", "multicast join", "multicast error", "address change", "timewait exit",
}

func (t EventType) String() string {
	if int(t) < len(eventNames) {
		return eventNames[t]
	}
	return fmt.Sprintf("event %d", uint32(t))
}

// Event is something that happened to a connection.
type Event struct {
	Type EventType
	// Status is 0, a negative errno, or the reason of a rejection.
	Status int
	// PrivateData came with the event, if anything; filled up with zeros.
	PrivateData []byte
}

func eventOf(e *abi.CMEvent) Event {
	return Event{Type: EventType(e.Event), Status: int(e.Status), PrivateData: privateOf(e)}
}

func privateOf(e *abi.CMEvent) []byte {
	n := e.Param.PrivateDataLen
	return append([]byte(nil), e.Param.PrivateData[:n]...)
}
