package iwarp

import (
	"encoding/binary"
	"fmt"

	"github.com/softrnic/softrnic/internal/rdma"
)

// Lengths of a DDP header in bytes, RDMAP control included (RFC 5041 4.2, 4.3).
const (
	TaggedLen   = 14
	UntaggedLen = 18
	// HeaderMax is the longer one.
	HeaderMax = UntaggedLen
)

// Bits of the DDP control (byte 0) and of the RDMAP control (byte 1).
const (
	ddpTagged      = 0x80
	ddpLast        = 0x40
	ddpVersionMask = 0x03
	ddpVersion     = 0x01

	rdmapVersionMask = 0xc0
	rdmapVersion     = 0x40
	rdmapOpcodeMask  = 0x0f
)

// Header is a DDP header of version 1 with the RDMAP control of version 1 in it, reserved bits 0
// (RFC 5041 4, RFC 5040 4.1). Whether it is tagged, the opcode says.
//
//	 0               1               2
//	+-+-+-------+---+---+---+-------+------------- … ---+------------- … ---+
//	|T|L|  res  |DV | RV|res|Opcode |       STag        |        TO         |  tagged
//	+-+-+-------+---+---+---+-------+------------- … ---+------------- … ---+
//	|T|L|  res  |DV | RV|res|Opcode | STag to inval.    |  QN |  MSN |  MO  |  untagged
//	+-+-+-------+---+---+---+-------+------------- … ---+------------- … ---+
type Header struct {
	Opcode Opcode
	// Last marks the last segment of a message.
	Last bool
	// STag is the buffer of a tagged message, or the one that a Send invalidates.
	STag rdma.Key
	// TO is where in the tagged buffer the payload goes.
	TO uint64
	// MSN counts the messages of an untagged queue from 1; MO is the payload's place in the
	// message. The queue is that of the opcode.
	MSN, MO uint32
}

// Parse reads a header at the start of b, an ULPDU without length and pad, and returns the
// payload. CodeOf tells how to refuse what Parse refuses: another version, an unknown opcode, an
// opcode that does not belong to its queue or buffer model.
func (h *Header) Parse(b []byte) (payload []byte, err error) {
	if len(b) < TaggedLen {
		return nil, errShort
	}
	isTagged := b[0]&ddpTagged != 0
	switch {
	case b[0]&ddpVersionMask == ddpVersion:
	case isTagged:
		return nil, errTaggedVersion
	default:
		return nil, errUntaggedVersion
	}
	if !isTagged && len(b) < UntaggedLen {
		return nil, errShort
	}
	*h = Header{Opcode: Opcode(b[1] & rdmapOpcodeMask), Last: b[0]&ddpLast != 0}
	if isTagged {
		h.STag = rdma.Key(binary.BigEndian.Uint32(b[2:]))
		h.TO = binary.BigEndian.Uint64(b[6:])
		payload = b[TaggedLen:len(b):len(b)]
	} else {
		h.MSN = binary.BigEndian.Uint32(b[10:])
		h.MO = binary.BigEndian.Uint32(b[14:])
		payload = b[UntaggedLen:len(b):len(b)]
	}
	queue := QN(binary.BigEndian.Uint32(b[6:]))
	info := h.Opcode.Info()
	switch {
	case !isTagged && queue >= QNCount:
		return nil, errQueue
	case b[1]&rdmapVersionMask != rdmapVersion:
		return nil, errRDMAPVersion
	case info.Kind == KindUnknown, info.Tagged != isTagged, !isTagged && info.Queue != queue:
		return nil, errOpcode
	}
	if info.Invalidate {
		h.STag = rdma.Key(binary.BigEndian.Uint32(b[2:]))
	}
	return payload, nil
}

// Len returns the length of the header in bytes.
func (h *Header) Len() int {
	if h.Opcode.Info().Tagged {
		return TaggedLen
	}
	return UntaggedLen
}

// Append appends the Len bytes of the header to b.
func (h *Header) Append(b []byte) []byte {
	info := h.Opcode.Info()
	control := ddpVersion | bit(h.Last, ddpLast) | bit(info.Tagged, ddpTagged)
	b = append(b, control, rdmapVersion|uint8(h.Opcode)&rdmapOpcodeMask)
	if info.Tagged {
		b = binary.BigEndian.AppendUint32(b, uint32(h.STag))
		return binary.BigEndian.AppendUint64(b, h.TO)
	}
	invalidated := rdma.Key(0)
	if info.Invalidate {
		invalidated = h.STag
	}
	b = binary.BigEndian.AppendUint32(b, uint32(invalidated))
	b = binary.BigEndian.AppendUint32(b, uint32(info.Queue))
	b = binary.BigEndian.AppendUint32(b, h.MSN)
	return binary.BigEndian.AppendUint32(b, h.MO)
}

func (h Header) String() string {
	info := h.Opcode.Info()
	s := h.Opcode.String()
	if info.Tagged {
		s += fmt.Sprintf(" stag=%s to=0x%x", h.STag, h.TO)
	} else {
		s += fmt.Sprintf(" qn=%d msn=%d mo=%d", info.Queue, h.MSN, h.MO)
	}
	if info.Invalidate {
		s += fmt.Sprintf(" inv=%s", h.STag)
	}
	if h.Last {
		s += " last"
	}
	return s
}
