package sim

import "github.com/softrnic/softrnic/internal/clock"

// event is something that happens at an instant: a packet that arrives, or anything else.
type event struct {
	at     clock.Time
	number uint64 // events of one instant happen in the order in which they were planned
	flight *flight
	run    func()
}

func (e *event) before(o *event) bool {
	if e.at != o.at {
		return e.at < o.at
	}
	return e.number < o.number
}

// calendar is a heap of events. It is written out because a run spends much of its time here and
// container/heap would allocate for each.
type calendar struct {
	heap    []event
	planned uint64
}

func (c *calendar) isEmpty() bool { return len(c.heap) == 0 }

func (c *calendar) add(e event) {
	c.planned++
	e.number = c.planned
	c.heap = append(c.heap, e)
	i := len(c.heap) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !c.heap[i].before(&c.heap[up]) {
			break
		}
		c.heap[i], c.heap[up] = c.heap[up], c.heap[i]
		i = up
	}
}

// next removes and returns the earliest event.
//
// Preconditions: !isEmpty().
func (c *calendar) next() event {
	first := c.heap[0]
	last := len(c.heap) - 1
	c.heap[0] = c.heap[last]
	c.heap[last] = event{}
	c.heap = c.heap[:last]
	for i := 0; ; {
		down := 2*i + 1
		if down >= last {
			break
		}
		if down+1 < last && c.heap[down+1].before(&c.heap[down]) {
			down++
		}
		if !c.heap[down].before(&c.heap[i]) {
			break
		}
		c.heap[i], c.heap[down] = c.heap[down], c.heap[i]
		i = down
	}
	return first
}
