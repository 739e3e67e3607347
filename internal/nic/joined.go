package nic

import "github.com/softrnic/softrnic/internal/clock"

// HandleJoined says that two streams are the ends of one connection, and that the shell passes from
// one to the other in memory what FillStream gives: TCP has nothing of it under way any more.
func (n *NIC) HandleJoined(now clock.Time, a, b StreamID) {
	n.now = now
	for _, id := range [...]StreamID{a, b} {
		if s := n.streams.conn(id); s != nil {
			s.isJoined = true
			s.conn.KeepLocal()
		}
	}
	if x, y := n.streams.conn(a), n.streams.conn(b); x != nil && y != nil {
		x.twin, y.twin = y, x
		if x.qp != nil {
			n.direct.follow(x.qp)
		}
	}
}
