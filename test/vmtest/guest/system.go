package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func mountAll() error {
	for _, m := range []struct{ kind, at string }{
		{"proc", "/proc"},
		{"sysfs", "/sys"},
		{"devtmpfs", "/dev"},
		{"tmpfs", "/tmp"},
		{"tmpfs", "/run"},
	} {
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	return nil
}

// loadModules loads the files that a list names, in its order: what a module needs stands before
// it.
func loadModules(list string) error {
	text, err := os.ReadFile(list)
	if err != nil {
		return fmt.Errorf("read the list of modules: %w", err)
	}
	for name := range strings.FieldsSeq(string(text)) {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(file.Fd()), "", 0)
		_ = file.Close()
		// A module whose device or processor feature is not there may refuse to load.
		if err != nil && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("load %s: %w", name, err)
		}
	}
	return nil
}

func bringUp(o options) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}
	card, err := awaitCard()
	if err != nil {
		return err
	}
	// An address that has to be proved unique first is of no use for a second or two; without a
	// link-local one the kernel asks nobody for an Ethernet address.
	const proofs = "/proc/sys/net/ipv6/conf/eth0/accept_dad"
	if err := os.WriteFile(proofs, []byte("0"), 0); err != nil {
		return err
	}
	if err := netlink.LinkSetMTU(card, o.mtu); err != nil {
		return fmt.Errorf("set the MTU to %d: %w", o.mtu, err)
	}
	for _, text := range o.addresses {
		address, err := netlink.ParseAddr(text)
		if err != nil {
			return fmt.Errorf("address %s: %w", text, err)
		}
		if address.IP.To4() == nil {
			address.Flags = unix.IFA_F_NODAD // usable at once
		}
		if err := netlink.AddrAdd(card, address); err != nil {
			return fmt.Errorf("add %s: %w", text, err)
		}
	}
	for _, link := range []netlink.Link{lo, card} {
		if err := netlink.LinkSetUp(link); err != nil {
			return fmt.Errorf("set %s up: %w", link.Attrs().Name, err)
		}
	}
	if err := netlink.RdmaLinkAdd(o.driver+"0", o.driver, card.Attrs().Name); err != nil {
		return fmt.Errorf("add the %s device: %w", o.driver, err)
	}
	return nil
}

// awaitCard waits for the network card, which its driver finds a moment after it was loaded.
func awaitCard() (netlink.Link, error) {
	var err error
	for range 100 {
		var card netlink.Link
		if card, err = netlink.LinkByName("eth0"); err == nil {
			return card, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil, fmt.Errorf("find eth0: %w", err)
}
