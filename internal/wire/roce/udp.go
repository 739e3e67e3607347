package roce

import (
	"encoding/binary"
	"fmt"
)

// UDPLen is the length of a UDP header in bytes (RFC 768).
const UDPLen = 8

// Port is the UDP destination port of every RoCE v2 packet (IBTA A17.4.4).
const Port = 4791

// ProtocolUDP is UDP's number in IP headers.
const ProtocolUDP = 17

// UDPView shows a UDP header of any content. Preconditions of its methods: IsComplete.
type UDPView []byte

// IsComplete reports whether the header is all there; the other methods need it.
func (v UDPView) IsComplete() bool { return len(v) >= UDPLen }

// SrcPort returns the source port.
func (v UDPView) SrcPort() uint16 { return binary.BigEndian.Uint16(v) }

// DstPort returns the destination port.
func (v UDPView) DstPort() uint16 { return binary.BigEndian.Uint16(v[2:]) }

// Len returns the length of header and payload in bytes.
func (v UDPView) Len() int { return int(binary.BigEndian.Uint16(v[4:])) }

// Checksum returns the checksum; 0 means that there is none.
func (v UDPView) Checksum() uint16 { return binary.BigEndian.Uint16(v[6:]) }

func (v UDPView) String() string {
	if !v.IsComplete() {
		return "truncated UDP"
	}
	return fmt.Sprintf("UDP{%d > %d len=%d sum=0x%04x}",
		v.SrcPort(), v.DstPort(), v.Len(), v.Checksum())
}

// AppendUDP appends a UDP header for n payload bytes, with a checksum or 0 for none.
func AppendUDP(b []byte, p *Path, n int, checksum uint16) []byte {
	b = binary.BigEndian.AppendUint16(b, p.SrcPort)
	b = binary.BigEndian.AppendUint16(b, Port)
	b = binary.BigEndian.AppendUint16(b, uint16(UDPLen+n))
	return binary.BigEndian.AppendUint16(b, checksum)
}

// UDPChecksum returns the checksum of a datagram with the UDP payload, the ICRC included
// (RFC 768, RFC 8200 §8.1). It is never 0, which would mean that there is none.
func UDPChecksum(p *Path, payload []byte) uint16 {
	n := UDPLen + len(payload)
	sum := uint32(ProtocolUDP) + uint32(n)
	if p.Is4() {
		src, dst := p.Src.As4(), p.Dst.As4()
		sum = sum16(sum16(sum, src[:]), dst[:])
	} else {
		src, dst := p.Src.As16(), p.Dst.As16()
		sum = sum16(sum16(sum, src[:]), dst[:])
	}
	sum += uint32(p.SrcPort) + Port + uint32(n)
	c := ^fold(sum16(sum, payload))
	if c == 0 {
		return 0xffff
	}
	return c
}
