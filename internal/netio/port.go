package netio

import (
	"errors"
	"net/netip"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/wire/roce"
)

// ErrPortTaken is wrapped when another process of this namespace has the RoCE v2 UDP port. A NIC
// can then serve only its own programs.
var ErrPortTaken = errors.New("UDP port 4791 is in use by another NIC or program")

// ErrClosed is returned by Send and Receive after Close.
var ErrClosed = errors.New("port is closed")

// TrailerBytes is the room that Send needs behind each Buf, within its capacity, for the ICRC.
const TrailerBytes = 4

// A port may send datagrams of one path and length as one, the last of them shorter or not: no more
// than so many, and no more bytes, ICRCs included, than a length field of IPv4 or IPv6 holds beside
// headers. Batches that end with a whole one take the fewest.
const (
	GroupDatagramsMax = 64 // UDP_MAX_SEGMENTS of the oldest kernels; newer ones allow twice that
	GroupBytesMax     = 65535 - 40 - 8 - 20
)

// Datagram is one RoCE v2 packet with the path that it takes or took.
type Datagram struct {
	// Buf is the UDP payload from the BTH to the last pad byte; the ICRC is not part of it.
	//
	// Sent: the caller owns Buf, it has TrailerBytes of spare capacity, and no two datagrams of
	// a batch share a byte, spare ones included. Buf is free again when Send returns.
	// Received: the port owns Buf, which is valid until the next Receive. The TrailerBytes behind
	// it hold the ICRC that came with it.
	Buf []byte

	// Path is where to and how. On return from Send, the source port and the IPv4 identification
	// are those on the wire; the source port that the caller gave is only a flow label that
	// picks one (RoCE v2 uses it as entropy, annex A17.4.3). The IPv6 flow label may be the
	// kernel's. Of a received datagram, IPID and DF are assumptions where the port cannot see
	// them.
	Path roce.Path

	// Interface is the index of the interface to use, or that was used. 0 leaves the choice to
	// the routing table; link-local and multicast destinations need a value.
	Interface uint32

	// Flip is 1 + the number of a bit of the UDP payload, ICRC included, that is inverted after
	// the ICRC has been computed. 0, the value for everybody but a fault injector, inverts none.
	Flip uint32
}

// Unreachable says that a host answered that nobody listens on its RoCE port, or that a router
// has no way to it.
type Unreachable struct {
	Addr      netip.Addr // the destination of the packet that was refused
	Reporter  netip.Addr // who says so; zero when it is this host
	NoPort    bool       // ICMP port unreachable: the host lives but has no NIC
	Interface uint32
}

// Port is one batched attachment to a wire. All methods but Counters must be called on the one
// thread that owns the port.
type Port interface {
	// Name says which port this is, for people, decorators included: "faulty(udp)".
	Name() string

	// Send puts datagrams on the wire in order and returns how many are done with: sent, or
	// dropped and counted the way a wire would drop them. A count below len(batch) without an
	// error means that the socket is full: try the rest a little later. An error means that
	// the port is of no use any more. A Buf whose Flip is set is damaged afterwards.
	Send(batch []Datagram) (sent int, err error)

	// Receive fills batch with datagrams whose ICRC is right and never blocks. It returns 0 when
	// none is there, or when a whole batch was bad: wait on FDs level-triggered, and they say
	// whether there is more. Calling it gives all buffers of the previous call back.
	Receive(batch []Datagram) (n int, err error)

	// Poll tells the port the time and does what is due.
	Poll(now clock.Time)

	// NextDeadline returns when Poll wants to be called next, or clock.Never.
	NextDeadline() clock.Time

	// FDs returns the descriptors to wait on. Readable asks for Receive, an error condition for
	// Unreachable. The slice does not change while the port is open.
	FDs() []int

	// Unreachable returns the reports since the last call; the slice is reused by the next.
	Unreachable() []Unreachable

	// Notices returns what was switched off since the last call, each feature once in the life of
	// a port.
	Notices() []Notice

	// Features tells what works.
	Features() Features

	// JoinGroup and LeaveGroup manage membership of an IP multicast group on an interface.
	// Joining twice is joining once.
	JoinGroup(group netip.Addr, ifindex int) error
	LeaveGroup(group netip.Addr, ifindex int) error

	// Counters may be read from any thread.
	Counters() *Counters

	Close() error
}
