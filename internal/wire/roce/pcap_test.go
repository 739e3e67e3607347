package roce

import (
	"encoding/binary"
	"os"
	"testing"
)

// readPcap returns the frames of a classic little-endian Ethernet capture.
func readPcap(t testing.TB, name string) [][]byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	const fileHeader, recordHeader = 24, 16
	le := binary.LittleEndian
	if len(b) < fileHeader || le.Uint32(b) != 0xa1b2c3d4 || le.Uint32(b[20:]) != 1 {
		t.Fatalf("%s is no little-endian Ethernet capture", name)
	}
	b = b[fileHeader:]
	var frames [][]byte
	for len(b) > 0 {
		if len(b) < recordHeader {
			t.Fatalf("%s ends inside a record header", name)
		}
		captured, length := le.Uint32(b[8:]), le.Uint32(b[12:])
		b = b[recordHeader:]
		if captured != length || int(captured) > len(b) {
			t.Fatalf("%s has a cut frame: %d of %d bytes", name, captured, length)
		}
		frames = append(frames, b[:captured:captured])
		b = b[captured:]
	}
	return frames
}
