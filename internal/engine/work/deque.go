package work

// dequeFirst is the capacity that the first entry allocates: an idle queue pair has none.
const dequeFirst = 4

// Deque is a growable queue over one array. Entries keep their storage when they leave, so that a
// steady state allocates nothing; whoever pushes overwrites what is there.
type Deque[T any] struct {
	buf  []T // a power of two, or empty
	head int
	n    int
}

// At returns the i-th entry. The pointer is valid until the next push.
//
// Preconditions: 0 ≤ i < n.
func (d *Deque[T]) At(i int) *T { return &d.buf[(d.head+i)&(len(d.buf)-1)] }

// Push adds an entry with old content at the end.
func (d *Deque[T]) Push() *T {
	if d.n == len(d.buf) {
		d.grow()
	}
	d.n++
	return d.At(d.n - 1)
}

// Pop drops the first entry. Preconditions: n > 0.
func (d *Deque[T]) Pop() {
	d.head = (d.head + 1) & (len(d.buf) - 1)
	d.n--
	if d.n == 0 {
		// The entry that was used last is the one that caches hold.
		d.head = 0
	}
}

// Cut drops entries from the end until n are left.
func (d *Deque[T]) Cut(n int) { d.n = min(d.n, n) }

func (d *Deque[T]) grow() {
	buf := make([]T, max(dequeFirst, 2*len(d.buf)))
	for i := range d.n {
		buf[i] = *d.At(i)
	}
	d.buf, d.head = buf, 0
}

// Len returns how many entries there are.
func (d *Deque[T]) Len() int { return d.n }
