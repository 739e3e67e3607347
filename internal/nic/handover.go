package nic

import "github.com/softrnic/softrnic/internal/limits"

const (
	// handOverBatch is after how many completions a queue shows them, while messages are handed over:
	// each time costs the processors of both sides a cache line.
	handOverBatch = 16
	// handOversPerPoll bounds the messages that one PollTransmit hands over.
	handOversPerPoll = 4 * limits.PacketsPerPoll
)

// HandOver allows messages between queue pairs of this NIC to be carried out without packets, or
// forbids it: where somebody looks at packets, or disturbs them.
func (n *NIC) HandOver(isAllowed bool) { n.handsOver = isAllowed }

// TakeHandedOver returns how many packets messages have saved since the last call.
func (n *NIC) TakeHandedOver() int {
	k := n.handedOver
	n.handedOver = 0
	return k
}

// handOver carries requests of q out at its peer, as many as its quota allows, if both are plain.
func (n *NIC) handOver(q *qp) {
	if !n.handsOver || q.quota == 0 || !q.ibt.MayHandOver() {
		return
	}
	gid, number := q.ibt.Destination()
	if !n.local[gid] {
		return
	}
	// Who is linked already needs no look-up, which among many queue pairs misses caches.
	peer := q.direct.peer
	if peer == nil || peer.dead || peer.qpn != number {
		peer = n.qps[number]
	}
	if peer == nil || peer.ibt == nil || !peer.ibt.TakesFrom(q.ibt) {
		return
	}
	q.sendCQ.gather()
	peer.recvCQ.gather()
	// Deferred, since a copy may fault in memory of an application: what was done by then counts.
	defer n.endHandOver(q, peer)
	for q.quota > 0 && len(n.doomed) == 0 && q.ibt.HandOver(n.now, peer.ibt, &n.scrap) {
		q.quota--
	}
}

func (n *NIC) endHandOver(q, peer *qp) {
	n.handedOver += q.ibt.EndHandOver(peer.ibt)
	q.sendCQ.endGather()
	peer.recvCQ.endGather()
	n.settle(peer)
	n.settle(q)
}

// gathering keeps completions of a batch from being shown one by one.
type gathering struct {
	isOn                 bool
	count                int
	isSolicited, isError bool // one of them is
}

func (q *cq) gather() { q.gathering.isOn = true }

// add counts one more completion, which is in the ring already.
func (q *cq) addGathered(isSolicited, isError bool) {
	g := &q.gathering
	g.count++
	g.isSolicited, g.isError = g.isSolicited || isSolicited, g.isError || isError
	if g.count >= handOverBatch {
		q.showGathered()
	}
}

func (q *cq) showGathered() {
	g := &q.gathering
	if g.count == 0 {
		return
	}
	isSolicited, isError := g.isSolicited, g.isError
	*g = gathering{isOn: g.isOn}
	q.show(isSolicited, isError)
}

func (q *cq) endGather() {
	q.showGathered()
	q.gathering.isOn = false
}
