package nic

import (
	"net/netip"
	"slices"
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/rdma"
)

// thePort is the number of the one port that the device has so far; tables take port numbers, so
// that more ports are more entries.
const thePort = 1

// Port is what the shell says about a port.
type Port struct {
	MTU    rdma.MTU // of the path, from the interface's MTU
	Active bool
	// GIDs are the valid table entries; their Index is where they sit and stay.
	GIDs []abi.GIDEntry
	// Addresses are what others reach the port by, where the GIDs do not tell.
	Addresses []PortAddress
	// InfiniBand presents the port as one of InfiniBand: it has a LID, and a LID alone names a
	// peer. The wire stays what it is.
	InfiniBand bool
}

// PortAddress is an IP address of a port whose GIDs are no addresses.
type PortAddress struct {
	Addr      netip.Addr // without a zone
	Interface uint32
}

type port struct {
	Port
	lids lidRange
}

// SetPort changes the port of a device, named by its place in Config.Devices, and tells the
// applications what changed.
func (n *NIC) SetPort(now clock.Time, at int, p Port) {
	n.now = now
	d := n.devices[at]
	old := d.port
	d.port = port{Port: p}
	if p.InfiniBand {
		d.port.lids = lidsOf(p.GIDs)
	}
	if d.port.lids != old.lids && old.Active {
		n.raisePort(d, rdma.EventLIDChange)
	}
	if p.Active != old.Active {
		event := rdma.EventPortErr
		if p.Active {
			event = rdma.EventPortActive
		}
		n.raisePort(d, event)
	}
	if !slices.Equal(p.GIDs, old.GIDs) {
		n.followLocal()
		n.followDirect()
		n.raisePort(d, rdma.EventGIDChange)
		n.multicast.followAll()
	}
}

// followLocal goes after the GIDs that packets are addressed to.
func (n *NIC) followLocal() {
	n.local = make(map[rdma.GID]bool)
	for _, d := range n.devices {
		if !d.transport.hasIPGIDs {
			continue
		}
		for i := range d.port.GIDs {
			n.local[d.port.GIDs[i].GID] = true
		}
	}
}

// IsLocal reports a GID of this NIC, whose packets the shell loops back.
func (n *NIC) IsLocal(g rdma.GID) bool { return n.local[g] }

// gid returns the entry at an index of the table.
func (p *port) gid(index uint8) (abi.GIDEntry, bool) {
	for _, g := range p.GIDs {
		if g.Index == uint32(index) {
			return g, true
		}
	}
	return abi.GIDEntry{}, false
}

// GIDTable returns the valid entries of the port's GID table.
func (c *Context) GIDTable() []abi.GIDEntry { return slices.Clone(c.device.port.GIDs) }

// PKey answers ibv_query_pkey.
func (c *Context) PKey(portNum, index uint32) (abi.PKeyRsp, *rdma.Refusal) {
	if portNum != thePort || index >= c.device.transport.pkeys {
		return abi.PKeyRsp{}, refusef(syscall.EINVAL, "port %d has no P_Key %d", portNum, index)
	}
	return abi.PKeyRsp{PKey: uint32(rdma.PKeyDefault)}, nil
}

// hopLimitDefault is the TTL of packets whose address vector leaves the hop limit 0.
const hopLimitDefault = 64

// resolve turns an address vector into a packet address, or says which field is at fault.
// entropy separates the flows of QPs whose flow label is 0.
func (p *port) resolve(a *abi.AHAttr, entropy uint32) (ibt.Address, *rdma.Refusal) {
	var out ibt.Address
	if a.Port != thePort {
		return out, refusef(syscall.EINVAL, "ah_attr.port_num %d: the device has port 1 only", a.Port)
	}
	if a.IsGlobal == 0 {
		return p.resolveLID(a, entropy)
	}
	src, ok := p.gid(a.SGIDIndex)
	if !ok {
		return out, refusef(syscall.EINVAL,
			"ah_attr.grh.sgid_index %d holds no GID (any more); `rnic devinfo` lists them", a.SGIDIndex)
	}
	if !carries(&src) {
		return out, refusef(syscall.EINVAL,
			"ah_attr.grh.sgid_index %d is of RoCE v1, and this port's wire is RoCE v2;"+
				" `rnic devinfo` lists which index is", a.SGIDIndex)
	}
	dst := rdma.GID(a.DGID)
	if dst.IsZero() || dst.Addr().IsUnspecified() {
		return out, refusef(syscall.EINVAL, "ah_attr.grh.dgid %v is no address", dst)
	}
	if rdma.GID(src.GID).Addr().Is4() != dst.Addr().Is4() {
		return out, refusef(syscall.EINVAL,
			"ah_attr.grh: source GID %v and destination GID %v are of different IP versions",
			rdma.GID(src.GID), dst)
	}
	hops := a.HopLimit
	if hops == 0 {
		hops = hopLimitDefault
	}
	return ibt.Address{
		SGID: src.GID, DGID: dst, FlowLabel: a.FlowLabel & 0xfffff, HopLimit: hops,
		TrafficClass: a.TrafficClass, SL: a.SL, Port: thePort, Flow: flow(a.FlowLabel, entropy),
	}, nil
}

// checkPeer refuses the address vector of a connection whose destination is not one port: RC and
// UC connect two queue pairs, and only datagrams go to groups (IBTA 10.5).
func checkPeer(dst rdma.GID) *rdma.Refusal {
	kind := ""
	switch {
	case dst.IsMulticast():
		kind = "multicast"
	case dst.Addr() == broadcast:
		kind = "broadcast"
	default:
		return nil
	}
	return refusef(syscall.EINVAL,
		"ah_attr.grh.dgid %v is a %s address: a connection has one peer", dst, kind)
}

// broadcast is the limited broadcast address (RFC 919).
var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// flow derives the UDP source port, 0xC000…0xFFFF, from the flow label, or from the QP where the
// label is 0, so that paths of equal cost share the load (IBTA A17.9.1).
func flow(label, entropy uint32) uint16 {
	label &= 0xfffff
	if label == 0 {
		entropy *= 0x9e3779b1
		return uint16(entropy>>18) | 0xc000
	}
	return uint16(label&0x3fff^label>>14) | 0xc000
}
