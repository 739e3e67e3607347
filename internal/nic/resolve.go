package nic

import (
	"net/netip"
	"slices"
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/rdma"
)

// Lookup asks the shell how packets get to a host. HandleRoute takes the answer, at any time.
type Lookup struct {
	ID          uint32
	Destination netip.Addr
	Interface   uint32 // that the destination is bound to; 0 leaves the choice open
	Stream      bool   // only TCP will do
}

// Route is the answer to a Lookup.
type Route struct {
	ID     uint32
	Errno  syscall.Errno // why there is no way; 0 where there is one
	Source netip.Addr    // address that packets leave with
	MTU    rdma.MTU      // that the way carries; 0 where it carries none
}

// PollLookup fills l with the next question to the shell.
func (n *NIC) PollLookup(l *Lookup) bool {
	q := &n.cm.lookups
	if len(*q) == 0 {
		return false
	}
	*l = (*q)[0]
	*q = slices.Delete(*q, 0, 1)
	return true
}

// HandleRoute takes the answer to a Lookup. One for an identifier that does not wait any more is
// ignored.
func (n *NIC) HandleRoute(now clock.Time, r *Route) {
	n.now = now
	i := n.cm.ids[r.ID]
	if i == nil || i.state != idQuerying {
		return
	}
	switch {
	case r.Errno == 0:
		n.cm.finishAddress(i, r.Source, r.MTU)
	case i.dst.addr.IsMulticast():
		// Without a route for it, a group is reached by the first interface.
		n.cm.finishAddress(i, i.firstAddress(i.dst.addr), rdma.MTU4096)
	default:
		n.cm.failAddress(i, r.Errno)
	}
}

// BindAddr gives an identifier its own address and a port.
func (s *CMSession) BindAddr(req *abi.CMAddrReq) (abi.CMRoute, *rdma.Refusal) {
	i, r := s.find(req.ID)
	if r != nil {
		return abi.CMRoute{}, r
	}
	src, r := sockaddrOf(&req.Src)
	switch {
	case r != nil:
		return abi.CMRoute{}, r
	case src.isNone():
		return abi.CMRoute{}, refusef(syscall.EAFNOSUPPORT, "bind: no address")
	}
	if r := s.nic.cm.bind(i, src); r != nil {
		return abi.CMRoute{}, r
	}
	return i.describe(), nil
}

// bind claims an address. A specific one also decides the port of the device.
func (c *connections) bind(i *identifier, src sockaddr) *rdma.Refusal {
	if i.state != idIdle {
		return refusef(syscall.EINVAL, "bind: the identifier is %v already", i.state)
	}
	if least := i.session.cfg.PortMin; src.port != 0 && src.port < least {
		return refusef(syscall.EACCES, "bind: port %d is privileged: ports from %d on are free"+
			" (sysctl net.ipv4.ip_unprivileged_port_start)", src.port, least)
	}
	bound := binding{}
	if !src.isWildcard() {
		d, gid, ok := i.own(src)
		if !ok {
			return refusef(syscall.EADDRNOTAVAIL, "bind: %v is no address of %s;"+
				" `rnic devinfo` lists them", src.addr, i.chosen())
		}
		bound = binding{isBound: true, device: d, gid: gid, mtu: d.port.MTU}
	}
	old := i.src
	if i.src = src; !i.options.afOnlySet {
		// The default of the Linux kernel (sysctl net.ipv6.bindv6only 0).
		i.options.afOnly = src.addr.Is4()
	}
	if r := c.ports.claim(i, uint32(c.nic.random()>>33)); r != nil {
		i.src = old
		return r
	}
	i.binding, i.state = bound, idBound
	return nil
}

// chosen names what an identifier may be bound to, for people.
func (i *identifier) chosen() string {
	if i.choice != nil {
		return i.choice.name
	}
	return "this NIC"
}

// ResolveAddr finds out how the destination is reached, and binds the identifier to the address
// that packets will leave with.
func (s *CMSession) ResolveAddr(now clock.Time, req *abi.CMAddrReq) *rdma.Refusal {
	s.nic.now = now
	i, r := s.find(req.ID)
	if r != nil {
		return r
	}
	src, r := sockaddrOf(&req.Src)
	if r != nil {
		return r
	}
	dst, r := sockaddrOf(&req.Dst)
	switch {
	case r != nil:
		return r
	case dst.isNone():
		return refusef(syscall.EINVAL, "resolve: no destination")
	}
	c := s.nic.cm
	if i.state == idIdle {
		if src.isNone() {
			src = dst.wildcard()
		}
		if !src.isSameFamily(dst) {
			return refusef(syscall.EINVAL, "resolve: %v and %v are of different families", src, dst)
		}
		if r := c.bind(i, src); r != nil {
			return r
		}
	}
	switch {
	case i.state != idBound:
		return refusef(syscall.EINVAL, "resolve: the identifier is %v already", i.state)
	case !i.src.isSameFamily(dst):
		return refusef(syscall.EINVAL, "resolve: %v and %v are of different families", i.src, dst)
	}
	if dst.isWildcard() {
		dst = dst.loopback()
	}
	i.dst = dst
	c.resolve(i)
	return nil
}

// resolve answers from the NIC's own addresses, or asks the shell.
func (c *connections) resolve(i *identifier) {
	isGroup := i.dst.addr.IsMulticast()
	switch _, _, isOwn := i.own(i.dst); {
	case isOwn:
		c.finishAddress(i, i.dst.addr, rdma.MTU4096) // no link limits what stays on this NIC
	case isGroup && i.binding.isBound:
		c.finishAddress(i, i.src.addr, rdma.MTU4096)
	default:
		i.isFar = c.nic.cfg.NoPackets && i.choice == nil
		i.state = idQuerying
		c.lookups = append(c.lookups, Lookup{
			ID: i.handle, Destination: i.dst.addr, Interface: i.dst.scope, Stream: i.needsStream(),
		})
	}
}

// needsStream reports that devices over TCP, and no others, will do for an identifier.
func (i *identifier) needsStream() (only bool) {
	for _, d := range i.session.nic.devices {
		if i.admits(d) {
			if d.transport.hasDatagrams {
				return false
			}
			only = true
		}
	}
	return only
}

// finishAddress binds an identifier to the way to its destination. source serves where the
// program has not chosen an address of its own.
func (c *connections) finishAddress(i *identifier, source netip.Addr, mtu rdma.MTU) {
	src := i.src
	if src.isWildcard() {
		src.addr, src.scope = source, i.dst.scope
	}
	device, gid, ok := i.own(src)
	switch {
	case !ok:
		// The host has the address, the NIC was told not to use it, or it is gone by now.
		c.failAddress(i, syscall.ENODEV)
		return
	case mtu == 0 && device.transport.hasDatagrams:
		// A stream is cut as the way wants it; a packet is not.
		c.failAddress(i, syscall.EMSGSIZE)
		return
	}
	i.src, i.state = src, idResolved
	d := binding{isBound: true, device: device, gid: gid, mtu: mtu, hops: hopLimitDefault}
	peer, isOwn := device.port.gidOf(i.dst)
	d.remote, d.isLocal = rdma.GIDFromAddr(i.dst.addr), isOwn
	if isOwn {
		d.remote = peer.GID
		if rdma.GID(gid.GID).Addr().Is4() != d.remote.Addr().Is4() {
			// A loopback address that stands for the NIC as a whole has no family of its own.
			d.remote = gid.GID
		}
	} else {
		d.mtu = min(mtu, device.port.MTU)
	}
	d.label = flowLabel(i.src, i.dst)
	d.class = i.options.tos
	i.binding = d
	c.raise(i, cmEvent{kind: eventAddrResolved})
}

// flowLabel separates connections for routers and for receivers with several queues (IBTA
// A17.9.1), unless the program chose a label.
func flowLabel(src, dst sockaddr) uint32 {
	if label := dst.flowLabel(); label != 0 {
		return label
	}
	return (uint32(src.port)*31 + uint32(dst.port)) & flowLabelMask
}

// failAddress reports that there is no way. The identifier may try another destination.
func (c *connections) failAddress(i *identifier, errno syscall.Errno) {
	i.state = idBound
	c.raise(i, cmEvent{kind: eventAddrError, status: -int32(errno)})
}

// ResolveRoute fixes the path. On RoCE it is what the address says.
func (s *CMSession) ResolveRoute(now clock.Time, req *abi.CMAddrReq) *rdma.Refusal {
	s.nic.now = now
	i, r := s.find(req.ID)
	if r != nil {
		return r
	}
	if i.state != idResolved {
		return refusef(syscall.EINVAL, "resolve route: the identifier is %v", i.state)
	}
	i.state, i.binding.class = idRouted, i.options.tos
	s.nic.cm.raise(i, cmEvent{kind: eventRouteResolved})
	return nil
}

// gidOf finds the table entry of an own address. Loopback addresses belong to the NIC whether the
// table has them or not: then its first entry stands in, of their family if there is one.
func (p *port) gidOf(a sockaddr) (abi.GIDEntry, bool) {
	if len(p.Addresses) > 0 {
		return p.gidBehind(a)
	}
	want := rdma.GIDFromAddr(a.addr)
	at := slices.IndexFunc(p.GIDs, func(g abi.GIDEntry) bool {
		return g.GID == want && (a.scope == 0 || g.IfIndex == a.scope) && carries(&g)
	})
	if at < 0 && a.addr.Unmap().IsLoopback() {
		if at = p.indexOfFamily(a.addr); at < 0 {
			at = slices.IndexFunc(p.GIDs, func(g abi.GIDEntry) bool { return carries(&g) })
		}
	}
	if at < 0 {
		return abi.GIDEntry{}, false
	}
	return p.GIDs[at], true
}

// gidBehind finds the table entry that stands for an own address where GIDs are none: the port's
// one, on the address's interface.
func (p *port) gidBehind(a sockaddr) (abi.GIDEntry, bool) {
	if len(p.GIDs) == 0 {
		return abi.GIDEntry{}, false
	}
	want, gid := a.addr.Unmap(), p.GIDs[0]
	at := slices.IndexFunc(p.Addresses, func(o PortAddress) bool {
		return o.Addr == want && (a.scope == 0 || o.Interface == a.scope)
	})
	switch {
	case at >= 0:
		gid.IfIndex = p.Addresses[at].Interface
	case !want.IsLoopback():
		return abi.GIDEntry{}, false
	}
	return gid, true
}

// indexOfFamily is where the first entry of an address's family is, or −1.
func (p *port) indexOfFamily(a netip.Addr) int {
	return slices.IndexFunc(p.GIDs, func(g abi.GIDEntry) bool {
		return rdma.GID(g.GID).Addr().Is4() == a.Unmap().Is4() && carries(&g)
	})
}

// firstAddress is the first address of the family of a, or none.
func (p *port) firstAddress(a netip.Addr) netip.Addr {
	for _, o := range p.Addresses {
		if o.Addr.Is4() == a.Unmap().Is4() {
			return o.Addr
		}
	}
	at := p.indexOfFamily(a)
	if at < 0 || len(p.Addresses) > 0 {
		return netip.Addr{}
	}
	return rdma.GID(p.GIDs[at].GID).Addr()
}
