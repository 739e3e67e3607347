package pcap

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/softrnic/softrnic/internal/wire/roce"
)

// segmentBytesMax is the payload of the longest segment in a file: a little less than an IPv4
// packet holds, and a multiple of what Ethernet carries. The kernel cuts it to what the path takes.
const segmentBytesMax = 45 * 1448

// segment is what the header of TCP says of a record.
type segment struct {
	src, dst netip.AddrPort
	seq, ack uint32
	flags    segmentFlags
}

// segmentFlags are bits of the header of TCP (RFC 9293 §3.1).
type segmentFlags uint8

// Flags.
const (
	flagFIN segmentFlags = 1 << iota
	flagSYN
	flagRST
	flagPSH
	flagACK
)

const (
	// windowShown is the window that made-up segments offer: the true ones are the kernel's.
	windowShown = 65535
	tcpLen      = 20
	protocolTCP = 6
	hopsShown   = 64
	noFragments = 0x4000 // DF (RFC 791 §3.1)
)

// writeSegment adds a frame of TCP.
func (f *file) writeSegment(s *segment, payload []byte, at time.Time, way pcapgo.NgEpbFlag) error {
	f.frame = s.append(f.frame[:0], payload)
	info := gopacket.CaptureInfo{
		Timestamp: at, CaptureLength: len(f.frame), Length: len(f.frame),
	}
	options := pcapgo.NgPacketOptions{Flags: &pcapgo.NgEpbFlags{Direction: way}}
	return f.writer.WritePacketWithOptions(info, f.frame, options)
}

// append appends the frame. Preconditions: payload is at most segmentBytesMax long, and both
// addresses are of one family.
func (s *segment) append(b, payload []byte) []byte {
	src, dst := s.src.Addr().Unmap(), s.dst.Addr().Unmap()
	from, to := macOf(src), macOf(dst)
	b = append(append(b, to[:]...), from[:]...)
	// The sum of the pseudo-header (RFC 9293 §3.1, RFC 8200 §8.1).
	n := tcpLen + len(payload)
	sum := uint64(protocolTCP) + uint64(n)
	if src.Is4() {
		b = binary.BigEndian.AppendUint16(b, uint16(roce.EtherTypeIPv4))
		b = appendIPv4(b, src, dst, n)
	} else {
		b = binary.BigEndian.AppendUint16(b, uint16(roce.EtherTypeIPv6))
		b = binary.BigEndian.AppendUint32(b, 6<<28)
		b = binary.BigEndian.AppendUint16(b, uint16(n))
		b = append(b, protocolTCP, hopsShown)
		b = append(append(b, src.AsSlice()...), dst.AsSlice()...)
	}
	sum = addWords(addWords(sum, src.AsSlice()), dst.AsSlice())
	begin := len(b)
	b = binary.BigEndian.AppendUint16(b, s.src.Port())
	b = binary.BigEndian.AppendUint16(b, s.dst.Port())
	b = binary.BigEndian.AppendUint32(b, s.seq)
	b = binary.BigEndian.AppendUint32(b, s.ack)
	b = append(b, tcpLen/4<<4, byte(s.flags))
	b = binary.BigEndian.AppendUint16(b, windowShown)
	b = append(b, 0, 0, 0, 0) // checksum, urgent pointer
	b = append(b, payload...)
	binary.BigEndian.PutUint16(b[begin+16:], checksum(addWords(sum, b[begin:])))
	return b
}

// appendIPv4 appends a header for n bytes.
func appendIPv4(b []byte, src, dst netip.Addr, n int) []byte {
	begin := len(b)
	b = append(b, 0x45, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(roce.IPv4Len+n))
	b = binary.BigEndian.AppendUint32(b, noFragments)
	b = append(b, hopsShown, protocolTCP, 0, 0)
	b = append(append(b, src.AsSlice()...), dst.AsSlice()...)
	binary.BigEndian.PutUint16(b[begin+10:], checksum(addWords(0, b[begin:])))
	return b
}

// addWords adds b, as words of 16 bits, to a sum that checksum folds. Since folding adds the halves
// of a longer word, it may take longer words at a time.
func addWords(sum uint64, b []byte) uint64 {
	for len(b) >= 8 {
		sum += uint64(binary.BigEndian.Uint32(b)) + uint64(binary.BigEndian.Uint32(b[4:]))
		b = b[8:]
	}
	for len(b) >= 2 {
		sum += uint64(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		sum += uint64(b[0]) << 8
	}
	return sum
}

// checksum folds a sum (RFC 1071).
func checksum(sum uint64) uint16 {
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
