package nic

import (
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
)

// join is an identifier's membership of a group.
type join struct {
	group   *group // nil for send-only: the host need not hear the group
	ifindex uint32
}

// Membership of rdma_join_multicast_ex(3).
const (
	joinFull     = 1
	joinSendOnly = 2
)

// JoinMulticast makes an identifier's host a member of a group; the program learns with an event
// where to send, and attaches its queue pair itself.
func (s *CMSession) JoinMulticast(now clock.Time, req *abi.CMMulticastReq) (uint32, *rdma.Refusal) {
	s.nic.now = now
	i, r := s.find(req.ID)
	if r != nil {
		return 0, r
	}
	addr, r := sockaddrOf(&req.Addr)
	switch {
	case r != nil:
		return 0, r
	case req.Flags != joinFull && req.Flags != joinSendOnly:
		return 0, refusef(syscall.EINVAL, "join: membership %d is neither full nor send-only", req.Flags)
	case !i.isDatagram():
		return 0, refusef(syscall.EINVAL, "join: multicast is for UD, the identifier is for %v", i.qpType)
	case addr.isNone() || !addr.addr.Unmap().IsMulticast():
		return 0, refusef(syscall.EINVAL, "join: %v is no multicast address", addr)
	case !i.binding.isBound || i.state == idListening || i.state == idQuerying:
		return 0, refusef(syscall.EINVAL, "join: the identifier is %v; bind or resolve an address first",
			i.state)
	case s.nic.cm.joins >= limits.MaxMulticastJoins:
		return 0, refusef(syscall.ENOMEM, "limit of %d multicast memberships", limits.MaxMulticastJoins)
	case rdma.GID(i.binding.gid.GID).Addr().Is4() != addr.addr.Unmap().Is4():
		return 0, refusef(syscall.EINVAL, "join: %v and the identifier's address %v are of different"+
			" families", addr.addr, rdma.GID(i.binding.gid.GID).Addr())
	}
	return s.nic.cm.join(i, rdma.GIDFromAddr(addr.addr), req.Flags == joinFull)
}

func (c *connections) join(i *identifier, gid rdma.GID, full bool) (uint32, *rdma.Refusal) {
	j := &join{ifindex: i.binding.gid.IfIndex}
	if full {
		g, r := c.nic.multicast.want(gid, j.ifindex)
		if r != nil {
			return 0, r
		}
		j.group = g
	}
	_ = i.setQKey(0)
	h := c.nic.id()
	i.joins[h] = j
	c.joins++
	ah := i.ah(gid)
	ah.HopLimit, ah.TrafficClass = hopLimitDefault, i.options.tos
	c.raise(i, cmEvent{
		kind: eventMulticastJoin, join: h, param: datagramParam(ah, rdma.QPNMulticast, i.qkey),
	})
	return h, nil
}

// LeaveMulticast ends a membership.
func (s *CMSession) LeaveMulticast(handle uint32) *rdma.Refusal {
	for _, i := range s.ids {
		if i.joins[handle] != nil {
			s.nic.cm.leave(i, handle)
			return nil
		}
	}
	return refusef(syscall.EINVAL, "multicast membership %d is unknown", handle)
}

func (c *connections) leave(i *identifier, handle uint32) {
	if g := i.joins[handle].group; g != nil {
		c.nic.multicast.unwant(g, i.joins[handle].ifindex)
	}
	delete(i.joins, handle)
	c.joins--
}
