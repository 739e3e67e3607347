package nic

import (
	"time"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/rdma"
)

// pacer holds what UC and UD queue pairs send to other hosts to a rate. Nothing else slows them
// down: no window, no acknowledge; and a peer whose socket buffer is small loses what arrives
// while its NIC has no processor (ADR 0014).
type pacer struct {
	rate  uint64     // bytes per second; 0 = no limit
	until clock.Time // when what was sent has drained at the rate
	held  runQueue
}

// paceBurst is how many bytes may go at once: half of what the smallest socket buffer that Linux
// gives by default holds, and enough for a segmented send.
const paceBurst = 64 << 10

// holds reports that q has to wait now.
func (p *pacer) holds(q *qp, now clock.Time) bool {
	return p.rate != 0 && q.isPaced && p.until-now > clock.Time(p.duration(paceBurst))
}

func (p *pacer) duration(bytes int) time.Duration {
	return time.Duration(uint64(bytes) * uint64(time.Second) / p.rate)
}

// charge accounts for a packet of q that was polled.
func (p *pacer) charge(n *NIC, q *qp, packet *ibt.Packet) {
	if p.rate == 0 || !isUnreliable(q.qpType) {
		return
	}
	q.isPaced = !n.IsLocal(packet.DGID)
	if q.isPaced {
		p.until = max(p.until, n.now).Add(p.duration(packet.Headers.Len() + len(packet.Payload)))
	}
}

// hold puts q, which left the run queue, aside.
func (p *pacer) hold(q *qp) {
	p.held.push(q)
	q.isHeld = true
}

// deadline is when those held may go on.
func (p *pacer) deadline() clock.Time {
	if p.held.head == nil {
		return clock.Never
	}
	return p.until
}

// release lets them go on when their time has come.
func (p *pacer) release(n *NIC, now clock.Time) {
	for p.held.head != nil && p.until <= now {
		q := p.held.head.owner
		p.held.pop()
		q.isHeld = false
		n.run.push(q)
	}
}

// unqueue takes q out of whichever queue it waits in.
func (n *NIC) unqueue(q *qp) {
	if q.isHeld {
		n.pacer.held.remove(&q.turn)
		q.isHeld = false
		return
	}
	n.run.remove(&q.turn)
}

// isUnreliable reports a service whose losses nobody repairs.
func isUnreliable(t rdma.QPType) bool { return t == rdma.QPTypeUC || t == rdma.QPTypeUD }
