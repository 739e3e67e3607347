package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
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

// Numbers of the kernel's rdma_netlink.h and of its states of an identifier of rdma_cm.
const (
	commandGetCMIDs = 11 // RDMA_NLDEV_CMD_RES_CM_ID_GET
	attributeState  = 27 // RDMA_NLDEV_ATTR_RES_STATE
	attributeCMIDs  = 30 // RDMA_NLDEV_ATTR_RES_CM_ID
	stateListen     = 8  // RDMA_CM_LISTEN
)

// listensCM tells that some identifier of rdma_cm listens on a device: it asks for what "rdma
// resource show cm_id" shows.
func listensCM() (bool, error) {
	devices, err := netlink.RdmaLinkList()
	if err != nil {
		return false, fmt.Errorf("list the RDMA devices: %w", err)
	}
	for _, d := range devices {
		request := nl.NewNetlinkRequest(
			nl.RDMA_NL_NLDEV<<nl.RDMA_NL_GET_CLIENT_SHIFT|commandGetCMIDs, unix.NLM_F_DUMP)
		request.AddData(nl.NewRtAttr(nl.RDMA_NLDEV_ATTR_DEV_INDEX, nl.Uint32Attr(d.Attrs.Index)))
		messages, err := request.Execute(unix.NETLINK_RDMA, 0)
		if err != nil {
			return false, fmt.Errorf("list the identifiers of rdma_cm: %w", err)
		}
		for _, m := range messages {
			if slices.Contains(statesOf(m), stateListen) {
				return true, nil
			}
		}
	}
	return false, nil
}

// statesOf returns the state of each identifier that a message lists: each is a nested attribute
// in a nested attribute.
func statesOf(message []byte) (states []byte) {
	for _, list := range attributesOf(message, attributeCMIDs) {
		for _, entry := range attributesOf(list, attributeCMIDs+1) {
			for _, state := range attributesOf(entry, attributeState) {
				states = append(states, state[0])
			}
		}
	}
	return states
}

// attributesOf returns the values of the attributes of a kind that are not empty.
func attributesOf(b []byte, kind uint16) (values [][]byte) {
	attributes, err := nl.ParseRouteAttr(b)
	if err != nil {
		return nil
	}
	for _, a := range attributes {
		if a.Attr.Type&^unix.NLA_F_NESTED == kind && len(a.Value) > 0 {
			values = append(values, a.Value)
		}
	}
	return values
}

// hasJoined tells that the card listens to a multicast address on behalf of the RDMA device.
func hasJoined(mac string) (bool, error) {
	text, err := os.ReadFile("/proc/net/dev_mcast")
	return strings.Contains(string(text), strings.ReplaceAll(mac, ":", "")), err
}
