package mad

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// IPHeaderLen is the length of the IP addressing header in bytes (annex A11.4.2). What remains of
// the private data is the application's.
const IPHeaderLen = 36

// IPHeader begins the private data of a REQ or SIDR_REQ whose service is an IP port: the
// addresses that the application connects from and to (annex A11.4.2).
type IPHeader struct {
	Source      netip.AddrPort
	Destination netip.Addr
}

// ParseIPHeader reads the header at the start of private data.
func ParseIPHeader(b []byte) (IPHeader, error) {
	if len(b) < IPHeaderLen {
		return IPHeader{}, ErrTruncated
	}
	port := binary.BigEndian.Uint16(b[2:])
	var src, dst netip.Addr
	switch version := b[1] >> 4; {
	case b[0]>>4 != 0: // the minor version may only add what we may ignore
		return IPHeader{}, ErrIPVersion
	case version == 4:
		src, dst = netip.AddrFrom4([4]byte(b[16:20])), netip.AddrFrom4([4]byte(b[32:36]))
	case version == 6:
		src, dst = netip.AddrFrom16([16]byte(b[4:20])), netip.AddrFrom16([16]byte(b[20:36]))
	default:
		return IPHeader{}, ErrIPVersion
	}
	return IPHeader{Source: netip.AddrPortFrom(src, port), Destination: dst}, nil
}

// Append appends the IPHeaderLen bytes of the header to b. It is of IPv4 where both addresses are;
// they stand in the last four bytes of their fields.
func (h *IPHeader) Append(b []byte) []byte {
	b, d := extend(b, IPHeaderLen)
	d[1] = 6 << 4
	binary.BigEndian.PutUint16(d[2:], h.Source.Port())
	from, to := h.Source.Addr().Unmap(), h.Destination.Unmap()
	if from.Is4() && to.Is4() {
		d[1] = 4 << 4
		src, dst := from.As4(), to.As4()
		copy(d[16:], src[:])
		copy(d[32:], dst[:])
		return b
	}
	src, dst := from.As16(), to.As16()
	copy(d[4:], src[:])
	copy(d[20:], dst[:])
	return b
}

func (h IPHeader) String() string {
	return fmt.Sprintf("IP{%v → %v}", h.Source, h.Destination)
}

// Services of IP ports: protocol and port in the low bytes (annex A11.4.1).
const (
	ServiceIPPrefix uint64 = 0x0000000001 << 24
	ServiceIPMask   uint64 = 0xffffffffff << 24
)

// ServiceID returns the service of a port of an IP protocol: 6 for the port space TCP, 17 for UDP.
func ServiceID(protocol uint8, port uint16) uint64 {
	return ServiceIPPrefix | uint64(protocol)<<16 | uint64(port)
}

// SplitServiceID is the inverse of ServiceID; ok is false where the service is no IP port.
func SplitServiceID(service uint64) (protocol uint8, port uint16, ok bool) {
	return uint8(service >> 16), uint16(service), service&ServiceIPMask == ServiceIPPrefix
}
