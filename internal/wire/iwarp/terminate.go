package iwarp

import (
	"encoding/binary"
	"fmt"
)

// TerminateLen is the length of a Terminate message's control field in bytes (RFC 5040 4.8); the
// longest content is TerminateMax.
const (
	TerminateLen = 4
	TerminateMax = TerminateLen + segmentLenLen + UntaggedLen + AtomicRequestLen

	segmentLenLen = 2
)

// Bits of byte 2: what follows the control field.
const (
	termLength = 0x80 // M
	termDDP    = 0x40 // D
	termRDMAP  = 0x20 // R

	// A mirrored byte has the three at its other end, in the opposite order.
	siwLength = 0x01
	siwDDP    = 0x02
	siwRDMAP  = 0x04
)

// Terminate is the content of a Terminate message: why the sender gives the connection up, and the
// headers of the message that it does not like (RFC 5040 4.8).
//
//	 0               1               2
//	+-------+-------+---------------+-+-+-+---------- … ---+-----------+------- … ---+--- … ---+
//	| Layer | EType |     Code      |M|D|R|  reserved      | Length    | DDP header  | RDMAP h.|
//	+-------+-------+---------------+-+-+-+---------- … ---+-----------+------- … ---+--- … ---+
type Terminate struct {
	Code Code
	// HasLength (M) says that SegmentLen is valid: the length of the DDP segment, which is that
	// of the ULPDU.
	HasLength  bool
	SegmentLen uint16
	// DDP is the header of the refused segment (D), TaggedLen or UntaggedLen bytes, or empty.
	DDP []byte
	// RDMAP is the content of a refused READ or atomic request (R), or empty.
	RDMAP []byte
	// IsMirrored: layer and error type are exchanged, and M, D and R stand in the lowest bits in
	// opposite order. So Linux's siw sends and expects it on little-endian machines. Code is the
	// one that is meant.
	IsMirrored bool
}

// Parse reads the content of a Terminate message. The headers point into b. Where they are cut,
// the error is ErrTruncated, and Code is valid if b has TerminateLen bytes.
func (t *Terminate) Parse(b []byte) error {
	*t = Terminate{}
	if len(b) < TerminateLen {
		return ErrTruncated
	}
	hasDDP, hasRDMAP := t.decodeControl(Code(binary.BigEndian.Uint16(b)), b[2])
	b = b[TerminateLen:]
	if t.HasLength || hasDDP {
		if len(b) < segmentLenLen {
			return ErrTruncated
		}
		t.SegmentLen = binary.BigEndian.Uint16(b)
		b = b[segmentLenLen:]
	}
	if hasDDP {
		n := UntaggedLen
		if len(b) > 0 && b[0]&ddpTagged != 0 {
			n = TaggedLen
		}
		if len(b) < n {
			return ErrTruncated
		}
		t.DDP, b = b[:n:n], b[n:]
	}
	if !hasRDMAP {
		return nil
	}
	n := len(b)
	if len(t.DDP) > 0 {
		if known := Opcode(t.DDP[1] & rdmapOpcodeMask).Info().ContentLen; known > 0 {
			n = known
		}
	}
	if n == 0 || len(b) < n {
		return ErrTruncated
	}
	t.RDMAP = b[:n:n]
	return nil
}

// decodeControl reads code and bits, whichever way round. Without bits, the code tells: of those
// that are defined, few are also defined when they are mirrored.
func (t *Terminate) decodeControl(code Code, flags byte) (hasDDP, hasRDMAP bool) {
	const regular, mirrored = termLength | termDDP | termRDMAP, siwLength | siwDDP | siwRDMAP
	switch {
	case flags&regular != 0:
	case flags&mirrored != 0:
		t.IsMirrored = true
	case !code.IsKnown() && code.Mirrored().IsKnown():
		t.IsMirrored = true
	}
	if t.IsMirrored {
		t.Code, t.HasLength = code.Mirrored(), flags&siwLength != 0
		return flags&siwDDP != 0, flags&siwRDMAP != 0
	}
	t.Code, t.HasLength = code, flags&termLength != 0
	return flags&termDDP != 0, flags&termRDMAP != 0
}

// Append appends the content to b. Preconditions: DDP is empty or a whole header.
func (t *Terminate) Append(b []byte) []byte {
	hasDDP, hasRDMAP := len(t.DDP) > 0, len(t.RDMAP) > 0
	code := t.Code
	flags := bit(t.HasLength, termLength) | bit(hasDDP, termDDP) | bit(hasRDMAP, termRDMAP)
	if t.IsMirrored {
		code = code.Mirrored()
		flags = bit(t.HasLength, siwLength) | bit(hasDDP, siwDDP) | bit(hasRDMAP, siwRDMAP)
	}
	b = binary.BigEndian.AppendUint16(b, uint16(code))
	b = append(b, flags, 0)
	if t.HasLength || hasDDP {
		b = binary.BigEndian.AppendUint16(b, t.SegmentLen)
	}
	b = append(b, t.DDP...)
	return append(b, t.RDMAP...)
}

// String prints the content in one line; of the headers, what they were about.
func (t Terminate) String() string {
	s := "Terminate{" + t.Code.String()
	if t.HasLength {
		s += fmt.Sprintf(" len=%d", t.SegmentLen)
	}
	if len(t.DDP) > 1 {
		s += " of " + Opcode(t.DDP[1]&rdmapOpcodeMask).String()
	}
	return s + "}"
}
