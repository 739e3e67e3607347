package iwarp

import (
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/rdma"
)

// Modify takes the attributes in mask from a and enters state to, which may be the present one.
// The NIC has checked that the transition is legal. A queue pair with a connection loses it in
// RESET and ERR; SQD, which is CLOSING on iWARP, ends it in order.
func (q *QP) Modify(now clock.Time, a *Attr, mask rdma.QPAttrMask, to rdma.QPState) {
	q.now = now
	if to == rdma.QPStateReset {
		q.reset()
		return
	}
	if mask&rdma.QPAttrAccessFlags != 0 {
		q.attr.Access = a.Access
	}
	if mask&rdma.QPAttrMaxQPRdAtomic != 0 {
		q.attr.MaxRdAtomic = a.MaxRdAtomic
	}
	if mask&rdma.QPAttrMaxDestRdAtomic != 0 {
		q.attr.MaxDestRdAtomic = a.MaxDestRdAtomic
	}
	q.enter(to)
}

func (q *QP) enter(to rdma.QPState) {
	switch to {
	case rdma.QPStateError:
		q.enterError()
		q.dropConn()
	case rdma.QPStateSQD:
		if q.conn != nil {
			q.state = to
			q.conn.Disconnect(q.now)
		}
	default:
		q.state = to
	}
}

// dropConn ends the connection of a queue pair whose owner does not want it any more, and parts
// from it.
func (q *QP) dropConn() {
	if c := q.conn; c != nil {
		c.now = q.now
		c.detach()
		c.abandon(End{How: HowError})
	}
}

// connect attaches the queue pair to a connection that is set up. ird and ord are the depths that
// both ends agreed on, and served how many of the peer's READs and atomics may wait here. What is
// posted already is looked at when the connection is ready to fail for it.
func (q *QP) connect(c *Conn, ird, ord, served uint16) {
	q.conn = c
	q.send.start(ord)
	q.recv.start(served)
	q.attr.MaxRdAtomic, q.attr.MaxDestRdAtomic = depth(ord), depth(ird)
	q.state = rdma.QPStateRTS
}

// depth narrows a negotiated depth to what verbs show.
func depth(n uint16) uint8 { return uint8(min(n, 255)) }

// reset drops everything in silence (IBTA 10.3.1.1).
func (q *QP) reset() {
	q.dropConn()
	q.state = rdma.QPStateReset
	q.attr = Attr{}
	q.flush = flusher{}
	q.send.reset()
	q.recv.reset()
	q.stats = Stats{}
	if rq, ok := q.cfg.RQ.(skipper); ok && !q.cfg.RQ.IsShared() {
		rq.Skip()
	}
}

// Release drops what the QP holds; it is not used afterwards. Its connection ends.
func (q *QP) Release() {
	q.reset()
}

// skipper is a receive queue that can forget what is posted.
type skipper interface{ Skip() }
