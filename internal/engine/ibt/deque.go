package ibt

// dequeFirst is the capacity that the first entry allocates: an idle queue pair has none.
const dequeFirst = 4

// deque is a growable queue over one array. Entries keep their storage when they leave, so that a
// steady state allocates nothing; whoever pushes overwrites what is there.
type deque[T any] struct {
	buf  []T // a power of two, or empty
	head int
	n    int
}

// at returns the i-th entry. The pointer is valid until the next push.
//
// Preconditions: 0 ≤ i < n.
func (d *deque[T]) at(i int) *T { return &d.buf[(d.head+i)&(len(d.buf)-1)] }

// push adds an entry with old content at the end.
func (d *deque[T]) push() *T {
	if d.n == len(d.buf) {
		d.grow()
	}
	d.n++
	return d.at(d.n - 1)
}

// pop drops the first entry. Preconditions: n > 0.
func (d *deque[T]) pop() {
	d.head = (d.head + 1) & (len(d.buf) - 1)
	d.n--
}

// cut drops entries from the end until n are left.
func (d *deque[T]) cut(n int) { d.n = min(d.n, n) }

func (d *deque[T]) grow() {
	buf := make([]T, max(dequeFirst, 2*len(d.buf)))
	for i := range d.n {
		buf[i] = *d.at(i)
	}
	d.buf, d.head = buf, 0
}
