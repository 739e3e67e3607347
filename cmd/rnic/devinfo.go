package main

import (
	"fmt"
	"io"
	"maps"
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
		Short: "Show the NIC: addresses, what works, counters; limits with -v",
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
			d := devinfo{out: c.OutOrStdout(), status: status, verbose: verbose}
			if verbose {
				attr, err := nic.deviceAttr(status.Devices[0].Name)
				if err != nil {
					return fail(err)
				}
				d.limits = limitsOf(&attr)
			}
			d.print()
			return nil
		},
	}
	options.register(command)
	command.Flags().BoolVarP(&verbose, "verbose", "v", false, "also limits, and counters that are 0")
	return command
}

// devinfo prints a device.
type devinfo struct {
	out     io.Writer
	status  daemon.Status
	limits  []property
	verbose bool
}

func (d *devinfo) print() {
	s, device := &d.status, &d.status.Devices[0]
	fmt.Fprintf(d.out, "device:\t%s\n", device.Name)
	d.section("", append([]property{
		{"node_guid", device.NodeGUID},
		{"fw_ver", s.Version},
		{"port_state", portState(device)},
		{"active_mtu", fmt.Sprint(device.MTU)},
		{"link_layer", linkLayer(device)},
		{"network", network(s)},
	}, d.process()...))
	d.section("GIDs", d.addresses())
	d.section("limits", d.limits)
	d.section("limits of one program (rnic up --limit)", d.programLimits())
	d.section("port counters", d.counters(s.Network))
	d.section("counters", d.nonzero(s.Counters))
	d.section("lane", d.nonzero(s.Lane))
	if len(s.Causes) > 0 {
		fmt.Fprintln(d.out, "  recent errors:")
		for _, cause := range s.Causes {
			fmt.Fprintf(d.out, "    %s\n", cause)
		}
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

// network says which wire the NIC is on, and what it can do there.
func network(s *daemon.Status) string {
	if s.LocalOnly != "" {
		return "none, it serves programs of its own only: " + s.LocalOnly
	}
	return "RoCE v2, UDP port 4791"
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

// addresses lists the GID table with the addresses that people know.
func (d *devinfo) addresses() []property {
	var out []property
	for _, g := range d.status.Devices[0].GIDs {
		text := fmt.Sprintf("%s\t%s\t%s", address(g.GID), g.Interface, g.Type)
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
