package tcp

// queue is sockets in a row. It keeps its array, so that a steady state allocates nothing.
type queue struct {
	list []*socket
	head int
}

func (q *queue) len() int { return len(q.list) - q.head }

// first returns the first, or nil.
func (q *queue) first() *socket {
	if q.len() == 0 {
		return nil
	}
	return q.list[q.head]
}

// push adds at the end. The array grows only while more than half of it is in use.
func (q *queue) push(s *socket) {
	if q.head > len(q.list)/2 && len(q.list) == cap(q.list) {
		n := copy(q.list, q.list[q.head:])
		clear(q.list[n:])
		q.list, q.head = q.list[:n], 0
	}
	q.list = append(q.list, s)
}

// pop takes the first. Preconditions: len() > 0.
func (q *queue) pop() *socket {
	s := q.list[q.head]
	q.list[q.head] = nil
	q.head++
	if q.head == len(q.list) {
		q.list, q.head = q.list[:0], 0
	}
	return s
}
