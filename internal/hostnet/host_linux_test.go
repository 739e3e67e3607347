package hostnet

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/softrnic/softrnic/test/netnstest"
)

func openIn(t *testing.T, n *netnstest.Namespace) *Host {
	t.Helper()
	var host *Host
	n.Do(func() {
		var err error
		if host, err = Open(); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(host.Close)
	return host
}

func TestHost_OwnNamespace_ListsLoopback(t *testing.T) {
	host, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	s, err := host.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Addresses) == 0 || !s.IsLocal(netip.MustParseAddr("127.0.0.1")) {
		t.Fatalf("no addresses: %+v", s)
	}
	for i := 1; i < len(s.Addresses); i++ {
		if s.Addresses[i].Scope < s.Addresses[i-1].Scope {
			t.Errorf("%v after %v", s.Addresses[i], s.Addresses[i-1])
		}
	}
	if len(host.Identity()) == 0 {
		t.Error("no identity")
	}
	route, err := host.Route(netip.MustParseAddr("127.0.0.1"), 0)
	if err != nil || !route.Local || route.MTU == 0 {
		t.Errorf("route to loopback: %+v, %v", route, err)
	}
}

func TestHost_VethPair_AddressesAndRoutes(t *testing.T) {
	a, b := netnstest.Pair(t, 4200)
	host := openIn(t, a)
	s, err := host.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	first := s.Addresses[0]
	if first.Addr() != a.V4 || first.Scope != ScopeGlobal || first.Prefix.Bits() != 24 {
		t.Errorf("first address %+v, want %v/24 global", first, a.V4)
	}
	link, ok := s.InterfaceByIndex(first.Interface)
	if !ok || link.Name != a.Link || link.MTU != 4200 || link.Kind != "veth" || !link.Up ||
		!link.Running || link.MAC.IsZero() || link.Loopback {
		t.Errorf("interface %+v", link)
	}
	if got := s.UsableMTU(a.V4); got != 4200 {
		t.Errorf("UsableMTU = %d", got)
	}
	if got := s.UsableMTU(b.V4); got != 0 {
		t.Errorf("UsableMTU of a foreign address = %d", got)
	}
	checkRoutes(t, host, a, b)
}

func checkRoutes(t *testing.T, host *Host, a, b *netnstest.Namespace) {
	route, err := host.Route(b.V4, 0)
	if err != nil || route.Source != a.V4 || route.Local || route.MTU != 4200 ||
		route.Gateway.IsValid() {
		t.Errorf("route to the peer: %+v, %v", route, err)
	}
	if route, err = host.Route(a.V4, 0); err != nil || !route.Local {
		t.Errorf("route to ourselves: %+v, %v", route, err)
	}
	if b.V6.IsValid() {
		if route, err = host.Route(b.V6, 0); err != nil || route.Source != a.V6 {
			t.Errorf("IPv6 route: %+v, %v", route, err)
		}
	}
	for _, nowhere := range []string{"192.0.2.99", "2001:db8::99"} {
		if _, err = host.Route(netip.MustParseAddr(nowhere), 0); !errors.Is(err, ErrUnreachable) {
			t.Errorf("route to nowhere (%s): %v, want ErrUnreachable", nowhere, err)
		}
	}
}

// G01: the GID table follows addresses, so the watch must see them come and go.
func TestWatch_AddressComesAndGoes_G01_DeliversBoth(t *testing.T) {
	n := netnstest.New(t)
	host := openIn(t, n)
	var watch *Watch
	n.Do(func() {
		var err error
		if watch, err = host.Watch(); err != nil {
			t.Fatal(err)
		}
	})
	added := netip.MustParseAddr("10.9.8.7")
	if s := next(t, watch); s.UsableMTU(added) != 0 {
		t.Fatalf("the first snapshot has %v already", added)
	}
	change := func(do func(netlink.Link, *netlink.Addr) error) {
		n.Do(func() {
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				t.Fatal(err)
			}
			addr, _ := netlink.ParseAddr("10.9.8.7/24")
			if err := do(lo, addr); err != nil {
				t.Fatal(err)
			}
		})
	}
	change(netlink.AddrAdd)
	if s := next(t, watch); s.UsableMTU(added) == 0 || s.Addresses[0].Addr() != added {
		t.Errorf("after adding: %+v", s.Addresses)
	}
	change(netlink.AddrDel)
	if s := next(t, watch); s.UsableMTU(added) != 0 {
		t.Errorf("after deleting: %+v", s.Addresses)
	}
	change(func(lo netlink.Link, _ *netlink.Addr) error { return netlink.LinkSetDown(lo) })
	if s := next(t, watch); len(s.Addresses) != 0 || s.Interfaces[0].Up {
		t.Errorf("after link down: %+v", s)
	}
	watch.Close()
	if _, open := <-watch.C; open || watch.Err() != nil {
		t.Errorf("after Close: open %v, err %v", open, watch.Err())
	}
}

// TestWatch_CloseAtAnyMoment_IsNoError closes watches at every stage of their first steps.
func TestWatch_CloseAtAnyMoment_IsNoError(t *testing.T) {
	n := netnstest.New(t)
	host := openIn(t, n)
	for i := range 300 {
		var watch *Watch
		n.Do(func() {
			var err error
			if watch, err = host.Watch(); err != nil {
				t.Fatal(err)
			}
		})
		if i%2 == 0 {
			<-watch.C
		}
		time.Sleep(time.Duration(i%20) * 5 * time.Microsecond)
		watch.Close()
		if err := watch.Err(); err != nil {
			t.Fatalf("close %d: %v", i, err)
		}
	}
}

func next(t *testing.T, w *Watch) Snapshot {
	t.Helper()
	select {
	case s, open := <-w.C:
		if !open {
			t.Fatalf("watch ended: %v", w.Err())
		}
		return s
	case <-time.After(5 * time.Second):
		t.Fatal("no news within 5 s")
	}
	return Snapshot{}
}

func TestSnapshot_EmptyNamespace_NoError(t *testing.T) {
	n := netnstest.New(t)
	n.Do(func() {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkSetDown(lo); err != nil {
			t.Fatal(err)
		}
	})
	s, err := openIn(t, n).Snapshot()
	if err != nil || len(s.Addresses) != 0 || len(s.Interfaces) == 0 {
		t.Errorf("%+v, %v", s, err)
	}
}
