package work

import "testing"

// An entry's storage is large: who has one request at a time must not walk through all of it.
func TestDeque_OneAtATime_UsesOneEntry(t *testing.T) {
	var d Deque[int]
	first := d.Push()
	d.Pop()
	for range 10 {
		if d.Push() != first {
			t.Fatal("an empty queue begins at another entry")
		}
		d.Pop()
	}
}

func TestDeque_KeepsOrderOverEndsAndGrowth(t *testing.T) {
	var d Deque[int]
	in, out := 0, 0
	for round := range 100 {
		for range 1 + round%7 {
			*d.Push() = in
			in++
		}
		for range 1 + round%5 {
			if d.Len() == 0 {
				break
			}
			if got := *d.At(0); got != out {
				t.Fatalf("%d comes before %d", got, out)
			}
			d.Pop()
			out++
		}
	}
	if d.Len() != in-out {
		t.Errorf("%d entries, want %d", d.Len(), in-out)
	}
}
