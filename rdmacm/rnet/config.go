package rnet

import (
	"context"
	"net"
	"time"

	"github.com/softrnic/softrnic/rdmacm"
	"github.com/softrnic/softrnic/verbs"
)

// Config are the choices of a connection. The zero value is fit for use.
type Config struct {
	// CM says where the NIC is, which of its devices to use, and what queue pairs and packets are
	// like; its fields QP, Prepare, PrivateData, PD and the numbers of READs do not count. Without
	// a Device it is that of the session.
	CM rdmacm.Config
	// Ring is how many bytes of each direction may be on their way or unread; 0 is 128 KiB. The
	// smaller one of both sides counts. A connection takes twice as much memory.
	Ring int
	// Linger bounds how long Close waits for the peer's NIC to take what was written; 0 is 5 s.
	Linger time.Duration
	// KeepAlive is how often a peer is tried; 0 is every 15 s, negative is never.
	KeepAlive time.Duration
}

const (
	ringDefault = 128 << 10
	ringMin     = 4 << 10
	// ringMax lets the bytes that are given back fit into a control message.
	ringMax = 2 << 20

	lingerDefault    = 5 * time.Second
	keepAliveDefault = 15 * time.Second
)

func (c *Config) ring() int {
	if c.Ring == 0 {
		return ringDefault
	}
	return min(max(c.Ring, ringMin), ringMax)
}

func (c *Config) linger() time.Duration {
	if c.Linger == 0 {
		return lingerDefault
	}
	return max(c.Linger, 0)
}

func (c *Config) keepAlive() time.Duration {
	if c.KeepAlive == 0 {
		return keepAliveDefault
	}
	return max(c.KeepAlive, 0)
}

// hold returns the session of the configuration, for the caller to close, and the protection domain
// on the device that it is to use. From then on the configuration insists on that device: what a
// connection needs is made before it is known where it comes from.
func (c *Config) hold(ctx context.Context) (*rdmacm.Session, *verbs.PD, error) {
	s, err := c.session(ctx)
	if err != nil {
		return nil, nil, err
	}
	pd, err := s.PDOn(ctx, c.CM.Device)
	if err != nil {
		_ = s.Close()
		return nil, nil, err
	}
	c.CM.Device = pd.Context().Device().Name
	return s, pd, nil
}

func (c *Config) session(ctx context.Context) (*rdmacm.Session, error) {
	if c.CM.Session != nil {
		return c.CM.Session.Hold()
	}
	return rdmacm.Share(ctx, c.CM.NIC)
}

// networkOf takes the names of TCP for those who know no others, such as net/http.
func networkOf(network string) (string, error) {
	switch network {
	case "rdma", "rdma4", "rdma6":
		return network, nil
	case "tcp":
		return "rdma", nil
	case "tcp4":
		return "rdma4", nil
	case "tcp6":
		return "rdma6", nil
	}
	return "", net.UnknownNetworkError(network)
}
