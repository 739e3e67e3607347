package roce

import (
	"encoding/binary"
	"fmt"
)

// Lengths of an Ethernet II header and of an 802.1Q tag in bytes.
const (
	EthernetLen = 14
	VLANLen     = 4
)

// EtherType says what an Ethernet frame carries.
type EtherType uint16

// EtherTypes that matter here.
const (
	EtherTypeIPv4   EtherType = 0x0800
	EtherTypeIPv6   EtherType = 0x86dd
	EtherTypeVLAN   EtherType = 0x8100
	EtherTypeRoCEv1 EtherType = 0x8915
)

// MAC is an Ethernet address.
type MAC [6]byte

func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// Ethernet is an Ethernet II header with at most one 802.1Q tag.
type Ethernet struct {
	Dst, Src MAC
	// Type is the type of what follows the header and the tag.
	Type EtherType
	// Tagged says that there is an 802.1Q tag; Tag is its priority, DEI and VLAN number.
	Tagged bool
	Tag    uint16
}

// ParseEthernet reads an Ethernet header at the start of b and returns what follows it.
func ParseEthernet(b []byte) (Ethernet, []byte, error) {
	var h Ethernet
	if len(b) < EthernetLen {
		return h, nil, ErrTruncated
	}
	h.Dst, h.Src = MAC(b[0:6]), MAC(b[6:12])
	h.Type = EtherType(binary.BigEndian.Uint16(b[12:]))
	b = b[EthernetLen:]
	if h.Type != EtherTypeVLAN {
		return h, b, nil
	}
	if len(b) < VLANLen {
		return h, nil, ErrTruncated
	}
	h.Tagged = true
	h.Tag = binary.BigEndian.Uint16(b)
	h.Type = EtherType(binary.BigEndian.Uint16(b[2:]))
	return h, b[VLANLen:], nil
}

// Len returns the bytes that Append appends.
func (h *Ethernet) Len() int {
	if h.Tagged {
		return EthernetLen + VLANLen
	}
	return EthernetLen
}

// Append appends the Len bytes of the header to b.
func (h *Ethernet) Append(b []byte) []byte {
	b = append(b, h.Dst[:]...)
	b = append(b, h.Src[:]...)
	if h.Tagged {
		b = binary.BigEndian.AppendUint16(b, uint16(EtherTypeVLAN))
		b = binary.BigEndian.AppendUint16(b, h.Tag)
	}
	return binary.BigEndian.AppendUint16(b, uint16(h.Type))
}

func (h Ethernet) String() string {
	s := fmt.Sprintf("%s > %s type=0x%04x", h.Src, h.Dst, uint16(h.Type))
	if h.Tagged {
		s += fmt.Sprintf(" vlan=%d prio=%d", h.Tag&0xfff, h.Tag>>13)
	}
	return s
}
