package tcp

import (
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func linkDown(t *testing.T, name string) {
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetDown(link)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// linkLocal returns the link-local address of an interface once it may be used, and its index.
func linkLocal(t *testing.T, name string) (netip.Addr, uint32) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); {
		list, err := netlink.AddrList(link, netlink.FAMILY_V6)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range list {
			ip, _ := netip.AddrFromSlice(a.IP)
			if ip.IsLinkLocalUnicast() && a.Flags&unix.IFA_F_TENTATIVE == 0 {
				return ip, uint32(link.Attrs().Index)
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Skip("the interface has no link-local address")
	return netip.Addr{}, 0
}
