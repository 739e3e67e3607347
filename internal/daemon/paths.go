package daemon

import (
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/netio"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/roce"
)

// paths remembers how the last packet travelled, each way: the next one mostly goes the same way,
// and what its addresses mean takes as long to find out as its checksum. It is void when the
// addresses of the host change.
type paths struct {
	in struct {
		path    roce.Path
		address ibt.Address
		isKnown bool
	}
	out struct {
		address ibt.Address
		path    roce.Path
		ifindex uint32
		isLocal bool
		isKnown bool
	}
}

// forget makes the next packets be looked at anew.
func (p *paths) forget() { p.in.isKnown, p.out.isKnown = false, false }

// arrival returns the address of a datagram from the wire, or nil when it is the first of its path:
// then it has to be judged.
func (p *paths) arrival(path *roce.Path) *ibt.Address {
	known := &p.in.path
	if p.in.isKnown && path.SrcPort == known.SrcPort && path.Src == known.Src &&
		path.Dst == known.Dst && path.TrafficClass == known.TrafficClass &&
		path.HopLimit == known.HopLimit && path.FlowLabel == known.FlowLabel {
		return &p.in.address
	}
	return nil
}

// learn remembers that datagrams of the path are for this NIC, and not from it.
func (p *paths) learn(path *roce.Path, address *ibt.Address) {
	p.in.path, p.in.address, p.in.isKnown = *path, *address, true
}

// addressOf is the path of a datagram in terms of the NIC.
func addressOf(path *roce.Path) ibt.Address {
	return ibt.Address{
		SGID: rdma.GIDFromAddr(path.Src), DGID: rdma.GIDFromAddr(path.Dst),
		FlowLabel: path.FlowLabel, Flow: path.SrcPort, TrafficClass: path.TrafficClass,
		HopLimit: path.HopLimit, Port: 1,
	}
}

// departure finds out how l.tx travels, unless the last packet went the same way.
func (l *lane) departure() {
	out := &l.paths.out
	if out.isKnown && out.address == l.tx.Address {
		return
	}
	out.address, out.path, out.isKnown = l.tx.Address, pathOf(&l.tx), true
	out.isLocal = l.nic.IsLocal(l.tx.DGID)
	out.ifindex = 0
	if out.path.Dst.IsLinkLocalUnicast() || out.path.Dst.IsMulticast() {
		out.ifindex = l.gids.ifIndexOf(l.tx.SGID)
	}
}

// datagram is l.tx on its way, with the bytes b.
func (l *lane) datagram(b []byte) netio.Datagram {
	out := &l.paths.out
	return netio.Datagram{Buf: b, Path: out.path, Interface: out.ifindex}
}

// pathOf is how a packet of the NIC travels.
func pathOf(p *ibt.Packet) roce.Path {
	return roce.Path{
		Src: p.SGID.Addr(), Dst: p.DGID.Addr(), FlowLabel: p.FlowLabel, SrcPort: p.Flow,
		TrafficClass: p.TrafficClass, HopLimit: p.HopLimit, DF: true,
	}
}
