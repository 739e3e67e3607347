package iwarp

import (
	"encoding/binary"
	"fmt"
)

// SetupLen is the length of the enhanced set-up word in bytes (RFC 6581 9).
const SetupLen = 4

// DepthUnknown as IRD or ORD says that the sender does not negotiate it (RFC 6581 9).
const DepthUnknown = 0x3fff

const (
	setupHigh  = 0x8000
	setupLow   = 0x4000
	setupDepth = 0x3fff
)

// Setup is the word of an enhanced MPA frame: how many READs and atomics each side can have
// outstanding, and with what message the initiator lets the responder send (RFC 6581 9).
//
//	+-+-+---------------------------+-+-+---------------------------+
//	|A|B|            IRD            |C|D|            ORD            |
//	+-+-+---------------------------+-+-+---------------------------+
type Setup struct {
	// IRD is how many the sender of the frame serves at once, ORD how many it wants to have
	// under way. 14 bits each.
	IRD, ORD uint16
	// PeerToPeer (A): an RTR message comes before the responder may send.
	PeerToPeer bool
	// RTRSend, RTRWrite and RTRRead (B, C, D) are the messages of length zero that can be, and in
	// a reply the one that shall be, the RTR.
	RTRSend, RTRWrite, RTRRead bool
}

// ParseSetup reads the word at the start of b.
func ParseSetup(b []byte) (Setup, error) {
	var s Setup
	if len(b) < SetupLen {
		return s, ErrTruncated
	}
	s.decode(b)
	return s, nil
}

// decode reads the fields. Preconditions: len(b) >= SetupLen.
func (s *Setup) decode(b []byte) {
	_ = b[SetupLen-1]
	ird, ord := binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	s.IRD, s.ORD = ird&setupDepth, ord&setupDepth
	s.PeerToPeer, s.RTRSend = ird&setupHigh != 0, ird&setupLow != 0
	s.RTRWrite, s.RTRRead = ord&setupHigh != 0, ord&setupLow != 0
}

// Append appends the SetupLen bytes of the word to b. Bits beyond a field's width are dropped.
func (s *Setup) Append(b []byte) []byte {
	ird, ord := s.IRD&setupDepth, s.ORD&setupDepth
	if s.PeerToPeer {
		ird |= setupHigh
	}
	if s.RTRSend {
		ird |= setupLow
	}
	if s.RTRWrite {
		ord |= setupHigh
	}
	if s.RTRRead {
		ord |= setupLow
	}
	b = binary.BigEndian.AppendUint16(b, ird)
	return binary.BigEndian.AppendUint16(b, ord)
}

func (s Setup) String() string {
	out := fmt.Sprintf("ird=%d ord=%d", s.IRD, s.ORD)
	flags := [...]struct {
		on   bool
		name string
	}{
		{s.PeerToPeer, " peer_to_peer"},
		{s.RTRSend, " rtr_send"},
		{s.RTRWrite, " rtr_write"},
		{s.RTRRead, " rtr_read"},
	}
	for _, flag := range flags {
		if flag.on {
			out += flag.name
		}
	}
	return out
}
