// Package cm is InfiniBand communication management (IBTA volume 1, chapter 12): it connects
// queue pairs by messages between general services interfaces (QP1), and resolves services to
// datagram queue pairs (SIDR).
//
// An Engine is the communication manager of one channel adapter, a deterministic state machine
// without I/O. It never touches a queue pair: its owner moves them as the events say, and tells it
// what the application decides. The owner drives it from one thread:
//
//	e.HandleMAD(now, &path, source, mad)   a MAD for QP1 arrived
//	e.HandleTimeout(now)                   e.PollTimeout() has come
//	e.Connect, Accept, Ready, Disconnect   what an application asks for
//
// and after any of these drains it, in this order:
//
//	for e.PollTransmit(now, &message) { send message.MAD from QP1 to message.DestQPN }
//	for e.PollEvent(&event) { … }
//	deadline := e.PollTimeout()
//
// # One connection
//
// The active side calls Connect, gets EventReplyReceived, brings its QP to RTS and calls Ready.
// The passive side gets EventRequestReceived on a listener, brings its QP to RTR, calls Accept, and
// gets EventEstablished. The owner may end this at any step with Reject or Release. Otherwise each
// connection has exactly one terminal event: EventRejected, EventUnreachable or EventDisconnected;
// the last is followed, after the time that packets may linger in the network, by
// EventTimewaitExit.
//
//	Connect ──► REQ sent ──────────► REP received ─ Ready ─► established ──► DREQ sent ─┐
//	                │ EventUnreachable    │ EventRejected          │ DREQ received        │
//	                ▼ EventRejected       ▼                        ▼ EventDisconnected    ▼
//	              closed                closed                 TIMEWAIT ◄─────────────────┘
//	                ▲ EventRejected       ▲ EventUnreachable       ▲
//	                │                     │ EventRejected          │
//	REQ ────► REQ received ─ Accept ─► REP sent ─── RTU ────► established
//
// # Time
//
// A message is repeated as often as the REQ allows, and for as long as that many response timeouts
// take; but the first repetitions come early, see interval. A peer that repeats a message about
// which the owner has thought for a second gets an MRA, and an MRA prolongs the wait.
//
// # What there is not
//
// A peer-to-peer connection (IBTA 12.10.5), in which both sides send a REQ and neither listens,
// cannot be asked for through rdma_cm, and the Linux kernel makes none: two REQs that cross make
// two connections here if both sides listen, and are rejected with reason 8 if they do not.
// Alternate paths (LAP) are declined: Ethernet has its own ways to fail over.
//
// An ID belongs to the owner until it calls Release, whatever has happened to it, so that the
// owner's own tables need no second bookkeeping. After Release there are no events about it.
package cm
