package work

// Bounds of a Vector: what one call into the kernel takes gladly, and what one stream may send
// before another has its turn.
const (
	VectorPieces = 64
	VectorBytes  = 256 << 10
)

// Vector is bytes on their way into a stream, in pieces that stay where they are. The pieces belong
// to whoever filled the vector and are valid until the next call into it.
type Vector struct {
	Pieces [][]byte
	Bytes  int // of all pieces
}

// Reset empties the vector. The array of pieces is kept, so that a steady state allocates nothing.
func (v *Vector) Reset() {
	clear(v.Pieces)
	v.Pieces, v.Bytes = v.Pieces[:0], 0
}

// Append adds a piece at the end. Preconditions: !IsFull().
func (v *Vector) Append(b []byte) {
	if len(b) > 0 {
		v.Pieces, v.Bytes = append(v.Pieces, b), v.Bytes+len(b)
	}
}

// Cut keeps the first n bytes. Preconditions: 0 ≤ n ≤ Bytes.
func (v *Vector) Cut(n int) {
	v.Bytes = n
	for i := range v.Pieces {
		if n <= len(v.Pieces[i]) {
			v.Pieces[i] = v.Pieces[i][:n]
			if n > 0 {
				i++
			}
			clear(v.Pieces[i:])
			v.Pieces = v.Pieces[:i]
			return
		}
		n -= len(v.Pieces[i])
	}
}

// IsFull reports that a bound is reached.
func (v *Vector) IsFull() bool { return len(v.Pieces) >= VectorPieces || v.Bytes >= VectorBytes }
