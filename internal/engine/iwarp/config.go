package iwarp

import (
	"syscall"
	"time"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

// FPDUPolicy says how long the FPDUs of a stream may be.
type FPDUPolicy uint8

// FPDU policies.
const (
	// FPDUAuto is FPDUMSS until the peer is known to take more: it has said so while MPA was set
	// up, or has sent such FPDUs itself.
	FPDUAuto FPDUPolicy = iota
	// FPDUMSS lets an FPDU fit a TCP segment, as RFC 5044 5.1 asks of senders that can see to it.
	FPDUMSS
	// FPDULarge lets an FPDU be as long as its length field can tell, which costs least.
	FPDULarge
)

func (p FPDUPolicy) String() string {
	names := [...]string{"auto", "mss", "large"}
	if int(p) < len(names) {
		return names[p]
	}
	return "unknown"
}

// ConnConfig makes a Conn.
type ConnConfig struct {
	Now clock.Time
	// Initiator says that this end has opened the TCP connection, and sends the MPA request.
	Initiator bool
	// Revision is the highest of MPA that this end speaks: 1 or 2; 0 is 2.
	Revision uint8
	// CRC asks for CRCs. The peer may ask for them, too; either's word counts.
	CRC bool
	// Markers asks the peer to put markers into its stream. This end puts them into its own if
	// the peer asks.
	Markers bool
	// MSS is how many bytes of the stream a TCP segment carries, and FPDU what to make of it.
	MSS  int
	FPDU FPDUPolicy
	// Patience is how long a message waits for a receive to be posted before the peer is told that
	// there is none (see IsWaiting); 0 tells it at once.
	Patience time.Duration
	// Shyness is how long an initiator is silent after the reply of a peer that does not say that it
	// takes FPDUs of any length: see limits.MPAShyTime. 0 is not at all.
	Shyness time.Duration
	// IsTaken reports whether all that was sent is at the peer's TCP; nil: nobody knows. See
	// limits.MPAHoldTime.
	IsTaken func() bool
	// Buffers is the transmit and reassembly memory that the connections of a lane share; nil: the
	// connection has some of its own.
	Buffers *Buffers
	// Seed decides what need not be guessable.
	Seed uint64
}

// RTR is a set of messages that can be a ready-to-receive indication (RFC 6581 9).
type RTR uint8

// RTR messages, each without content.
const (
	RTRWrite RTR = 1 << iota
	RTRRead
	RTRSend
	// RTRAny offers all.
	RTRAny = RTRWrite | RTRRead | RTRSend
)

// Params is what one end brings into an MPA set-up.
type Params struct {
	// PrivateData is at most 512 bytes, less 4 where the peer speaks revision 2.
	PrivateData []byte
	// IRD is how many READs and atomics this end serves at once, ORD how many it wants to have
	// under way.
	IRD, ORD uint16
	// RTR is what the initiator offers; the responder takes one of them. 0: the initiator sends
	// the first message (RFC 5044 7.1), and the responder none before. Of the responder it is what
	// it accepts; 0 stands for RTRAny.
	RTR RTR
}

// EventKind names an event.
type EventKind uint8

// Events.
const (
	EventNone EventKind = iota
	// EventRequest: the peer's MPA request has come; Accept or Reject answers it.
	EventRequest
	// EventReply: the peer has accepted, and the QP is in RTS.
	EventReply
	// EventRejected: the peer has refused. EventClosed follows.
	EventRejected
	// EventEstablished: at the responder, both may send.
	EventEstablished
	// EventClosed is the last: the connection is over, see Event.End and Conn.Closing.
	EventClosed
)

func (k EventKind) String() string {
	names := [...]string{"none", "request", "reply", "rejected", "established", "closed"}
	if int(k) < len(names) {
		return names[k]
	}
	return "unknown"
}

// Event is what PollEvent returns.
type Event struct {
	Kind EventKind
	// PrivateData is the peer's; valid until the next call into the engine.
	PrivateData []byte
	// IRD and ORD are, of a request and a rejection, the peer's; of EventReply and EventEstablished
	// those that hold for this end.
	IRD, ORD uint16
	// IsNegotiated says that the peer speaks revision 2 and has named its IRD and ORD.
	IsNegotiated bool
	Revision     uint8
	// Markers and CRC are what the peer asked for.
	Markers, CRC bool
	// RTR is what the initiator offered.
	RTR RTR
	// End says how it closed.
	End End
}

// How says why a connection is over.
type How uint8

// Ends of connections.
const (
	HowNone              How = iota
	HowLocal                 // Disconnect, or a rejection of this end: all that was due is sent
	HowPeer                  // the peer ended its stream in order
	HowTerminateSent         // this end found a fault, and the Terminate is sent
	HowTerminateReceived     // the peer found a fault
	HowReset                 // TCP gave up: a reset, a timeout, no route: End.Errno
	HowTimeout               // the peer did not do its part of MPA, or took nothing, in time
	HowProtocol              // the peer did not speak MPA as it should
	HowError                 // the QP was moved to error, reset or destroyed by its owner
)

func (h How) String() string {
	names := [...]string{
		"open", "closed by this end", "closed by the peer", "terminated by this end",
		"terminated by the peer", "TCP connection lost", "timeout", "no MPA", "queue pair in error",
	}
	if int(h) < len(names) {
		return names[h]
	}
	return "unknown"
}

// End is how a connection came to its end.
type End struct {
	How How
	// Errno is what broke the TCP connection.
	Errno syscall.Errno
	// Code is that of the Terminate sent or received.
	Code iwarp.Code
}

// Closing tells the shell what to do with the stream.
type Closing uint8

// Closings.
const (
	CloseNone  Closing = iota
	CloseFIN           // in order: send FIN after what was sent
	CloseAbort         // at once: reset it
)
