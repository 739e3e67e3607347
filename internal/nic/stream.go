package nic

import (
	"net/netip"
	"syscall"
)

// StreamID names a TCP connection or a listener between a NIC and its shell. Numbers are not given
// again before 2^32 others were.
type StreamID uint32

// StreamPort is a shell's TCP. The NIC calls it from within its own methods, and what comes of a
// call is told later, never from within: connections by HandleConnected and HandleAccepted, their
// ends by HandleStreamEnd. After Close or Abort the shell tells nothing of an ID any more.
//
// A shell that runs a NIC with streams feeds it like this, besides what the package comment says:
//
//	n.HandleAccepted(now, listener, &a)  a connection came in
//	n.HandleConnected(now, id, &c)       one that the NIC asked for was made, or not
//	n.HandleJoined(now, a, b)            two streams are one connection's, see there
//	n.WantsStream(id)                    before it reads: whether the NIC wants more now
//	n.HandleStream(now, id, bytes)       bytes arrived
//	n.HandleWritable(now, id)            a socket that was full takes more
//	n.HandleStreamEnd(now, id, errno)    the peer sent FIN (0), or the connection broke
//
// and drains it:
//
//	for n.PollStream(now, &id) {
//		for n.FillStream(now, id, &v) { sent, full := send(v); n.HandleSent(now, id, sent, full) … }
//	}
type StreamPort interface {
	// Listen opens a listener. Errors are errno values, wrapped or not: EADDRINUSE, EACCES … They
	// say what failed; where, the caller knows.
	Listen(id StreamID, l *StreamListener) error
	// Connect begins to connect; the result comes by HandleConnected. An error that is known at
	// once is returned, as an errno value, and the ID is forgotten.
	Connect(id StreamID, c *StreamRoute) error
	// Close ends a stream in order: what was handed over before is sent, then FIN; bytes that still
	// arrive are dropped. Listeners stop, and what they have not handed over is refused.
	Close(id StreamID)
	// Abort ends a stream at once: RST, and what was handed over may be lost.
	Abort(id StreamID)
}

// StreamAcks is what a StreamPort may do besides: IsTaken reports whether all that was handed over
// is at the peer's TCP.
type StreamAcks interface {
	IsTaken(id StreamID) bool
}

// StreamListener says where to listen.
type StreamListener struct {
	At        netip.AddrPort // the address may be unspecified; the port is never 0
	Interface uint32         // index, of link-local addresses; else 0
	Backlog   int
	// OnlyIPv6 keeps a listener on [::] from taking connections of IPv4 (IPV6_V6ONLY).
	OnlyIPv6 bool
}

// StreamRoute says from where to where to connect.
type StreamRoute struct {
	Local     netip.AddrPort // port 0 leaves it to the host
	Remote    netip.AddrPort
	Interface uint32 // index, of link-local addresses; else 0
	TOS       uint8  // type of service or traffic class
}

// StreamAccepted is a connection that came in to a listener.
type StreamAccepted struct {
	Local, Remote netip.AddrPort
	Interface     uint32 // index, where an address is link-local; else 0
	MSS           int    // payload of a full segment in bytes; 0 when unknown
}

// StreamConnected is the outcome of Connect.
type StreamConnected struct {
	Errno syscall.Errno // 0: connected
	Local netip.AddrPort
	MSS   int // payload of a full segment in bytes; 0 when unknown
}
