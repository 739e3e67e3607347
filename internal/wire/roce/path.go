package roce

import (
	"fmt"
	"net/netip"
)

// Path is what the network and UDP headers of a packet hold beside lengths and checksums. The
// destination port is always Port.
type Path struct {
	// Src and Dst are both IPv4 (or IPv4-mapped), or both IPv6; a zone is ignored.
	Src, Dst netip.Addr
	// FlowLabel is the 20-bit IPv6 flow label.
	FlowLabel uint32
	// SrcPort is the UDP source port: entropy for ECMP (IBTA A17.9.2).
	SrcPort uint16
	// IPID is the IPv4 identification. The ICRC covers it. A receiver that cannot see it, which
	// is any plain UDP socket, leaves it 0.
	IPID uint16
	// TrafficClass is the IPv4 type of service or IPv6 traffic class: DSCP and ECN.
	TrafficClass uint8
	// HopLimit is the IPv4 time to live or IPv6 hop limit.
	HopLimit uint8
	// DF is the IPv4 don't-fragment flag. The ICRC covers it.
	DF bool
}

// Is4 reports whether the packet travels over IPv4.
func (p *Path) Is4() bool { return is4(p.Src) && is4(p.Dst) }

func is4(a netip.Addr) bool { return a.Is4() || a.Is4In6() }

// ECN returns the two congestion bits of the traffic class (RFC 3168 §5).
func (p *Path) ECN() uint8 { return p.TrafficClass & 3 }

// ECNCongestionExperienced is the mark that a congested switch sets (RFC 3168 §5).
const ECNCongestionExperienced = 3

func (p Path) String() string {
	src := netip.AddrPortFrom(p.Src, p.SrcPort)
	s := fmt.Sprintf("%s > %s tclass=0x%02x hop=%d", src, p.Dst, p.TrafficClass, p.HopLimit)
	if !p.Is4() {
		return s + fmt.Sprintf(" flow=0x%05x", p.FlowLabel)
	}
	s += fmt.Sprintf(" id=0x%04x", p.IPID)
	if p.DF {
		s += " df"
	}
	return s
}
