package daemon

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/softrnic/softrnic/internal/hostnet"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/rdma"
)

func TestConfig_DeviceName_IsOneThatProgramsUnderstand(t *testing.T) {
	for name, good := range map[string]bool{
		"":                                   false,
		"rnic0":                              true,
		"mlx5_0":                             true,
		"a.b-C":                              true,
		strings.Repeat("n", deviceNameMax):   true,
		strings.Repeat("n", deviceNameMax+1): false,
		"a/b":                                false,
		"a b":                                false,
		"a\nb":                               false,
		".":                                  false,
		"..":                                 false,
		"gr\xf6sse":                          false,
	} {
		if _, _, err := (Config{Devices: []string{name}}).withDefaults(); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestParseDevices_GoodOnes_AreOneOfEachTransportRoCEFirst(t *testing.T) {
	roce := func(name string) nic.DeviceConfig { return nic.DeviceConfig{Name: name} }
	iwarp := func(name string, o nic.StreamOptions) nic.DeviceConfig {
		return nic.DeviceConfig{Name: name, Transport: nic.TransportIWARP, Stream: o}
	}
	standard := []nic.DeviceConfig{roce("rnic0"), iwarp("iwarp0", nic.StreamOptions{})}
	with := func(first, second []nic.DeviceConfig) []nic.DeviceConfig {
		if len(second) == 0 {
			second = standard[1:]
		}
		return slices.Concat(first, second)
	}
	one := func(c nic.DeviceConfig) []nic.DeviceConfig { return []nic.DeviceConfig{c} }
	full := nic.StreamOptions{Markers: true, Revision: 1, FPDU: nic.FPDULarge}
	for specs, want := range map[string][]nic.DeviceConfig{
		"":             standard,
		"foo":          with(one(roce("foo")), nil),
		"foo=roce":     with(one(roce("foo")), nil),
		"iwarp0=iwarp": with(standard[:1], one(iwarp("iwarp0", nic.StreamOptions{}))),
		"x=iwarp,congestion=host": with(standard[:1],
			one(iwarp("x", nic.StreamOptions{HostCongestion: true}))),
		"x=iwarp,congestion=auto": with(standard[:1], one(iwarp("x", nic.StreamOptions{}))),
		"x=iwarp,crc=off":         with(standard[:1], one(iwarp("x", nic.StreamOptions{NoCRC: true}))),
		"y=iwarp,mpa=2 a=roce":    with(one(roce("a")), one(iwarp("y", nic.StreamOptions{Revision: 2}))),
		"iwarp0=none":             standard[:1],
		"rnic0=none w=iwarp,fpdu=large,crc=on,mpa=1,markers=on": one(iwarp("w", full)),
		"w=iwarp,fpdu=mss,markers=off": with(standard[:1],
			one(iwarp("w", nic.StreamOptions{FPDU: nic.FPDUMSS}))),
		"iwarp0=roce w=iwarp,fpdu=auto": with(one(roce("iwarp0")),
			one(iwarp("w", nic.StreamOptions{}))),
	} {
		got, err := ParseDevices(strings.Fields(specs), false)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %+v, %v; want %+v", specs, got, err, want)
		}
	}
}

func TestParseDevices_BadOnes_AreRefusedWithWhatIsWrong(t *testing.T) {
	for specs, words := range map[string]string{
		"=roce":                  "without a name",
		"=none":                  `only rnic0 and iwarp0`,
		"a/b=iwarp":              "use letters",
		"x=":                     `transport "" is none of roce, iwarp, none`,
		"x=ib":                   `transport "ib" is none of roce, iwarp, none`,
		"x=RoCE":                 `"RoCE"`,
		"x=crc=on":               `transport "crc=on"`,
		"x=roce,crc=on":          `roce has no options, and so no "crc=on"`,
		"x=iwarp,":               `option "" is none of congestion, crc, fpdu, markers, mpa`,
		"x=iwarp,speed=9":        `option "speed" is none of congestion, crc, fpdu, markers, mpa`,
		"x=iwarp,crc":            `option crc is one of on, off, not ""`,
		"x=iwarp,crc=yes":        `not "yes"`,
		"x=iwarp,mpa=3":          `option mpa is one of 1, 2, not "3"`,
		"x=iwarp,congestion=":    `option congestion is one of auto, host, not ""`,
		"x=iwarp,fpdu=9000":      `option fpdu is one of auto, mss, large, not "9000"`,
		"x=iwarp,markers=1":      "option markers is one of on, off",
		"x=iwarp,crc=on,crc=off": "option crc comes twice",
		"a b": "devices a and b: roce has one device; a device without a transport is of roce:" +
			" write b=iwarp for the other",
		"a=iwarp b=iwarp": "devices a=iwarp and b=iwarp: iwarp has one device; drop one of them," +
			" or write b=roce",
		"a b=iwarp,crc=on c=iwarp": "devices b=iwarp,crc=on and c=iwarp",
		"same same=iwarp": "two devices are called same: same and same=iwarp; give one of them" +
			" another name",
		"iwarp0 iwarp0=iwarp": "two devices are called iwarp0: iwarp0 and iwarp0=iwarp",
		"iwarp0": "two devices are called iwarp0: iwarp0 makes one of roce, and that of iwarp" +
			" has the name by default; write iwarp0=iwarp if you mean that one",
		"rnic0=iwarp,crc=on": "two devices are called rnic0: rnic0=iwarp,crc=on makes one of iwarp," +
			" and that of roce has the name by default; write rnic0=roce if you mean that one, else" +
			" choose another name for yours or for that one (NAME=roce), or leave that one out" +
			" (rnic0=none)",
		"a=none":                          `only rnic0 and iwarp0 can be left out`,
		"a rnic0=none":                    "a contradicts rnic0=none: both are of roce, so drop one",
		"iwarp0=none w=iwarp":             "device w=iwarp contradicts iwarp0=none",
		"rnic0=none iwarp0=none":          "no device is left",
		"x=none,crc=on":                   `none has no options, and so no "crc=on"`,
		strings.Repeat("x", 64) + "=roce": "longer than 63",
	} {
		got, err := ParseDevices(strings.Fields(specs), false)
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: %+v, %v; want an error with %q", specs, got, err, words)
		}
	}
}

// A NIC that keeps to itself takes no port of the host unless that is asked for.
func TestConfig_Devices_IWARPUnaskedOnTheHostsNetworkOnly(t *testing.T) {
	for name, c := range map[string]struct {
		config Config
		want   string
	}{
		"host":                {Config{}, "rnic0 iwarp0"},
		"alone":               {Config{NoNetwork: true}, "rnic0"},
		"alone, asked":        {Config{NoNetwork: true, Devices: []string{"w=iwarp"}}, "rnic0 w"},
		"wire":                {Config{Wire: &Wire{}}, "rnic0"},
		"wire, other name":    {Config{Wire: &Wire{}, Devices: []string{"x"}}, "x"},
		"host, without iWARP": {Config{Devices: []string{"iwarp0=none"}}, "rnic0"},
		"alone, without RoCE": {Config{NoNetwork: true, Devices: []string{"rnic0=none"}}, ""},
	} {
		devices, err := c.config.devices()
		var names []string
		for _, d := range devices {
			names = append(names, d.Name)
		}
		if got := strings.Join(names, " "); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestConfig_StreamsOnAWire_AreRefused(t *testing.T) {
	c := Config{Wire: &Wire{}, Devices: []string{"w=iwarp"}}
	if _, _, err := c.withDefaults(); err == nil || !strings.Contains(err.Error(), "TCP") {
		t.Errorf("iWARP on a wire in memory: %v", err)
	}
}

func TestDaemon_StreamPort_HasTheFirstLinkAddressAsGID(t *testing.T) {
	lo := gidSource{
		addr: netip.MustParseAddr("127.0.0.1"), ifIndex: 1, ifName: "lo", ifMTU: 65536,
		scope: hostnet.ScopeHost, isRunning: true,
	}
	eth := gidSource{
		addr: netip.MustParseAddr("10.0.0.1"), ifIndex: 2, ifName: "eth0", ifMTU: 1500,
		mac: hostnet.MAC{2, 3, 4, 5, 6, 7},
	}
	d := &Daemon{mac: macOf(0x0123456789abcdef)}
	for name, c := range map[string]struct {
		sources []gidSource
		gid     rdma.GID
		ifIndex uint32
		mtu     rdma.MTU
	}{
		"with a link address": {
			[]gidSource{eth, lo}, rdma.GID{2, 3, 4, 5, 6, 7}, 2, rdma.MTU1024,
		},
		"loopback alone": {
			[]gidSource{lo}, rdma.GID{2, 0x23, 0x45, 0xab, 0xcd, 0xef}, 1, rdma.MTU4096,
		},
		"nothing": {nil, rdma.GID{2, 0x23, 0x45, 0xab, 0xcd, 0xef}, 0, rdma.MTU4096},
	} {
		p := d.streamPort(c.sources)
		if len(p.GIDs) != 1 || p.GIDs[0].GID != c.gid || p.GIDs[0].IfIndex != c.ifIndex ||
			p.MTU != c.mtu || p.Active != (len(c.sources) > 0) ||
			len(p.Addresses) != len(c.sources) {
			t.Errorf("%s: %+v", name, p)
		}
	}
}
