package daemon

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/hostnet"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/rdma"
)

// defaultDevices has one device for each transport, in the order in which programs see them (ADR
// 0024). RoCE comes first, since programs that name no device take the first one.
var defaultDevices = [...]struct {
	name      string
	transport nic.Transport
	// needsNetwork: its listeners take ports of the host, so it is not there unasked where the NIC
	// keeps to itself.
	needsNetwork bool
}{
	{"rnic0", nic.TransportRoCE, false},
	{"iwarp0", nic.TransportIWARP, true},
}

// noDevice in the place of a transport leaves a default device out.
const noDevice = "none"

// ParseDevices reads what devices a NIC is to have, each as NAME[=TRANSPORT[,OPTION…]]. Every
// transport has one device, named as given or by default; NAME=none leaves that of a default name
// out. A NIC that keeps to itself (isAlone) has none unasked that takes ports of the host.
func ParseDevices(specs []string, isAlone bool) ([]nic.DeviceConfig, error) {
	var chosen [len(defaultDevices)]*nic.DeviceConfig
	var by [len(defaultDevices)]string  // the specification that chose a device
	var out [len(defaultDevices)]string // the specification that leaves a device out
	for _, spec := range specs {
		name, rest, _ := strings.Cut(spec, "=")
		if rest == noDevice {
			at, err := defaultDevice(name)
			if err != nil {
				return nil, err
			}
			out[at] = spec
			continue
		}
		c, err := parseDevice(spec)
		if err != nil {
			return nil, err
		}
		at := int(c.Transport)
		if chosen[at] != nil {
			return nil, fmt.Errorf("daemon: devices %s and %s: %v has one device; %s", by[at], spec,
				c.Transport, remedyForTwo(spec, &c))
		}
		chosen[at], by[at] = &c, spec
	}
	for i, d := range defaultDevices {
		switch {
		case chosen[i] != nil && out[i] != "":
			return nil, fmt.Errorf("daemon: device %s contradicts %s: both are of %v, so drop one",
				by[i], out[i], d.transport)
		case chosen[i] == nil && out[i] == "" && (!isAlone || !d.needsNetwork):
			chosen[i] = &nic.DeviceConfig{Name: d.name, Transport: d.transport}
		}
	}
	return gather(chosen[:], by[:])
}

// remedyForTwo says what to write where a specification is the second of its transport. Who names
// no transport may not know that it is the default's.
func remedyForTwo(spec string, c *nic.DeviceConfig) string {
	other := c.Transport
	for _, d := range defaultDevices {
		if d.transport != c.Transport {
			other = d.transport
		}
	}
	if strings.Contains(spec, "=") {
		return fmt.Sprintf("drop one of them, or write %s=%v", c.Name, other)
	}
	return fmt.Sprintf("a device without a transport is of %v: write %s=%v for the other",
		c.Transport, c.Name, other)
}

// gather lists the devices that there are, and checks what concerns several of them; by has the
// specification of each, or nothing for a default one.
func gather(chosen []*nic.DeviceConfig, by []string) ([]nic.DeviceConfig, error) {
	var out []nic.DeviceConfig
	for i, c := range chosen {
		if c == nil {
			continue
		}
		for j, o := range chosen[:i] {
			if o != nil && o.Name == c.Name && by[i] == "" {
				return nil, sameName(o, c, by[j], "")
			} else if o != nil && o.Name == c.Name {
				return nil, sameName(c, o, by[i], by[j])
			}
		}
		out = append(out, *c)
	}
	if len(out) == 0 {
		return nil, errors.New("daemon: no device is left; a NIC has at least one")
	}
	return out, nil
}

// sameName is the error of two devices that bear one name: one that spec asked for, and another,
// which is a default one where otherSpec is empty.
func sameName(c, other *nic.DeviceConfig, spec, otherSpec string) error {
	if otherSpec != "" {
		return fmt.Errorf("daemon: two devices are called %s: %s and %s; give one of them another"+
			" name", c.Name, otherSpec, spec)
	}
	return fmt.Errorf("daemon: two devices are called %s: %s makes one of %v, and that of %v has the"+
		" name by default; write %s=%v if you mean that one, else choose another name for yours or"+
		" for that one (NAME=%v), or leave that one out (%s=%s)", c.Name, spec, c.Transport,
		other.Transport, c.Name, other.Transport, other.Transport, c.Name, noDevice)
}

// defaultDevice finds a device that can be left out.
func defaultDevice(name string) (int, error) {
	var names []string
	for i, d := range defaultDevices {
		if d.name == name {
			return i, nil
		}
		names = append(names, d.name)
	}
	return 0, fmt.Errorf("daemon: device %q=%s: only %s can be left out", name, noDevice,
		strings.Join(names, " and "))
}

// parseDevice reads one specification.
func parseDevice(spec string) (nic.DeviceConfig, error) {
	name, rest, hasRest := strings.Cut(spec, "=")
	c := nic.DeviceConfig{Name: name}
	if err := checkDeviceName(name); err != nil || !hasRest {
		return c, err
	}
	words := strings.Split(rest, ",")
	if words[0] == noDevice {
		return c, fmt.Errorf("daemon: device %s: %s has no options, and so no %q", name, noDevice,
			strings.Join(words[1:], ","))
	}
	var known bool
	if c.Transport, known = nic.ParseTransport(words[0]); !known {
		return c, fmt.Errorf("daemon: device %s: transport %q is none of %s", name, words[0],
			strings.Join(append(nic.TransportNames(), noDevice), ", "))
	}
	seen := map[string]bool{}
	for _, word := range words[1:] {
		key, value, hasValue := strings.Cut(word, "=")
		set := streamOptions[key]
		switch {
		case c.Transport != nic.TransportIWARP:
			return c, fmt.Errorf("daemon: device %s: %v has no options, and so no %q", name,
				c.Transport, word)
		case set.into == nil:
			return c, fmt.Errorf("daemon: device %s: option %q is none of %s", name, key,
				strings.Join(slices.Sorted(maps.Keys(streamOptions)), ", "))
		case seen[key]:
			return c, fmt.Errorf("daemon: device %s: option %s comes twice", name, key)
		case !hasValue || !set.into(&c.Stream, value):
			return c, fmt.Errorf("daemon: device %s: option %s is one of %s, not %q", name, key,
				set.values, value)
		}
		seen[key] = true
	}
	return c, nil
}

// streamOption is an option of iWARP devices; into reports whether the value is one.
type streamOption struct {
	values string
	into   func(o *nic.StreamOptions, value string) bool
}

//tidy:table
var streamOptions = map[string]streamOption{
	"congestion": {"auto, host", func(o *nic.StreamOptions, value string) bool {
		o.HostCongestion = value == "host"
		return value == "auto" || value == "host"
	}},
	"crc": {"on, off", func(o *nic.StreamOptions, value string) bool {
		on := false
		known := parseSwitch(&on, value)
		o.NoCRC = !on
		return known
	}},
	"markers": {"on, off", func(o *nic.StreamOptions, value string) bool {
		return parseSwitch(&o.Markers, value)
	}},
	"mpa": {"1, 2", func(o *nic.StreamOptions, value string) bool {
		o.Revision = 2
		if value == "1" {
			o.Revision = 1
		}
		return value == "1" || value == "2"
	}},
	"fpdu": {"auto, mss, large", func(o *nic.StreamOptions, value string) (known bool) {
		o.FPDU, known = nic.ParseFPDUSize(value)
		return known
	}},
}

func parseSwitch(into *bool, value string) bool {
	*into = value == "on"
	return value == "on" || value == "off"
}

// DeviceNames lists the devices for people.
func (d *Daemon) DeviceNames() string {
	var names []string
	for i := range d.devices {
		names = append(names, d.devices[i].Name)
	}
	return strings.Join(names, ", ")
}

// deviceAt finds a device by name, and returns its place among them or −1.
func (d *Daemon) deviceAt(name string) int {
	return slices.IndexFunc(d.devices, func(c nic.DeviceConfig) bool { return c.Name == name })
}

// setPorts makes the ports of all devices follow the addresses of the host. Lane, or before it
// runs.
func (d *Daemon) setPorts(now clock.Time, sources []gidSource) {
	l := d.lane
	l.paths.forget()
	l.keepOwn(sources)
	for at := range d.devices {
		if d.devices[at].Transport == nic.TransportIWARP {
			l.nic.SetPort(now, at, d.streamPort(sources))
			continue
		}
		l.stats.gidsLeftOut = uint64(l.gids.update(sources))
		l.nic.SetPort(now, at, l.gids.portOf(sources, d.cfg.MTU))
	}
}

// streamPort describes the port of a device over TCP: one GID made of a link address, as adapters
// of iWARP have it, and all addresses behind it. Its MTU says what the interfaces carry; TCP sees
// to the rest.
func (d *Daemon) streamPort(sources []gidSource) nic.Port {
	p := nic.Port{MTU: rdma.MTU4096}
	scope := hostnet.ScopeHost
	for i := range sources {
		s := &sources[i]
		scope = min(scope, s.scope)
		p.Active = p.Active || s.isRunning
		p.Addresses = append(p.Addresses, nic.PortAddress{
			Addr: s.addr, Interface: uint32(s.ifIndex),
		})
	}
	for i := range sources {
		if s := &sources[i]; s.scope == scope {
			p.MTU = min(p.MTU, max(rdma.MTUFromBytes(s.ifMTU), rdma.MTU256))
		}
	}
	if d.cfg.MTU != 0 {
		p.MTU = d.cfg.MTU
	}
	p.GIDs = []abi.GIDEntry{d.linkGID(sources)}
	return p
}

// linkGID is made of the first link address among the sources, or of one that stands for the NIC
// where there is none.
func (d *Daemon) linkGID(sources []gidSource) abi.GIDEntry {
	e := abi.GIDEntry{Port: 1, Type: uint32(rdma.GIDTypeIB)}
	at := slices.IndexFunc(sources, func(s gidSource) bool {
		return !s.mac.IsZero() && !s.mac.IsMulticast()
	})
	mac := d.mac
	if at >= 0 {
		mac = sources[at].mac
	}
	copy(e.GID[:], mac[:])
	if len(sources) > 0 {
		s := &sources[max(at, 0)]
		e.IfIndex = uint32(s.ifIndex)
		copy(e.IfName[:len(e.IfName)-1], s.ifName)
	}
	return e
}

// macOf makes a link address of a node GUID, for a NIC on a host without one: locally administered
// and of a single station (IEEE 802 8.4).
func macOf(guid rdma.GUID) hostnet.MAC {
	g := binary.BigEndian.AppendUint64(nil, uint64(guid))
	return hostnet.MAC{g[0]&^1 | 2, g[1], g[2], g[5], g[6], g[7]}
}
