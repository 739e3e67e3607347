package nic

import (
	"encoding/binary"
	"slices"
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/rdma"
)

// lidRange gives the hosts of a network their LIDs. No subnet manager is there to hand them out,
// so they follow from the addresses: a LID is the low bits of a host's first GID, and means the
// address that has these in common with the port's own in the rest. 15 bits stay within the range
// of unicast LIDs (IBTA 4.1.3).
type lidRange struct {
	gid   rdma.GID // of the port's own LID
	valid bool
}

const lidMask = 0x7fff

// lidsOf chooses the GID that the LIDs of a port follow: an IPv4 address if there is one, because
// its low bits are most likely those of a host.
func lidsOf(gids []abi.GIDEntry) lidRange {
	is4 := func(g abi.GIDEntry) bool { return rdma.GID(g.GID).Addr().Is4() }
	at := slices.IndexFunc(gids, is4)
	switch {
	case at < 0 && len(gids) == 0:
		return lidRange{}
	case at < 0:
		at = 0
	}
	r := lidRange{gid: gids[at].GID, valid: true}
	r.valid = r.own() != 0
	return r
}

// own is the port's LID, or 0.
func (r lidRange) own() rdma.LID {
	if !r.valid {
		return 0
	}
	return rdma.LID(binary.BigEndian.Uint16(r.gid[14:]) & lidMask)
}

// of is the GID of the host with a LID.
func (r lidRange) of(lid rdma.LID) (g rdma.GID, ok bool) {
	if !r.valid || lid == 0 || lid > lidMask {
		return g, false
	}
	g = r.gid
	high := binary.BigEndian.Uint16(g[14:]) &^ lidMask
	binary.BigEndian.PutUint16(g[14:], high|uint16(lid))
	return g, true
}

// resolveLID turns an address vector without a GRH into a packet address.
func (p *port) resolveLID(a *abi.AHAttr, entropy uint32) (ibt.Address, *rdma.Refusal) {
	if !p.InfiniBand {
		return ibt.Address{}, refusef(syscall.EINVAL,
			"ah_attr.is_global is 0: RoCE addresses by GID only"+
				" (a NIC started with --layout ib has LIDs)")
	}
	dst, ok := p.lids.of(rdma.LID(a.DLID))
	if !ok {
		return ibt.Address{}, refusef(syscall.EINVAL,
			"ah_attr.dlid %#x names no host: LIDs of this port are 1 to %#x", a.DLID, lidMask)
	}
	return ibt.Address{
		SGID: p.lids.gid, DGID: dst, HopLimit: hopLimitDefault, SL: a.SL, Port: thePort,
		Flow: flow(0, entropy),
	}, nil
}

// carries reports whether packets can have this entry's GID: the wire is RoCE v2, and what is
// presented as InfiniBand goes over it, too.
func carries(g *abi.GIDEntry) bool { return rdma.GIDType(g.Type) != rdma.GIDTypeRoCEv1 }
