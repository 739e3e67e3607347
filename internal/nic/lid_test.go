package nic

import (
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
)

// asInfiniBand presents the bench's port as one of InfiniBand at an address.
func (b *bench) asInfiniBand(addrs ...string) {
	p := Port{MTU: rdma.MTU4096, Active: true, InfiniBand: true}
	for i, text := range addrs {
		p.GIDs = append(p.GIDs, abi.GIDEntry{
			GID: rdma.GIDFromAddr(netip.MustParseAddr(text)), Index: uint32(i), Port: 1,
			Type: uint32(rdma.GIDTypeIB),
		})
	}
	b.n.SetPort(b.now, 0, p)
}

func TestPort_InfiniBand_LIDFollowsTheAddress(t *testing.T) {
	for _, c := range []struct {
		addrs []string
		lid   uint32
	}{
		{[]string{"10.0.1.2"}, 0x0102},
		{[]string{"fe80::5", "10.0.200.7"}, 0x4807}, // the topmost bit is the network's
		{[]string{"fe80::ff:fe00:9"}, 9},
		{[]string{"10.0.128.0"}, 0},
		{nil, 0},
	} {
		b := newBench(t)
		b.asInfiniBand(c.addrs...)
		a, r := b.c.PortAttr(1)
		b.granted(r)
		if a.LinkLayer != 1 || a.LID != c.lid || a.LID > 0xbfff {
			t.Errorf("%v: link layer %d, LID %#x, want %#x", c.addrs, a.LinkLayer, a.LID, c.lid)
		}
	}
}

func TestModify_InfiniBand_LIDAloneNamesThePeer(t *testing.T) {
	b := newBench(t)
	b.asInfiniBand("10.0.200.7")
	resolve := func(lid uint16) (rdma.GID, *rdma.Refusal) {
		addr, r := b.n.devices[0].port.resolve(&abi.AHAttr{DLID: lid, Port: 1, SL: 3}, 7)
		own := b.n.devices[0].port.GIDs[0].GID
		if r == nil && (addr.SGID != own || addr.SL != 3 || addr.HopLimit == 0) {
			t.Errorf("LID %#x: %+v", lid, addr)
		}
		return addr.DGID, r
	}
	for lid, want := range map[uint16]string{0x4807: "10.0.200.7", 1: "10.0.128.1"} {
		got, r := resolve(lid)
		if r != nil || got.Addr().String() != want {
			t.Errorf("LID %#x is %v (%v), want %s", lid, got.Addr(), r, want)
		}
	}
	for _, lid := range []uint16{0, 0x8000, 0xffff} {
		if _, r := resolve(lid); r == nil || r.Errno != syscall.EINVAL {
			t.Errorf("LID %#x: %v", lid, r)
		}
	}
	// A queue pair comes up by it.
	cq := b.cq(16, 0)
	x, y := b.rc(cq), b.rc(cq)
	for q, peer := range map[*appQP]*appQP{x: y, y: x} {
		a := fullAttr(peer.rsp.QPN)
		a.AH = abi.AHAttr{DLID: 0x4807, Port: 1}
		a.State = uint32(sInit)
		b.granted(q.modify(a, toInit))
		a.State = uint32(sRTR)
		b.granted(q.modify(a, toRTR))
	}
}

// G05: programs that choose an index whose GID is of RoCE v1 are told, and nothing else does.
func TestPort_EntryOfRoCEv1_G05_CarriesNothing(t *testing.T) {
	b := newBench(t)
	own := netip.MustParseAddr("10.0.0.1")
	entry := abi.GIDEntry{GID: rdma.GIDFromAddr(own), Port: 1, Type: uint32(rdma.GIDTypeRoCEv1)}
	v2 := entry
	v2.Index, v2.Type = 1, uint32(rdma.GIDTypeRoCEv2)
	b.n.SetPort(b.now, 0, Port{MTU: rdma.MTU1024, Active: true, GIDs: []abi.GIDEntry{entry, v2}})
	to := abi.AHAttr{DGID: gid(9), IsGlobal: 1, Port: 1}
	_, r := b.n.devices[0].port.resolve(&to, 1)
	if r == nil || r.Errno != syscall.EINVAL || !strings.Contains(r.Reason, "RoCE v1") {
		t.Errorf("index 0: %v", r)
	}
	to.SGIDIndex = 1
	if _, r := b.n.devices[0].port.resolve(&to, 1); r != nil {
		t.Errorf("index 1: %v", r)
	}
	for _, text := range []string{"10.0.0.1", "127.0.0.1", "::1"} {
		e, ok := b.n.devices[0].port.gidOf(sockaddr{addr: netip.MustParseAddr(text)})
		if !ok || e.Index != 1 {
			t.Errorf("%s is at index %d, %v", text, e.Index, ok)
		}
	}
	if e, ok := b.n.devices[0].port.entry(rdma.GIDFromAddr(own)); !ok || e.Index != 1 {
		t.Errorf("the entry of the own address is %d, %v", e.Index, ok)
	}
}
