package iwarp

import (
	"testing"

	"pgregory.net/rapid"
)

// addBitByBit is the addition as the standard writes it down: no carry leaves a bit that is set in
// the mask.
func addBitByBit(old, data, mask uint64) uint64 {
	var sum, carry uint64
	for i := range 64 {
		bits := old>>i&1 + data>>i&1 + carry
		sum |= bits & 1 << i
		carry = bits >> 1 &^ (mask >> i)
	}
	return sum
}

func TestAtomicRequest_Apply_IsTheStandardsBitByBit(t *testing.T) {
	number := rapid.OneOf(
		rapid.Uint64(), rapid.SampledFrom([]uint64{0, 1, ^uint64(0), 1 << 63, 0x8000800080008000}),
	)
	rapid.Check(t, func(t *rapid.T) {
		old := number.Draw(t, "old")
		r := AtomicRequest{
			Data: number.Draw(t, "data"), DataMask: number.Draw(t, "mask"),
			Compare: number.Draw(t, "compare"), CompareMask: number.Draw(t, "compare mask"),
		}
		if got, want := r.Apply(old), addBitByBit(old, r.Data, r.DataMask); got != want {
			t.Fatalf("%v of %#x is %#x, want %#x", r, old, got, want)
		}
		if r.DataMask = 0; r.Apply(old) != old+r.Data {
			t.Fatalf("%v of %#x is %#x", r, old, r.Apply(old))
		}
		r.Op, r.DataMask = AtomicCompareSwap, number.Draw(t, "swap mask")
		want := old
		for i := range 64 {
			if bit := uint64(1) << i; r.DataMask&bit != 0 {
				want = want&^bit | r.Data&bit
			}
		}
		if (old^r.Compare)&r.CompareMask != 0 {
			want = old
		}
		if got := r.Apply(old); got != want {
			t.Fatalf("%v of %#x is %#x, want %#x", r, old, got, want)
		}
		r.Op = 1
		if got := r.Apply(old); got != old {
			t.Fatalf("an operation that nobody knows made %#x of %#x", got, old)
		}
	})
}
