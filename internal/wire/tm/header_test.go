package tm

import (
	"bytes"
	"errors"
	"testing"
)

// A rendezvous request as struct ibv_tmh and struct ibv_rvh lay it out.
var rendezvousBytes = []byte{
	1, 0, 0, 0, 0x11, 0x22, 0x33, 0x44, 1, 2, 3, 4, 5, 6, 7, 8,
	0, 0, 0x7f, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xca, 0xfe, 0xba, 0xbe, 0, 1, 0, 0,
}

func TestHeader_Rendezvous_EveryFieldAtItsPlace(t *testing.T) {
	h, err := ParseHeader(rendezvousBytes)
	want := Header{Opcode: OpRendezvous, Context: 0x11223344, Tag: 0x0102030405060708}
	if err != nil || h != want || !h.HasTag() {
		t.Fatalf("%v, %v", h, err)
	}
	r, err := ParseRendezvous(rendezvousBytes[HeaderLen:])
	if err != nil || r != (Rendezvous{VA: 0x7faabbccddee, RKey: 0xcafebabe, Length: 65536}) {
		t.Fatalf("%v, %v", r, err)
	}
	if got := r.Append(h.Append(nil)); !bytes.Equal(got, rendezvousBytes) {
		t.Errorf("%x", got)
	}
	if h.String() != "TMH{op=1 context=0x11223344 tag=0x0102030405060708}" ||
		r.String() != "RVH{va=0x7faabbccddee rkey=0xcafebabe length=65536}" {
		t.Errorf("%v %v", h, r)
	}
}

func TestHeader_EveryOpcode_TwoHaveATag(t *testing.T) {
	for op := range 256 {
		h := Header{Opcode: Opcode(op)}
		if h.HasTag() != (op == int(OpEager) || op == int(OpRendezvous)) {
			t.Errorf("opcode %d", op)
		}
	}
}

func TestHeader_Truncated_IsRefused(t *testing.T) {
	for n := range HeaderLen {
		if _, err := ParseHeader(rendezvousBytes[:n]); !errors.Is(err, ErrTruncated) {
			t.Errorf("%d bytes: %v", n, err)
		}
		if _, err := ParseRendezvous(rendezvousBytes[:n]); !errors.Is(err, ErrTruncated) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}
