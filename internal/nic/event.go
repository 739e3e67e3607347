package nic

import "github.com/softrnic/softrnic/internal/rdma"

// Event is something an application is to be told. With Channel it is a completion event of CQ
// Handle, else an asynchronous event of Type about Handle (a QP, CQ, SRQ or port).
type Event struct {
	Context *Context
	Channel uint32
	Handle  uint32
	Type    rdma.EventType
}

// eventQueue keeps events until the shell polls. Completion events are bounded by one per armed
// CQ, asynchronous ones by the calls that cause them, and the shell drains after each.
type eventQueue struct {
	items []Event
	head  int
}

func (q *eventQueue) push(e Event) { q.items = append(q.items, e) }

func (q *eventQueue) pop(e *Event) bool {
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
		return false
	}
	*e = q.items[q.head]
	q.items[q.head] = Event{}
	q.head++
	return true
}

// PollEvent fills e with the next event.
func (n *NIC) PollEvent(e *Event) bool { return n.events.pop(e) }

// raise queues an asynchronous event for one context.
func (n *NIC) raise(c *Context, t rdma.EventType, handle uint32) {
	n.events.push(Event{Context: c, Type: t, Handle: handle})
}

// raisePort queues an event about the port of a device for every context of that device.
func (n *NIC) raisePort(d *device, t rdma.EventType) {
	for _, c := range n.contexts {
		if c.device == d {
			n.raise(c, t, thePort)
		}
	}
}

// forget drops the events of a context that is gone.
func (q *eventQueue) forget(c *Context) {
	kept := q.items[:q.head]
	for _, e := range q.items[q.head:] {
		if e.Context != c {
			kept = append(kept, e)
		}
	}
	clear(q.items[len(kept):])
	q.items = kept
}
