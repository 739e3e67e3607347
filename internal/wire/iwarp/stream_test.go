package iwarp

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// direction names one direction of a TCP connection.
type direction struct{ from, to netip.AddrPort }

// segment is TCP payload with its place in the stream, counted from the first byte after SYN.
type segment struct {
	at   uint32
	data []byte
}

// conversation is both directions of a captured connection, whole.
type conversation struct {
	file            string
	request, reply  []byte // of the side that connected, and of the other
	initiator, peer netip.AddrPort
}

// conversations returns the connections of all captures whose names match a pattern.
func conversations(t testing.TB, pattern string) []conversation {
	t.Helper()
	files, err := filepath.Glob("testdata/" + pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no captures: %v", err)
	}
	var out []conversation
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, reassemble(t, name, frames(t, name, b))...)
	}
	return out
}

// frames returns the frames of a classic little-endian Ethernet capture.
func frames(t testing.TB, name string, b []byte) [][]byte {
	t.Helper()
	const fileHeader, recordHeader = 24, 16
	le := binary.LittleEndian
	if len(b) < fileHeader || le.Uint32(b) != 0xa1b2c3d4 || le.Uint32(b[20:]) != 1 {
		t.Fatalf("%s is no little-endian Ethernet capture", name)
	}
	var out [][]byte
	for b = b[fileHeader:]; len(b) > 0; {
		captured, length := le.Uint32(b[8:]), le.Uint32(b[12:])
		if captured != length || int(captured) > len(b)-recordHeader {
			t.Fatalf("%s has a cut frame: %d of %d bytes", name, captured, length)
		}
		out = append(out, b[recordHeader:recordHeader+captured])
		b = b[recordHeader+captured:]
	}
	return out
}

// tcp takes a frame apart to the TCP header and what follows; nil when it is no TCP.
func tcp(frame []byte) (d direction, header, payload []byte) {
	const ethernet, protocolTCP = 14, 6
	b := frame[ethernet:]
	var from, to netip.Addr
	switch binary.BigEndian.Uint16(frame[12:]) {
	case 0x0800:
		if b[9] != protocolTCP {
			return d, nil, nil
		}
		from, to = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
		b = b[:binary.BigEndian.Uint16(b[2:])][b[0]&0xf*4:]
	case 0x86dd:
		if b[6] != protocolTCP {
			return d, nil, nil
		}
		from, to = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
		b = b[40 : 40+binary.BigEndian.Uint16(b[4:])]
	default:
		return d, nil, nil
	}
	d.from = netip.AddrPortFrom(from, binary.BigEndian.Uint16(b))
	d.to = netip.AddrPortFrom(to, binary.BigEndian.Uint16(b[2:]))
	n := b[12] >> 4 * 4
	return d, b[:n], b[n:]
}

// reassemble puts the streams of a capture together.
func reassemble(t testing.TB, name string, frames [][]byte) []conversation {
	t.Helper()
	const syn, ack = 0x02, 0x10
	first := map[direction]uint32{}
	segments := map[direction][]segment{}
	var opened []direction
	for _, frame := range frames {
		d, header, payload := tcp(frame)
		if header == nil {
			continue
		}
		seq := binary.BigEndian.Uint32(header[4:])
		if header[13]&syn != 0 {
			if _, isOpen := first[d]; !isOpen && header[13]&ack == 0 {
				opened = append(opened, d)
			}
			first[d] = seq + 1
			continue
		}
		if start, isOpen := first[d]; isOpen && len(payload) > 0 {
			segments[d] = append(segments[d], segment{seq - start, payload})
		}
	}
	var out []conversation
	for _, d := range opened {
		out = append(out, conversation{
			file: filepath.Base(name), initiator: d.from, peer: d.to,
			request: splice(t, name, segments[d]),
			reply:   splice(t, name, segments[direction{d.to, d.from}]),
		})
	}
	return out
}

// splice orders segments and cuts what was sent again.
func splice(t testing.TB, name string, segments []segment) []byte {
	t.Helper()
	slices.SortStableFunc(segments, func(a, b segment) int { return cmp.Compare(a.at, b.at) })
	var out []byte
	for _, s := range segments {
		if int(s.at) > len(out) {
			t.Fatalf("%s has a hole of %d bytes at %d", name, int(s.at)-len(out), len(out))
		}
		if again := len(out) - int(s.at); again < len(s.data) {
			out = append(out, s.data[again:]...)
		}
	}
	return out
}
