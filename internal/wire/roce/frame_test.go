package roce

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/softrnic/softrnic/internal/wire/ib"
)

// testFrames are frames of every shape.
func testFrames() []Frame {
	var frames []Frame
	for _, tagged := range []bool{false, true} {
		for _, p := range []Path{testPath4(), testPath6()} {
			f := Frame{
				Ethernet: Ethernet{
					Dst: MAC{2, 0, 0, 0, 0, 1}, Src: MAC{2, 0, 0, 0, 0, 2}, Type: EtherTypeIPv6,
					Tagged: tagged,
				},
				Path: p,
			}
			f.Path.Src = f.Path.Src.WithZone("")
			if p.Is4() {
				f.Ethernet.Type = EtherTypeIPv4
			}
			if tagged {
				f.Ethernet.Tag = 3<<13 | 0x123
			}
			h := ib.Headers{BTH: ib.BTH{Opcode: ib.RCSendOnly, PKey: 0xffff, DestQPN: 9, PSN: 1}}
			f.Payload = AppendICRC(&f.Path, append(h.Append(nil), "abcdefgh"...))
			f.UDPChecksum = UDPChecksum(&f.Path, f.Payload)
			frames = append(frames, f)
		}
	}
	return frames
}

func equalFrames(a, b *Frame) bool {
	return a.Ethernet == b.Ethernet && a.Path == b.Path && a.UDPChecksum == b.UDPChecksum &&
		bytes.Equal(a.Payload, b.Payload)
}

func TestFrame_EveryShape_RoundTrips(t *testing.T) {
	for _, f := range testFrames() {
		b := f.Append([]byte{0xee})[1:]
		if len(b) != f.Len() {
			t.Errorf("%d bytes, Len is %d", len(b), f.Len())
		}
		// Ethernet pads short frames; the padding is no part of the packet.
		got, err := ParseFrame(append(b, 0, 0, 0))
		if err != nil || !equalFrames(&got, &f) {
			t.Errorf("parsed %s (%v), want %s", &got, err, &f)
		}
		if s := got.String(); !strings.HasSuffix(s, "icrc=good") || strings.Contains(s, "\n") {
			t.Errorf("prints %q", s)
		}
		for n := range b {
			if _, err := ParseFrame(b[:n]); !errors.Is(err, ErrTruncated) {
				t.Errorf("%d of %d bytes: error is %v, want ErrTruncated", n, len(b), err)
			}
		}
	}
}

func TestFrame_UDPChecksum_SumsUp(t *testing.T) {
	for _, f := range testFrames() {
		// With the checksum in place the sum over everything is all ones.
		var pseudo []byte
		if f.Path.Is4() {
			src, dst := f.Path.Src.As4(), f.Path.Dst.As4()
			pseudo = append(append(pseudo, src[:]...), dst[:]...)
		} else {
			src, dst := f.Path.Src.As16(), f.Path.Dst.As16()
			pseudo = append(append(pseudo, src[:]...), dst[:]...)
		}
		pseudo = append(pseudo, 0, ProtocolUDP)
		pseudo = binary.BigEndian.AppendUint16(pseudo, uint16(UDPLen+len(f.Payload)))
		pseudo = AppendUDP(pseudo, &f.Path, len(f.Payload), f.UDPChecksum)
		if got := fold(sum16(0, append(pseudo, f.Payload...))); got != 0xffff {
			t.Errorf("%s: sum is %#04x", &f, got)
		}
	}
}

func TestUDPChecksum_IsNeverZero(t *testing.T) {
	p := testPath4()
	payload := make([]byte, 16)
	sum := UDPChecksum(&p, payload)
	// Adding the checksum itself makes the sum all ones, whose complement would be 0.
	binary.BigEndian.PutUint16(payload, sum)
	if got := UDPChecksum(&p, payload); got != 0xffff {
		t.Errorf("checksum is %#04x, want 0xffff", got)
	}
}

func TestIPv4View_Checksum(t *testing.T) {
	p := testPath4()
	b := AppendIPv4(nil, &p, 100)
	if !IPv4View(b).IsChecksumGood() || IPv4View(b).Checksum() == 0 {
		t.Errorf("checksum of %x is bad", b)
	}
	b[8]--
	if IPv4View(b).IsChecksumGood() {
		t.Error("checksum is good with another TTL")
	}
}

func TestParseFrame_OtherPackets_AreRefused(t *testing.T) {
	frames := testFrames()
	v4, v6 := frames[0], frames[1]
	const at = EthernetLen
	tests := []struct {
		name   string
		frame  *Frame
		change func(b []byte)
		want   error
	}{
		{"ARP", &v4, func(b []byte) { b[12], b[13] = 0x08, 0x06 }, ErrNotRoCE},
		{"RoCE v1", &v4, func(b []byte) { b[12], b[13] = 0x89, 0x15 }, ErrNotRoCE},
		{"two tags", &frames[2], func(b []byte) { b[16], b[17] = 0x81, 0x00 }, ErrNotRoCE},
		{"IPv6 as IPv4", &v4, func(b []byte) { b[at] = 0x65 }, ErrVersion},
		{"IPv4 as IPv6", &v6, func(b []byte) { b[at] = 0x45 }, ErrVersion},
		{"options", &v4, func(b []byte) { b[at] = 0x46 }, ErrOptions},
		{"short header", &v4, func(b []byte) { b[at] = 0x44 }, ErrLength},
		{"short total", &v4, func(b []byte) { b[at+3] = 19 }, ErrLength},
		{"long total", &v4, func(b []byte) { b[at+2] = 0xff }, ErrTruncated},
		{"more fragments", &v4, func(b []byte) { b[at+6] |= 0x20 }, ErrFragment},
		{"fragment offset", &v4, func(b []byte) { b[at+7] = 1 }, ErrFragment},
		{"TCP", &v4, func(b []byte) { b[at+9] = 6 }, ErrNotRoCE},
		{"no UDP header", &v4, func(b []byte) { b[at+3] = 20 + 7 }, ErrTruncated},
		{"other port", &v4, func(b []byte) { b[at+IPv4Len+3]++ }, ErrNotRoCE},
		{"UDP length", &v4, func(b []byte) { b[at+IPv4Len+5]-- }, ErrLength},
		{"long IPv6", &v6, func(b []byte) { b[at+4] = 0xff }, ErrTruncated},
		{"IPv6 fragment", &v6, func(b []byte) { b[at+6] = ipv6Fragment }, ErrFragment},
		{"ICMPv6", &v6, func(b []byte) { b[at+6] = 58 }, ErrNotRoCE},
	}
	for _, tt := range tests {
		b := tt.frame.Append(nil)
		tt.change(b)
		if _, err := ParseFrame(b); !errors.Is(err, tt.want) {
			t.Errorf("%s: error is %v, want %v", tt.name, err, tt.want)
		}
	}
}

func TestViews_Print(t *testing.T) {
	p4, p6 := testPath4(), testPath6()
	eth := testFrames()[2].Ethernet
	tests := []struct{ got, want string }{
		{eth.String(), "02:00:00:00:00:02 > 02:00:00:00:00:01 type=0x0800 vlan=291 prio=3"},
		{
			IPv4View(AppendIPv4(nil, &p4, 100)).String(), "IPv4{10.1.2.3 > 10.200.100.50 v=4 len=128 " +
				"id=0xbeef df=true frag=false tos=0x6a ttl=63 proto=17}",
		},
		{IPv4View(nil).String(), "truncated IPv4"},
		{
			IPv6View(AppendIPv6(nil, &p6, 100)).String(), "IPv6{fe80::1 > 2001:db8::abcd v=6 len=108 " +
				"tclass=0x6a flow=0x12345 hop=63 next=17}",
		},
		{IPv6View(nil).String(), "truncated IPv6"},
		{UDPView(AppendUDP(nil, &p4, 100, 5)).String(), "UDP{49443 > 4791 len=108 sum=0x0005}"},
		{UDPView(nil).String(), "truncated UDP"},
		{p4.String(), "10.1.2.3:49443 > 10.200.100.50 tclass=0x6a hop=63 id=0xbeef df"},
		{
			p6.String(),
			"[fe80::1%eth0]:61453 > 2001:db8::abcd tclass=0x6a hop=63 flow=0x12345",
		},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("prints %q, want %q", tt.got, tt.want)
		}
	}
}

func TestGRHArea_HoldsTheIPHeader(t *testing.T) {
	area := GRHArea(bytes.Repeat([]byte{0xee}, len(GRHArea{})))
	p := testPath4()
	area.Fill(&p, 100)
	if !bytes.Equal(area[:20], make([]byte, 20)) {
		t.Errorf("area starts with %x, want zeros", area[:20])
	}
	v4 := IPv4View(area[20:])
	if !v4.IsChecksumGood() || v4.Src() != p.Src || v4.Dst() != p.Dst || v4.TotalLen() != 128 {
		t.Errorf("area has %s", v4)
	}
	p = testPath6()
	area.Fill(&p, 100)
	grh, err := ib.ParseGRH(area[:])
	if err != nil || grh.SGID.Addr() != p.Src.WithZone("") || grh.DGID.Addr() != p.Dst ||
		grh.PayloadLength != 108 || grh.HopLimit != 63 || grh.NextHeader != ProtocolUDP {
		t.Errorf("area has %s (%v)", grh, err)
	}
}

func TestPath_ECN(t *testing.T) {
	p := Path{TrafficClass: 0xfc | ECNCongestionExperienced}
	if p.ECN() != ECNCongestionExperienced {
		t.Errorf("ECN is %d", p.ECN())
	}
	mixed := Path{Src: netip.MustParseAddr("1.2.3.4"), Dst: netip.MustParseAddr("::1")}
	if mixed.Is4() || (&Path{}).Is4() {
		t.Error("a path without two IPv4 addresses is IPv4")
	}
}

func TestFrame_ParseAndAppend_DoNotAllocate(t *testing.T) {
	for _, f := range testFrames() {
		b := f.Append(nil)
		buf := make([]byte, 0, len(b))
		n := testing.AllocsPerRun(100, func() {
			g, err := ParseFrame(b)
			if err != nil {
				t.Fatal(err)
			}
			buf = g.Append(buf[:0])
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", &f, n)
		}
	}
}

func FuzzParseFrame_AppendParse(f *testing.F) {
	for _, frame := range testFrames() {
		f.Add(frame.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		frame, err := ParseFrame(b)
		if err != nil {
			return
		}
		if len(frame.Payload) > len(b) || frame.Len() > len(b) {
			t.Fatalf("%x: frame of %d bytes, payload of %d", b, frame.Len(), len(frame.Payload))
		}
		if s := frame.String(); strings.Contains(s, "\n") {
			t.Errorf("%x prints %q", b, s)
		}
		c := frame.Append(nil)
		again, err := ParseFrame(c)
		if err != nil || !equalFrames(&frame, &again) {
			t.Fatalf("%x: parsed %s, again %s (%v)", b, &frame, &again, err)
		}
	})
}

func BenchmarkParseFrame(b *testing.B) {
	frame := testFrames()[0]
	wire := frame.Append(nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseFrame(wire); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFrame_Append(b *testing.B) {
	frame := testFrames()[0]
	wire := frame.Append(nil)
	b.ReportAllocs()
	for b.Loop() {
		wire = frame.Append(wire[:0])
	}
}
