package nic

import (
	"maps"
	"net/netip"
	"slices"
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
)

// GroupPort makes the network deliver multicast: the shell joins a group on an interface, which
// tells routers and switches (IGMP, MLD). The NIC asks once for each pair.
type GroupPort interface {
	JoinGroup(group netip.Addr, ifindex uint32) error
	LeaveGroup(group netip.Addr, ifindex uint32)
}

// multicast knows the groups: which queue pairs get their packets, and on which interfaces the
// host is a member.
type multicast struct {
	nic    *NIC
	groups map[rdma.GID]*group
}

// group is one multicast group. It lives as long as somebody is interested.
type group struct {
	gid rdma.GID
	qps []*qp
	// members counts who wants the group on an interface; 0 is every interface, what an attached
	// queue pair wants, since it does not say where from.
	members map[uint32]int
	joined  map[uint32]bool
}

func newMulticast(n *NIC) *multicast {
	return &multicast{nic: n, groups: make(map[rdma.GID]*group)}
}

// HasGroup reports a multicast GID whose packets some queue pair of this NIC gets.
func (n *NIC) HasGroup(g rdma.GID) bool {
	m := n.multicast.groups[g]
	return m != nil && len(m.qps) > 0
}

// handlePacket gives a packet to every queue pair of its group (IBTA 10.5.2.1).
func (m *multicast) handlePacket(now clock.Time, p *ibt.Packet) {
	g := m.groups[p.DGID]
	if g == nil || len(g.qps) == 0 {
		m.nic.counters.NoQP++
		return
	}
	for _, q := range g.qps {
		q.ibt.HandlePacket(now, p)
		m.nic.settle(q)
	}
	m.nic.failDoomed()
}

// want adds an interest in a group on an interface.
func (m *multicast) want(gid rdma.GID, ifindex uint32) (*group, *rdma.Refusal) {
	g := m.groups[gid]
	if g == nil {
		if len(m.groups) >= limits.MaxMulticastGroups {
			return nil, refusef(syscall.ENOMEM, "limit of %d multicast groups",
				limits.MaxMulticastGroups)
		}
		g = &group{gid: gid, members: make(map[uint32]int), joined: make(map[uint32]bool)}
		m.groups[gid] = g
	}
	g.members[ifindex]++
	if err := m.follow(g); err != nil && ifindex != 0 {
		m.unwant(g, ifindex)
		return nil, refusef(syscall.EADDRNOTAVAIL, "join %v: %v", gid.Addr(), err)
	}
	return g, nil
}

// unwant takes an interest back.
func (m *multicast) unwant(g *group, ifindex uint32) {
	if g.members[ifindex]--; g.members[ifindex] <= 0 {
		delete(g.members, ifindex)
	}
	_ = m.follow(g)
	if len(g.members) == 0 {
		delete(m.groups, g.gid)
	}
}

// follow makes the host a member on exactly the interfaces that are wanted, and returns the first
// failure to join.
func (m *multicast) follow(g *group) (failure error) {
	port := m.nic.cfg.Groups
	if port == nil {
		return nil
	}
	wanted := m.interfaces(g)
	for _, ifindex := range slices.Sorted(maps.Keys(g.joined)) {
		if !wanted[ifindex] {
			port.LeaveGroup(g.gid.Addr(), ifindex)
			delete(g.joined, ifindex)
		}
	}
	for _, ifindex := range slices.Sorted(maps.Keys(wanted)) {
		if g.joined[ifindex] {
			continue
		}
		if err := port.JoinGroup(g.gid.Addr(), ifindex); err != nil {
			if failure == nil {
				failure = err
			}
			continue
		}
		g.joined[ifindex] = true
	}
	return failure
}

// interfaces are where packets of a group may come from.
func (m *multicast) interfaces(g *group) map[uint32]bool {
	out := make(map[uint32]bool)
	for ifindex := range g.members {
		if ifindex != 0 {
			out[ifindex] = true
		}
	}
	if g.members[0] == 0 {
		return out
	}
	for _, d := range m.nic.devices {
		if !d.transport.hasDatagrams {
			continue
		}
		for i := range d.port.GIDs {
			e := &d.port.GIDs[i]
			own := rdma.GID(e.GID).Addr()
			if own.Is4() == g.gid.Addr().Is4() && !own.IsLoopback() {
				out[e.IfIndex] = true
			}
		}
	}
	return out
}

func compareGIDs(a, b rdma.GID) int { return slices.Compare(a[:], b[:]) }

// followAll goes after interfaces that came or went.
func (m *multicast) followAll() {
	for _, gid := range slices.SortedFunc(maps.Keys(m.groups), compareGIDs) {
		_ = m.follow(m.groups[gid])
	}
}

// AttachMulticast makes a UD queue pair receive what is sent to a group. Twice is once.
func (c *Context) AttachMulticast(req *abi.AttachMulticastReq) *rdma.Refusal {
	q, gid, r := c.member(req)
	if r != nil {
		return r
	}
	m := c.nic.multicast
	if g := m.groups[gid]; g != nil {
		if slices.Contains(g.qps, q) {
			return nil
		}
		if len(g.qps) >= limits.MaxMulticastAttach {
			return refusef(syscall.ENOMEM, "limit of %d queue pairs in a multicast group",
				limits.MaxMulticastAttach)
		}
	}
	g, r := m.want(gid, 0)
	if r != nil {
		return r
	}
	g.qps = append(g.qps, q)
	q.groups = append(q.groups, g)
	return nil
}

// DetachMulticast undoes AttachMulticast.
func (c *Context) DetachMulticast(req *abi.AttachMulticastReq) *rdma.Refusal {
	q, gid, r := c.member(req)
	if r != nil {
		return r
	}
	g := c.nic.multicast.groups[gid]
	if g == nil || !slices.Contains(g.qps, q) {
		return refusef(syscall.EINVAL, "queue pair %v is not attached to %v", q.qpn, gid.Addr())
	}
	c.nic.multicast.detach(g, q)
	return nil
}

// member checks the arguments of attach and detach.
func (c *Context) member(req *abi.AttachMulticastReq) (*qp, rdma.GID, *rdma.Refusal) {
	q, gid := c.qps[req.QP], rdma.GID(req.GID)
	switch {
	case !c.device.transport.hasDatagrams:
		return nil, gid, refusef(syscall.EOPNOTSUPP, "%s has no multicast: %v has no datagrams",
			c.device.name, c.device.transport)
	case q == nil:
		return nil, gid, refusef(syscall.EINVAL, "queue pair %d is unknown", req.QP)
	case q.qpType != rdma.QPTypeUD:
		return nil, gid, refusef(syscall.EINVAL, "multicast is for UD, queue pair %v is %v",
			q.qpn, q.qpType)
	case !gid.IsMulticast():
		return nil, gid, refusef(syscall.EINVAL, "%v is no multicast GID", gid.Addr())
	}
	return q, gid, nil
}

func (m *multicast) detach(g *group, q *qp) {
	g.qps = slices.DeleteFunc(g.qps, func(x *qp) bool { return x == q })
	q.groups = slices.DeleteFunc(q.groups, func(x *group) bool { return x == g })
	m.unwant(g, 0)
}

// detachAll takes a queue pair that dies out of its groups.
func (m *multicast) detachAll(q *qp) {
	for len(q.groups) > 0 {
		m.detach(q.groups[0], q)
	}
}
