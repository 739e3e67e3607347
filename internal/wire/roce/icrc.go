package roce

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/softrnic/softrnic/internal/invariant"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

// ICRCLen is the length of the invariant CRC in bytes.
const ICRCLen = 4

// PayloadLenMin is the shortest UDP payload that can be a packet: a BTH and an ICRC.
const PayloadLenMin = ib.BTHLen + ICRCLen

// PayloadLenMax is the longest UDP payload that an IPv4 packet holds; IPv6 allows 20 bytes more.
const PayloadLenMax = 65535 - IPv4Len - UDPLen

// ICRC returns the invariant CRC of a packet: BTH to pad, without the ICRC (IBTA 7.8.1, A17.4.6).
// It goes onto the wire with the least significant byte first.
//
// It is a CRC-32 of IEEE 802.3 over eight 0xff bytes, the IP header, the UDP header and the packet.
// Fields that may change on the way count as ones: type of service, time to live and header
// checksum of IPv4; traffic class, flow label and hop limit of IPv6; the UDP checksum; and the byte
// of the BTH that has FECN and BECN. The other fields count as they are, the IPv4 identification
// and DF flag among them. The length fields count the ICRC.
//
// Preconditions: the packet has at least a BTH; both addresses of p are of one family.
func ICRC(p *Path, packet []byte) uint32 {
	f := NewFlow(p, len(packet))
	return f.ICRC(p.IPID, packet)
}

// AppendICRC appends the ICRC of a packet, which is all of BTH to pad, to the packet.
func AppendICRC(p *Path, packet []byte) []byte {
	return binary.LittleEndian.AppendUint32(packet, ICRC(p, packet))
}

// icrcStart is the CRC register after the eight leading bytes of ones.
var icrcStart = crcWord(0xffffffff, ^uint64(0))

// Ones in the places of masked fields, in a little-endian word of the wire's bytes.
const (
	ipv4TOSMask     = 0x00_00_00_00_00_00_ff_00 // byte 1
	ipv4TTLSumMask  = 0x00_00_00_00_ff_ff_00_ff // bytes 0, 2 and 3
	udpSumMask      = 0x00_00_00_00_ff_ff_00_00 // bytes 2 and 3
	bthResv8aMask   = 0x00_00_00_00_00_00_00_ff // byte 0
	ipv6FirstMask   = 0x00_00_00_00_ff_ff_ff_6f // bytes 0…3
	ipv6HopMask     = 0xff_00_00_00_00_00_00_00 // byte 7
	udpSumUpperMask = 0xff_ff_00_00_00_00_00_00 // bytes 6 and 7
	bthUpperMask    = 0x00_00_00_ff_00_00_00_00 // byte 4
)

// Flow computes the ICRCs of packets of one length that travel one path: what the CRC covers in
// front of the BTH is worked out once for all of them, but for the IPv4 identification. The zero
// value is no flow.
type Flow struct {
	// crc is the register in front of the last word that has a part of the BTH in it and of the
	// headers before, for identification 0.
	crc  uint32
	len  int // of a packet, without the ICRC
	isV6 bool
}

// NewFlow prepares for packets of n bytes, BTH to pad; the identification of the path does not
// matter.
//
// Preconditions: n ≥ ib.BTHLen; both addresses of p are of one family.
func NewFlow(p *Path, n int) Flow {
	invariant.Assert(n >= ib.BTHLen, "ICRC of a packet without a BTH")
	if p.Is4() {
		return Flow{crc: prefix4(p, n+ICRCLen), len: n}
	}
	return Flow{crc: prefix6(p, n+ICRCLen), len: n, isV6: true}
}

// Fits reports whether the flow is one of packets of n bytes.
func (f *Flow) Fits(n int) bool { return f.len == n }

// ICRC returns the invariant CRC of one packet, whose IPv4 identification is id.
//
// Preconditions: the packet has the flow's length.
func (f *Flow) ICRC(id uint16, packet []byte) uint32 {
	invariant.Assert(len(packet) == f.len, "ICRC of a packet of another length")
	if f.isV6 {
		crc := crcWord(f.crc, bthUpperMask|le64(packet))
		return crc32.Update(^crc, crc32.IEEETable, packet[8:])
	}
	crc := f.crc ^ idDifference(id)
	n := uint64(uint16(UDPLen + f.len + ICRCLen))
	crc = crcWord(crc, udpSumMask|wire64(n<<48)|le32(packet)<<32)
	crc = crcWord(crc, bthResv8aMask|le64(packet[4:]))
	return crc32.Update(^crc, crc32.IEEETable, packet[ib.BTHLen:])
}

// prefix4 computes words of eight bytes from the fields, so that no pseudo header needs a buffer:
// leading ones, IPv4, UDP and BTH are exactly six words, the last two of which Flow.ICRC adds.
func prefix4(p *Path, n int) uint32 {
	src, dst := p.Src.As4(), p.Dst.As4()
	flags := uint64(0)
	if p.DF {
		flags = ipv4DF
	}
	crc := crcWord(icrcStart, ipv4TOSMask|wire64(
		ipv4VersionIHL<<56|uint64(uint16(IPv4Len+UDPLen+n))<<32|flags))
	crc = crcWord(crc, ipv4TTLSumMask|ProtocolUDP<<8|le32(src[:])<<32)
	return crcWord(crc, le32(dst[:])|wire64(uint64(p.SrcPort)<<16|Port))
}

// prefix6 is prefix4 for IPv6; here the words end in the middle of the BTH.
func prefix6(p *Path, n int) uint32 {
	src, dst := p.Src.As16(), p.Dst.As16()
	length := uint64(uint16(UDPLen + n))
	crc := crcWord(icrcStart, ipv6FirstMask|ipv6HopMask|wire64(length<<16|ProtocolUDP<<8))
	crc = crcWord(crc, le64(src[:]))
	crc = crcWord(crc, le64(src[8:]))
	crc = crcWord(crc, le64(dst[:]))
	crc = crcWord(crc, le64(dst[8:]))
	return crcWord(crc, udpSumUpperMask|wire64(uint64(p.SrcPort)<<48|Port<<32|length<<16))
}

// idDifference is by how much an identification changes prefix4, whatever else the headers say: the
// CRC is linear. Segments of one send have small ones, which a table has.
func idDifference(id uint16) uint32 {
	if int(id) < len(idDifferences) {
		return idDifferences[id]
	}
	return idDifferenceOf(id)
}

func idDifferenceOf(id uint16) uint32 {
	return crcWord(crcWord(crcWord(0, wire64(uint64(id)<<16)), 0), 0)
}

var idDifferences = makeIDDifferences()

func makeIDDifferences() *[128]uint32 {
	var t [128]uint32
	for i := range t {
		t[i] = idDifferenceOf(uint16(i))
	}
	return &t
}

func le32(b []byte) uint64 { return uint64(binary.LittleEndian.Uint32(b)) }

// Verdict is what CheckICRC finds.
type Verdict uint8

// Verdicts.
const (
	// Bad: the packet was corrupted, or is not one. Drop it.
	Bad Verdict = iota
	// Good: the ICRC is right, all 32 bits of it.
	Good
	// GoodUpToIPID: the ICRC is right for another IPv4 identification or DF flag than Path has.
	// To a receiver that cannot see them this is a good packet, with 15 of 32 bits checked. To
	// one that can, it is a bad one.
	GoodUpToIPID
)

func (v Verdict) String() string {
	switch v {
	case Good:
		return "good"
	case GoodUpToIPID:
		return "good up to IP ID"
	default:
		return "bad"
	}
}

// CheckICRC checks the ICRC at the end of a UDP payload. The payload may be anything.
//
// A plain UDP socket hides the IPv4 identification, which the ICRC covers. The CRC is linear, so
// another identification changes the ICRC by a difference that depends on the identification and
// on its distance from the ICRC alone. Where the ICRC is wrong for p.IPID and p.DF, that
// difference is moved back over the distance; if nothing but identification and DF is left of it,
// the packet is GoodUpToIPID. Set p.DF to what most peers send, true, so that those with
// identification 0 are checked in full.
func CheckICRC(p *Path, payload []byte) Verdict {
	n := len(payload) - ICRCLen
	if n < ib.BTHLen {
		return Bad
	}
	f := NewFlow(p, n)
	return f.Check(p.IPID, payload)
}

// Check is CheckICRC for a packet of the flow, ICRC included, with an assumed identification.
//
// Preconditions: the payload has the flow's length and that of an ICRC.
func (f *Flow) Check(id uint16, payload []byte) Verdict {
	n := len(payload) - ICRCLen
	diff := f.ICRC(id, payload[:n]) ^ binary.LittleEndian.Uint32(payload[n:])
	if diff == 0 {
		return Good
	}
	if !f.isV6 && hiddenDifference(diff, n)&^hiddenMask == 0 {
		return GoodUpToIPID
	}
	return Bad
}

// hiddenMask has the bits of identification and DF in the little-endian word of bytes 4…7 of an
// IPv4 header.
const hiddenMask = 0x00_40_ff_ff

// hiddenDistance is the number of bytes from the identification, included, to the BTH.
const hiddenDistance = IPv4Len - 4 + UDPLen

// hiddenDifference returns by which difference in bytes 4…7 of the IPv4 header an ICRC differs by
// diff, for a packet of n bytes without ICRC. Every diff has exactly one.
func hiddenDifference(diff uint32, n int) uint32 {
	return crcRewind(diff, hiddenDistance+n)
}
