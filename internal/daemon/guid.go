package daemon

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"os"
	"sync/atomic"

	"github.com/softrnic/softrnic/internal/hostnet"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/rdma"
)

// instances tells the NICs of one process apart.
var instances atomic.Uint32

// guid is the EUI-64 of the host's first adapter for the NIC that has the network, and another one
// for each NIC beside it. Those of NICs with a socket survive restarts.
//
// Preconditions: the socket and the network are open, or are known to be missing.
func (d *Daemon) guid(f found) rdma.GUID {
	g := hostnet.NodeGUID(f.snapshot, f.identity, d.instance())
	return rdma.GUID(binary.BigEndian.Uint64(g[:]))
}

// instance is 0 for the NIC that has UDP port 4791, of which there is one in a namespace.
func (d *Daemon) instance() uint32 {
	h := fnv.New32a()
	switch {
	case d.cfg.Embedded || d.cfg.Wire != nil:
		_, _ = fmt.Fprintf(h, "%d %d %v", d.pid, instances.Add(1), d.started.UnixNano())
	case d.localOnly != "", !d.hasTransport(nic.TransportRoCE):
		_, _ = fmt.Fprintf(h, "%d %s", os.Getuid(), d.SocketPath())
	default:
		return 0
	}
	return max(h.Sum32(), 1)
}
