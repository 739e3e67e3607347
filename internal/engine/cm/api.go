package cm

import (
	"github.com/softrnic/softrnic/internal/rdma"
)

// Path is how messages reach the peer, and how its queue pair will. Of a received message it is
// the way back: SGID is ours, DGID the sender's.
type Path struct {
	SGID, DGID   rdma.GID
	FlowLabel    uint32 // 20 bits
	Flow         uint16 // entropy of the UDP source port; the engine hands it back as it got it
	TrafficClass uint8
	HopLimit     uint8
	SL           uint8
	Port         uint8 // of the adapter, from 1
}

// ID is a local communication ID (IBTA 12.6.5): the name of a connection, or of a service query,
// on this side. It is never 0.
type ID uint32

// Config says whose communication manager an Engine is.
type Config struct {
	// NodeGUID is the adapter's; it names this side in REQ and REP.
	NodeGUID rdma.GUID
	// Seed decides the communication IDs. Adapters, and incarnations of one, must differ in it,
	// else a peer may take a new connection for an old one.
	Seed uint64
	// AckDelay is the target ACK delay, 4.096 µs × 2^n (IBTA 12.7.33).
	AckDelay uint8
}

// ECE is what enhanced connection establishment agrees upon: options whose meaning is the vendor's,
// in the vendor ID of REQ and REP and the attribute modifier of their header. They are carried and
// not looked at.
type ECE struct {
	VendorID uint32 // 24 bits; 0 is none
	Options  uint32
}

// ConnectParams ask for a connection. Timeouts are exponents: 4.096 µs × 2^n, n of 5 bits.
type ConnectParams struct {
	Path               Path
	ServiceID          uint64
	PKey               rdma.PKey
	LocalQPN           rdma.QPN
	StartPSN           rdma.PSN
	QPType             rdma.QPType // RC, UC or XRC_SEND
	PathMTU            rdma.MTU
	ResponderResources uint8 // READs and atomics that this side answers at a time
	InitiatorDepth     uint8 // and that it sends at a time
	RetryCount         uint8 // 3 bits
	RNRRetry           uint8 // 3 bits
	SRQ                bool
	FlowControl        bool
	AckTimeout         uint8 // for the peer's QP; 0 takes DefaultAckTimeout
	CMResponseTimeout  uint8 // how long either CM may take; 0 takes DefaultResponseTimeout
	MaxCMRetries       uint8 // 4 bits; both sides resend as often
	ECE                ECE
	PrivateData        []byte // at most mad.REQPrivateLen; the IP addressing header is part of it
}

// AcceptParams answer a request.
type AcceptParams struct {
	QPN                rdma.QPN
	StartPSN           rdma.PSN
	ResponderResources uint8
	InitiatorDepth     uint8
	RNRRetry           uint8
	SRQ                bool
	FlowControl        bool
	ECE                ECE
	PrivateData        []byte // at most mad.REPPrivateLen
}

// SIDRParams ask which datagram QP serves a service (IBTA 12.11).
type SIDRParams struct {
	Path            Path
	ServiceID       uint64
	PKey            rdma.PKey
	ResponseTimeout uint8  // 4.096 µs × 2^n; 0 takes DefaultResponseTimeout
	MaxCMRetries    uint8  // 4 bits
	PrivateData     []byte // at most mad.SIDRREQPrivateLen
}

// SIDRAnswer answers a service query.
type SIDRAnswer struct {
	Status      uint8 // mad.SIDRStatus…; QPN and QKey count with success only
	QPN         rdma.QPN
	QKey        rdma.QKey
	PrivateData []byte // at most mad.SIDRREPPrivateLen
}

// Message is a MAD to send from QP1, with queue key rdma.QKeyGSI.
type Message struct {
	Path    Path
	DestQPN rdma.QPN
	MAD     [256]byte
}

// EventKind says what happened.
type EventKind uint8

// Event kinds. Terminal ones end the connection; there is one of them at most.
const (
	// EventRequestReceived: a REQ for a listener. ID is new, Cookie the listener's.
	EventRequestReceived EventKind = iota + 1
	// EventReplyReceived: the peer accepted; call Ready or Reject.
	EventReplyReceived
	// EventEstablished: the peer's RTU came, or Established was called.
	EventEstablished
	// EventRejected is terminal: Reason, and the peer's private data.
	EventRejected
	// EventUnreachable is terminal: the peer did not answer REQ, REP or SIDR_REQ.
	EventUnreachable
	// EventDisconnected is terminal: How says by what.
	EventDisconnected
	// EventTimewaitExit follows EventDisconnected: the queue pair number may be used again.
	EventTimewaitExit
	// EventServiceRequest: a SIDR_REQ for a listener; answer it with AnswerService.
	EventServiceRequest
	// EventServiceReply is terminal: Status, and with success RemoteQPN and QKey.
	EventServiceReply
)

// Disconnection is what ended an established connection.
type Disconnection uint8

// Disconnections.
const (
	DisconnectedByPeer    Disconnection = iota + 1 // a DREQ
	DisconnectedByReply                            // the DREP to ours
	DisconnectedByTimeout                          // no answer to our DREQ
	DisconnectedByReject                           // a REJ: the peer does not know the connection
	DisconnectedStale                              // the peer uses its QPN for another connection
)

// Event is what an owner has to know. Which fields count depends on Kind.
type Event struct {
	Kind   EventKind
	ID     ID
	Cookie uint32 // EventRequestReceived, EventServiceRequest: the listener
	// Path leads to the peer's QP, with what the REQ says of it: EventRequestReceived,
	// EventReplyReceived, EventServiceRequest, EventServiceReply.
	Path      Path
	ServiceID uint64
	PKey      rdma.PKey

	// EventRequestReceived and EventReplyReceived: what the peer says of itself, from its side.
	RemoteQPN          rdma.QPN
	StartPSN           rdma.PSN
	ResponderResources uint8
	InitiatorDepth     uint8
	RetryCount         uint8 // a request's only
	RNRRetry           uint8
	SRQ                bool
	FlowControl        bool
	PathMTU            rdma.MTU    // a request's only
	QPType             rdma.QPType // ours to make: XRC_RECV for a request from XRC_SEND
	AckTimeout         uint8       // for our QP: 4.096 µs × 2^n
	AckDelay           uint8       // a reply's only
	ECE                ECE
	QKey               rdma.QKey // EventServiceReply

	Reason uint16        // EventRejected, or EventDisconnected by a REJ
	Status uint8         // EventServiceReply
	How    Disconnection // EventDisconnected

	PrivateData    [256]byte
	PrivateLen     int // the whole field of the message: a MAD does not say how much is used
	AdditionalInfo [72]byte
	AdditionalLen  int // EventRejected
}

// RejectParams refuse a request or a reply.
type RejectParams struct {
	Reason         uint16 // mad.Reason…
	AdditionalInfo []byte // at most mad.REJInfoLen; what it holds depends on the reason
	PrivateData    []byte // at most mad.REJPrivateLen
}

var eventNames = [...]string{
	"no event", "request received", "reply received", "established", "rejected", "unreachable",
	"disconnected", "TIMEWAIT exit", "service request", "service reply",
}

func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return "unknown event"
}

// IsTerminal reports the end of a connection or of a query.
func (k EventKind) IsTerminal() bool {
	return k == EventRejected || k == EventUnreachable || k == EventDisconnected ||
		k == EventServiceReply
}

var disconnectionNames = [...]string{
	"not at all", "by the peer", "by its answer", "by timeout", "by a rejection",
	"since the peer has forgotten it",
}

func (d Disconnection) String() string {
	if int(d) < len(disconnectionNames) {
		return disconnectionNames[d]
	}
	return "unknown"
}
