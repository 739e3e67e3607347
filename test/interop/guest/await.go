package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
)

// await waits until something is true of the guest: "tcp PORT", a program listens on that port;
// "cm", one listens for connections of rdma_cm; "group MAC", one has joined a multicast group. It
// looks rather than tries: the programs under test take one client only.
func await(args []string) error {
	var holds func() (bool, error)
	switch {
	case len(args) == 2 && args[0] == "tcp":
		port, err := strconv.ParseUint(args[1], 10, 16)
		if err != nil {
			return fmt.Errorf("await %v: %w", args, err)
		}
		holds = func() (bool, error) { return listensTCP(fmt.Sprintf(":%04X", port)) }
	case len(args) == 1 && args[0] == "cm":
		holds = listensCM
	case len(args) == 2 && args[0] == "group":
		holds = func() (bool, error) { return hasJoined(args[1]) }
	default:
		return fmt.Errorf("await %v: unknown", args)
	}
	for range 1000 {
		yes, err := holds()
		if yes || err != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("await %v: in vain", args)
}

// listensTCP takes a port as the kernel's tables of sockets end an address with it.
func listensTCP(port string) (bool, error) {
	const listening = "0A"
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if errors.Is(err, os.ErrNotExist) {
			continue // no IPv6
		}
		if err != nil {
			return false, err
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) > 3 && fields[3] == listening && strings.HasSuffix(fields[1], port) {
				return true, nil
			}
		}
	}
	return false, nil
}

// listensCM tells that some identifier of a connection is on a device; there are no connections
// when it is asked.
func listensCM() (bool, error) {
	devices, err := netlink.RdmaResourceList()
	if err != nil {
		return false, fmt.Errorf("list the resources of RDMA devices: %w", err)
	}
	for _, d := range devices {
		if d.RdmaResourceSummaryEntries["cm_id"] > 0 {
			return true, nil
		}
	}
	return false, nil
}

// hasJoined tells that the card listens to a multicast address on behalf of the RDMA device.
func hasJoined(mac string) (bool, error) {
	text, err := os.ReadFile("/proc/net/dev_mcast")
	return strings.Contains(string(text), strings.ReplaceAll(mac, ":", "")), err
}
