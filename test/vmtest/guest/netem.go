package main

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// disturb makes the guest's cable bad both ways: it loses, doubles and reorders that many percent
// of the packets. Those that come in pass an interface of their own, since the kernel disturbs
// what goes out only.
func disturb(args []string) error {
	var percent float32
	if len(args) != 1 {
		return fmt.Errorf("disturb %v: not one percentage", args)
	}
	if _, err := fmt.Sscan(args[0], &percent); err != nil {
		return fmt.Errorf("disturb %s: %w", args[0], err)
	}
	card, err := netlink.LinkByName("eth0")
	if err != nil {
		return fmt.Errorf("find eth0: %w", err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = "ifb9", card.Attrs().MTU
	inward := &netlink.Ifb{LinkAttrs: attrs}
	if err := netlink.LinkAdd(inward); err != nil {
		return fmt.Errorf("add %s: %w", attrs.Name, err)
	}
	if err := netlink.LinkSetUp(inward); err != nil {
		return fmt.Errorf("set %s up: %w", attrs.Name, err)
	}
	if err := redirect(card, inward); err != nil {
		return err
	}
	for _, link := range []netlink.Link{card, inward} {
		if err := addNetem(link, percent); err != nil {
			return err
		}
	}
	return nil
}

// redirect has all that comes in on a link go out on another, and then on as before.
func redirect(from, to netlink.Link) error {
	ingress := &netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: from.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0),
		Parent: netlink.HANDLE_INGRESS,
	}}
	if err := netlink.QdiscAdd(ingress); err != nil {
		return fmt.Errorf("add an ingress queue: %w", err)
	}
	const allProtocols = 3 // ETH_P_ALL
	filter := &netlink.MatchAll{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: from.Attrs().Index, Parent: ingress.Handle, Priority: 1,
			Protocol: allProtocols,
		},
		Actions: []netlink.Action{netlink.NewMirredAction(to.Attrs().Index)},
	}
	if err := netlink.FilterAdd(filter); err != nil {
		return fmt.Errorf("redirect what comes in: %w", err)
	}
	return nil
}

// addNetem puts the kernel's network emulator on what goes out on a link. A packet overtakes
// others when it alone is not delayed.
func addNetem(link netlink.Link, percent float32) error {
	netem := netlink.NewNetem(
		netlink.QdiscAttrs{
			LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0),
			Parent: netlink.HANDLE_ROOT,
		},
		netlink.NetemQdiscAttrs{
			Latency: 500, // µs
			Limit:   100_000,
			Loss:    percent, Duplicate: percent, ReorderProb: percent,
		})
	if err := netlink.QdiscAdd(netem); err != nil {
		return fmt.Errorf("disturb %s: %w", link.Attrs().Name, err)
	}
	return nil
}
