package iwarp

import (
	"encoding/binary"
	"fmt"
)

// Lengths of marked streams in bytes (RFC 5044 4.3).
const (
	// MarkerLen is that of a marker.
	MarkerLen = 4
	// MarkerInterval is the distance from the start of a marker to the start of the next. The
	// first stands before the first FPDU.
	MarkerInterval = 512
)

// Marker is an FPDUPTR: how many bytes of the stream, other markers included, lie between the
// length field of an FPDU and the marker in it. 0 is a marker right before the length field.
type Marker uint16

// ParseMarker reads a marker at the start of b. The reserved half is not looked at, nor are the
// two lowest bits, which count as zero (RFC 5044 4.3).
func ParseMarker(b []byte) (Marker, error) {
	if len(b) < MarkerLen {
		return 0, ErrTruncated
	}
	return Marker(binary.BigEndian.Uint16(b[2:]) &^ 3), nil
}

// Append appends the MarkerLen bytes of the marker to b.
func (m Marker) Append(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, uint32(m&^3))
}

func (m Marker) String() string { return fmt.Sprintf("Marker{fpduptr=%d}", uint16(m)) }

// Marks knows where in one direction of a stream the markers are. The zero value stands before the
// first FPDU, and with that before a marker. Sender and receiver walk alike:
//
//	m.StartFPDU()
//	for there is more of the FPDU {
//		if m.Run() == 0 {
//			m.Marker() is what the next MarkerLen bytes are
//			m.PassMarker()
//			continue
//		}
//		pass up to m.Run() bytes of the FPDU: m.Advance(n)
//	}
//
// A marker that falls between two FPDUs is the first thing of the second.
type Marks struct {
	at    uint16 // bytes since the last marker began, 0 … MarkerInterval−1
	since uint32 // bytes since the length field of the FPDU
}

// StartFPDU says that the next byte that is no marker is the first of an FPDU.
func (m *Marks) StartFPDU() { m.since = 0 }

// Run returns how many bytes come before the next marker; 0 means that it is next.
func (m *Marks) Run() int { return (MarkerInterval - int(m.at)) % MarkerInterval }

// Advance passes n bytes of an FPDU. Preconditions: 0 <= n <= Run().
func (m *Marks) Advance(n int) {
	m.at = uint16((int(m.at) + n) % MarkerInterval)
	m.since += uint32(n)
}

// Marker returns the marker that is next. Preconditions: Run() == 0, and the ULPDU is no longer
// than ULPDUMarkedMax.
func (m *Marks) Marker() Marker { return Marker(m.since) }

// PassMarker passes the marker that is next. Preconditions: Run() == 0.
func (m *Marks) PassMarker() {
	m.at += MarkerLen
	if m.since > 0 {
		m.since += MarkerLen
	}
}

// MarkedLen returns how many bytes of the stream the next n bytes of an FPDU take with the markers
// in front of and between them; one right behind them is not counted. Preconditions: n >= 0.
func (m *Marks) MarkedLen(n int) int {
	if n == 0 {
		return 0
	}
	run := m.Run()
	if n <= run {
		return n
	}
	const between = MarkerInterval - MarkerLen
	return n + MarkerLen*((n-run+between-1)/between)
}

// Append appends bytes of an FPDU to the stream in b, with the markers in front of and between
// them, and passes them.
func (m *Marks) Append(b, fpdu []byte) []byte {
	for len(fpdu) > 0 {
		run := m.Run()
		if run == 0 {
			b = m.Marker().Append(b)
			m.PassMarker()
			continue
		}
		n := min(run, len(fpdu))
		b = append(b, fpdu[:n]...)
		m.Advance(n)
		fpdu = fpdu[n:]
	}
	return b
}
