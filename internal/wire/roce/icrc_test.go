package roce

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A congestion notification that a ConnectX-4 Lx sent, from the public test suite of scapy.
const cnpFrame = "e41d2dab2bc27cfe90643b320800" +
	"45c2003c718c40004011916" + "10a0011010a001201" + "000012b700280000" +
	"8100ffff400001180000000000000000000000000000000000000000" + "82fd002a"

func TestICRC_HardwareCNP_T07(t *testing.T) {
	b := unhex(t, cnpFrame)
	f, err := ParseFrame(b)
	if err != nil {
		t.Fatal(err)
	}
	if v := CheckICRC(&f.Path, f.Payload); v != Good {
		t.Errorf("ICRC is %v, want good", v)
	}
	hidden := f.Path
	hidden.IPID = 0
	if v := CheckICRC(&hidden, f.Payload); v != GoodUpToIPID {
		t.Errorf("ICRC with the ID hidden is %v, want good up to IP ID", v)
	}
	var h ib.Headers
	if _, err := h.Parse(f.Packet()); err != nil {
		t.Fatal(err)
	}
	if h.BTH.Opcode != ib.CNP || !h.BTH.BECN || h.BTH.FECN || h.BTH.DestQPN != 0x118 {
		t.Errorf("decoded %s", h.BTH)
	}
	if got := f.Append(nil); string(got) != string(b) {
		t.Errorf("re-encoded\n%x, want\n%x", got, b)
	}
}

func TestICRC_SendOnlyUC_T07(t *testing.T) {
	p := Path{
		Src: netip.MustParseAddr("192.168.0.7"), Dst: netip.MustParseAddr("192.168.0.7"),
		SrcPort: 49152, TrafficClass: 1, HopLimit: 64, IPID: 1144, DF: true,
	}
	payload := unhex(t, "4630818be28935d90e9a95505401be885e50")
	h := ib.Headers{BTH: ib.BTH{
		Opcode: ib.UCSendOnly, MigReq: true, PadCount: ib.PadCount(len(payload)),
		PKey: rdma.PKeyDefault, DestQPN: 211, PSN: 13571856,
	}}
	b := append(h.Append(nil), payload...)
	b = AppendICRC(&p, ib.AppendPad(b, h.BTH.PadCount))
	if got := binary.BigEndian.Uint32(b[len(b)-4:]); got != 0x78f353f3 {
		t.Errorf("ICRC bytes are %08x, want 78f353f3", got)
	}
}

// modelICRC is the definition: it builds what the CRC covers and runs over it.
func modelICRC(p *Path, packet []byte) uint32 {
	n := len(packet) + ICRCLen
	b := bytes.Repeat([]byte{0xff}, 8)
	ip := len(b)
	if p.Is4() {
		b = AppendIPv4(b, p, n)
		b[ip+1], b[ip+8], b[ip+10], b[ip+11] = 0xff, 0xff, 0xff, 0xff
	} else {
		b = AppendIPv6(b, p, n)
		copy(b[ip:], []byte{0x6f, 0xff, 0xff, 0xff})
		b[ip+7] = 0xff
	}
	b = AppendUDP(b, p, n, 0xffff)
	bth := len(b)
	b = append(b, packet...)
	b[bth+4] = 0xff
	return crc32.ChecksumIEEE(b)
}

func testPath4() Path {
	return Path{
		Src: netip.MustParseAddr("10.1.2.3"), Dst: netip.MustParseAddr("10.200.100.50"),
		SrcPort: 0xc123, TrafficClass: 0x6a, HopLimit: 63, IPID: 0xbeef, DF: true,
	}
}

func testPath6() Path {
	return Path{
		Src: netip.MustParseAddr("fe80::1%eth0"), Dst: netip.MustParseAddr("2001:db8::abcd"),
		SrcPort: 0xf00d, TrafficClass: 0x6a, HopLimit: 63, FlowLabel: 0x12345,
	}
}

// randomBytes returns n bytes that depend on the seed only.
func randomBytes(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 0))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func TestICRC_AgreesWithItsDefinition_T09(t *testing.T) {
	mapped := testPath4()
	mapped.Src = netip.AddrFrom16(mapped.Src.As16())
	mapped.Dst = netip.AddrFrom16(mapped.Dst.As16())
	clearDF := testPath4()
	clearDF.DF = false
	for _, p := range []Path{testPath4(), testPath6(), mapped, clearDF} {
		for n := ib.BTHLen; n < 300; n++ {
			packet := randomBytes(uint64(n), n)
			if got, want := ICRC(&p, packet), modelICRC(&p, packet); got != want {
				t.Fatalf("%s, %d bytes: %08x, want %08x", p, n, got, want)
			}
		}
		packet := randomBytes(1, PayloadLenMax-ICRCLen)
		if got, want := ICRC(&p, packet), modelICRC(&p, packet); got != want {
			t.Errorf("%s, longest packet: %08x, want %08x", p, got, want)
		}
	}
}

// One flow serves all identifications, those in its table and others, and any packet of its length.
func TestFlow_AnyIdentification_AgreesWithDefinition(t *testing.T) {
	for _, p := range []Path{testPath4(), testPath6()} {
		for _, n := range []int{ib.BTHLen, 24, 1036, 4108} {
			flow := NewFlow(&p, n)
			for _, id := range []uint16{0, 1, 61, 127, 128, 255, 0x4000, 0xffff} {
				q, packet := p, randomBytes(uint64(id), n)
				q.IPID = id
				want := modelICRC(&q, packet)
				if got := flow.ICRC(id, packet); got != want {
					t.Errorf("%s, %d bytes: %08x, want %08x", q, n, got, want)
				}
				payload := binary.LittleEndian.AppendUint32(packet, want)
				if v := flow.Check(id, payload); v != Good {
					t.Errorf("%s, %d bytes: %v", q, n, v)
				}
				payload[n-1] ^= 0x10
				if v := flow.Check(id, payload); v != Bad {
					t.Errorf("%s, %d bytes, damaged: %v", q, n, v)
				}
			}
			if !flow.Fits(n) || flow.Fits(n+4) {
				t.Errorf("a flow of %d bytes takes others", n)
			}
		}
	}
}

func TestICRC_MaskedFields_DoNotMatter_T09(t *testing.T) {
	for _, p := range []Path{testPath4(), testPath6()} {
		packet := randomBytes(7, 60)
		want := ICRC(&p, packet)
		for name, change := range map[string]func(p *Path, packet []byte){
			"traffic class": func(p *Path, _ []byte) { p.TrafficClass ^= 0xff },
			"hop limit":     func(p *Path, _ []byte) { p.HopLimit ^= 0xff },
			"flow label":    func(p *Path, _ []byte) { p.FlowLabel ^= 0xfffff },
			"resv8a":        func(_ *Path, packet []byte) { packet[4] ^= 0xff },
		} {
			q, other := p, bytes.Clone(packet)
			change(&q, other)
			if got := ICRC(&q, other); got != want {
				t.Errorf("%s: ICRC depends on the %s", p, name)
			}
		}
	}
}

func TestICRC_CoveredFields_Matter(t *testing.T) {
	for _, p := range []Path{testPath4(), testPath6()} {
		packet := randomBytes(7, 60)
		want := ICRC(&p, packet)
		changes := map[string]func(p *Path){
			"source":      func(p *Path) { p.Src = p.Src.Prev() },
			"destination": func(p *Path) { p.Dst = p.Dst.Next() },
			"source port": func(p *Path) { p.SrcPort++ },
		}
		if p.Is4() {
			changes["identification"] = func(p *Path) { p.IPID++ }
			changes["DF"] = func(p *Path) { p.DF = !p.DF }
		}
		for name, change := range changes {
			q := p
			change(&q)
			if got := ICRC(&q, packet); got == want {
				t.Errorf("%s: ICRC does not depend on the %s", p, name)
			}
		}
		for i := range packet {
			other := bytes.Clone(packet)
			other[i] ^= 1
			if got := ICRC(&p, other); (got == want) != (i == 4) {
				t.Errorf("%s: byte %d of the packet: covered is %t", p, i, got != want)
			}
		}
	}
}

func TestCheckICRC_EveryHiddenID_IsAccepted(t *testing.T) {
	known := testPath4()
	known.IPID = 0
	// A stride of 1 walks all IDs with DF set and clear; longer packets take a coprime one.
	for _, c := range []struct{ n, stride int }{
		{12, 1}, {16, 1}, {13, 7}, {1040, 101}, {4096 + 28, 101}, {crcRewindMax, 101}, {9001, 1009},
	} {
		packet := randomBytes(uint64(c.n), c.n)
		for id := 0; id < 1<<17; id += c.stride {
			p := known
			p.IPID, p.DF = uint16(id), id>>16 == 0
			payload := AppendICRC(&p, packet)
			want := GoodUpToIPID
			if id == 0 {
				want = Good
			}
			if got := CheckICRC(&known, payload); got != want {
				t.Fatalf("%d bytes, ID %#x, DF %t: %v, want %v", c.n, p.IPID, p.DF, got, want)
			}
		}
	}
}

func TestCheckICRC_WrongICRC_IsAcceptedAtTheRateOfItsBits(t *testing.T) {
	p := testPath4()
	packet := randomBytes(3, 1040)
	payload := AppendICRC(&p, packet)
	r := rand.New(rand.NewPCG(1, 2))
	const tries = 1 << 21
	accepted := 0
	for range tries {
		binary.LittleEndian.PutUint32(payload[len(packet):], r.Uint32())
		if CheckICRC(&p, payload) != Bad {
			accepted++
		}
	}
	// 2^17 of 2^32 values are in the set: 64 of 2^21 tries, give or take five times 8.
	if accepted < 24 || accepted > 104 {
		t.Errorf("%d of %d random ICRCs were accepted, want about 64", accepted, tries)
	}
}

func TestCheckICRC_OverIPv6_KnowsNoHiddenField(t *testing.T) {
	p := testPath6()
	packet := randomBytes(3, 64)
	payload := AppendICRC(&p, packet)
	if v := CheckICRC(&p, payload); v != Good {
		t.Errorf("right ICRC is %v", v)
	}
	for bit := range 32 {
		payload[64+bit/8] ^= 1 << (bit % 8)
		if v := CheckICRC(&p, payload); v != Bad {
			t.Errorf("ICRC with bit %d wrong is %v", bit, v)
		}
		payload[64+bit/8] ^= 1 << (bit % 8)
	}
}

func TestCheckICRC_ShortPayload_IsBad(t *testing.T) {
	p := testPath4()
	for n := range PayloadLenMin {
		if v := CheckICRC(&p, make([]byte, n)); v != Bad {
			t.Errorf("%d bytes are %v", n, v)
		}
	}
}

func TestICRC_DoesNotAllocate(t *testing.T) {
	for _, p := range []Path{testPath4(), testPath6()} {
		packet := randomBytes(1, 1040)
		buf := make([]byte, 0, 2048)
		hidden := p
		hidden.IPID = 0
		n := testing.AllocsPerRun(100, func() {
			buf = append(buf[:0], packet...)
			buf = AppendICRC(&p, buf)
			if CheckICRC(&hidden, buf) == Bad {
				t.Fatal("bad")
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", p, n)
		}
	}
}

func FuzzCheckICRC_Garbage(f *testing.F) {
	f.Add([]byte{}, uint16(0), true)
	f.Add(make([]byte, 64), uint16(1), false)
	f.Fuzz(func(t *testing.T, b []byte, id uint16, over4 bool) {
		p := testPath6()
		if over4 {
			p = testPath4()
			p.IPID = id
		}
		n := len(b) - ICRCLen
		v := CheckICRC(&p, b)
		if n < ib.BTHLen {
			if v != Bad {
				t.Fatalf("%d bytes are %v", len(b), v)
			}
			return
		}
		right := modelICRC(&p, b[:n]) == binary.LittleEndian.Uint32(b[n:])
		if right != (v == Good) {
			t.Fatalf("%x is %v, want good %t", b, v, right)
		}
		sealed := AppendICRC(&p, bytes.Clone(b))
		if v := CheckICRC(&p, sealed); v != Good {
			t.Fatalf("%x sealed is %v", b, v)
		}
		p.IPID ^= 0x5aa5
		want := Good
		if over4 {
			want = GoodUpToIPID
		}
		if v := CheckICRC(&p, sealed); v != want {
			t.Fatalf("%x sealed with another ID is %v, want %v", b, v, want)
		}
	})
}

func BenchmarkICRC(b *testing.B) {
	for _, n := range []int{16, 80, 1040, 4096} {
		for name, p := range map[string]Path{"v4": testPath4(), "v6": testPath6()} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				packet := randomBytes(1, n)
				b.SetBytes(int64(n))
				b.ReportAllocs()
				for b.Loop() {
					ICRC(&p, packet)
				}
			})
		}
	}
}

func BenchmarkCheckICRC_HiddenID(b *testing.B) {
	for _, n := range []int{16, 4096} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := testPath4()
			payload := AppendICRC(&p, randomBytes(1, n))
			p.IPID = 0
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				if CheckICRC(&p, payload) != GoodUpToIPID {
					b.Fatal("bad")
				}
			}
		})
	}
}
