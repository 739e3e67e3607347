package ib

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/softrnic/softrnic/internal/rdma"
)

// fullHeaders is a Headers with every field set that the opcode puts on the wire, and no other.
func fullHeaders(o Opcode, payload int) Headers {
	h := Headers{BTH: BTH{
		Opcode: o, PKey: rdma.PKeyDefault, MigReq: true, AckReq: true, DestQPN: 0x123456,
		PSN: 0xfffffe, PadCount: PadCount(payload),
	}}
	set := o.Info().Headers
	if set.Has(HasDETH) {
		h.DETH = DETH{QKey: 0x11111111, SrcQPN: 0xabcdef}
	}
	if set.Has(HasRETH) {
		h.RETH = RETH{VA: 0x1122334455667788, RKey: 0x99aabbcc, Length: 77}
	}
	if set.Has(HasAtomicETH) {
		h.Atomic = AtomicETH{VA: 1 << 60, RKey: 5, SwapAdd: 6, Compare: 7}
	}
	if set.Has(HasAETH) {
		h.AETH = AETH{Syndrome: NAK(NAKRemoteAccess), MSN: 0x777777}
	}
	if set.Has(HasAtomicAckETH) {
		h.AtomicAck = 0xfedcba9876543210
	}
	if set.Has(HasImmDt) {
		h.Imm = ImmDtFromNumber(0xcafef00d)
	}
	if set.Has(HasIETH) {
		h.Inv = 0x12345678
	}
	if set.Has(HasXRCETH) {
		h.XRC = 0x00c0de
	}
	if set.Has(HasRDETH) {
		h.RD = 0x00beef
	}
	if set.Has(HasFETH) {
		h.Flush = FETH{Placement: FlushGlobal, Select: FlushMemoryRegion}
	}
	return h
}

func TestHeaders_EveryOpcode_RoundTrips(t *testing.T) {
	for i := range 256 {
		o := Opcode(i)
		if !o.IsKnown() {
			var h Headers
			b := make([]byte, 64)
			b[0] = byte(i)
			if _, err := h.Parse(b); !errors.Is(err, ErrOpcode) {
				t.Errorf("%s: error is %v, want ErrOpcode", o, err)
			}
			continue
		}
		for n := range 9 {
			payload := bytes.Repeat([]byte{0xa5}, n)
			h := fullHeaders(o, n)
			b := append(h.Append(nil), payload...)
			if len(b) != h.Len()+n || h.Len() != o.HeaderLen() || h.Len() > HeadersLenMax {
				t.Fatalf("%s: %d header bytes, Len is %d", o, len(b)-n, h.Len())
			}
			b = AppendPad(b, h.BTH.PadCount)
			got := fullHeaders(RCFetchAdd, 0) // stale fields must not survive
			rest, err := got.Parse(b)
			if err != nil || got != h || !bytes.Equal(rest, payload) {
				t.Fatalf("%s: got %s %x (%v), want %s", o, &got, rest, err, &h)
			}
			if cap(rest) != len(rest) {
				t.Fatalf("%s: appending to the payload would write on the pad", o)
			}
		}
	}
}

func TestHeaders_Lies_AreRefused(t *testing.T) {
	bth := func(o Opcode, pad byte, more int) []byte {
		return append([]byte{byte(o), pad << 4}, make([]byte, 10+more)...)
	}
	version := bth(RCSendOnly, 0, 0)
	version[1] |= 1
	tests := []struct {
		name string
		b    []byte
		want error
	}{
		{"nothing", nil, ErrTruncated},
		{"short BTH", make([]byte, BTHLen-1), ErrTruncated},
		{"version", version, ErrVersion},
		{"manufacturer opcode", bth(0xc0, 0, 0), ErrOpcode},
		{"short RETH", bth(RCWriteOnly, 0, RETHLen-4), ErrTruncated},
		{"short AtomicAckETH", bth(RCAtomicAcknowledge, 0, AETHLen), ErrTruncated},
		{"pad without payload", bth(RCAcknowledge, 1, AETHLen), ErrPad},
		{"unaligned", bth(RCSendOnly, 0, 3), ErrUnaligned},
	}
	for _, tt := range tests {
		var h Headers
		payload, err := h.Parse(tt.b)
		if !errors.Is(err, tt.want) || payload != nil {
			t.Errorf("%s: %x, error %v, want %v", tt.name, payload, err, tt.want)
		}
	}
}

func TestPacket_String_ShowsAnyPacket(t *testing.T) {
	ack := fullHeaders(RCAtomicAcknowledge, 0)
	send := fullHeaders(UDSendOnlyImm, 5)
	sendBytes := AppendPad(append(send.Append(nil), 1, 2, 3, 4, 5), send.BTH.PadCount)
	tests := []struct {
		b    []byte
		want string
	}{
		{nil, "truncated BTH (0 bytes)"},
		{[]byte{1, 2}, "truncated BTH (2 bytes)"},
		{
			ack.Append(nil), "RC_ATOMIC_ACKNOWLEDGE qpn=0x123456 psn=16777214 pkey=0xffff ack_req " +
				"mig_req AETH{NAK remote access error msn=7829367} " +
				"AtomicAckETH{orig=0xfedcba9876543210} payload=0",
		},
		{
			sendBytes, "UD_SEND_ONLY_WITH_IMM qpn=0x123456 psn=16777214 pkey=0xffff ack_req mig_req " +
				"pad=3 DETH{qkey=0x11111111 src_qpn=0xabcdef} ImmDt{0xcafef00d} payload=5",
		},
		{
			sendBytes[:len(sendBytes)-1], "UD_SEND_ONLY_WITH_IMM qpn=0x123456 psn=16777214 " +
				"pkey=0xffff ack_req mig_req pad=3 DETH{qkey=0x11111111 src_qpn=0xabcdef} " +
				"ImmDt{0xcafef00d} bytes=31 (ib: packet length is not a multiple of four)",
		},
		{
			append([]byte{0xff}, make([]byte, 11)...), "OPCODE_0xff qpn=0x000000 psn=0 pkey=0x0 " +
				"bytes=12 (ib: unknown opcode)",
		},
		{
			append([]byte{0x0a}, make([]byte, 15)...), "RC_WRITE_ONLY qpn=0x000000 psn=0 pkey=0x0 " +
				"bytes=16 (ib: packet is shorter than its headers)",
		},
	}
	for _, tt := range tests {
		if got := Packet(tt.b).String(); got != tt.want {
			t.Errorf("%x prints\n%q, want\n%q", tt.b, got, tt.want)
		}
	}
	if got := Packet(sendBytes).Payload(); !bytes.Equal(got, []byte{1, 2, 3, 4, 5}) {
		t.Errorf("payload is %x", got)
	}
}

func TestHeaders_ParseAndAppend_DoNotAllocate(t *testing.T) {
	buf := make([]byte, 0, 256)
	for i := range 256 {
		if !Opcode(i).IsKnown() {
			continue
		}
		h := fullHeaders(Opcode(i), 0)
		var got Headers
		n := testing.AllocsPerRun(10, func() {
			b := h.Append(buf[:0])
			if _, err := got.Parse(b); err != nil {
				t.Fatal(err)
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", Opcode(i), n)
		}
	}
}

func FuzzHeaders_ParseAppendParse(f *testing.F) {
	for i := range 256 {
		h := fullHeaders(Opcode(i), 5)
		f.Add(AppendPad(append(h.Append(nil), 1, 2, 3, 4, 5), h.BTH.PadCount))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if s := Packet(b).String(); s == "" || strings.Contains(s, "\n") {
			t.Errorf("%x prints %q", b, s)
		}
		if p := Packet(b).Payload(); len(p) > len(b) {
			t.Errorf("%x: payload of %d bytes", b, len(p))
		}
		var h, again Headers
		payload, err := h.Parse(b)
		if err != nil {
			return
		}
		if h.Len()+len(payload)+int(h.BTH.PadCount) != len(b) {
			t.Fatalf("%x: %d header, %d payload, %d pad", b, h.Len(), len(payload), h.BTH.PadCount)
		}
		c := AppendPad(append(h.Append(nil), payload...), h.BTH.PadCount)
		payload2, err := again.Parse(c)
		if err != nil || again != h || !bytes.Equal(payload, payload2) {
			t.Fatalf("%x: parsed %s, again %s (%v)", b, &h, &again, err)
		}
	})
}

func BenchmarkHeaders_Parse(b *testing.B) {
	for _, o := range []Opcode{RCSendMiddle, RCWriteFirst, RCAcknowledge, UDSendOnly} {
		b.Run(o.String(), func(b *testing.B) {
			h := fullHeaders(o, 0)
			packet := h.Append(nil)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := h.Parse(packet); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkHeaders_Append(b *testing.B) {
	for _, o := range []Opcode{RCSendMiddle, RCWriteFirst, RCAcknowledge, UDSendOnly} {
		b.Run(o.String(), func(b *testing.B) {
			h := fullHeaders(o, 0)
			packet := make([]byte, 0, HeadersLenMax)
			b.ReportAllocs()
			for b.Loop() {
				packet = h.Append(packet[:0])
			}
		})
	}
}
