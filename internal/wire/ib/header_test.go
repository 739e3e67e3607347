package ib

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/test/headertest"
)

// headerCase is a header with its bytes as the standard draws them.
type headerCase headertest.Case

func parser[T any, P headertest.Pointer[T]](
	parse func([]byte) (T, error),
) func([]byte) (headertest.Header, error) {
	return headertest.Parser[T, P](parse)
}

func headerCases() []headerCase {
	gid := func(last byte) rdma.GID { return rdma.GID{0: 0xfe, 1: 0x80, 15: last} }
	return []headerCase{
		{
			&BTH{
				Opcode: RCSendOnly, Solicited: true, MigReq: true, PadCount: 3, PKey: 0x8123,
				FECN: true, BECN: true, DestQPN: 0xabcdef, AckReq: true, PSN: 0x123456,
			},
			"04f08123" + "c0abcdef" + "80123456",
			"RC_SEND_ONLY qpn=0xabcdef psn=1193046 pkey=0x8123 ack_req solicited mig_req fecn becn " +
				"pad=3",
			BTHLen, parser(ParseBTH),
		},
		{
			&RETH{VA: 0x0123456789abcdef, RKey: 0xdeadbeef, Length: 0x7fffffff},
			"0123456789abcdef" + "deadbeef" + "7fffffff",
			"RETH{va=0x123456789abcdef rkey=0xdeadbeef len=2147483647}", RETHLen, parser(ParseRETH),
		},
		{
			&AtomicETH{VA: 0x0123456789abcdef, RKey: 0xdeadbeef, SwapAdd: 2, Compare: 3},
			"0123456789abcdef" + "deadbeef" + "0000000000000002" + "0000000000000003",
			"AtomicETH{va=0x123456789abcdef rkey=0xdeadbeef swap_add=0x2 compare=0x3}",
			AtomicETHLen, parser(ParseAtomicETH),
		},
		{
			new(AtomicAckETH(0x0123456789abcdef)), "0123456789abcdef",
			"AtomicAckETH{orig=0x123456789abcdef}", AtomicAckETHLen, parser(ParseAtomicAckETH),
		},
		{
			&AETH{Syndrome: 0x62, MSN: 0xabcdef}, "62abcdef",
			"AETH{NAK remote access error msn=11259375}", AETHLen, parser(ParseAETH),
		},
		{
			new(ImmDtFromNumber(0x01020304)), "01020304", "ImmDt{0x01020304}", ImmDtLen,
			parser(ParseImmDt),
		},
		{new(IETH(0x01020304)), "01020304", "IETH{rkey=0x01020304}", IETHLen, parser(ParseIETH)},
		{
			&DETH{QKey: rdma.QKeyGSI, SrcQPN: 1}, "8001000000000001",
			"DETH{qkey=0x80010000 src_qpn=0x000001}", DETHLen, parser(ParseDETH),
		},
		{new(RDETH(0x020304)), "00020304", "RDETH{eec=0x020304}", RDETHLen, parser(ParseRDETH)},
		{new(XRCETH(0x020304)), "00020304", "XRCETH{srqn=0x020304}", XRCETHLen, parser(ParseXRCETH)},
		{
			&FETH{Placement: FlushPersistent, Select: FlushMemoryRegion}, "00000012",
			"FETH{placement=0x2 select=1}", FETHLen, parser(ParseFETH),
		},
		{
			&GRH{
				SGID: gid(1), DGID: gid(2), TrafficClass: 0x12, FlowLabel: 0x34567,
				PayloadLength: 0x89ab, NextHeader: GRHNextHeaderIBA, HopLimit: 0xcd,
			},
			"61234567" + "89ab1bcd" + "fe800000000000000000000000000001" +
				"fe800000000000000000000000000002",
			"GRH{sgid=fe80::1 dgid=fe80::2 tclass=0x12 flow=0x34567 len=35243 next=0x1b hop=205}",
			GRHLen, parser(ParseGRH),
		},
	}
}

func TestHeader_Each_BytesTextAndLengths(t *testing.T) {
	for _, c := range headerCases() {
		headertest.Run(t, headertest.Case(c), ErrTruncated)
	}
}

func TestHeader_ValuesBeyondTheirWidth_DoNotSpill(t *testing.T) {
	bth := BTH{DestQPN: 0xff123456, PSN: 0xff123456, PadCount: 0xff}
	want := "00300000" + "00123456" + "00123456"
	if got := hex.EncodeToString(bth.Append(nil)); got != want {
		t.Errorf("BTH is %s, want %s", got, want)
	}
	aeth := AETH{Syndrome: 0x1f, MSN: 0xff123456}
	if got := hex.EncodeToString(aeth.Append(nil)); got != "1f123456" {
		t.Errorf("AETH is %s", got)
	}
	deth := DETH{QKey: 1, SrcQPN: 0xff123456}
	if got := hex.EncodeToString(deth.Append(nil)); got != "0000000100123456" {
		t.Errorf("DETH is %s", got)
	}
	feth := FETH{Placement: 0xff, Select: 0xff}
	if got := hex.EncodeToString(feth.Append(nil)); got != "0000003f" {
		t.Errorf("FETH is %s", got)
	}
	grh := GRH{FlowLabel: 0xfff12345}
	if got := hex.EncodeToString(grh.Append(nil)[:4]); got != "60012345" {
		t.Errorf("GRH starts with %s", got)
	}
}

func TestBTH_OtherVersion_IsRefusedButShown(t *testing.T) {
	b := []byte{4, 0x07, 0xff, 0xff, 0x21, 0, 0, 9, 0x03, 0, 0, 5}
	if _, err := ParseBTH(b); !errors.Is(err, ErrVersion) {
		t.Errorf("error is %v, want ErrVersion", err)
	}
	want := "RC_SEND_ONLY qpn=0x000009 psn=5 pkey=0xffff tver=7 resv8a=33 resv7=3"
	if got := BTHView(b).String(); got != want {
		t.Errorf("view prints %q, want %q", got, want)
	}
	if got := BTHView(b[:5]).String(); got != "truncated BTH" {
		t.Errorf("short view prints %q", got)
	}
}

func TestGRH_OtherVersion_IsRefusedButShown(t *testing.T) {
	b := make([]byte, GRHLen)
	b[0] = 0x45
	if _, err := ParseGRH(b); !errors.Is(err, ErrIPVersion) {
		t.Errorf("error is %v, want ErrIPVersion", err)
	}
	if got := GRHView(b).String(); got != "GRH{version=4}" {
		t.Errorf("view prints %q", got)
	}
	if got := GRHView(b[:39]).String(); got != "truncated GRH" {
		t.Errorf("short view prints %q", got)
	}
}

func TestImmDt_MemoryIsTheWireBytes(t *testing.T) {
	wire := []byte{0xde, 0xad, 0xbe, 0xef}
	h, err := ParseImmDt(wire)
	if err != nil {
		t.Fatal(err)
	}
	if h.Number() != 0xdeadbeef || ImmDtFromNumber(0xdeadbeef) != h {
		t.Errorf("number is %#x", h.Number())
	}
	if got := h.Append(nil); !bytes.Equal(got, wire) {
		t.Errorf("appended %x", got)
	}
}

func TestPadCount_FillsToFour(t *testing.T) {
	for n := range 4100 {
		if p := int(PadCount(n)); p > 3 || (n+p)%4 != 0 {
			t.Fatalf("PadCount(%d) is %d", n, p)
		}
	}
	for c := range uint8(4) {
		if got := AppendPad([]byte{1}, c); len(got) != 1+int(c) || got[0] != 1 {
			t.Errorf("AppendPad(%d) gives %x", c, got)
		}
	}
}
