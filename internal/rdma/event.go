package rdma

// EventType is an asynchronous event; values of enum ibv_event_type.
type EventType uint32

// Asynchronous events (IBTA 11.6.3).
const (
	EventCQErr EventType = iota
	EventQPFatal
	EventQPReqErr
	EventQPAccessErr
	EventCommEst
	EventSQDrained
	EventPathMig
	EventPathMigErr
	EventDeviceFatal
	EventPortActive
	EventPortErr
	EventLIDChange
	EventPKeyChange
	EventSMChange
	EventSRQErr
	EventSRQLimitReached
	EventQPLastWQEReached
	EventClientReregister
	EventGIDChange
	EventWQFatal
)

var eventNames = [...]string{
	"CQ error", "QP fatal", "QP request error", "QP access error", "communication established",
	"SQ drained", "path migrated", "path migration error", "device fatal", "port active",
	"port error", "LID change", "P_Key change", "SM change", "SRQ error", "SRQ limit reached",
	"last WQE reached", "client reregister", "GID change", "WQ fatal",
}

func (e EventType) String() string {
	if int(e) < len(eventNames) {
		return eventNames[e]
	}
	return "unknown event"
}

// PortState is a port's logical state; values of enum ibv_port_state.
type PortState uint32

// Port states.
const (
	PortNOP PortState = iota
	PortDown
	PortInit
	PortArmed
	PortActive
	PortActiveDefer
)
