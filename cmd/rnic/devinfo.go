package main

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/softrnic/softrnic/internal/daemon"
	"github.com/softrnic/softrnic/internal/nic"
)

func newDevinfo() *cobra.Command {
	var options clientOptions
	var verbose bool
	command := &cobra.Command{
		Use:   "devinfo",
		Short: "Show the NIC: devices, addresses, what works, counters; limits with -v",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			nic, err := dial(options.socket)
			if err != nil {
				return fail(startHint(err))
			}
			defer func() { _ = nic.Close() }()
			status, err := nic.status()
			if err != nil {
				return fail(err)
			}
			if options.json {
				return printJSON(c.OutOrStdout(), status)
			}
			d := devinfo{
				out: c.OutOrStdout(), status: status, verbose: verbose,
				limits: map[string][]property{},
			}
			for i := 0; verbose && i < len(status.Devices); i++ {
				name := status.Devices[i].Name
				attr, err := options.deviceAttr(name)
				if err != nil {
					return fail(err)
				}
				d.limits[name] = limitsOf(&attr)
			}
			d.print()
			return nil
		},
	}
	options.register(command)
	command.Flags().BoolVarP(&verbose, "verbose", "v", false, "also limits, and counters that are 0")
	return command
}

// devinfo prints the devices of a NIC, and what they have in common.
type devinfo struct {
	out     io.Writer
	status  daemon.Status
	limits  map[string][]property // of devices, by name
	verbose bool
}

func (d *devinfo) print() {
	s := &d.status
	for i := range s.Devices {
		d.device(&s.Devices[i])
	}
	fmt.Fprintln(d.out, "NIC:")
	d.section("", d.process())
	d.section("limits of one program (rnic up --limit)", d.programLimits())
	d.section("port counters", d.counters(s.Network))
	if s.Streams != nil {
		d.section("TCP", d.streams(s.Streams))
		d.section("TCP counters", d.nonzero(s.Streams.Counters))
	}
	d.section("counters", d.nonzero(s.Counters))
	d.section("lane", d.nonzero(s.Lane))
	if len(s.Causes) > 0 {
		fmt.Fprintln(d.out, "  recent errors:")
		for _, cause := range s.Causes {
			fmt.Fprintf(d.out, "    %s\n", cause)
		}
	}
}

// device prints what belongs to one device.
func (d *devinfo) device(s *nic.DeviceStatus) {
	fmt.Fprintf(d.out, "device:\t%s\n", s.Name)
	d.section("", []property{
		{"transport", transport(s)},
		{"node_guid", s.NodeGUID},
		{"fw_ver", d.status.Version},
		{"port_state", portState(s)},
		{"active_mtu", fmt.Sprint(s.MTU)},
		{"link_layer", linkLayer(s)},
		{"network", d.network(s)},
	})
	d.section("GIDs", d.gids(s))
	d.section("addresses", d.addresses(s))
	d.section("limits", d.limits[s.Name])
}

// streams tells how many connections TCP has in which state.
func (d *devinfo) streams(s *daemon.StreamStatus) []property {
	return []property{
		{"listeners", fmt.Sprint(s.Listeners)},
		{"connections", fmt.Sprintf("%d, %d being made, %d being closed", s.Connections,
			s.Connecting, s.Closing)},
	}
}

func (d *devinfo) programLimits() []property {
	var out []property
	if d.verbose {
		for _, name := range slices.Sorted(maps.Keys(d.status.Limits)) {
			out = append(out, property{name, fmt.Sprint(d.status.Limits[name])})
		}
	}
	return out
}

func (d *devinfo) section(title string, properties []property) {
	if len(properties) == 0 {
		return
	}
	indent := "  "
	if title != "" {
		fmt.Fprintf(d.out, "  %s:\n", title)
		indent = "    "
	}
	table := tabwriter.NewWriter(d.out, 0, 8, 2, ' ', 0)
	for _, p := range properties {
		fmt.Fprintf(table, "%s%s:\t%s\n", indent, p.name, p.value)
	}
	_ = table.Flush() // its only failure is the writer's, which the command line ignores
}

func portState(s *nic.DeviceStatus) string {
	if s.Active {
		return "active"
	}
	return "down"
}

func linkLayer(s *nic.DeviceStatus) string {
	if s.LID == 0 {
		return s.Link
	}
	return fmt.Sprintf("%s, LID %d", s.Link, s.LID)
}

// transport has the names that people know, beside those of the command line.
func transport(s *nic.DeviceStatus) string {
	switch s.Transport {
	case nic.TransportRoCE.String():
		return "RoCE v2"
	case nic.TransportIWARP.String():
		return "iWARP, with " + s.Options
	}
	return s.Transport
}

// network says which wire a device is on.
func (d *devinfo) network(s *nic.DeviceStatus) string {
	switch {
	case s.Transport == nic.TransportIWARP.String():
		return "TCP, at the ports of listeners"
	case d.status.LocalOnly != "":
		return "none, it serves programs of its own only: " + d.status.LocalOnly
	}
	return "UDP port 4791"
}

func (d *devinfo) process() []property {
	s := &d.status
	var out []property
	if n := s.Network; n != nil {
		out = append(out,
			property{"send offload", works(n.SegmentSend) + " (GSO)"},
			property{"receive offload", works(n.CoalesceRecv) + " (GRO)"},
			property{"socket buffers", byteCount(uint64(n.SendBuffer)) + " to send, " +
				byteCount(uint64(n.ReceiveBuffer)) + " to receive"},
		)
		for _, notice := range n.Notices {
			out = append(out, property{"notice", notice})
		}
	}
	if s.Fault != "" {
		out = append(out, property{"faults on purpose", s.Fault})
	}
	return append(out,
		property{"socket", s.Socket},
		property{"process", fmt.Sprintf("%d of %s, for %v", s.PID, userName(uint32(s.UID)),
			time.Since(s.Started).Round(time.Second))},
		property{"programs", fmt.Sprint(len(s.Contexts))},
	)
}

func works(yes bool) string {
	if yes {
		return "on"
	}
	return "off"
}

// addresses lists what a device is reached by where its GIDs do not tell.
func (d *devinfo) addresses(s *nic.DeviceStatus) []property {
	var out []property
	for i, a := range s.Addresses {
		out = append(out, property{fmt.Sprint(i), a})
	}
	return out
}

// gids lists the GID table with the addresses that people know.
func (d *devinfo) gids(s *nic.DeviceStatus) []property {
	var out []property
	for _, g := range s.GIDs {
		name, kind := address(g.GID), g.Type
		if len(s.Addresses) > 0 {
			name, kind = linkAddress(g.GID), "link address"
		}
		text := fmt.Sprintf("%s\t%s\t%s", name, g.Interface, kind)
		if d.verbose {
			text += "\t" + g.GID
		}
		out = append(out, property{fmt.Sprintf("GID[%d]", g.Index), text})
	}
	return out
}

// address is the IP address that a GID stands for.
func address(gid string) string {
	a, err := netip.ParseAddr(gid)
	if err != nil {
		return gid
	}
	return a.Unmap().String()
}

// linkAddress is the one at the beginning of a GID of iWARP.
func linkAddress(gid string) string {
	a, err := netip.ParseAddr(gid)
	if err != nil {
		return gid
	}
	b := a.As16()
	return net.HardwareAddr(b[:6]).String()
}

func (d *devinfo) counters(port *daemon.PortStatus) []property {
	if port == nil {
		return nil
	}
	return d.nonzero(port.Counters)
}

// nonzero lists counters by name, those that are 0 only when everything is wanted.
func (d *devinfo) nonzero(counters map[string]uint64) []property {
	var out []property
	for _, name := range slices.Sorted(maps.Keys(counters)) {
		if counters[name] != 0 || d.verbose {
			out = append(out, property{name, fmt.Sprint(counters[name])})
		}
	}
	return out
}
