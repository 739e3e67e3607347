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

// calendar is a heap of events, four below each: half as deep as one of two, and the four lie side
// by side. It is written out because a run spends much of its time here and container/heap would
// allocate for each.
type calendar struct {
	heap    []event
	planned uint64
}

// calendarWays is how many events are below each.
const calendarWays = 4

func (c *calendar) isEmpty() bool { return len(c.heap) == 0 }

func (c *calendar) add(e event) {
	c.planned++
	e.number = c.planned
	c.heap = append(c.heap, e)
	heap := c.heap
	i := len(heap) - 1
	for i > 0 {
		up := (i - 1) / calendarWays
		if !e.before(&heap[up]) {
			break
		}
		heap[i] = heap[up]
		i = up
	}
	heap[i] = e
}

// next removes and returns the earliest event.
//
// Preconditions: !isEmpty().
func (c *calendar) next() event {
	heap := c.heap
	first, last := heap[0], len(heap)-1
	e := heap[last]
	heap[last] = event{}
	heap = heap[:last]
	c.heap = heap
	if last == 0 {
		return first
	}
	i := 0
	for {
		down := calendarWays*i + 1
		if down >= last {
			break
		}
		least := down
		for k := down + 1; k < min(down+calendarWays, last); k++ {
			if heap[k].before(&heap[least]) {
				least = k
			}
		}
		if !heap[least].before(&e) {
			break
		}
		heap[i] = heap[least]
		i = least
	}
	heap[i] = e
	return first
}
