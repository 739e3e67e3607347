package nic

import (
	"net/netip"
	"syscall"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/work"
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
	// Listen opens a listener. Errors are errno values, wrapped or not: EADDRINUSE, EACCES …
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

// HandleAccepted takes a connection that came in. It returns false for one that the NIC does not
// want; the shell resets it.
func (n *NIC) HandleAccepted(now clock.Time, listener StreamID, a *StreamAccepted) (
	StreamID, bool,
) {
	n.now = now
	return 0, false
}

// HandleConnected takes the outcome of a Connect. With an errno the stream is gone.
func (n *NIC) HandleConnected(now clock.Time, id StreamID, c *StreamConnected) {
	n.now = now
}

// HandleStream takes bytes that arrived, in order. b is the shell's and valid during the call.
func (n *NIC) HandleStream(now clock.Time, id StreamID, b []byte) {
	n.now = now
}

// ReceiveSpace returns where the next bytes of a stream belong in memory of an application, for
// the shell to receive them there without a copy; nil where they have to go through HandleStream.
// What it returns is valid until the next call into the NIC.
func (n *NIC) ReceiveSpace(id StreamID) [][]byte { return nil }

// HandleReceived says that the first count bytes of ReceiveSpace, which was called just before, are
// filled.
func (n *NIC) HandleReceived(now clock.Time, id StreamID, count int) {
	n.now = now
}

// HandleStreamEnd says that the peer will send nothing more: errno is 0 for an orderly end (FIN),
// else what broke the connection, which is then gone in both directions.
func (n *NIC) HandleStreamEnd(now clock.Time, id StreamID, errno syscall.Errno) {
	n.now = now
}

// PollStream names the next stream that has something to send and whose socket is not full.
// Streams take turns.
func (n *NIC) PollStream(now clock.Time, id *StreamID) bool {
	n.now = now
	return false
}

// FillStream fills v with the next bytes to send. They are valid until the next call into the NIC,
// which is HandleSent. It returns false when there is nothing to send.
func (n *NIC) FillStream(now clock.Time, id StreamID, v *work.Vector) bool {
	n.now = now
	return false
}

// HandleSent says that the socket took the first sent bytes of what FillStream filled last. full
// says that it takes no more now: HandleWritable follows when it does.
func (n *NIC) HandleSent(now clock.Time, id StreamID, sent int, full bool) {
	n.now = now
}

// HandleWritable says that a socket that was full takes more.
func (n *NIC) HandleWritable(now clock.Time, id StreamID) {
	n.now = now
}
