package iwarp

import (
	"encoding/binary"
	"strconv"
)

// Lengths of an MPA frame in bytes (RFC 5044 7.1.1).
const (
	// FrameLen is that of the part before the private data.
	FrameLen = 20
	// PrivateDataMax bounds the private data, the word of RFC 6581 included.
	PrivateDataMax = 512
	// FrameMax is the longest frame.
	FrameMax = FrameLen + PrivateDataMax

	keyLen = 16
)

// Keys of the two frames (RFC 5044 7.1.1).
const (
	requestKey = "MPA ID Req Frame"
	replyKey   = "MPA ID Rep Frame"
)

// Revisions of MPA.
const (
	// Revision1 is RFC 5044.
	Revision1 = 1
	// Revision2 is RFC 6581: depths of READs are agreed on, and who may send first.
	Revision2 = 2
)

// Bits of byte 16.
const (
	frameMarkers   = 0x80
	frameCRC       = 0x40
	frameReject    = 0x20
	frameEnhanced  = 0x10
	frameLargeFPDU = 0x08
	// frameLargeAsked says the same in requests. Linux's siw sends the bits of a request back in its
	// reply: with two bits, the one in a reply is what the responder says of itself.
	frameLargeAsked = 0x04
)

// Frame is an MPA request or reply, the first bytes of each direction of a stream (RFC 5044 7.1.1,
// RFC 6581 6).
//
//	 0                               16              17              18
//	+---- … ------------------------+-+-+-+-+-------+---------------+---------- … --+--- … ---+
//	|  "MPA ID Req Frame"           |M|C|R|S|  res  |   revision    | length        | private |
//	+---- … ------------------------+-+-+-+-+-------+---------------+---------- … --+--- … ---+
type Frame struct {
	// IsReply tells a reply from a request.
	IsReply bool
	// Markers asks the receiver of the frame to put markers into what it sends.
	Markers bool
	// CRC says that the sender checks CRCs; with either side's, both do.
	CRC bool
	// Reject refuses the connection; replies only.
	Reject bool
	// Enhanced says that Setup is there; revision 2 only (the bit S of RFC 6581).
	Enhanced bool
	// LargeFPDU says that the sender takes FPDUs that are longer than a TCP segment, by bits that RFC
	// 5044 reserves: one that Linux's siw uses for it, in requests also another.
	LargeFPDU bool
	Revision  uint8
	// Setup is the word in front of the private data, when Enhanced.
	Setup Setup
	// PrivateData is what the applications tell each other, Setup not counted. A parsed frame
	// points into the bytes that it was parsed from.
	PrivateData []byte
}

// ParseRequest reads an MPA request at the start of a stream, of which b is all that came so far.
// It returns the length of the frame, or 0 and no error when more bytes are needed. A stream that
// cannot become a frame is refused at the first wrong byte: ErrKey, ErrRevision, ErrPrivateData,
// ErrSetup.
func ParseRequest(b []byte) (f Frame, n int, err error) {
	n, err = f.parse(b, requestKey)
	return f, n, err
}

// ParseReply reads an MPA reply, as ParseRequest does a request.
func ParseReply(b []byte) (f Frame, n int, err error) {
	f.IsReply = true
	n, err = f.parse(b, replyKey)
	return f, n, err
}

func (f *Frame) parse(b []byte, key string) (n int, err error) {
	if known := min(len(b), keyLen); string(b[:known]) != key[:known] {
		return 0, ErrKey
	}
	if len(b) > 17 && b[17] != Revision1 && b[17] != Revision2 {
		f.Revision = b[17]
		return 0, ErrRevision
	}
	if len(b) < FrameLen {
		return 0, nil
	}
	flags := b[16]
	f.Markers, f.CRC = flags&frameMarkers != 0, flags&frameCRC != 0
	f.Reject = flags&frameReject != 0
	f.LargeFPDU = flags&frameLargeFPDU != 0 || !f.IsReply && flags&frameLargeAsked != 0
	f.Revision = b[17]
	private := int(binary.BigEndian.Uint16(b[18:]))
	// A refusal says no, whatever else it leaves out.
	hasSetup := private >= SetupLen || !f.IsReply || !f.Reject
	f.Enhanced = f.Revision == Revision2 && flags&frameEnhanced != 0 && hasSetup
	switch {
	case private > PrivateDataMax:
		return 0, ErrPrivateData
	case f.Enhanced && private < SetupLen:
		return 0, ErrSetup
	case len(b) < FrameLen+private:
		return 0, nil
	}
	f.PrivateData = b[FrameLen : FrameLen+private : FrameLen+private]
	if f.Enhanced {
		f.Setup.decode(f.PrivateData)
		f.PrivateData = f.PrivateData[SetupLen:]
	}
	return FrameLen + private, nil
}

// Len returns the length of the frame in bytes.
func (f *Frame) Len() int {
	n := FrameLen + len(f.PrivateData)
	if f.isEnhanced() {
		n += SetupLen
	}
	return n
}

// isEnhanced: revision 1 has no Setup, whatever the field says.
func (f *Frame) isEnhanced() bool { return f.Enhanced && f.Revision == Revision2 }

// largeBit is the bit that says LargeFPDU.
func (f *Frame) largeBit() byte {
	if f.IsReply {
		return frameLargeFPDU
	}
	return frameLargeAsked
}

// Append appends the frame to b. Preconditions: Len() <= FrameMax.
func (f *Frame) Append(b []byte) []byte {
	key := requestKey
	if f.IsReply {
		key = replyKey
	}
	b = append(b, key...)
	flags := bit(f.Markers, frameMarkers) | bit(f.CRC, frameCRC) | bit(f.Reject, frameReject) |
		bit(f.isEnhanced(), frameEnhanced) | bit(f.LargeFPDU, f.largeBit())
	b = append(b, flags, f.Revision)
	b = binary.BigEndian.AppendUint16(b, uint16(f.Len()-FrameLen))
	if f.isEnhanced() {
		b = f.Setup.Append(b)
	}
	return append(b, f.PrivateData...)
}

// String prints the frame in one line; of the private data only the length.
func (f Frame) String() string {
	s := "MPA request"
	if f.IsReply {
		s = "MPA reply"
	}
	s += " rev=" + strconv.Itoa(int(f.Revision))
	flags := [...]struct {
		on   bool
		name string
	}{
		{f.Markers, " markers"},
		{f.CRC, " crc"},
		{f.Reject, " reject"},
		{f.LargeFPDU, " large_fpdu"},
	}
	for _, flag := range flags {
		if flag.on {
			s += flag.name
		}
	}
	if f.isEnhanced() {
		s += " " + f.Setup.String()
	}
	return s + " private=" + strconv.Itoa(len(f.PrivateData))
}

func bit(on bool, mask uint8) uint8 {
	if on {
		return mask
	}
	return 0
}
