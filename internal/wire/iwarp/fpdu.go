package iwarp

import (
	"encoding/binary"
	"hash/crc32"
)

// Lengths of an FPDU's parts in bytes (RFC 5044 4.1).
const (
	// ULPDULenLen is that of the length in front.
	ULPDULenLen = 2
	// CRCLen is that of the CRC at the end.
	CRCLen = 4
	// ULPDUMax is the longest ULPDU that the length field can tell.
	ULPDUMax = 1<<16 - 1
	// ULPDUMarkedMax is the longest ULPDU of a stream with markers: the last marker in its FPDU
	// must be able to point back to the start (RFC 5044 4.3, 4.4).
	ULPDUMarkedMax = 64768
	// FPDUMin is the shortest FPDU: no ULPDU at all.
	FPDUMin = ULPDULenLen + 2 + CRCLen
)

// ParseULPDULen reads the length in front of an FPDU; false when it is not there yet.
func ParseULPDULen(b []byte) (n int, ok bool) {
	if len(b) < ULPDULenLen {
		return 0, false
	}
	return int(binary.BigEndian.Uint16(b)), true
}

// AppendULPDULen appends the length of an ULPDU of n bytes. Preconditions: 0 <= n <= ULPDUMax.
func AppendULPDULen(b []byte, n int) []byte {
	return binary.BigEndian.AppendUint16(b, uint16(n))
}

// PadLen returns how many pad bytes follow an ULPDU of n bytes.
func PadLen(n int) int { return -(ULPDULenLen + n) & 3 }

// FPDULen returns the length of an FPDU with an ULPDU of n bytes, markers not counted. It is a
// multiple of four.
func FPDULen(n int) int { return ULPDULenLen + n + PadLen(n) + CRCLen }

// AppendPad appends n pad bytes, which are zero. Preconditions: 0 <= n <= 3.
func AppendPad(b []byte, n int) []byte {
	const zero = "\x00\x00\x00"
	return append(b, zero[:n&3]...)
}

// MULPDU returns the longest ULPDU whose FPDU fits segment bytes of TCP payload wherever the
// markers fall (RFC 5044 4.5), 0 when none does.
func MULPDU(segment int, markers bool) int {
	n := segment - (ULPDULenLen + CRCLen + segment&3)
	longest := ULPDUMax
	if markers {
		n -= MarkerLen * ((segment + MarkerInterval - 1) / MarkerInterval)
		longest = ULPDUMarkedMax
	}
	return max(0, min(n, longest))
}

// castagnoli is the polynomial of RFC 5044 4.4. Go's implementation of it uses the processor's
// instructions.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// UpdateCRC goes on with a CRC over more bytes; that of no bytes is 0. An FPDU's covers everything
// from the length, or the marker right in front of it, to the pad, or the marker right behind it
// (RFC 5044 4.4).
func UpdateCRC(crc uint32, b []byte) uint32 { return crc32.Update(crc, castagnoli, b) }

// AppendCRC appends a CRC as the wire has it: the least significant byte first, for the bits of
// each byte travel, to the polynomial, in the opposite order of their significance.
func AppendCRC(b []byte, crc uint32) []byte { return binary.LittleEndian.AppendUint32(b, crc) }

// ParseCRC reads a CRC at the start of b; false when it is not all there.
func ParseCRC(b []byte) (crc uint32, ok bool) {
	if len(b) < CRCLen {
		return 0, false
	}
	return binary.LittleEndian.Uint32(b), true
}

// IsCRCGood reports whether the last four bytes of an FPDU without markers are the CRC of the
// others.
func IsCRCGood(fpdu []byte) bool {
	if len(fpdu) < CRCLen {
		return false
	}
	body := fpdu[:len(fpdu)-CRCLen]
	crc, ok := ParseCRC(fpdu[len(body):])
	return ok && crc == UpdateCRC(0, body)
}
