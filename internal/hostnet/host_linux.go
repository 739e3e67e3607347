package hostnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ErrUnreachable is what Route wraps when the namespace has no way to the destination.
var ErrUnreachable = errors.New("no route to host")

// dumpTries bounds how often a listing that a concurrent change interrupted is repeated. A result
// that is still torn after that is used: the change that tore it also wakes every Watch.
const dumpTries = 5

// Host asks the kernel about one network namespace. It is safe for concurrent use.
type Host struct {
	handle *netlink.Handle
	netns  uint64 // inode of the namespace: its identity on this boot
}

// Open returns a Host for the network namespace of the calling thread.
func Open() (*Host, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("hostnet: open a route netlink socket (a sandbox that forbids"+
			" AF_NETLINK hides the host's addresses): %w", err)
	}
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		st.Ino = 0 // without /proc the namespace has no name; nothing else depends on it
	}
	return &Host{handle: handle, netns: st.Ino}, nil
}

// Close releases the netlink socket. Watches of the host must be closed before.
func (h *Host) Close() { h.handle.Close() }

// Identity returns bytes that differ between hosts and between namespaces of one host.
func (h *Host) Identity() []byte {
	var id []byte
	for _, name := range []string{"/etc/machine-id", "/proc/sys/kernel/random/boot_id"} {
		if text, err := os.ReadFile(name); err == nil && len(text) > 0 {
			id = append(id, text...)
			break
		}
	}
	return fmt.Appendf(id, "netns:%d", h.netns)
}

// Snapshot lists interfaces and usable addresses. A namespace in which nothing is up yields an
// empty list and no error.
func (h *Host) Snapshot() (Snapshot, error) {
	var s Snapshot
	links, err := retryDump(h.handle.LinkList)
	if err != nil {
		return s, fmt.Errorf("hostnet: list the interfaces by netlink: %w", err)
	}
	for _, link := range links {
		s.Interfaces = append(s.Interfaces, interfaceOf(link))
	}
	sortInterfaces(s.Interfaces)
	addresses, err := retryDump(func() ([]netlink.Addr, error) {
		return h.handle.AddrList(nil, netlink.FAMILY_ALL)
	})
	if err != nil {
		return s, fmt.Errorf("hostnet: list the addresses by netlink: %w", err)
	}
	for _, a := range addresses {
		link, known := s.InterfaceByIndex(a.LinkIndex)
		if address, ok := addressOf(a); ok && known && link.Up {
			s.Addresses = append(s.Addresses, address)
		}
	}
	sortAddresses(s.Addresses)
	return s, nil
}

func retryDump[T any](list func() ([]T, error)) ([]T, error) {
	var items []T
	var err error
	for range dumpTries {
		items, err = list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return items, err
		}
	}
	return items, nil
}

func interfaceOf(link netlink.Link) Interface {
	attrs := link.Attrs()
	i := Interface{
		Index:    attrs.Index,
		Name:     attrs.Name,
		Kind:     link.Type(),
		MTU:      attrs.MTU,
		Up:       attrs.RawFlags&unix.IFF_UP != 0,
		Running:  attrs.RawFlags&unix.IFF_RUNNING != 0,
		Loopback: attrs.RawFlags&unix.IFF_LOOPBACK != 0,
	}
	if len(attrs.HardwareAddr) == len(i.MAC) {
		copy(i.MAC[:], attrs.HardwareAddr)
	}
	return i
}

func addressOf(a netlink.Addr) (Address, bool) {
	if a.IPNet == nil {
		return Address{}, false
	}
	ip, ok := netip.AddrFromSlice(a.IP)
	if !ok || a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) != 0 &&
		a.Flags&unix.IFA_F_OPTIMISTIC == 0 {
		return Address{}, false
	}
	ones, _ := a.Mask.Size()
	ip = ip.Unmap()
	return Address{
		Prefix:     netip.PrefixFrom(ip, ones),
		Scope:      scopeOf(ip),
		Interface:  a.LinkIndex,
		Deprecated: a.Flags&unix.IFA_F_DEPRECATED != 0,
		Temporary:  a.Flags&unix.IFA_F_SECONDARY != 0, // same bit as IFA_F_TEMPORARY
	}, true
}

// Route is the kernel's answer to "how would a packet get there?".
type Route struct {
	Source    netip.Addr // preferred source address
	Interface int        // index of the outgoing interface
	MTU       int        // bytes of an IP packet on this path, as far as this host knows
	Local     bool       // the destination is this host itself
	Gateway   netip.Addr // zero when the destination is on the link
}

// Route looks up the way to dst. The interface index binds a link-local destination, which is
// ambiguous without it (RFC 4007); 0 lets the kernel choose. It returns ErrUnreachable wrapped
// when there is no way.
func (h *Host) Route(dst netip.Addr, ifindex int) (Route, error) {
	dst = dst.Unmap().WithZone("")
	options := netlink.RouteGetOptions{OifIndex: ifindex}
	routes, err := h.handle.RouteGetWithOptions(net.IP(dst.AsSlice()), &options)
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH),
		errors.Is(err, unix.EACCES), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EAGAIN),
		errors.Is(err, unix.ENODEV), err == nil && len(routes) == 0:
		// The last errno values are how the kernel shows "prohibit", "blackhole", "throw"
		// routes and an interface that has gone.
		if err == nil {
			err = unix.EHOSTUNREACH
		}
		return Route{}, fmt.Errorf("hostnet: route to %v: %w: %w", dst, ErrUnreachable, err)
	case err != nil:
		return Route{}, fmt.Errorf("hostnet: look up the route to %v by netlink: %w", dst, err)
	}
	return h.routeOf(routes[0])
}

func (h *Host) routeOf(r netlink.Route) (Route, error) {
	route := Route{Interface: r.LinkIndex, MTU: r.MTU, Local: r.Type == unix.RTN_LOCAL}
	if source, ok := netip.AddrFromSlice(r.Src); ok {
		route.Source = source.Unmap()
	}
	if gateway, ok := netip.AddrFromSlice(r.Gw); ok {
		route.Gateway = gateway.Unmap()
	}
	link, err := h.handle.LinkByIndex(r.LinkIndex)
	if err != nil {
		return Route{}, fmt.Errorf("hostnet: read interface %d of a route: %w", r.LinkIndex, err)
	}
	if mtu := link.Attrs().MTU; route.MTU == 0 || mtu < route.MTU {
		route.MTU = mtu
	}
	return route, nil
}
