package daemon

import (
	"net/netip"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/roce"
)

// JoinGroup implements nic.GroupPort. A NIC without a network has its own queue pairs in a group,
// and nobody to tell.
func (l *lane) JoinGroup(group netip.Addr, ifindex uint32) error {
	if l.wire == nil {
		return nil
	}
	err := l.wire.JoinGroup(group, int(ifindex))
	if err != nil {
		l.stats.groupsMissed++
	}
	return err
}

// LeaveGroup implements nic.GroupPort.
func (l *lane) LeaveGroup(group netip.Addr, ifindex uint32) {
	if l.wire != nil {
		// An interface that is gone has taken the membership with it.
		_ = l.wire.LeaveGroup(group, int(ifindex))
	}
}

// isGroupPacket reports a packet to a multicast group.
func (l *lane) isGroupPacket() bool {
	return l.tx.Headers.BTH.DestQPN == rdma.QPNMulticast && l.tx.DGID.IsMulticast()
}

// reachesWire reports whether what an address sends to a group leaves this host.
func (l *lane) reachesWire(src netip.Addr) bool { return l.wire != nil && !src.IsLoopback() }

// isOnWireToo reports a packet that the mirror carries besides the wire: captures have it once.
func (l *lane) isOnWireToo(path *roce.Path) bool {
	return path.Dst.IsMulticast() && l.reachesWire(path.Src)
}

// routeGroup sends l.tx to the network, and to the queue pairs of this NIC that are in the group.
// It reports false when no more packets can be taken now.
func (l *lane) routeGroup(now clock.Time) bool {
	more, isOurs := true, l.nic.HasGroup(l.tx.DGID)
	l.departure()
	isStaged := l.reachesWire(l.tx.SGID.Addr())
	switch {
	case isStaged:
		l.stage(&l.out[0])
		more = !l.out[0].isFull() || l.flush(now, l.wire, &l.out[0])
	case !isOurs:
		l.stats.withoutNetwork++
	}
	if !isOurs {
		return more
	}
	if l.mirror != nil {
		l.stage(&l.out[1])
		return (!l.out[1].isFull() || l.flush(now, l.mirror, &l.out[1])) && more
	}
	if l.taps.IsOn() && !isStaged {
		l.tap()
	}
	l.stats.looped++
	l.nic.HandlePacket(now, &l.tx)
	return more
}
