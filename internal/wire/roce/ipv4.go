package roce

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// IPv4Len is the length of an IPv4 header without options in bytes (RFC 791 §3.1).
const IPv4Len = 20

// Bits of the IPv4 header.
const (
	ipv4VersionIHL = 0x45
	ipv4DF         = 0x4000
	ipv4MF         = 0x2000
	ipv4Offset     = 0x1fff
)

// IPv4View shows an IPv4 header of any content. Preconditions of its methods: IsComplete.
type IPv4View []byte

// IsComplete reports whether the fixed header is all there; the other methods need it.
func (v IPv4View) IsComplete() bool { return len(v) >= IPv4Len }

// Version returns the IP version.
func (v IPv4View) Version() uint8 { return v[0] >> 4 }

// HeaderLen returns the header's length with options in bytes.
func (v IPv4View) HeaderLen() int { return int(v[0]&0xf) * 4 }

// TOS returns the type of service: DSCP and ECN.
func (v IPv4View) TOS() uint8 { return v[1] }

// TotalLen returns the length of header and payload in bytes.
func (v IPv4View) TotalLen() int { return int(binary.BigEndian.Uint16(v[2:])) }

// ID returns the identification.
func (v IPv4View) ID() uint16 { return binary.BigEndian.Uint16(v[4:]) }

// DF reports the don't-fragment flag.
func (v IPv4View) DF() bool { return v.flags()&ipv4DF != 0 }

// IsFragment reports a packet that is a part of a larger one.
func (v IPv4View) IsFragment() bool { return v.flags()&(ipv4MF|ipv4Offset) != 0 }

func (v IPv4View) flags() uint16 { return binary.BigEndian.Uint16(v[6:]) }

// TTL returns the time to live.
func (v IPv4View) TTL() uint8 { return v[8] }

// Protocol returns the protocol number.
func (v IPv4View) Protocol() uint8 { return v[9] }

// Checksum returns the header checksum.
func (v IPv4View) Checksum() uint16 { return binary.BigEndian.Uint16(v[10:]) }

// IsChecksumGood reports whether the fixed header sums up. A capture of an outgoing packet may
// hold a checksum that is left to the adapter.
func (v IPv4View) IsChecksumGood() bool { return fold(sum16(0, v[:IPv4Len])) == 0xffff }

// Src returns the source address.
func (v IPv4View) Src() netip.Addr { return netip.AddrFrom4([4]byte(v[12:16])) }

// Dst returns the destination address.
func (v IPv4View) Dst() netip.Addr { return netip.AddrFrom4([4]byte(v[16:20])) }

func (v IPv4View) String() string {
	if !v.IsComplete() {
		return "truncated IPv4"
	}
	return fmt.Sprintf("IPv4{%s > %s v=%d len=%d id=0x%04x df=%t frag=%t tos=0x%02x ttl=%d proto=%d}",
		v.Src(), v.Dst(), v.Version(), v.TotalLen(), v.ID(), v.DF(), v.IsFragment(), v.TOS(), v.TTL(),
		v.Protocol())
}

// check says whether a RoCE v2 packet can be inside and returns the IP payload.
func (v IPv4View) check() ([]byte, error) {
	switch {
	case !v.IsComplete():
		return nil, ErrTruncated
	case v.Version() != 4:
		return nil, ErrVersion
	case v.HeaderLen() > IPv4Len:
		return nil, ErrOptions
	case v.HeaderLen() < IPv4Len || v.TotalLen() < IPv4Len:
		return nil, ErrLength
	case v.TotalLen() > len(v):
		return nil, ErrTruncated
	case v.IsFragment():
		return nil, ErrFragment
	case v.Protocol() != ProtocolUDP:
		return nil, ErrNotRoCE
	}
	return v[IPv4Len:v.TotalLen()], nil
}

// AppendIPv4 appends an IPv4 header without options for a UDP datagram with n payload bytes.
func AppendIPv4(b []byte, p *Path, n int) []byte {
	start := len(b)
	b = append(b, ipv4VersionIHL, p.TrafficClass)
	b = binary.BigEndian.AppendUint16(b, uint16(IPv4Len+UDPLen+n))
	b = binary.BigEndian.AppendUint16(b, p.IPID)
	var flags uint16
	if p.DF {
		flags = ipv4DF
	}
	b = binary.BigEndian.AppendUint16(b, flags)
	b = append(b, p.HopLimit, ProtocolUDP, 0, 0)
	src, dst := p.Src.As4(), p.Dst.As4()
	b = append(b, src[:]...)
	b = append(b, dst[:]...)
	h := b[start:]
	binary.BigEndian.PutUint16(h[10:], ^fold(sum16(0, h)))
	return b
}

// sum16 adds the 16-bit words of b, an odd last byte padded with zero, to the running sum of an
// internet checksum (RFC 1071). A datagram of 64 KiB cannot overflow it.
func sum16(sum uint32, b []byte) uint32 {
	for len(b) >= 2 {
		sum += uint32(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	return sum
}

// fold ends an internet checksum: it carries the upper half into the lower until none is left.
func fold(sum uint32) uint16 {
	sum = sum>>16 + sum&0xffff
	return uint16(sum>>16 + sum)
}
