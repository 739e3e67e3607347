package check

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
)

// RecvQueue follows a receive queue: each posted receive completes or flushes once. Those of a
// queue pair's own queue do so in order; queue pairs that share a queue finish in any order.
type RecvQueue struct {
	Court  *Court
	Name   string
	Shared bool

	open []uint64
}

// Post records a receive.
func (q *RecvQueue) Post(id uint64) { q.open = append(q.open, id) }

// Open returns how many receives are posted.
func (q *RecvQueue) Open() int { return len(q.open) }

// Close forgets what is open, as destroying or resetting the queue does.
func (q *RecvQueue) Close() { q.open = nil }

// Complete judges a completion and returns whether it belonged to a posted receive.
func (q *RecvQueue) Complete(c *abi.CQE) bool {
	for i, id := range q.open {
		if id != c.WRID {
			continue
		}
		if i > 0 && !q.Shared {
			q.Court.Failf("%s: receive wr_id %#x completes before %d older ones",
				q.Name, c.WRID, i)
		}
		q.open = append(q.open[:i], q.open[i+1:]...)
		return true
	}
	q.Court.Failf("%s: completion (%v) of receive wr_id %#x, which is not posted",
		q.Name, rdma.WCStatus(c.Status), c.WRID)
	return false
}
