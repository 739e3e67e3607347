package nic

import (
	"encoding/binary"
	"net/netip"
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
)

// Address families as Linux numbers them.
const (
	familyInet  = 2
	familyInet6 = 10
)

// sockaddr is an end of a connection in terms of sockets. The zero value is no address.
type sockaddr struct {
	addr  netip.Addr // without a zone; an IPv4-mapped address stays one of IPv6
	port  uint16
	scope uint32 // interface index, of link-local addresses
	flow  uint32 // as sin6_flowinfo has it: in network byte order
}

// sockaddrOf reads an address of a request.
func sockaddrOf(a *abi.CMAddr) (sockaddr, *rdma.Refusal) {
	out := sockaddr{port: a.Port}
	switch a.Family {
	case 0:
		return sockaddr{}, nil
	case familyInet:
		out.addr = netip.AddrFrom4([4]byte(a.Addr[:4]))
		return out, nil
	case familyInet6:
	default:
		return out, refusef(syscall.EAFNOSUPPORT,
			"address family %d: only AF_INET and AF_INET6 are known", a.Family)
	}
	out.addr, out.flow = netip.AddrFrom16(a.Addr), a.FlowInfo
	if out.addr.IsLinkLocalUnicast() {
		if a.Scope == 0 {
			return out, refusef(syscall.EINVAL,
				"the link-local address %v needs an interface (sin6_scope_id)", out.addr)
		}
		out.scope = a.Scope
	}
	return out, nil
}

// abi returns the address as events and replies carry it.
func (s sockaddr) abi() abi.CMAddr {
	out := abi.CMAddr{Port: s.port, Scope: s.scope, FlowInfo: s.flow}
	switch {
	case !s.addr.IsValid():
		return abi.CMAddr{}
	case s.addr.Is4():
		out.Family = familyInet
		a := s.addr.As4()
		copy(out.Addr[:], a[:])
	default:
		out.Family, out.Addr = familyInet6, s.addr.As16()
	}
	return out
}

func (s sockaddr) isNone() bool { return !s.addr.IsValid() }

// isWildcard reports an address that stands for all of its family.
func (s sockaddr) isWildcard() bool { return s.addr.IsUnspecified() }

func (s sockaddr) isSameFamily(o sockaddr) bool { return s.addr.Is4() == o.addr.Is4() }

// wildcard is the unspecified address of the family of s, with port 0.
func (s sockaddr) wildcard() sockaddr {
	if s.addr.Is4() {
		return sockaddr{addr: netip.IPv4Unspecified()}
	}
	return sockaddr{addr: netip.IPv6Unspecified(), scope: s.scope}
}

// loopback is s with the loopback address of its family.
func (s sockaddr) loopback() sockaddr {
	s.scope = 0
	if s.addr.Is4() {
		s.addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		return s
	}
	s.addr = netip.IPv6Loopback()
	return s
}

// flowLabel is the label that the program chose for an IPv6 destination, or 0.
func (s sockaddr) flowLabel() uint32 {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], s.flow)
	return binary.BigEndian.Uint32(b[:]) & flowLabelMask
}

// flowLabelMask keeps the 20 bits of a flow label.
const flowLabelMask = 0xfffff

func (s sockaddr) String() string {
	if s.isNone() {
		return ""
	}
	return netip.AddrPortFrom(s.addr, s.port).String()
}
