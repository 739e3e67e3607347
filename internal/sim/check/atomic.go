package check

// Counter judges a cell that many requesters increment by fetch-and-add: every success saw another
// value, in the order of its own queue pair, and the cell counts them (IBTA 9.4.5).
type Counter struct {
	Court *Court
	Name  string

	start    uint64
	posted   uint64
	finished uint64
	seen     map[uint64]bool
	lastOf   map[uint64]uint64 // by queue pair
}

// NewCounter makes the judge of a cell that holds start.
func NewCounter(court *Court, name string, start uint64) *Counter {
	return &Counter{
		Court: court, Name: name, start: start,
		seen: make(map[uint64]bool), lastOf: make(map[uint64]uint64),
	}
}

// Post records that a fetch-and-add of one was posted.
func (c *Counter) Post() { c.posted++ }

// Succeed records the value before, as a completion brought it. From tells queue pairs of all hosts
// apart.
func (c *Counter) Succeed(from, before uint64) {
	c.finished++
	v := before - c.start
	if v >= c.posted {
		c.Court.Failf("%s: fetch-and-add saw %d; only %d were posted", c.Name, v, c.posted)
	}
	if c.seen[v] {
		c.Court.Failf("%s: two fetch-and-adds saw %d", c.Name, v)
	}
	if last, ok := c.lastOf[from]; ok && v <= last {
		c.Court.Failf("%s: queue pair %#x saw %d after %d", c.Name, from, v, last)
	}
	c.seen[v], c.lastOf[from] = true, v
}

// Final judges the value that the cell has in the end.
func (c *Counter) Final(value uint64) {
	v := value - c.start
	open := c.posted - c.finished
	if v < c.finished || v > c.finished+open {
		c.Court.Failf("%s: the cell counts %d; %d succeeded and %d are unknown",
			c.Name, v, c.finished, open)
	}
}

// Chain judges a cell that many requesters change by compare-and-swap to values that are used
// once: the successful ones form a chain from the first value to the last.
type Chain struct {
	Court *Court
	Name  string

	start  uint64
	posted map[uint64]bool   // values that somebody wants to store
	next   map[uint64]uint64 // by value: what a success replaced it with
	open   map[uint64]uint64 // outcome unknown: stored value by compared value is not unique
}

// NewChain makes the judge of a cell that holds start.
func NewChain(court *Court, name string, start uint64) *Chain {
	return &Chain{
		Court: court, Name: name, start: start, posted: make(map[uint64]bool),
		next: make(map[uint64]uint64), open: make(map[uint64]uint64),
	}
}

// Post records a compare-and-swap that stores value, which nobody else stores.
func (c *Chain) Post(compare, value uint64) {
	c.posted[value] = true
	c.open[value] = compare
}

// Succeed records the value before, as the completion brought it.
func (c *Chain) Succeed(compare, value, before uint64) {
	delete(c.open, value)
	if before != c.start && !c.posted[before] {
		c.Court.Failf("%s: compare-and-swap saw %#x, which nobody stored", c.Name, before)
	}
	if before != compare {
		return
	}
	if other, ok := c.next[before]; ok {
		c.Court.Failf("%s: both %#x and %#x replaced %#x", c.Name, other, value, before)
	}
	c.next[before] = value
}

// Final judges the value that the cell has in the end: walking the chain from the first value,
// over successes and requests of unknown outcome, has to reach it.
func (c *Chain) Final(value uint64) {
	reached := map[uint64]bool{}
	front := []uint64{c.start}
	for len(front) > 0 {
		v := front[0]
		front = front[1:]
		if reached[v] {
			continue
		}
		reached[v] = true
		if after, ok := c.next[v]; ok {
			front = append(front, after)
			continue
		}
		for stored, compare := range c.open {
			if compare == v {
				front = append(front, stored)
			}
		}
	}
	if _, replaced := c.next[value]; replaced || !reached[value] {
		c.Court.Failf("%s: the cell holds %#x, which the chain of successes does not end in",
			c.Name, value)
	}
	for before := range c.next {
		if !reached[before] {
			c.Court.Failf("%s: %#x was replaced, yet nothing had stored it", c.Name, before)
		}
	}
}
