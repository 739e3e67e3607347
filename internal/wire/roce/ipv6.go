package roce

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// IPv6Len is the length of an IPv6 header in bytes (RFC 8200 §3).
const IPv6Len = 40

const flowLabelMask = 0xfffff

// IPv6View shows an IPv6 header of any content. Preconditions of its methods: IsComplete.
type IPv6View []byte

// IsComplete reports whether the header is all there; the other methods need it.
func (v IPv6View) IsComplete() bool { return len(v) >= IPv6Len }

func (v IPv6View) first() uint32 { return binary.BigEndian.Uint32(v) }

// Version returns the IP version.
func (v IPv6View) Version() uint8 { return v[0] >> 4 }

// TrafficClass returns DSCP and ECN.
func (v IPv6View) TrafficClass() uint8 { return uint8(v.first() >> 20) }

// FlowLabel returns the 20-bit flow label.
func (v IPv6View) FlowLabel() uint32 { return v.first() & flowLabelMask }

// PayloadLen returns the length of what follows the header in bytes.
func (v IPv6View) PayloadLen() int { return int(binary.BigEndian.Uint16(v[4:])) }

// NextHeader returns the protocol number of what follows.
func (v IPv6View) NextHeader() uint8 { return v[6] }

// HopLimit returns the hop limit.
func (v IPv6View) HopLimit() uint8 { return v[7] }

// Src returns the source address.
func (v IPv6View) Src() netip.Addr { return netip.AddrFrom16([16]byte(v[8:24])) }

// Dst returns the destination address.
func (v IPv6View) Dst() netip.Addr { return netip.AddrFrom16([16]byte(v[24:40])) }

func (v IPv6View) String() string {
	if !v.IsComplete() {
		return "truncated IPv6"
	}
	return fmt.Sprintf("IPv6{%s > %s v=%d len=%d tclass=0x%02x flow=0x%05x hop=%d next=%d}",
		v.Src(), v.Dst(), v.Version(), v.PayloadLen(), v.TrafficClass(), v.FlowLabel(),
		v.HopLimit(), v.NextHeader())
}

// ipv6Fragment is the number of the IPv6 fragment extension header (RFC 8200 §4.5).
const ipv6Fragment = 44

// check says whether a RoCE v2 packet can be inside and returns the IP payload.
func (v IPv6View) check() ([]byte, error) {
	switch {
	case !v.IsComplete():
		return nil, ErrTruncated
	case v.Version() != 6:
		return nil, ErrVersion
	case IPv6Len+v.PayloadLen() > len(v):
		return nil, ErrTruncated
	case v.NextHeader() == ipv6Fragment:
		return nil, ErrFragment
	case v.NextHeader() != ProtocolUDP:
		return nil, ErrNotRoCE
	}
	return v[IPv6Len : IPv6Len+v.PayloadLen()], nil
}

// AppendIPv6 appends an IPv6 header for a UDP datagram with n payload bytes.
func AppendIPv6(b []byte, p *Path, n int) []byte {
	first := 6<<28 | uint32(p.TrafficClass)<<20 | p.FlowLabel&flowLabelMask
	b = binary.BigEndian.AppendUint32(b, first)
	b = binary.BigEndian.AppendUint16(b, uint16(UDPLen+n))
	b = append(b, ProtocolUDP, p.HopLimit)
	src, dst := p.Src.As16(), p.Dst.As16()
	b = append(b, src[:]...)
	return append(b, dst[:]...)
}
