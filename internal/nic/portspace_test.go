package nic

import (
	"syscall"
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
)

// binder makes identifiers and binds them.
type binder struct {
	*station
	ids []uint32
}

func (b *binder) make(space portSpace, options ...uint32) uint32 {
	b.t.Helper()
	id := b.id(space, rdma.QPTypeRC)
	for _, o := range options {
		b.granted(b.s.SetOption(&abi.CMOptionReq{ID: id, Name: o, Len: 4, Value: 1}))
	}
	b.ids = append(b.ids, id)
	return id
}

func (b *binder) bind(id uint32, addr string, port uint16) *rdma.Refusal {
	_, r := b.s.BindAddr(&abi.CMAddrReq{ID: id, Src: cmAddr(addr, port)})
	return r
}

func (b *binder) listenOn(id uint32) *rdma.Refusal {
	_, r := b.s.Listen(&abi.CMListenReq{ID: id})
	return r
}

func (b *binder) clear() {
	for _, id := range b.ids {
		b.granted(b.s.DestroyID(b.f.now, id))
	}
	b.ids = nil
	if n := len(b.n.cm.ports.owners); n != 0 {
		b.t.Fatalf("%d ports left", n)
	}
}

func TestPortSpace_TwoOwners_ConflictAsInTheKernel(t *testing.T) {
	const none, reuse, only = 99, optionReuse, optionAFOnly
	rows := []struct {
		first, second         string
		firstOpt, secondOpt   uint32
		firstSpace, lastSpace portSpace
		want                  syscall.Errno
	}{
		{"10.0.0.1", "10.0.0.1", none, none, spaceTCP, spaceTCP, syscall.EADDRINUSE},
		{"10.0.0.1", "10.0.0.1", none, none, spaceTCP, spaceUDP, 0},
		{"10.0.0.1", "10.0.0.1", none, none, spaceTCP, spaceIB, 0},
		{"10.0.0.1", "10.0.0.1", none, none, spaceUDP, spaceIPoIB, 0},
		{"10.0.0.1", "10.0.0.1", reuse, none, spaceTCP, spaceTCP, syscall.EADDRINUSE},
		{"10.0.0.1", "10.0.0.1", reuse, reuse, spaceTCP, spaceTCP, 0},
		{"10.0.0.1", "127.0.0.1", none, none, spaceTCP, spaceTCP, 0},
		{"10.0.0.1", "fd00::1", none, none, spaceTCP, spaceTCP, 0},
		{"0.0.0.0", "10.0.0.1", none, none, spaceTCP, spaceTCP, syscall.EADDRNOTAVAIL},
		{"10.0.0.1", "0.0.0.0", none, none, spaceTCP, spaceTCP, syscall.EADDRNOTAVAIL},
		{"0.0.0.0", "0.0.0.0", none, none, spaceTCP, spaceTCP, syscall.EADDRNOTAVAIL},
		{"0.0.0.0", "0.0.0.0", reuse, reuse, spaceTCP, spaceTCP, 0},
		{"::", "0.0.0.0", none, none, spaceTCP, spaceTCP, syscall.EADDRNOTAVAIL},
		{"::", "0.0.0.0", only, none, spaceTCP, spaceTCP, 0},
		{"0.0.0.0", "::", none, only, spaceTCP, spaceTCP, 0},
		{"0.0.0.0", "fd00::1", none, only, spaceTCP, spaceTCP, 0},
		{"::", "fd00::1", only, only, spaceTCP, spaceTCP, syscall.EADDRNOTAVAIL},
	}
	b := &binder{station: newFabric(t, 1).hosts[0]}
	with := func(o uint32) []uint32 {
		if o == none {
			return nil
		}
		return []uint32{o}
	}
	for _, row := range rows {
		b.granted(b.bind(b.make(row.firstSpace, with(row.firstOpt)...), row.first, 7471))
		r := b.bind(b.make(row.lastSpace, with(row.secondOpt)...), row.second, 7471)
		if row.want == 0 && r != nil || row.want != 0 && (r == nil || r.Errno != row.want) {
			t.Errorf("%+v: %v", row, r)
		}
		b.clear()
	}
}

func TestPortSpace_Listeners_ShareNothing(t *testing.T) {
	b := &binder{station: newFabric(t, 1).hosts[0]}
	one, two := b.make(spaceTCP, optionReuse), b.make(spaceTCP, optionReuse)
	b.granted(b.bind(one, "10.0.0.1", 7471))
	b.granted(b.bind(two, "10.0.0.1", 7471))
	b.refused(b.listenOn(one), syscall.EADDRINUSE)
	b.granted(b.s.DestroyID(0, two))
	b.ids = b.ids[:1]
	b.granted(b.listenOn(one))
	b.refused(b.listenOn(one), syscall.EINVAL)
	// A listener cannot be made reusable afterwards.
	option := &abi.CMOptionReq{ID: one, Name: optionReuse, Len: 4, Value: 1}
	b.refused(b.s.SetOption(option), syscall.EINVAL)
	b.clear()
}

func TestPortSpace_BadBinds_Refused(t *testing.T) {
	b := &binder{station: newFabric(t, 1).hosts[0]}
	id := b.make(spaceTCP)
	b.refused(b.bind(id, "10.0.0.99", 7471), syscall.EADDRNOTAVAIL)
	b.refused(b.bind(id, "10.0.0.1", 80), syscall.EACCES)
	for _, family := range []uint16{0, 27} {
		_, r := b.s.BindAddr(&abi.CMAddrReq{ID: id, Src: abi.CMAddr{Family: family}})
		b.refused(r, syscall.EAFNOSUPPORT)
	}
	ll := cmAddr("fe80::1", 7471)
	_, r := b.s.BindAddr(&abi.CMAddrReq{ID: id, Src: ll})
	b.refused(r, syscall.EINVAL) // no interface
	ll.Scope = 8
	_, r = b.s.BindAddr(&abi.CMAddrReq{ID: id, Src: ll})
	b.refused(r, syscall.EADDRNOTAVAIL) // another one
	ll.Scope = stationIf
	got, r := b.s.BindAddr(&abi.CMAddrReq{ID: id, Src: ll})
	b.granted(r)
	if got.SGIDIndex != 2 || got.Port != 1 || got.Src != ll {
		t.Fatalf("bound to %+v", got)
	}
	b.refused(b.bind(id, "10.0.0.1", 7471), syscall.EINVAL) // twice
	b.clear()

	s, r := b.n.OpenCM(0, CMConfig{Name: "root"})
	b.granted(r)
	b.s = s
	b.channel, _ = s.CreateEventChannel()
	b.granted(b.bind(b.make(spaceTCP), "10.0.0.1", 80))
	b.clear()
}

func TestPortSpace_AnyPort_DistinctUntilExhausted(t *testing.T) {
	b := &binder{station: newFabric(t, 1).hosts[0]}
	const kept = 20
	for port := portAnyMin + kept; port <= portAnyMax; port++ {
		b.granted(b.bind(b.make(spaceTCP), "10.0.0.1", uint16(port)))
	}
	seen := map[uint16]bool{}
	for range kept {
		id := b.make(spaceTCP)
		b.granted(b.bind(id, "10.0.0.1", 0))
		port := b.query(id).Src.Port
		if seen[port] || port < portAnyMin || port >= portAnyMin+kept {
			t.Fatalf("port %d", port)
		}
		seen[port] = true
	}
	b.granted(b.bind(b.make(spaceUDP), "10.0.0.1", 0)) // a space of its own
	b.refused(b.bind(b.make(spaceTCP), "0.0.0.0", 0), syscall.EADDRNOTAVAIL)
	b.refused(b.bind(b.make(spaceTCP), "10.0.0.1", 0), syscall.EADDRNOTAVAIL)
	b.clear()
	b.granted(b.bind(b.make(spaceTCP), "10.0.0.1", 0))
	b.clear()
}
