package udp

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// What surrounds a message in the socket API: addresses and ancillary data, in the layouts of
// ip(7), ipv6(7), udp(7) and cmsg(3).

const (
	nameBytes     = unix.SizeofSockaddrInet6 // the larger of the two
	nameBytesIPv4 = unix.SizeofSockaddrInet4
	// controlBytes holds every ancillary item asked for, with room: a truncated list would lose
	// the destination address.
	controlBytes = 256
)

// putName writes a socket address and returns its length.
func putName(b *[nameBytes]byte, addr netip.Addr, port uint16, ifindex uint32) uint32 {
	*b = [nameBytes]byte{}
	if addr.Is4() {
		binary.NativeEndian.PutUint16(b[0:], unix.AF_INET)
		binary.BigEndian.PutUint16(b[2:], port)
		ip := addr.As4()
		copy(b[4:], ip[:])
		return nameBytesIPv4
	}
	binary.NativeEndian.PutUint16(b[0:], unix.AF_INET6)
	binary.BigEndian.PutUint16(b[2:], port)
	ip := addr.As16()
	copy(b[8:], ip[:])
	binary.NativeEndian.PutUint32(b[24:], ifindex)
	return nameBytes
}

// getName reads a socket address; the zero address when it is of no known family.
func getName(b []byte) (addr netip.Addr, port uint16) {
	if len(b) < nameBytesIPv4 {
		return netip.Addr{}, 0
	}
	switch binary.NativeEndian.Uint16(b) {
	case unix.AF_INET:
		return netip.AddrFrom4([4]byte(b[4:8])), binary.BigEndian.Uint16(b[2:])
	case unix.AF_INET6:
		if len(b) >= nameBytes {
			return netip.AddrFrom16([16]byte(b[8:24])), binary.BigEndian.Uint16(b[2:])
		}
	}
	return netip.Addr{}, 0
}

// putControl writes the header of one ancillary item of n bytes into b and returns the place for
// its data and the space that the item takes. b has room for it.
func putControl(b []byte, level, kind int32, n int) (data []byte, space int) {
	space = unix.CmsgSpace(n)
	clear(b[:space])
	at := unix.SizeofCmsghdr - 8
	if at == 8 {
		binary.NativeEndian.PutUint64(b, uint64(unix.CmsgLen(n)))
	} else {
		binary.NativeEndian.PutUint32(b, uint32(unix.CmsgLen(n)))
	}
	binary.NativeEndian.PutUint32(b[at:], uint32(level))
	binary.NativeEndian.PutUint32(b[at+4:], uint32(kind))
	start := unix.CmsgLen(0)
	return b[start : start+n], space
}

// outControl is the ancillary data of a message to send.
type outControl struct {
	src      netip.Addr
	ifindex  uint32
	class    uint8
	hopLimit uint8  // 0: the socket's
	segment  uint16 // 0: the message is one packet
}

// put writes the items and returns how many bytes they take.
func (c *outControl) put(b *[controlBytes]byte) int {
	var n int
	if c.src.Is4() {
		n = c.putIPv4(b)
	} else {
		n = c.putIPv6(b)
	}
	if c.segment != 0 {
		data, space := putControl(b[n:], unix.SOL_UDP, unix.UDP_SEGMENT, 2)
		binary.NativeEndian.PutUint16(data, c.segment)
		n += space
	}
	return n
}

func (c *outControl) putIPv4(b *[controlBytes]byte) int {
	// struct in_pktinfo: interface, source address, destination (ignored).
	data, n := putControl(b[:], unix.IPPROTO_IP, unix.IP_PKTINFO, unix.SizeofInet4Pktinfo)
	binary.NativeEndian.PutUint32(data, c.ifindex)
	ip := c.src.As4()
	copy(data[4:], ip[:])
	if c.class != 0 {
		data, space := putControl(b[n:], unix.IPPROTO_IP, unix.IP_TOS, 4)
		binary.NativeEndian.PutUint32(data, uint32(c.class))
		n += space
	}
	if c.hopLimit != 0 {
		data, space := putControl(b[n:], unix.IPPROTO_IP, unix.IP_TTL, 4)
		binary.NativeEndian.PutUint32(data, uint32(c.hopLimit))
		n += space
	}
	return n
}

func (c *outControl) putIPv6(b *[controlBytes]byte) int {
	// struct in6_pktinfo: source address, interface.
	data, n := putControl(b[:], unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, unix.SizeofInet6Pktinfo)
	ip := c.src.As16()
	copy(data, ip[:])
	binary.NativeEndian.PutUint32(data[16:], c.ifindex)
	if c.class != 0 {
		data, space := putControl(b[n:], unix.IPPROTO_IPV6, unix.IPV6_TCLASS, 4)
		binary.NativeEndian.PutUint32(data, uint32(c.class))
		n += space
	}
	if c.hopLimit != 0 {
		data, space := putControl(b[n:], unix.IPPROTO_IPV6, unix.IPV6_HOPLIMIT, 4)
		binary.NativeEndian.PutUint32(data, uint32(c.hopLimit))
		n += space
	}
	return n
}

// inControl is what the ancillary data of a received message say.
type inControl struct {
	dst       netip.Addr
	ifindex   uint32
	flowLabel uint32
	segment   int // bytes of each packet but the last; 0: the message is one packet
	overflow  uint32
	class     uint8
	hopLimit  uint8
	hasCount  bool // overflow is valid
}

// parse reads the items; those it does not know are skipped.
func (c *inControl) parse(b []byte) {
	*c = inControl{}
	for len(b) >= unix.SizeofCmsghdr {
		hdr, data, rest, err := unix.ParseOneSocketControlMessage(b)
		if err != nil {
			return
		}
		c.item(hdr.Level, hdr.Type, data)
		b = rest
	}
}

func (c *inControl) item(level, kind int32, data []byte) {
	switch level {
	case unix.IPPROTO_IP:
		c.itemIPv4(kind, data)
	case unix.IPPROTO_IPV6:
		c.itemIPv6(kind, data)
	case unix.SOL_UDP:
		if kind == unix.UDP_GRO && len(data) >= 4 {
			c.segment = int(binary.NativeEndian.Uint32(data))
		}
	case unix.SOL_SOCKET:
		if kind == unix.SO_RXQ_OVFL && len(data) >= 4 {
			c.overflow, c.hasCount = binary.NativeEndian.Uint32(data), true
		}
	}
}

func (c *inControl) itemIPv4(kind int32, data []byte) {
	switch {
	case kind == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
		c.ifindex = binary.NativeEndian.Uint32(data)
		c.dst = netip.AddrFrom4([4]byte(data[8:12]))
	case kind == unix.IP_TOS && len(data) >= 1:
		c.class = data[0]
	case kind == unix.IP_TTL && len(data) >= 4:
		c.hopLimit = uint8(binary.NativeEndian.Uint32(data))
	}
}

func (c *inControl) itemIPv6(kind int32, data []byte) {
	switch {
	case kind == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
		c.dst = netip.AddrFrom16([16]byte(data[:16]))
		c.ifindex = binary.NativeEndian.Uint32(data[16:])
	case kind == unix.IPV6_TCLASS && len(data) >= 4:
		c.class = uint8(binary.NativeEndian.Uint32(data))
	case kind == unix.IPV6_HOPLIMIT && len(data) >= 4:
		c.hopLimit = uint8(binary.NativeEndian.Uint32(data))
	case kind == ipv6FlowInfo && len(data) >= 4:
		c.flowLabel = binary.BigEndian.Uint32(data) & 0xfffff
	}
}
