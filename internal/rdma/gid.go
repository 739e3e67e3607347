package rdma

import (
	"net/netip"
)

// GID is a 128-bit global identifier (IBTA 4.1.1). On RoCE v2 it is an IPv6 address or an
// IPv4-mapped one (annex A17.4.5).
type GID [16]byte

// GIDFromAddr returns the RoCE v2 GID of an IP address. A zone is dropped.
func GIDFromAddr(a netip.Addr) GID { return GID(a.WithZone("").As16()) }

// Addr returns the IP address that a RoCE v2 GID stands for, IPv4 unmapped.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// IsZero reports the unspecified GID.
func (g GID) IsZero() bool { return g == GID{} }

// IsMulticast reports an ff00::/8 GID, or an IPv4-mapped multicast address.
func (g GID) IsMulticast() bool { return g.Addr().IsMulticast() }

func (g GID) String() string { return netip.AddrFrom16(g).String() }

// GIDType says how packets with the GID are framed; values are those of enum ibv_gid_type.
type GIDType uint32

// GID types.
const (
	GIDTypeIB     GIDType = 0
	GIDTypeRoCEv1 GIDType = 1
	GIDTypeRoCEv2 GIDType = 2
)

func (t GIDType) String() string {
	switch t {
	case GIDTypeIB:
		return "IB"
	case GIDTypeRoCEv1:
		return "RoCE v1"
	case GIDTypeRoCEv2:
		return "RoCE v2"
	}
	return "unknown"
}
