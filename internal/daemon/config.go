package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"strings"
	"time"

	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/netio"
	"github.com/softrnic/softrnic/internal/netio/faulty"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/rdma"
)

// Config describes a NIC. The zero value is the default NIC of this user and network namespace.
type Config struct {
	// SocketPath is where applications find the NIC; empty means ctl.SocketPath, in a directory
	// that Start makes if need be.
	SocketPath string
	// Embedded makes a NIC without a socket: only Connect leads to it.
	Embedded bool
	// Group may use the socket besides the owner; it wants a SocketPath that the group reaches.
	Group string

	// Devices are what programs see, as ParseDevices reads them; none is the default.
	Devices []string
	// Version is shown as the firmware's.
	Version string

	// Addresses and Interfaces restrict the GID table to these addresses and to the addresses of
	// these interfaces; both empty means everything the host has.
	Addresses  []netip.Addr
	Interfaces []string
	// MTU overrides the path MTU that follows from the interfaces.
	MTU rdma.MTU
	// Layout names the adapter whose GID table the port's looks like: rxe, irdma, mlx5, bnxt or
	// ib. Empty has the addresses alone, those that reach farthest first.
	Layout string
	// NoNetwork makes a NIC for programs of its own only; UDP port 4791 stays free.
	NoNetwork bool
	// Wire replaces the network of the host.
	Wire *Wire
	// Fault disturbs packets on purpose, also those that stay on this NIC (faulty.Parse).
	Fault string
	// Direct is DirectAuto, DirectOn or DirectOff; empty is DirectAuto.
	Direct string
	// Limits bounds what each program may have (limits.ParseClient); empty is the default.
	Limits string

	// IdleExit ends the NIC when no application has been connected for so long; 0 means never.
	IdleExit time.Duration
	// Spin is how long the lane keeps looking for work after the last it found, before it sleeps;
	// 0 chooses by the number of processors, negative never spins.
	Spin time.Duration

	// Logger takes what people should know; nil discards it.
	Logger *slog.Logger
}

// Wire is a network of its own, for tests and simulations in one process.
type Wire struct {
	Port      netio.Port // owned by the NIC from now on
	Addresses []netip.Addr
	MTU       rdma.MTU // 0 means 4096
}

const (
	// Spinning pays where the applications have processors of their own. On one or two the lane
	// takes the time from whom it waits for.
	spinMany = 20 * time.Microsecond
	spinFew  = 5 * time.Microsecond
)

func (c Config) withDefaults() (Config, faulty.Profile, error) {
	if _, err := c.devices(); err != nil {
		return c, faulty.Profile{}, err
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Spin == 0 {
		c.Spin = spinMany
		if runtime.NumCPU() <= 2 {
			c.Spin = spinFew
		}
	}
	if c.MTU != 0 && !c.MTU.IsValid() {
		return c, faulty.Profile{}, fmt.Errorf("daemon: %d is no MTU code", c.MTU)
	}
	if err := CheckLayout(c.Layout); err != nil {
		return c, faulty.Profile{}, err
	}
	if c.Group != "" && c.SocketPath == "" && !c.Embedded {
		return c, faulty.Profile{}, fmt.Errorf("daemon: group %s cannot reach the default socket,"+
			" which is in a private directory: choose a socket path", c.Group)
	}
	if err := CheckDirect(c.Direct); err != nil {
		return c, faulty.Profile{}, err
	}
	if _, err := limits.ParseClient(c.Limits); err != nil {
		return c, faulty.Profile{}, fmt.Errorf("daemon: %w", err)
	}
	profile, err := faulty.Parse(c.Fault)
	if err != nil {
		return c, profile, fmt.Errorf("daemon: %w", err)
	}
	if !c.Embedded {
		err = checkDescriptors()
	}
	return c, profile, err
}

// devices are those of the NIC; it refuses what cannot be, or not here.
func (c *Config) devices() ([]nic.DeviceConfig, error) {
	devices, err := ParseDevices(c.Devices, c.NoNetwork || c.Wire != nil)
	if err != nil {
		return nil, err
	}
	for _, d := range devices {
		if c.Wire != nil && d.Transport == nic.TransportIWARP {
			return nil, fmt.Errorf("daemon: device %s: %v needs the TCP of a host, and this network is"+
				" one of its own", d.Name, d.Transport)
		}
	}
	return devices, nil
}

// client returns the bounds of a program. Preconditions: withDefaults has accepted them.
func (c *Config) client() limits.Client {
	client, _ := limits.ParseClient(c.Limits)
	return client
}

// deviceNameMax leaves room for the final NUL of abi.DeviceInfo.
const deviceNameMax = 63

// checkDeviceName refuses names that programs could not tell apart in a list, or would mistake for
// a path: they look devices up below /sys by name.
func checkDeviceName(name string) error {
	if name == "" {
		return errors.New("daemon: a device without a name")
	}
	if len(name) > deviceNameMax {
		return fmt.Errorf("daemon: device name %q is longer than %d bytes", name, deviceNameMax)
	}
	const good = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."
	if strings.Trim(name, good) != "" || strings.Trim(name, ".") == "" {
		return fmt.Errorf("daemon: device name %q: use letters, digits, '_', '-' and '.'", name)
	}
	return nil
}
