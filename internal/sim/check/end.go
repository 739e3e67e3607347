package check

import (
	"fmt"

	"github.com/softrnic/softrnic/internal/clock"
)

// CMEvent is what a program reads from an event channel; values of enum rdma_cm_event_type.
type CMEvent uint32

// Events that programs of the simulator get.
const (
	AddrResolved CMEvent = iota
	AddrError
	RouteResolved
	RouteError
	ConnectRequest
	ConnectResponse
	ConnectError
	Unreachable
	Rejected
	Established
	Disconnected
	DeviceRemoval
	MulticastJoin
	MulticastError
	AddrChange
	TimewaitExit
)

// EndState is where a communication identifier stands, as far as its program can know.
type EndState uint8

// States. What programs do leads to some of them, events to the others.
const (
	EndIdle EndState = iota
	EndListening
	EndResolving
	EndResolved
	EndRouting
	EndRouted
	EndAsking    // connect was called
	EndQuerying  // the same, for the queue pair behind a datagram service
	EndAnswered  // CONNECT_RESPONSE came; the program has not completed the connection
	EndRequested // CONNECT_REQUEST came
	EndAccepted
	EndUp
	EndDown    // DISCONNECTED came
	EndOver    // nothing more will come
	EndServing // a datagram service that was found, or answered
)

var endNames = [...]string{
	"idle", "listening", "resolving", "resolved", "routing", "routed", "asking", "querying",
	"answered", "requested", "accepted", "up", "down", "over", "serving",
}

func (s EndState) String() string { return endNames[s] }

// endStep is an event in a state.
type endStep struct {
	at    EndState
	event CMEvent
}

// endSteps are the only events that may come, and what they mean (rdma_get_cm_event(3),
// IBTA 12.9.5). A connection that is up ends by DISCONNECTED, then TIMEWAIT_EXIT; one that is not
// ends by one event alone.
//
//tidy:table
var endSteps = map[endStep]EndState{
	{EndResolving, AddrResolved}: EndResolved,
	{EndResolving, AddrError}:    EndIdle,
	{EndRouting, RouteResolved}:  EndRouted,
	{EndAsking, ConnectResponse}: EndAnswered,
	{EndAsking, Rejected}:        EndOver,
	{EndAsking, Unreachable}:     EndOver,
	{EndQuerying, Established}:   EndServing,
	{EndQuerying, Unreachable}:   EndOver,
	{EndAnswered, Rejected}:      EndOver,
	{EndAnswered, Disconnected}:  EndDown,
	{EndRequested, Rejected}:     EndOver,
	{EndAccepted, Established}:   EndUp,
	{EndAccepted, Rejected}:      EndOver,
	{EndAccepted, Unreachable}:   EndOver,
	{EndAccepted, Disconnected}:  EndDown,
	{EndUp, Disconnected}:        EndDown,
	{EndDown, TimewaitExit}:      EndOver,
}

// End judges what a program is told about one identifier.
type End struct {
	Court *Court
	Name  string
	// Patience is until when the peer has asked for time.
	Patience clock.Time

	state EndState
	turns int
}

// State is where the identifier stands.
func (e *End) State() EndState { return e.state }

// Turns counts changes of the state.
func (e *End) Turns() int { return e.turns }

// Move says what the program did.
func (e *End) Move(to EndState) {
	e.state = to
	e.turns++
}

// Take judges an event. It returns false for one that may not come.
func (e *End) Take(event CMEvent, status int32) bool {
	to, legal := endSteps[endStep{e.state, event}]
	if !legal {
		e.Court.Failf("%s: event %d (status %d) comes when the end is %v", e.Name, event, status, e.state)
		return false
	}
	wantsStatus := event == AddrError || event == Rejected || event == Unreachable
	isError := status != 0
	if wantsStatus != isError && event != Disconnected {
		e.Court.Failf("%s: event %d has status %d", e.Name, event, status)
	}
	e.Move(to)
	return true
}

// Agrees judges whether a call was granted: legal says that the program was right to make it.
func (e *End) Agrees(what string, legal bool, refusal error) {
	if legal != (refusal == nil) {
		e.Court.Failf("%s: %s while the end is %v: %v", e.Name, what, e.state, refusal)
	}
}

func (e *End) String() string { return fmt.Sprintf("%s (%v)", e.Name, e.state) }
