package softrnic

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/softrnic/softrnic/internal/daemon"
	"github.com/softrnic/softrnic/verbs"
)

// Config describes a NIC. The zero value is one for the program itself.
type Config struct {
	// Device is the name of its RoCE device; empty means rnic0.
	Device string
	// Devices are what else there is to say of its devices, each as NAME[=TRANSPORT[,OPTION…]], as
	// "rnic up --device" takes them. There is one of iWARP, iwarp0, by default with UDP, and else if
	// named here, since its listeners take ports of the host: "iwarp0=iwarp,crc=on".
	Devices []string
	// UDP joins the host's network by UDP port 4791. Where another program has the port, the NIC
	// starts all the same and LocalOnly says so.
	UDP bool
	// Network joins a wire in memory instead; it excludes UDP.
	Network *Network
	// Addresses are those of the NIC on its Network; without one they restrict the GID table to
	// these addresses of the host.
	Addresses []netip.Addr
	// Interfaces restricts the GID table to the addresses of these network interfaces.
	Interfaces []string
	// MTU overrides the path MTU that follows from the network.
	MTU verbs.MTU
	// Layout names the adapter whose GID table the port's looks like, for programs that choose a
	// GID by its place: rxe, irdma, mlx5, bnxt. With ib the port is presented as one of InfiniBand,
	// with a LID that names it to its peers. Empty has the addresses alone.
	Layout string
	// Fault makes the network bad on purpose, also between queue pairs of this NIC: for example
	// "loss=1%,reorder=2%,delay=200us,seed=7". With "completions=200us" completions are held back,
	// so that a poll finds many at once.
	Fault string
	// Limits bounds what each program may have, such as "qps=100,mrs=5000"; also pds, cqs, srqs,
	// ahs, mws, channels, xrcds, event-channels, cm-ids, and in bytes queue-memory and
	// device-memory. ibv_query_device(3) tells most of them, "rnic devinfo -v" all.
	Limits string
	// Socket also serves other programs, at this path; empty serves none.
	Socket string
	// Spin is how long the NIC's thread looks for work before it sleeps; 0 chooses by the number
	// of processors, negative never spins.
	Spin time.Duration
	// Logger takes what people should know; nil discards it.
	Logger *slog.Logger
}

// NIC is a network adapter in this program. It implements verbs.Connector.
type NIC struct {
	daemon *daemon.Daemon
}

// Start makes a NIC and lets it serve, until ctx ends or Close is called. It runs in the network
// namespace of the calling thread.
func Start(ctx context.Context, c Config) (*NIC, error) {
	inner := daemon.Config{
		Embedded: c.Socket == "", SocketPath: c.Socket, Devices: c.devices(), Interfaces: c.Interfaces,
		MTU: c.MTU, Layout: c.Layout, NoNetwork: !c.UDP, Fault: c.Fault, Limits: c.Limits,
		Spin: c.Spin, Logger: c.Logger,
	}
	if c.Network == nil {
		inner.Addresses = c.Addresses
	} else {
		if c.UDP {
			return nil, errors.New("softrnic: a NIC is either on the host's network or on a" +
				" Network of the program, not on both")
		}
		wire, err := c.Network.join(c.Addresses)
		if err != nil {
			return nil, err
		}
		inner.Wire, inner.NoNetwork = wire, false
	}
	d, err := daemon.Start(ctx, inner)
	if err != nil {
		return nil, fmt.Errorf("softrnic: start a NIC: %w", err)
	}
	return &NIC{daemon: d}, nil
}

// devices lists all that is said of devices.
func (c *Config) devices() []string {
	if c.Device == "" {
		return c.Devices
	}
	return append([]string{c.Device}, c.Devices...)
}

// Open opens the NIC's first device. The context ctx bounds the opening only; close what it
// returns.
func (n *NIC) Open(ctx context.Context) (*verbs.Context, error) {
	return verbs.Open(ctx, "", verbs.WithConnector(n))
}

// Connect returns an application's end of a control connection, for verbs.WithConnector.
func (n *NIC) Connect(ctx context.Context) (*net.UnixConn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return n.daemon.Connect()
}

// LocalOnly says why the NIC has no network; it is empty when there is one.
func (n *NIC) LocalOnly() string { return n.daemon.LocalOnly() }

// Close ends the NIC. Contexts that are open hear of it as of a NIC that is gone.
func (n *NIC) Close() error { return n.daemon.Close() }
