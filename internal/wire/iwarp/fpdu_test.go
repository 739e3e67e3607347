package iwarp

import (
	"bytes"
	"encoding/hex"
	"testing"

	"pgregory.net/rapid"
)

func TestCRC_KnownValues_OnTheWire(t *testing.T) {
	// RFC 3720 B.4 has them for iSCSI, which transmits the CRC in the same order.
	ascending := make([]byte, 32)
	for i := range ascending {
		ascending[i] = byte(i)
	}
	cases := []struct {
		name string
		b    []byte
		want string
	}{
		{"zeros", make([]byte, 32), "aa36918a"},
		{"ones", bytes.Repeat([]byte{0xff}, 32), "43aba862"},
		{"ascending", ascending, "4e79dd46"},
	}
	for _, c := range cases {
		whole := UpdateCRC(0, c.b)
		if got := hex.EncodeToString(AppendCRC(nil, whole)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if parts := UpdateCRC(UpdateCRC(0, c.b[:5]), c.b[5:]); parts != whole {
			t.Errorf("%s: in two parts %08x, at once %08x", c.name, parts, whole)
		}
		if got, ok := ParseCRC(AppendCRC(nil, whole)); !ok || got != whole {
			t.Errorf("%s: parsed %08x, %v", c.name, got, ok)
		}
	}
}

func TestFPDU_ShortOrTruncated_IsNotThereYet(t *testing.T) {
	for n := range 6 {
		b := make([]byte, n)
		if _, ok := ParseULPDULen(b); ok != (n >= ULPDULenLen) {
			t.Errorf("length of %d bytes: %v", n, ok)
		}
		if _, ok := ParseCRC(b); ok != (n >= CRCLen) {
			t.Errorf("CRC of %d bytes: %v", n, ok)
		}
		// Four zero bytes are the right CRC of nothing.
		if got := IsCRCGood(b); got != (n == CRCLen) {
			t.Errorf("%d bytes: CRC is good: %v", n, got)
		}
	}
}

func TestFPDULen_EveryLength_IsAlignedAndShortest(t *testing.T) {
	for n := range ULPDUMax + 1 {
		size, pad := FPDULen(n), PadLen(n)
		if size%4 != 0 || pad < 0 || pad > 3 || size != ULPDULenLen+n+pad+CRCLen {
			t.Fatalf("ULPDU of %d: pad %d, FPDU %d", n, pad, size)
		}
		b := AppendULPDULen(nil, n)
		if got, ok := ParseULPDULen(b); !ok || got != n {
			t.Fatalf("length %d is parsed as %d", n, got)
		}
	}
	if FPDULen(0) != FPDUMin {
		t.Errorf("the shortest is %d", FPDULen(0))
	}
	for n := range 4 {
		if got := AppendPad([]byte{1}, n); len(got) != 1+n || !bytes.Equal(got[1:], make([]byte, n)) {
			t.Errorf("pad of %d: %x", n, got)
		}
	}
}

func TestMULPDU_AnySegment_HoldsItsFPDU(t *testing.T) {
	for segment := range 1<<16 + 10 {
		n := MULPDU(segment, false)
		if n > 0 && n < ULPDUMax && FPDULen(n) > segment {
			t.Fatalf("segment of %d: ULPDU of %d has an FPDU of %d", segment, n, FPDULen(n))
		}
		if n < ULPDUMax && FPDULen(n+1) <= segment {
			t.Fatalf("segment of %d: ULPDU of %d is not the longest", segment, n)
		}
	}
	for _, segment := range []int{128, 536, 1428, 1448, 1460, 4096, 8948, 32768, 65483, 1 << 20} {
		n := MULPDU(segment, true)
		if n <= 0 || n > ULPDUMarkedMax {
			t.Fatalf("segment of %d: ULPDU of %d", segment, n)
		}
		for at := 0; at < MarkerInterval; at += 4 {
			m := Marks{at: uint16(at)}
			if size := m.MarkedLen(FPDULen(n)); size > segment {
				t.Fatalf("segment of %d at %d: %d bytes with markers", segment, at, size)
			}
		}
	}
	for _, segment := range []int{-1, 0, 3, 6} {
		if got := MULPDU(segment, true); got != 0 {
			t.Errorf("segment of %d: %d", segment, got)
		}
	}
}

// marked is the plain way to put markers into a stream of FPDUs: position by position.
func marked(fpdus [][]byte) []byte {
	var out []byte
	for _, f := range fpdus {
		start := len(out)
		for i := range f {
			if len(out)%MarkerInterval == 0 {
				distance := len(out) - start
				out = append(out, 0, 0, byte(distance>>8), byte(distance))
				if i == 0 {
					start = len(out)
				}
			}
			out = append(out, f[i])
		}
	}
	return out
}

// unmarked takes the markers out as a receiver does, in pieces of at most n bytes.
func unmarked(t *rapid.T, stream []byte, sizes []int, piece func() int) [][]byte {
	var m Marks
	var out [][]byte
	for _, size := range sizes {
		m.StartFPDU()
		var fpdu []byte
		for len(fpdu) < size {
			run := m.Run()
			if run == 0 {
				got, err := ParseMarker(stream)
				if err != nil || got != m.Marker() {
					t.Fatalf("%v, %v; want %v", got, err, m.Marker())
				}
				m.PassMarker()
				stream = stream[MarkerLen:]
				continue
			}
			n := min(run, size-len(fpdu), piece())
			fpdu = append(fpdu, stream[:n]...)
			m.Advance(n)
			stream = stream[n:]
		}
		out = append(out, fpdu)
	}
	if len(stream) != 0 {
		t.Fatalf("%d bytes are left", len(stream))
	}
	return out
}

func TestMarks_AnyStream_AreWhereTheStandardHasThem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var fpdus [][]byte
		var sizes []int
		var stream []byte
		var m Marks
		for i := range rapid.IntRange(1, 12).Draw(t, "fpdus") {
			size := FPDULen(rapid.OneOf(
				rapid.IntRange(0, 100), rapid.SampledFrom([]int{494, 498, 502, 506, 1010, 1014}),
				rapid.IntRange(0, 5000),
			).Draw(t, "ulpdu"))
			fpdu := bytes.Repeat([]byte{byte(i + 1)}, size)
			fpdus, sizes = append(fpdus, fpdu), append(sizes, size)
			m.StartFPDU()
			want := m.MarkedLen(size)
			before := len(stream)
			cut := rapid.IntRange(0, size).Draw(t, "cut")
			stream = m.Append(m.Append(stream, fpdu[:cut]), fpdu[cut:])
			if got := len(stream) - before; got != want {
				t.Fatalf("MarkedLen of %d is %d, and it took %d", size, want, got)
			}
		}
		if want := marked(fpdus); !bytes.Equal(stream, want) {
			t.Fatalf("stream is\n%x, want\n%x", stream, want)
		}
		piece := func() int { return rapid.IntRange(1, 700).Draw(t, "piece") }
		for i, got := range unmarked(t, stream, sizes, piece) {
			if !bytes.Equal(got, fpdus[i]) {
				t.Fatalf("FPDU %d is %x", i, got)
			}
		}
	})
}

func TestMarks_BetweenPadAndCRC_PointBackToTheLength(t *testing.T) {
	var m Marks
	m.StartFPDU()
	// The marker at 0 is in front; the FPDU up to the pad fills the stream up to 512 exactly.
	const ulpdu = MarkerInterval - MarkerLen - ULPDULenLen
	b := m.Append(nil, make([]byte, ULPDULenLen+ulpdu))
	if PadLen(ulpdu) != 0 || len(b) != MarkerInterval || m.Run() != 0 {
		t.Fatalf("%d bytes, %d to the next marker", len(b), m.Run())
	}
	if got := m.Marker(); got != MarkerInterval-MarkerLen {
		t.Errorf("%v", got)
	}
	if got := m.MarkedLen(CRCLen); got != MarkerLen+CRCLen {
		t.Errorf("the CRC takes %d bytes", got)
	}
	m.PassMarker()
	m.Advance(CRCLen)
	m.StartFPDU()
	if got := m.Run(); got != MarkerInterval-MarkerLen-CRCLen {
		t.Errorf("%d to the next marker", got)
	}
}

func TestMarks_LongestULPDU_StillPointsBack(t *testing.T) {
	for at := 0; at < MarkerInterval; at += 4 {
		m := Marks{at: uint16(at)}
		m.StartFPDU()
		for left := FPDULen(ULPDUMarkedMax); left > 0; {
			if m.Run() == 0 {
				if uint32(m.Marker()) != m.since {
					t.Fatalf("at %d: %d does not fit a marker", at, m.since)
				}
				m.PassMarker()
			}
			n := min(m.Run(), left)
			m.Advance(n)
			left -= n
		}
	}
}
