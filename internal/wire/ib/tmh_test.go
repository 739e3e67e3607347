package ib

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

func TestTMH_Rendezvous_EveryFieldAtItsPlace(t *testing.T) {
	h, err := ParseTMH(rendezvousBytes)
	want := TMH{Opcode: TMHRendezvous, Context: 0x11223344, Tag: 0x0102030405060708}
	if err != nil || h != want || !h.HasTag() {
		t.Fatalf("%v, %v", h, err)
	}
	r, err := ParseRVH(rendezvousBytes[TMHLen:])
	if err != nil || r != (RVH{VA: 0x7faabbccddee, RKey: 0xcafebabe, Length: 65536}) {
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

func TestTMH_EveryOpcode_TwoHaveATag(t *testing.T) {
	for op := range 256 {
		h := TMH{Opcode: TMHOpcode(op)}
		if h.HasTag() != (op == int(TMHEager) || op == int(TMHRendezvous)) {
			t.Errorf("opcode %d", op)
		}
	}
}

func TestTMH_Truncated_IsRefused(t *testing.T) {
	for n := range TMHLen {
		if _, err := ParseTMH(rendezvousBytes[:n]); !errors.Is(err, ErrTruncated) {
			t.Errorf("%d bytes: %v", n, err)
		}
		if _, err := ParseRVH(rendezvousBytes[:n]); !errors.Is(err, ErrTruncated) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}
