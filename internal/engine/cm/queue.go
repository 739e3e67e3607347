package cm

// queue is a ring that grows up to a bound, and gives a burst's memory back when it is empty.
type queue[T any] struct {
	items []T
	head  int
	len   int
	bound int
}

// keptItems is the capacity that an empty queue keeps.
const keptItems = 64

// push appends a copy of v. It returns false where the queue is full.
func (q *queue[T]) push(v *T) bool {
	if q.len >= q.bound {
		return false
	}
	if q.len == len(q.items) {
		grown := make([]T, max(2*len(q.items), 8))
		n := copy(grown, q.items[q.head:])
		copy(grown[n:], q.items[:q.head])
		q.items, q.head = grown, 0
	}
	q.items[(q.head+q.len)%len(q.items)] = *v
	q.len++
	return true
}

// pop moves the first item to v.
func (q *queue[T]) pop(v *T) bool {
	if q.len == 0 {
		return false
	}
	*v = q.items[q.head]
	q.head = (q.head + 1) % len(q.items)
	q.len--
	if q.len == 0 {
		q.head = 0
		if len(q.items) > keptItems {
			q.items = nil
		}
	}
	return true
}
