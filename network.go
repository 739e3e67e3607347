package softrnic

import (
	"fmt"
	"net/netip"
	"sync"

	"github.com/softrnic/softrnic/internal/daemon"
	"github.com/softrnic/softrnic/internal/netio/loop"
)

// Network is a wire in memory that joins NICs of this program. The packets on it are real ones.
type Network struct {
	hub *loop.Hub

	mu   sync.Mutex
	last netip.Addr // the last address given out; guarded by mu
}

// networkBase comes before the first address that a Network gives out (RFC 2544 §C.2.2: addresses
// for benchmarks, which no host on the Internet has).
var networkBase = netip.MustParseAddr("198.18.0.0")

// NewNetwork makes a wire without NICs.
func NewNetwork() *Network {
	return &Network{hub: loop.NewHub(loop.Config{}), last: networkBase}
}

// join attaches a NIC; without addresses it is given one.
func (n *Network) join(addrs []netip.Addr) (*daemon.Wire, error) {
	if len(addrs) == 0 {
		n.mu.Lock()
		n.last = n.last.Next()
		addrs = []netip.Addr{n.last}
		n.mu.Unlock()
	}
	port, err := n.hub.Open(addrs[0].String(), addrs...)
	if err != nil {
		return nil, fmt.Errorf("softrnic: join the network: %w", err)
	}
	return &daemon.Wire{Port: port, Addresses: addrs}, nil
}
