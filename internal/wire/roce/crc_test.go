package roce

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

func TestCRCWord_AgreesWithTheStandardLibrary(t *testing.T) {
	for seed := range uint64(1000) {
		b := randomBytes(seed, 8)
		start := uint32(seed * 0x9e3779b1)
		want := ^crc32.Update(^start, crc32.IEEETable, b)
		if got := crcWord(start, le64(b)); got != want {
			t.Fatalf("crcWord(%08x, %x) is %08x, want %08x", start, b, got, want)
		}
	}
}

func TestCRCRewind_UndoesZeroBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	zeros := make([]byte, 1<<16+100)
	lengths := []int{
		0, 1, 2, 3, 4, 5, 24, 28, 40, 1024, crcRewindMax - 4, crcRewindMax, crcRewindMax + 1,
		crcRewindMax + 4, 1<<16 - 1, 1 << 16, 1<<16 + 100,
	}
	for _, n := range lengths {
		for range 20 {
			want := r.Uint32()
			later := ^crc32.Update(^want, crc32.IEEETable, zeros[:n])
			if got := crcRewind(later, n); got != want {
				t.Fatalf("%d bytes back from %08x is %08x, want %08x", n, later, got, want)
			}
		}
	}
}

func TestCRCMultiply_IsAField(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 1000 {
		a, b, c := r.Uint32(), r.Uint32(), r.Uint32()
		if crcMultiply(a, crcOne) != a || crcMultiply(crcOne, a) != a {
			t.Fatalf("%08x times one is %08x", a, crcMultiply(a, crcOne))
		}
		if crcMultiply(a, b) != crcMultiply(b, a) {
			t.Fatalf("%08x · %08x does not commute", a, b)
		}
		if crcMultiply(a, b^c) != crcMultiply(a, b)^crcMultiply(a, c) {
			t.Fatalf("%08x · (%08x + %08x) does not distribute", a, b, c)
		}
	}
}

func BenchmarkCRCRewind(b *testing.B) {
	crc := uint32(1)
	for b.Loop() {
		crc = crcRewind(crc, 1064)
	}
}
