package e2e

import (
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/softrnic/softrnic/test/netnstest"
)

// TestAsyncwatch_AddressAdded_IsTold has the program that prints asynchronous events see the GID
// table change.
func TestAsyncwatch_AddressAdded_IsTold(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("giving an interface another address needs root")
	}
	a, _ := netnstest.Pair(t, vethMTU)
	m := newMachine(t, a, 0)
	m.startNIC(t)
	watch := m.run(t, "stdbuf", "-oL", "ibv_asyncwatch") // it does not flush what it prints
	until(t, "ibv_asyncwatch waits", func() bool { return watch.hasSaid("async event FD") })
	a.Do(func() {
		link, err := netlink.LinkByName(a.Link)
		if err != nil {
			t.Fatal(err)
		}
		address, err := netlink.ParseAddr("198.51.100.7/24")
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.AddrAdd(link, address); err != nil {
			t.Fatal(err)
		}
	})
	until(t, "the event is told", func() bool { return watch.hasSaid("IBV_EVENT_GID_CHANGE") })
	watch.kill()
}
