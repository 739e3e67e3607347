package tcp

import (
	"net/netip"

	"github.com/softrnic/softrnic/internal/nic"
)

// Tap is shown what the streams carry, in order and as TCP took or gave it. All its methods are
// called on the port's thread, and none but IsOn while that says no.
type Tap interface {
	IsOn() bool
	// StreamSent shows the first n bytes of pieces, which TCP took; StreamReceived those that TCP
	// gave. The flow has its counts from before.
	StreamSent(f *Flow, pieces [][]byte, n int)
	StreamReceived(f *Flow, pieces [][]byte, n int)
	// StreamOpened and StreamEnded show the ends of a connection.
	StreamOpened(f *Flow)
	StreamEnded(f *Flow, how End)
	// StreamFailed shows a connection that could not be made; isRefused says that the peer said so.
	StreamFailed(f *Flow, isRefused bool)
}

// End is how one direction of a stream, or both, came to an end.
type End uint8

// Ends.
const (
	EndSent     End = iota // we sent FIN
	EndReceived            // the peer did
	ResetSent              // we reset the connection
	ResetReceived
	// Forgotten ends what is known of a flow: the peer's end did not come in time.
	Forgotten
)

// FirstBytes is how much of the beginning of each direction a Flow remembers: the fixed part of an
// MPA request or reply frame (RFC 5044 §7.1.1), by which a capture that begins later can tell what
// the stream is.
const FirstBytes = 20

// Flow describes a connection to a Tap.
type Flow struct {
	ID            nic.StreamID
	Local, Remote netip.AddrPort
	Active        bool // this side has connected
	// Twin says that the other end, TwinID, is a socket of the same port, which shows all as well.
	Twin   bool
	TwinID nic.StreamID
	// Joined says that the bytes pass between the two in memory.
	Joined bool
	// Sent and Received count bytes so far.
	Sent, Received uint64
	// FirstSent and FirstReceived hold the first bytes of each direction, as far as there are any.
	FirstSent, FirstReceived [FirstBytes]byte
}

// keepFirst copies what a direction begins with. done is how many bytes there were before.
func keepFirst(first *[FirstBytes]byte, done uint64, pieces [][]byte, n int) {
	for _, piece := range pieces {
		if done >= FirstBytes || n <= 0 {
			return
		}
		piece = piece[:min(n, len(piece))]
		copied := copy(first[done:], piece)
		done += uint64(copied)
		n -= len(piece)
	}
}
