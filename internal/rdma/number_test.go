package rdma

import (
	"net/netip"
	"testing"
)

func TestPSN_SerialArithmetic(t *testing.T) {
	rows := []struct {
		p, q PSN
		sub  int32
	}{
		{0, 0, 0},
		{1, 0, 1},
		{0, 1, -1},
		{0, 0xffffff, 1},
		{0xffffff, 0, -1},
		{0x7fffff, 0, 0x7fffff},
		{0x800000, 0, -0x800000},
		{5, 0xfffffe, 7},
	}
	for _, r := range rows {
		if got := r.p.Sub(r.q); got != r.sub {
			t.Errorf("%v − %v = %d, want %d", r.p, r.q, got, r.sub)
		}
		if got := r.q.Add(uint32(r.sub)); got != r.p {
			t.Errorf("%v + %d = %v, want %v", r.q, r.sub, got, r.p)
		}
		if r.p.Less(r.q) != (r.sub < 0) || r.p.LessEq(r.q) != (r.sub <= 0) {
			t.Errorf("order of %v and %v", r.p, r.q)
		}
	}
	if PSN(0xffffff).Add(1) != 0 || MSN(0xffffff).Add(2) != 1 || MSN(0).Sub(0xffffff) != 1 {
		t.Error("24-bit wrap")
	}
}

func TestPKey_Matches(t *testing.T) {
	rows := []struct {
		a, b PKey
		want bool
	}{
		{0xffff, 0xffff, true},
		{0xffff, 0x7fff, true},
		{0x7fff, 0xffff, true},
		{0x7fff, 0x7fff, false}, // two limited members may not talk
		{0x8001, 0x8002, false},
		{0x8000, 0x8000, false}, // partition 0 is invalid
		{0, 0, false},
	}
	for _, r := range rows {
		if got := r.a.Matches(r.b); got != r.want {
			t.Errorf("%#04x and %#04x: %v", uint16(r.a), uint16(r.b), got)
		}
	}
}

func TestMTU_BytesAndBack(t *testing.T) {
	for n, want := range map[int]MTU{
		0: 0, 255: 0, 256: MTU256, 1023: MTU512, 1024: MTU1024, 1436: MTU1024,
		4096: MTU4096, 65000: MTU4096,
	} {
		if got := MTUFromBytes(n); got != want {
			t.Errorf("MTUFromBytes(%d) = %d, want %d", n, got, want)
		}
	}
	if MTU(0).Bytes() != 0 || MTU(6).Bytes() != 0 || MTU4096.Bytes() != 4096 ||
		MTU256.String() != "256" {
		t.Error("MTU bytes")
	}
}

func TestGID_AddressForms(t *testing.T) {
	v4 := GIDFromAddr(netip.MustParseAddr("10.1.2.3"))
	if v4.String() != "::ffff:10.1.2.3" || v4.Addr() != netip.MustParseAddr("10.1.2.3") {
		t.Errorf("IPv4 GID %v, address %v", v4, v4.Addr())
	}
	if g := GIDFromAddr(netip.MustParseAddr("fe80::1%eth0")); g.String() != "fe80::1" {
		t.Errorf("zone kept: %v", g)
	}
	if !GIDFromAddr(netip.MustParseAddr("239.1.1.1")).IsMulticast() ||
		v4.IsMulticast() || v4.IsZero() {
		t.Error("multicast or zero")
	}
}

func TestNames_CoverEveryValue(t *testing.T) {
	for s := QPStateReset; s <= QPStateError; s++ {
		if s.String() == "unknown" || !s.IsValid() {
			t.Errorf("state %d has no name", s)
		}
	}
	if QPState(7).IsValid() || QPState(7).String() != "unknown" {
		t.Error("state 7 is valid")
	}
	for s := WCSuccess; s <= WCGeneralErr; s++ {
		if s.String() == "" || s.String() == "unknown status" {
			t.Errorf("status %d has no name", s)
		}
	}
	for e := EventCQErr; e <= EventWQFatal; e++ {
		if e.String() == "" || e.String() == "unknown event" {
			t.Errorf("event %d has no name", e)
		}
	}
	if got := (QPAttrState | QPAttrDestQPN | 1<<31).String(); got != "state|dest_qp_num|bit31" {
		t.Errorf("mask reads %q", got)
	}
	if got := (AccessLocalWrite | AccessRemoteAtomic).String(); got != "local_write|remote_atomic" {
		t.Errorf("access reads %q", got)
	}
}

// TestQPAttrMask_EqualsVerbs keeps the bits that verbs.h numbers explicitly.
func TestQPAttrMask_EqualsVerbs(t *testing.T) {
	rows := map[QPAttrMask]uint32{
		QPAttrState: 1 << 0, QPAttrPort: 1 << 5, QPAttrAV: 1 << 7, QPAttrRQPSN: 1 << 12,
		QPAttrSQPSN: 1 << 16, QPAttrCap: 1 << 19, QPAttrDestQPN: 1 << 20, QPAttrRateLimit: 1 << 25,
	}
	for m, want := range rows {
		if uint32(m) != want {
			t.Errorf("%v is %#x, want %#x", m, uint32(m), want)
		}
	}
	if QPAttrAll != 0x21fffff {
		t.Errorf("all bits %#x", uint32(QPAttrAll))
	}
}
