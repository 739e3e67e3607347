package hostnet

import (
	"cmp"
	"net/netip"
	"slices"
)

// Interface is one network interface. Values are comparable, so that two snapshots are.
type Interface struct {
	Index    int
	Name     string
	Kind     string // the driver's link kind: "device", "veth", "bridge", …
	MTU      int    // bytes of an IP packet
	MAC      MAC    // zero where the link has none of 48 bits
	Up       bool   // administratively up
	Running  bool   // carrier present as well
	Loopback bool
}

// MAC is a 48-bit link address.
type MAC [6]byte

// IsZero reports that there is no link address.
func (m MAC) IsZero() bool { return m == MAC{} }

// IsMulticast reports the group bit: such an address cannot be a station's own.
func (m MAC) IsMulticast() bool { return m[0]&1 != 0 }

// Scope says how far an address reaches; smaller values reach farther.
type Scope uint8

// Scopes, in the order in which addresses become GIDs.
const (
	ScopeGlobal Scope = iota
	ScopeLink
	ScopeHost
)

func (s Scope) String() string {
	switch s {
	case ScopeGlobal:
		return "global"
	case ScopeLink:
		return "link"
	case ScopeHost:
		return "host"
	}
	return "unknown"
}

// Address is one unicast address that this host may use as a source now: tentative addresses and
// those that failed duplicate detection (RFC 4862 §5.4) are not listed.
type Address struct {
	Prefix     netip.Prefix // the address with its prefix length; no zone, IPv4 unmapped
	Scope      Scope
	Interface  int  // interface index
	Deprecated bool // RFC 4862 §5.5.4: still valid, not for new communication
	Temporary  bool // RFC 8981 privacy address, or an IPv4 secondary
}

// Addr returns the address alone.
func (a Address) Addr() netip.Addr { return a.Prefix.Addr() }

// Snapshot is the state of the namespace at one moment.
type Snapshot struct {
	Interfaces []Interface // by index
	Addresses  []Address   // in GID order: see sortAddresses
}

// Equal reports that nothing differs.
func (s Snapshot) Equal(t Snapshot) bool {
	return slices.Equal(s.Interfaces, t.Interfaces) && slices.Equal(s.Addresses, t.Addresses)
}

// InterfaceByIndex returns the interface and whether there is one.
func (s Snapshot) InterfaceByIndex(index int) (Interface, bool) {
	i, found := slices.BinarySearchFunc(s.Interfaces, index, func(i Interface, index int) int {
		return cmp.Compare(i.Index, index)
	})
	if !found {
		return Interface{}, false
	}
	return s.Interfaces[i], true
}

// IsLocal reports that addr is one of the addresses of this host, so that a packet to it never
// leaves. All of 127.0.0.0/8 is local (RFC 1122 §3.2.1.3).
func (s Snapshot) IsLocal(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	if addr.IsLoopback() {
		return true
	}
	return slices.ContainsFunc(s.Addresses, func(a Address) bool { return a.Addr() == addr })
}

// UsableMTU returns the IP MTU of the interface that has addr, or 0 when the host has not got it.
func (s Snapshot) UsableMTU(addr netip.Addr) int {
	addr = addr.Unmap().WithZone("")
	for _, a := range s.Addresses {
		if a.Addr() != addr {
			continue
		}
		link, _ := s.InterfaceByIndex(a.Interface)
		return link.MTU
	}
	return 0
}

// sortAddresses puts addresses in the order in which programs that take "the first GID" fare best:
// those that a peer can reach before link-local before loopback, fresh before deprecated, then by
// interface, IPv4 before IPv6, stable before temporary. The kernel's own order decides the rest,
// for an administrator's first address comes first there.
func sortAddresses(addresses []Address) {
	slices.SortStableFunc(addresses, func(a, b Address) int {
		return cmp.Or(
			cmp.Compare(a.Scope, b.Scope),
			compareBool(a.Deprecated, b.Deprecated),
			cmp.Compare(a.Interface, b.Interface),
			cmp.Compare(a.Addr().BitLen(), b.Addr().BitLen()),
			compareBool(a.Temporary, b.Temporary),
		)
	})
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// scopeOf classifies an address by what it is rather than by the scope an administrator typed,
// which the kernel does not check.
func scopeOf(addr netip.Addr) Scope {
	switch {
	case addr.IsLoopback():
		return ScopeHost
	case addr.IsLinkLocalUnicast():
		return ScopeLink
	}
	return ScopeGlobal
}

func sortInterfaces(interfaces []Interface) {
	slices.SortFunc(interfaces, func(a, b Interface) int { return cmp.Compare(a.Index, b.Index) })
}
