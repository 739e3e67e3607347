package daemon

import (
	"errors"
	"slices"
	"strings"

	"github.com/softrnic/softrnic/internal/netio"
	"github.com/softrnic/softrnic/internal/netio/faulty"
	"github.com/softrnic/softrnic/internal/netio/loop"
	"github.com/softrnic/softrnic/internal/netio/pcap"
	"github.com/softrnic/softrnic/internal/netio/udp"
	"github.com/softrnic/softrnic/internal/nic"
)

// connect gives the lane its ports: wire, which may be nil, and what it needs besides.
func (d *Daemon) connect(wire netio.Port) error {
	l := d.lane
	var err error
	if wire != nil {
		wire = pcap.NewTap(wire, &l.taps, false)
		if !d.profile.IsZero() {
			if wire, err = faulty.New(wire, d.profile); err != nil {
				return err
			}
		}
		if err := l.attach(wire, &l.wire); err != nil {
			return err
		}
	}
	if d.profile.IsZero() {
		return nil
	}
	mirror, err := loop.OpenMirror(loop.Config{})
	if err != nil {
		return err
	}
	tap := pcap.NewTap(mirror, &l.taps, true)
	tap.Skip = l.isOnWireToo
	bad, err := faulty.New(tap, d.profile)
	if err != nil {
		return err
	}
	return l.attach(bad, &l.mirror)
}

// openWire opens the UDP port; nil for a NIC that has to do without.
func (d *Daemon) openWire() (netio.Port, error) {
	switch {
	case d.cfg.Wire != nil:
		return d.cfg.Wire.Port, nil
	case d.cfg.NoNetwork:
		d.localOnly = "it was started without a network"
		return nil, nil
	case d.localOnly != "":
		d.log.Warn("this NIC serves programs of its own only", "reason", d.localOnly)
		return nil, nil
	case !d.hasTransport(nic.TransportRoCE):
		return nil, nil // UDP port 4791 is for others
	}
	port, err := udp.Open(udp.Config{})
	if err == nil {
		return port, nil
	}
	d.localOnly = withoutUDP(err)
	what := "this NIC serves programs of its own only"
	if d.hasTransport(nic.TransportIWARP) {
		what, d.withoutPackets = "RoCE serves programs of this NIC only", true
	}
	d.log.Warn(what, "reason", d.localOnly)
	return nil, nil
}

// withoutUDP says why there are no packets.
func withoutUDP(err error) string {
	if errors.Is(err, netio.ErrPortTaken) {
		return "another NIC or program has UDP port 4791"
	}
	return "UDP cannot be used: " + strings.TrimPrefix(err.Error(), "udp: ")
}

// hasTransport reports whether there is a device of that kind.
func (d *Daemon) hasTransport(t nic.Transport) bool {
	return slices.ContainsFunc(d.devices, func(c nic.DeviceConfig) bool { return c.Transport == t })
}
