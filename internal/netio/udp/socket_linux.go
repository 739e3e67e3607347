package udp

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/netio"
)

const (
	// bufferBytes is what we ask for as a socket buffer; the kernel grants what
	// net.core.rmem_max allows, or all of it to a process with CAP_NET_ADMIN. It is as much as
	// a dozen peers may send before they have adapted.
	bufferBytes = 32 << 20
	// defaultHopLimit is the TTL of packets whose path gives none.
	defaultHopLimit = 64

	// RoCE v2 source ports carry entropy in their low 14 bits (annex A17.4.3).
	sourcePortFirst = 0xC000
	sourcePortCount = 0x4000

	// Socket options that package unix does not name.
	udpNoCheck6RX    = 102 // UDP_NO_CHECK6_RX
	ipv6MulticastAll = 29  // IPV6_MULTICAST_ALL
	ipv6FlowInfo     = 11  // IPV6_FLOWINFO
)

// isUnsupported reports a kernel without this IP version.
func isUnsupported(err error) bool {
	return errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EPROTONOSUPPORT) ||
		errors.Is(err, unix.EADDRNOTAVAIL)
}

func (p *Port) openFamily(v6 bool) (f *family, err error) {
	f = &family{v6: v6}
	f.receive.fd, err = p.openReceiver(v6)
	if err != nil {
		return nil, err
	}
	for i := range p.config.SourcePorts {
		s, err := p.openSenderAt(v6, i)
		if err != nil {
			_ = f.close()
			return nil, err
		}
		f.senders = append(f.senders, s)
	}
	return f, nil
}

// openSenderAt opens the sender of place i. Its port leaves the remainder i when divided by the
// number of senders, so that the port that Send has written into a path picks the same socket
// again when the caller tries once more.
func (p *Port) openSenderAt(v6 bool, i int) (sender, error) {
	places := p.config.SourcePorts
	rounds := sourcePortCount / places
	// Chance keeps two NICs of one host from trying the same ports in the same order, no more.
	start := rand.IntN(rounds)
	first := sourcePortFirst + (i-sourcePortFirst%places+places)%places
	for k := range rounds - 1 {
		port := uint16(first + (start+k)%(rounds-1)*places)
		fd, err := p.openSender(v6, port)
		if !errors.Is(err, unix.EADDRINUSE) {
			return sender{fd: fd, port: port}, err
		}
	}
	return sender{}, fmt.Errorf("udp: the source ports from %d up are in use: %w",
		sourcePortFirst, unix.EADDRINUSE)
}

// socket opens a nonblocking UDP socket bound to a port of every address.
func socket(v6 bool, port uint16) (int, error) {
	domain := unix.AF_INET
	var address unix.Sockaddr = &unix.SockaddrInet4{Port: int(port)}
	if v6 {
		domain = unix.AF_INET6
		address = &unix.SockaddrInet6{Port: int(port)}
	}
	fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("udp: open a socket: %w", err)
	}
	if v6 {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
	}
	if err == nil {
		err = unix.Bind(fd, address)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("udp: bind to UDP port %d: %w", port, err)
	}
	return fd, nil
}

func (p *Port) openReceiver(v6 bool) (int, error) {
	fd, err := socket(v6, p.config.UDPPort)
	if errors.Is(err, unix.EADDRINUSE) {
		return -1, fmt.Errorf("udp: %w: %w", netio.ErrPortTaken, unix.EADDRINUSE)
	}
	if err != nil {
		return -1, err
	}
	if err := setOptions(fd, receiveOptions(v6)); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1); err != nil && !v6 {
		p.notice(netio.FeatureOverflowCount, err)
	}
	growBuffer(fd, unix.SO_RCVBUF, unix.SO_RCVBUFFORCE)
	if v6 {
		// Some adapters send UDP checksum 0, as RFC 6936 lets a tunnel do; a kernel that does not
		// know the option drops those packets, and nothing else is lost.
		_ = unix.SetsockoptInt(fd, unix.SOL_UDP, udpNoCheck6RX, 1)
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, ipv6MulticastAll, 0)
	}
	return fd, nil
}

func (p *Port) openSender(v6 bool, port uint16) (int, error) {
	fd, err := socket(v6, port)
	if err != nil {
		return -1, err
	}
	loop := 0
	if p.config.MulticastLoop {
		loop = 1
	}
	if err := setOptions(fd, sendOptions(v6, loop)); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	level, name := unix.IPPROTO_IP, unix.IP_RECVERR
	if v6 {
		level, name = unix.IPPROTO_IPV6, unix.IPV6_RECVERR
	}
	if err := unix.SetsockoptInt(fd, level, name, 1); err != nil && !p.noticed(
		netio.FeatureUnreachable) {
		p.notice(netio.FeatureUnreachable, err)
	}
	growBuffer(fd, unix.SO_SNDBUF, unix.SO_SNDBUFFORCE)
	if err := refuseInput(fd); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (p *Port) noticed(feature netio.Feature) bool {
	for _, n := range p.notices {
		if n.Feature == feature {
			return true
		}
	}
	return false
}

// refuseInput makes the kernel drop whatever arrives for a socket that only sends, so that
// nobody can make it readable for ever.
func refuseInput(fd int) error {
	drop := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
	program := unix.SockFprog{Len: uint16(len(drop)), Filter: &drop[0]}
	err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program)
	if err != nil {
		return fmt.Errorf("udp: attach a filter to a sending socket: %w", err)
	}
	return nil
}

// option is one integer socket option, with the words for when it fails.
type option struct {
	level, name, value int
	what               string
}

func receiveOptions(v6 bool) []option {
	if v6 {
		return []option{
			{unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1, "ask for destination addresses"},
			{unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, 1, "ask for traffic classes"},
			{unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT, 1, "ask for hop limits"},
			{unix.IPPROTO_IPV6, ipv6FlowInfo, 1, "ask for flow labels"},
		}
	}
	return []option{
		{unix.IPPROTO_IP, unix.IP_PKTINFO, 1, "ask for destination addresses"},
		{unix.IPPROTO_IP, unix.IP_RECVTOS, 1, "ask for traffic classes"},
		{unix.IPPROTO_IP, unix.IP_RECVTTL, 1, "ask for hop limits"},
		{unix.IPPROTO_IP, unix.IP_MULTICAST_ALL, 0, "receive only groups that were joined"},
	}
}

func sendOptions(v6 bool, loop int) []option {
	if v6 {
		return []option{
			{unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO, "forbid fragments"},
			{unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, defaultHopLimit, "set the hop limit"},
			{unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_LOOP, loop, "set multicast loopback"},
		}
	}
	return []option{
		{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO, "forbid fragments"},
		{unix.IPPROTO_IP, unix.IP_TTL, defaultHopLimit, "set the TTL"},
		{unix.IPPROTO_IP, unix.IP_MULTICAST_LOOP, loop, "set multicast loopback"},
	}
}

func setOptions(fd int, options []option) error {
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			return fmt.Errorf("udp: %s (socket option %d/%d): %w", o.what, o.level, o.name, err)
		}
	}
	return nil
}

// growBuffer asks for bufferBytes; what was granted is reported by Features.
func growBuffer(fd, name, forced int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, forced, bufferBytes) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, name, bufferBytes)
	}
}

func bufferSize(fd, name int) int {
	size, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, name)
	if err != nil {
		return 0
	}
	return size
}

// changeGroup joins or leaves. The kernel's complaints about doing so twice are not errors here.
func (p *Port) changeGroup(group netip.Addr, ifindex int, join bool) error {
	group = group.Unmap().WithZone("")
	f := p.v4
	if group.Is6() {
		f = p.v6
	}
	if !group.IsMulticast() || f == nil {
		return fmt.Errorf("udp: %v is no multicast group of an IP version in use here: %w",
			group, unix.EINVAL)
	}
	var err error
	if f.v6 {
		name := unix.IPV6_LEAVE_GROUP
		if join {
			name = unix.IPV6_JOIN_GROUP
		}
		mreq := unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(ifindex)}
		err = unix.SetsockoptIPv6Mreq(f.receive.fd, unix.IPPROTO_IPV6, name, &mreq)
	} else {
		name := unix.IP_DROP_MEMBERSHIP
		if join {
			name = unix.IP_ADD_MEMBERSHIP
		}
		mreq := unix.IPMreqn{Multiaddr: group.As4(), Ifindex: int32(ifindex)}
		err = unix.SetsockoptIPMreqn(f.receive.fd, unix.IPPROTO_IP, name, &mreq)
	}
	switch {
	case join && errors.Is(err, unix.EADDRINUSE), !join && errors.Is(err, unix.EADDRNOTAVAIL):
		return nil
	case errors.Is(err, unix.ENOBUFS):
		return fmt.Errorf("udp: join %v: too many groups (sysctl net.ipv4.igmp_max_memberships)"+
			": %w", group, err)
	case err != nil:
		return fmt.Errorf("udp: change membership of %v on interface %d: %w", group, ifindex, err)
	}
	return nil
}
