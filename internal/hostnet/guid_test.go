package hostnet

import (
	"net/netip"
	"testing"
)

func TestEUI64_KnownMAC_IsModifiedEUI64(t *testing.T) {
	got := EUI64(MAC{0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde})
	want := GUID{0x36, 0x56, 0x78, 0xff, 0xfe, 0x9a, 0xbc, 0xde}
	if got != want {
		t.Fatalf("EUI64 = %x, want %x", got, want)
	}
}

func TestNodeGUID_Cases_NeverZeroAndStable(t *testing.T) {
	mac := MAC{0x02, 0xfc, 0, 0, 0, 1}
	with := Snapshot{
		Interfaces: []Interface{
			{Index: 1, Name: "lo"},
			{Index: 2, MAC: MAC{2, 2, 2, 2, 2, 2}},
			{Index: 3, MAC: mac},
		},
		Addresses: []Address{{Prefix: netip.MustParsePrefix("192.0.2.2/24"), Interface: 3}},
	}
	if got := NodeGUID(with, nil, 0); got != EUI64(mac) {
		t.Errorf("with an address: %x, want the EUI-64 of its interface", got)
	}
	with.Addresses = nil
	if got := NodeGUID(with, nil, 0); got != EUI64(MAC{2, 2, 2, 2, 2, 2}) {
		t.Errorf("without an address: %x, want the EUI-64 of the first MAC", got)
	}
	without := Snapshot{Interfaces: []Interface{{Index: 1, Name: "lo"}}}
	seen := map[GUID]string{{}: "zero"}
	for name, g := range map[string]GUID{
		"mac instance 0":      NodeGUID(with, []byte("a"), 0),
		"mac instance 1":      NodeGUID(with, []byte("a"), 1),
		"mac instance 2":      NodeGUID(with, []byte("a"), 2),
		"no mac identity a":   NodeGUID(without, []byte("a"), 0),
		"no mac identity b":   NodeGUID(without, []byte("b"), 0),
		"no mac no identity":  NodeGUID(without, nil, 0),
		"no mac a instance 1": NodeGUID(without, []byte("a"), 1),
	} {
		if other, dup := seen[g]; dup {
			t.Errorf("%s has the GUID of %s: %x", name, other, g)
		}
		seen[g] = name
	}
	if NodeGUID(without, []byte("a"), 1) != NodeGUID(without, []byte("a"), 1) {
		t.Error("not stable")
	}
}

func TestSortAddresses_Mixed_RoutableFirstLoopbackLast(t *testing.T) {
	list := []Address{
		{Prefix: netip.MustParsePrefix("127.0.0.1/8"), Interface: 1},
		{Prefix: netip.MustParsePrefix("::1/128"), Interface: 1},
		{Prefix: netip.MustParsePrefix("fe80::1/64"), Interface: 2},
		{Prefix: netip.MustParsePrefix("2001:db8::9/64"), Interface: 2, Deprecated: true},
		{Prefix: netip.MustParsePrefix("2001:db8::8/64"), Interface: 2, Temporary: true},
		{Prefix: netip.MustParsePrefix("2001:db8::1/64"), Interface: 2},
		{Prefix: netip.MustParsePrefix("192.0.2.1/24"), Interface: 2},
		{Prefix: netip.MustParsePrefix("198.51.100.1/24"), Interface: 3},
	}
	for i := range list {
		list[i].Scope = scopeOf(list[i].Addr())
	}
	sortAddresses(list)
	want := []string{
		"192.0.2.1", "2001:db8::1", "2001:db8::8", "198.51.100.1", "2001:db8::9",
		"fe80::1", "127.0.0.1", "::1",
	}
	for i, a := range list {
		if a.Addr().String() != want[i] {
			t.Errorf("place %d: %v, want %s", i, a.Addr(), want[i])
		}
	}
}
