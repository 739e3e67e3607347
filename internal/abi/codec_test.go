package abi

import (
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

// TestSizes_HaveNoPadding: sizes that the C side asserts too.
func TestSizes_HaveNoPadding(t *testing.T) {
	sizes := map[string][2]uintptr{
		"SendWQE": {unsafe.Sizeof(SendWQE{}), SendWQEBytes},
		"RecvWQE": {unsafe.Sizeof(RecvWQE{}), RecvWQEBytes},
		"SGE":     {unsafe.Sizeof(SGE{}), SGEBytes},
		"CQE":     {unsafe.Sizeof(CQE{}), CQEBytes},
		"Header":  {unsafe.Sizeof(Header{}), 16},
	}
	for name, s := range sizes {
		if s[0] != s[1] {
			t.Errorf("%s is %d bytes, want %d", name, s[0], s[1])
		}
	}
}

// TestCodec_EqualsMemoryLayout: the codec and the C struct must mean the same bytes, so encode by
// codec and read by struct.
func TestCodec_EqualsMemoryLayout(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := SendWQE{
			WRID: rapid.Uint64().Draw(rt, "wrid"), Opcode: rapid.Byte().Draw(rt, "op"),
			Flags: rapid.Byte().Draw(rt, "flags"), NumSGE: rapid.Uint16().Draw(rt, "sge"),
			ImmOrRKey: rapid.Uint32().Draw(rt, "imm"), RemoteAddr: rapid.Uint64().Draw(rt, "addr"),
			RKey: rapid.Uint32().Draw(rt, "rkey"), InlineLen: rapid.Uint32().Draw(rt, "inline"),
			CompareAdd: rapid.Uint64().Draw(rt, "add"), Swap: rapid.Uint64().Draw(rt, "swap"),
			AH: rapid.Uint32().Draw(rt, "ah"), RemoteQPN: rapid.Uint32().Draw(rt, "qpn"),
			RemoteQKey: rapid.Uint32().Draw(rt, "qkey"), Extra: rapid.Uint32().Draw(rt, "extra"),
		}
		var mem struct {
			_ [0]uint64
			b [SendWQEBytes]byte
		}
		EncodeSendWQE(mem.b[:], &w)
		if got := *(*SendWQE)(unsafe.Pointer(&mem.b)); got != w {
			rt.Fatalf("layout: %+v, want %+v", got, w)
		}
		var back SendWQE
		DecodeSendWQE(mem.b[:], &back)
		if back != w {
			rt.Fatalf("round trip: %+v, want %+v", back, w)
		}
	})
}

func TestCodec_CQE_EqualsMemoryLayout(t *testing.T) {
	c := CQE{
		WRID: 0x0102030405060708, Status: 9, Opcode: 10, VendorErr: 11, ByteLen: 12, ImmOrRKey: 13,
		QPNum: 14, SrcQP: 15, WCFlags: 16, PKeyIndex: 17, SLID: 18, SL: 19, DLIDPathBits: 20,
		Reserved: 21, Timestamp: 22, SQIndex: 23, Reserved2: 24,
	}
	var mem struct {
		_ [0]uint64
		b [CQEBytes]byte
	}
	EncodeCQE(mem.b[:], &c)
	if got := *(*CQE)(unsafe.Pointer(&mem.b)); got != c {
		t.Fatalf("layout: %+v", got)
	}
	var back CQE
	DecodeCQE(mem.b[:], &back)
	if back != c {
		t.Fatalf("round trip: %+v", back)
	}
	r, s := RecvWQE{1, 2, 3}, SGE{4, 5, 6}
	var rb [RecvWQEBytes]byte
	var sb [2 * SGEBytes]byte
	EncodeRecvWQE(rb[:], &r)
	EncodeSGE(sb[:], 1, &s)
	var r2 RecvWQE
	var s2 SGE
	DecodeRecvWQE(rb[:], &r2)
	DecodeSGE(sb[:], 1, &s2)
	if r2 != r || s2 != s {
		t.Errorf("receive %+v, sge %+v", r2, s2)
	}
}
