package sim

import (
	"slices"
	"syscall"
	"time"

	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/rdma"
)

// turnCalls does what the daemon does about connections after each stimulus.
func (h *host) turnCalls() {
	if h.world.board == nil {
		return
	}
	var e nic.ConnectionEvent
	for h.nic.PollConnectionEvent(&e) {
		times := 1
		if tamper := h.world.board.tamper; tamper != nil {
			times = tamper(&e)
		}
		for range times {
			e.Session.Owner().(*caller).hear(&e)
		}
	}
	var l nic.Lookup
	for h.nic.PollLookup(&l) {
		h.lookUp(l)
	}
}

// lookUp answers how another host is reached, after a while, and at times wrongly.
func (h *host) lookUp(l nic.Lookup) {
	w, life := h.world, h.lives
	d := w.delay(0, 100*time.Microsecond)
	if w.chance(w.board.plan.lookups) {
		d = w.delay(0, 5*time.Second)
	}
	r := nic.Route{ID: l.ID, MTU: max(h.mtu, rdma.MTU(w.between(1, 5)))}
	if own := l.Destination; own.Is4() {
		r.Source = h.gids[0].Addr()
	} else {
		r.Source = h.gids[1].Addr()
	}
	if w.chance(w.board.plan.lookups) {
		r.Errno = syscall.ENETUNREACH
	}
	w.at(w.now.Add(d), func() {
		if h.lives == life && !h.isDown {
			h.nic.HandleRoute(w.now, &r)
			h.turn()
		}
	})
}

// isHidden reports that an address of the host is gone.
func (h *host) isHidden() bool { return slices.Contains(h.hidden[:], true) }

// has reports that the host has an address now.
func (h *host) has(g rdma.GID) bool {
	at := slices.Index(h.gids[:], g)
	return at >= 0 && !h.hidden[at]
}

// launch does with a packet what the network layer of a host does in a world of connections. It
// returns false for one that is not to go the common way.
func (h *host) launch(p *ibt.Packet) bool {
	w := h.world
	if !h.has(p.SGID) {
		w.mark("call.no_source") // the host refuses to send from what is no address of its own
		return false
	}
	if p.DGID == strangerGID {
		return false
	}
	w.board.overhear(h, nil, &p.Headers, p.Payload, false)
	switch {
	case h.nic.IsLocal(p.DGID):
		w.board.overhear(h, h, &p.Headers, p.Payload, true)
		return true
	case p.DGID.IsMulticast():
		h.cast(p)
		return false
	}
	to := w.hostOf(p.DGID)
	if to != nil && to != h && len(p.Payload) > min(h.mtu, to.mtu).Bytes() {
		w.court.Failf("%s: %d bytes to %s, whose port takes %v", h.name, len(p.Payload), to.name,
			to.mtu)
	}
	return to != h // one's own address that is gone
}

// cast sends a packet to all members of a group.
func (h *host) cast(p *ibt.Packet) {
	w := h.world
	if h.nic.HasGroup(p.DGID) {
		w.local++
		h.nic.HandlePacket(w.now, p)
	}
	for _, to := range w.hosts {
		if to != h && to.groups[p.DGID.Addr()] {
			h.linkTo(to).carry(p)
		}
	}
}

// accepts reports that the host takes a packet off the wire: it has the address, or is a member.
func (h *host) accepts(f *flight) bool {
	if h.world.board == nil {
		return true
	}
	g := rdma.GIDFromAddr(f.path.Dst)
	return h.has(g) || h.groups[f.path.Dst]
}
