package iwarp

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// refused are the headers that a Terminate may copy.
func refused(o Opcode) (ddp, rdmap []byte) {
	h := Header{Opcode: o, Last: true, STag: 0x11223344, MSN: 7}
	ddp = h.Append(nil)
	switch o {
	case OpcodeReadRequest:
		rdmap = (&ReadRequest{SinkSTag: 1, SourceSTag: 2, Length: 3}).Append(nil)
	case OpcodeAtomicRequest:
		rdmap = (&AtomicRequest{STag: 1, TO: 2}).Append(nil)
	}
	return ddp, rdmap
}

func TestTerminate_Each_BytesAndText(t *testing.T) {
	write, _ := refused(OpcodeWrite)
	read, request := refused(OpcodeReadRequest)
	cases := []struct {
		message    Terminate
		wire, text string
	}{
		{
			Terminate{Code: CodeMPACRC}, "20020000", "Terminate{MPA wrong CRC (0x2002)}",
		},
		{
			Terminate{Code: CodeTaggedSTag, HasLength: true, SegmentLen: 78, DDP: write},
			"1100c000" + "004e" + hex.EncodeToString(write),
			"Terminate{DDP tagged buffer error: invalid STag (0x1100) len=78 of WRITE}",
		},
		{
			Terminate{
				Code: CodeProtectionAccess, HasLength: true, SegmentLen: 46, DDP: read,
				RDMAP: request,
			},
			"0102e000" + "002e" + hex.EncodeToString(read) + hex.EncodeToString(request),
			"Terminate{RDMAP remote protection error: access rights violation (0x0102) len=46" +
				" of READ_REQUEST}",
		},
		{
			Terminate{
				Code: CodeUntaggedNoBuffer, HasLength: true, SegmentLen: 9, DDP: read,
				IsMirrored: true,
			},
			"21020300" + "0009" + hex.EncodeToString(read),
			"Terminate{DDP untagged buffer error: invalid MSN: no buffer available (0x1202) len=9" +
				" of READ_REQUEST}",
		},
	}
	for _, c := range cases {
		b := c.message.Append(nil)
		if got := hex.EncodeToString(b); got != c.wire {
			t.Errorf("%v is %s, want %s", c.message, got, c.wire)
		}
		if got := c.message.String(); got != c.text {
			t.Errorf("prints %q, want %q", got, c.text)
		}
		var m Terminate
		if err := m.Parse(b); err != nil || m.String() != c.text {
			t.Errorf("parsed %v, %v; want %s", m, err, c.text)
		}
		for n := range b {
			err := m.Parse(b[:n])
			if !errors.Is(err, ErrTruncated) || n >= TerminateLen && m.Code != c.message.Code {
				t.Errorf("%d of %d bytes: %v, %v", n, len(b), m, err)
			}
		}
	}
}

func TestTerminate_AnyOpcodeAndCode_RoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Opcode(rapid.IntRange(0, opcodeCount-1).Draw(t, "opcode"))
		want := Terminate{
			Code:       rapid.SampledFrom(codes[:]).Draw(t, "code").code,
			IsMirrored: rapid.Bool().Draw(t, "mirrored"),
		}
		want.DDP, want.RDMAP = refused(o)
		want.HasLength = true
		want.SegmentLen = rapid.Uint16().Draw(t, "length")
		b := want.Append(nil)
		if len(b) > TerminateMax {
			t.Fatalf("%d bytes", len(b))
		}
		var got Terminate
		if err := got.Parse(append(b, "trailing"...)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Append(nil), b) || got.Code != want.Code ||
			got.IsMirrored != want.IsMirrored || !bytes.Equal(got.RDMAP, want.RDMAP) {
			t.Fatalf("%+v, want %+v", got, want)
		}
	})
}

func TestTerminate_WithoutHeaders_IsUnderstoodWhicheverWayRound(t *testing.T) {
	cases := map[string]Code{
		"20020000": CodeMPACRC, // as the standard has it
		"02020000": CodeMPACRC, // as siw has it: no code of the standard
		"02030000": CodeMPAMarker,
		"02060000": CodeOpcode, // both are codes: the standard's counts
		"21050000": CodeUntaggedTooLong,
		"00000000": CodeRDMAPLocal,
		"99990000": 0x9999, // neither
	}
	for wire, want := range cases {
		b, err := hex.DecodeString(wire)
		if err != nil {
			t.Fatal(err)
		}
		var m Terminate
		if err := m.Parse(b); err != nil || m.Code != want || len(m.DDP) != 0 {
			t.Errorf("%s: %v, %v", wire, m, err)
		}
	}
}

func TestCode_Each_HasNameAndTypeOfItsOwn(t *testing.T) {
	seen := map[string]Code{}
	last, n := -1, 0
	Codes(func(c Code) {
		n++
		if int(c) <= last {
			t.Errorf("%v after 0x%04x", c, last)
		}
		last = int(c)
		if !c.IsKnown() || c.Name() == "" || c.TypeName() == "" {
			t.Errorf("0x%04x: %q, %q", uint16(c), c.Name(), c.TypeName())
		}
		if got := CodeOfParts(c.Layer(), c.EType(), c.Number()); got != c {
			t.Errorf("%v from its parts is %v", c, got)
		}
		if other, again := seen[c.String()]; again {
			t.Errorf("%v and %v print alike", c, other)
		}
		seen[c.String()] = c
	})
	if n != 33 {
		t.Errorf("%d codes", n)
	}
	for c, want := range map[Code]string{
		CodeRDMAPLocal: "RDMAP local catastrophic error (0x0000)",
		CodeMPALocal:   "MPA local catastrophic error (0x2005)",
		0x0042:         "RDMAP local catastrophic error (0x0042)",
		CodeTaggedWrap: "DDP tagged buffer error: TO wrap (0x1103)",
		0x1107:         "DDP error 0x1107",
		0x3001:         "layer 3 error 0x3001",
	} {
		if got := c.String(); got != want {
			t.Errorf("prints %q, want %q", got, want)
		}
	}
	if c := Code(0x3001); c.IsKnown() || c.Name() != "" || c.TypeName() != "" {
		t.Errorf("%v: %q, %q", c, c.Name(), c.TypeName())
	}
}
