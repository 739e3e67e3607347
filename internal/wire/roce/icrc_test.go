package roce

import (
	"encoding/binary"
	"encoding/hex"
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
