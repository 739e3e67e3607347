package sim

import (
	"net/netip"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/sim/check"
)

// castGroups are the multicast groups of the world.
var castGroups = []rdma.GID{
	rdma.GIDFromAddr(netip.AddrFrom4([4]byte{239, 1, 0, 1})),
	rdma.GIDFromAddr(netip.MustParseAddr("ff05::77")),
}

// joinSome makes the program a member of a group, or ends that.
func (c *caller) joinSome() {
	w := c.world
	if e := c.some(func(e *callEnd) bool { return e.join != 0 }); e != nil && w.chance(0.5) {
		e.leave()
		return
	}
	e := c.newEnd(c.anyBox(), rdma.QPTypeUD)
	if e == nil {
		return
	}
	e.group = castGroups[w.between(0, len(castGroups)-1)]
	r := c.session.ResolveAddr(w.now, &abi.CMAddrReq{ID: e.handle, Dst: addr(e.group, 0)})
	if r != nil {
		w.court.Failf("%s: resolve_addr of a group: %v", e.fate.Name, r)
		return
	}
	e.fate.Move(check.EndResolving)
	e.due("resolve_addr", deedTime)
}

func (e *callEnd) joinGroup() {
	c, w := e.caller, e.caller.world
	h, r := c.session.JoinMulticast(w.now, &abi.CMMulticastReq{
		ID: e.handle, Flags: uint32(w.pick(1, 1, 2)), Addr: addr(e.group, 0),
	})
	if r != nil {
		w.court.Failf("%v: join_multicast: %v", &e.fate, r)
		return
	}
	e.join = h
}

// joined takes the way to the group, attaches the queue pair and says something.
func (e *callEnd) joined(r *abi.CMEvent) {
	c, w := e.caller, e.caller.world
	if e.join == 0 || c.own == nil {
		return // it has left the group already
	}
	if r.Join != e.join || r.Status != 0 || rdma.GID(r.Param.AH.DGID) != e.group {
		w.court.Failf("%v: MULTICAST_JOIN of %d with status %d, not of %d", &e.fate, r.Join, r.Status,
			e.join)
	}
	w.mark("call.joined")
	if !c.own.groups[e.group] {
		r := c.ctx.AttachMulticast(&abi.AttachMulticastReq{GID: e.group, QP: c.own.handle})
		if r != nil {
			w.court.Failf("%v: attach_mcast: %v", &e.fate, r)
		}
		c.own.groups[e.group] = true
	}
	w.board.tokens++
	k := &call{
		token: w.board.tokens, kind: rdma.QPTypeUD, group: e.group, askedAt: clock.Never, from: e,
	}
	w.board.casts[k.token] = k
	ah, refusal := c.ctx.CreateAH(&abi.CreateAHReq{PD: c.pd, Attr: r.Param.AH})
	if refusal != nil {
		if !c.host.isHidden() {
			w.court.Failf("%v: create_ah: %v", &e.fate, refusal)
		}
		return
	}
	c.own.say(k, abi.SendWQE{AH: ah, RemoteQPN: r.Param.QPN, RemoteQKey: r.Param.QKey})
}

func (e *callEnd) leave() {
	c, w := e.caller, e.caller.world
	if r := c.session.LeaveMulticast(e.join); r != nil {
		w.court.Failf("%v: leave_multicast: %v", &e.fate, r)
	}
	w.mark("call.left")
	e.join = 0
}

// JoinGroup implements nic.GroupPort.
func (h *host) JoinGroup(group netip.Addr, ifindex uint32) error {
	if h.groups[group] {
		h.world.court.Failf("%s: %v on interface %d is joined twice", h.name, group, ifindex)
	}
	h.groups[group] = true
	return nil
}

// LeaveGroup implements nic.GroupPort.
func (h *host) LeaveGroup(group netip.Addr, ifindex uint32) {
	if !h.groups[group] {
		h.world.court.Failf("%s: %v on interface %d is left without being joined", h.name, group, ifindex)
	}
	delete(h.groups, group)
}
