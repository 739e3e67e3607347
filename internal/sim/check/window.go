package check

import (
	"bytes"
	"slices"
)

// Window is a piece of memory that one remote sender writes and reads, and nobody else. Requests of
// a reliable connection take effect in posting order, so the outcome is known byte by byte; what
// failed may or may not have happened.
type Window struct {
	Mem      *Memory
	Name     string
	Off, Len int

	pending []*Write
	doubts  []*Write
	closed  bool
}

// Write is a remote write of a piece of a content; off counts from the start of the window.
type Write struct {
	off, n int
	seed   uint64
	from   int
	claim  *Claim
}

func (x *Write) overlaps(off, n int) bool { return x.off < off+n && off < x.off+x.n }

// Post records a write of the n bytes from offset from of a content.
func (w *Window) Post(off, n int, seed uint64, from int) *Write {
	x := &Write{off: off, n: n, seed: seed, from: from}
	if !w.closed {
		x.claim = w.Mem.Claim(w.Off+off, n)
		w.pending = append(w.pending, x)
	}
	return x
}

// Confirm says that the sender saw x succeed: its bytes are there, but for those that a later write
// may have covered already.
func (w *Window) Confirm(x *Write) {
	if !w.remove(x) {
		return
	}
	at := w.Off + x.off
	// Where a later write is open, this is what lies below it.
	Fill(w.Mem.Shadow(at, x.n), x.seed, x.from)
	if i := w.missing(x, w.pending); i >= 0 {
		w.Mem.Court.Failf("%s: byte %d of a completed write of %d bytes at %#x is not there",
			w.Name, i, x.n, at)
	}
	w.Mem.Release(x.claim)
}

// missing returns the first byte of x that is not there, or −1; those that a later write may have
// covered are not looked at.
func (w *Window) missing(x *Write, later []*Write) int {
	got := w.Mem.Bytes[w.Off+x.off : w.Off+x.off+x.n]
	for at := 0; ; at++ {
		i := Mismatch(got[at:], x.seed, x.from+at)
		if i < 0 {
			return -1
		}
		at += i
		covers := func(y *Write) bool { return y.overlaps(x.off+at, 1) }
		if !slices.ContainsFunc(later, covers) && !slices.ContainsFunc(w.doubts, covers) {
			return at
		}
	}
}

// Pending returns the writes that are open now.
func (w *Window) Pending() []*Write { return slices.Clone(w.pending) }

// Flushed says that the other side answers a request to make these writes visible: those that are
// still open are there, though their sender does not know it yet (IBTA A19.4.3).
func (w *Window) Flushed(list []*Write) {
	if w.closed || w.Mem.frozen {
		return
	}
	for _, x := range list {
		i := slices.Index(w.pending, x)
		if i < 0 {
			continue
		}
		if at := w.missing(x, w.pending[i+1:]); at >= 0 {
			w.Mem.Court.Failf("%s: byte %d of a write of %d bytes at %#x is not there as a FLUSH "+
				"after it is answered", w.Name, at, x.n, w.Off+x.off)
		}
	}
}

func (w *Window) remove(x *Write) bool {
	i := slices.Index(w.pending, x)
	if i < 0 {
		return false
	}
	w.pending = slices.Delete(w.pending, i, i+1)
	return true
}

// Doubt says that x failed or cannot be confirmed: any of its bytes may arrive at any time.
func (w *Window) Doubt(x *Write) {
	if w.remove(x) {
		w.doubts = append(w.doubts, x)
	}
}

// HasDoubts reports a write with an unknown outcome.
func (w *Window) HasDoubts() bool { return len(w.doubts) > 0 }

// Predict returns what a read sees that is posted after all writes so far.
func (w *Window) Predict(off, n int) []byte {
	out := slices.Clone(w.Mem.Shadow(w.Off+off, n))
	for _, x := range w.pending {
		lo, hi := max(off, x.off), min(off+n, x.off+x.n)
		if lo < hi {
			Fill(out[lo-off:hi-off], x.seed, x.from+lo-x.off)
		}
	}
	return out
}

// Overlaps reports whether an open write touches the range.
func (w *Window) Overlaps(off, n int) bool {
	hit := func(x *Write) bool { return x.overlaps(off, n) }
	return slices.ContainsFunc(w.pending, hit) || slices.ContainsFunc(w.doubts, hit)
}

// Close says that nothing arrives any more, as the queue pair or the region is gone: every byte
// holds what it had or what some open write brought, and that stays.
func (w *Window) Close() {
	if w.closed {
		return
	}
	w.closed = true
	open := append(w.doubts, w.pending...)
	w.doubts, w.pending = nil, nil
	if w.Mem.frozen {
		return
	}
	w.judgeLeft(open)
	for _, x := range open {
		w.Mem.Adopt(w.Off+x.off, x.n)
		w.Mem.Release(x.claim)
	}
}

// judgeLeft finds a byte that is neither what it was nor what an open write brings.
func (w *Window) judgeLeft(open []*Write) {
	got, was := w.Mem.Bytes[w.Off:w.Off+w.Len], w.Mem.Shadow(w.Off, w.Len)
	if bytes.Equal(got, was) {
		return
	}
	fits := make([]bool, w.Len)
	for _, x := range open {
		want := make([]byte, x.n)
		Fill(want, x.seed, x.from)
		for i, b := range got[x.off : x.off+x.n] {
			fits[x.off+i] = fits[x.off+i] || b == want[i]
		}
	}
	for i, b := range got {
		if b != was[i] && !fits[i] {
			w.Mem.Court.Failf("%s: byte %d holds %#02x, which nobody wrote there", w.Name, i, b)
			return
		}
	}
}
