package rdmacm

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
)

// Addr is one end of a connection, a net.Addr.
type Addr struct {
	netip.AddrPort
}

// Network returns "rdma".
func (Addr) Network() string { return "rdma" }

// family is what a network admits.
type family uint8

const (
	familyAny family = iota
	family4
	family6
)

func familyOf(network string) (family, error) {
	switch network {
	case "rdma":
		return familyAny, nil
	case "rdma4":
		return family4, nil
	case "rdma6":
		return family6, nil
	}
	return 0, net.UnknownNetworkError(network)
}

func (f family) has(a netip.Addr) bool {
	return f == familyAny || a.Is4() == (f == family4)
}

// lookupNetwork is the family for package net's resolver.
func (f family) lookupNetwork() string {
	return [...]string{"ip", "ip4", "ip6"}[f]
}

// wildcard is the address that stands for all addresses of this host.
func (f family) wildcard() netip.Addr {
	if f == family4 {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// lookup returns what address may mean, best first. An empty host is a wildcard, which for a
// destination stands for this host.
func (f family) lookup(ctx context.Context, address string) ([]netip.AddrPort, error) {
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", service)
	if err != nil {
		return nil, err
	}
	if host == "" {
		return []netip.AddrPort{netip.AddrPortFrom(f.wildcard(), uint16(port))}, nil
	}
	var found []netip.Addr
	if one, err := netip.ParseAddr(host); err == nil {
		found = append(found, one)
	} else if found, err = net.DefaultResolver.LookupNetIP(ctx, f.lookupNetwork(), host); err != nil {
		return nil, err
	}
	var out []netip.AddrPort
	for _, a := range found {
		if a = a.Unmap(); f.has(a) {
			out = append(out, netip.AddrPortFrom(a, uint16(port)))
		}
	}
	if len(out) == 0 {
		return nil, &net.AddrError{Err: "no address of the network's family", Addr: host}
	}
	return out, nil
}

// cmAddr is an address as the NIC takes it; the zero AddrPort is none.
func cmAddr(a netip.AddrPort) (abi.CMAddr, error) {
	out := abi.CMAddr{Port: a.Port()}
	switch ip := a.Addr(); {
	case !ip.IsValid():
		return abi.CMAddr{}, nil
	case ip.Is4():
		out.Family = syscall.AF_INET
		bytes := ip.As4()
		copy(out.Addr[:], bytes[:])
	default:
		out.Family, out.Addr = syscall.AF_INET6, ip.As16()
		if zone := ip.Zone(); zone != "" {
			scope, err := scopeOf(zone)
			if err != nil {
				return out, err
			}
			out.Scope = scope
		}
	}
	return out, nil
}

func scopeOf(zone string) (uint32, error) {
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(n), nil
	}
	ifc, err := net.InterfaceByName(zone)
	if err != nil {
		return 0, fmt.Errorf("zone %q of the address: %w", zone, err)
	}
	return uint32(ifc.Index), nil
}

// addrOf is the inverse of cmAddr.
func addrOf(a *abi.CMAddr) Addr {
	switch a.Family {
	case syscall.AF_INET:
		return Addr{netip.AddrPortFrom(netip.AddrFrom4([4]byte(a.Addr[:4])), a.Port)}
	case syscall.AF_INET6:
		ip := netip.AddrFrom16(a.Addr)
		if a.Scope != 0 {
			zone := strconv.FormatUint(uint64(a.Scope), 10)
			if ifc, err := net.InterfaceByIndex(int(a.Scope)); err == nil {
				zone = ifc.Name
			}
			ip = ip.WithZone(zone)
		}
		return Addr{netip.AddrPortFrom(ip, a.Port)}
	}
	return Addr{}
}
