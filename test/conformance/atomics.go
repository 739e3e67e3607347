package conformance

import (
	"encoding/binary"
	"testing"

	"github.com/softrnic/softrnic/verbs"
)

// runAtomics checks results and effects, in host byte order on both sides (case T18).
func runAtomics(t *testing.T, f Fabric) {
	require(t, f, FeatureAtomics)
	kinds := []Kind{KindProcess}
	if f.Lacks(FeatureMappedMemory) == "" {
		kinds = append(kinds, KindMapped)
	}
	for _, kind := range kinds {
		t.Run("T18/"+string(kind), func(t *testing.T) {
			a, b := f.Connect(t, Link{Type: verbs.QPTypeRC})
			ra := a.Region(t, RegionConfig{Size: 16, Access: verbs.AccessLocalWrite, Kind: kind})
			rb := b.Region(t, RegionConfig{Size: 24, Access: verbs.AccessAll, Kind: kind})
			c := calculator{a: a, ra: ra, rb: rb}
			c.set(0x0102030405060708)
			c.expect(t, verbs.WRFetchAdd, 1, 0, 0x0102030405060708, 0x0102030405060709)
			c.expect(t, verbs.WRCompareSwap, 5, 77, 0x0102030405060709, 0x0102030405060709)
			c.expect(t, verbs.WRCompareSwap, 0x0102030405060709, ^uint64(0), 0x0102030405060709, ^uint64(0))
			c.expect(t, verbs.WRFetchAdd, 3, 0, ^uint64(0), 2)
		})
	}
	t.Run("Concurrent", func(t *testing.T) { runCounter(t, f) })
}

type calculator struct {
	a      End
	ra, rb Region
	id     uint64
}

// set stores a value between two guards.
func (c *calculator) set(v uint64) {
	b := pattern(24, 0x33)
	binary.NativeEndian.PutUint64(b[8:], v)
	c.rb.Store(b)
}

func (c *calculator) expect(t *testing.T, op verbs.WROpcode, compareAdd, swap, old, after uint64) {
	t.Helper()
	c.id++
	_, err := c.a.Send(verbs.SendWR{
		ID: c.id, Opcode: op, Flags: verbs.SendSignaled, SGE: []verbs.SGE{c.ra.Piece(8, 8)},
		RemoteAddr: c.rb.Addr() + 8, RKey: c.rb.RKey(), CompareAdd: compareAdd, Swap: swap,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := verbs.WCOpFetchAdd
	if op == verbs.WRCompareSwap {
		want = verbs.WCOpCompareSwap
	}
	wc := next(t, c.a)
	if wc.Err() != nil || wc.ID != c.id || wc.Opcode != want || wc.ByteLen != 8 {
		t.Fatalf("%v: %+v: %v", op, wc, wc.Err())
	}
	if got := binary.NativeEndian.Uint64(c.ra.Load()[8:]); got != old {
		t.Errorf("%v returned %#x, want %#x", op, got, old)
	}
	whole := c.rb.Load()
	if got := binary.NativeEndian.Uint64(whole[8:]); got != after {
		t.Errorf("%v left %#x, want %#x", op, got, after)
	}
	guards := pattern(24, 0x33)
	compare(t, op.String(), append(whole[:8:8], whole[16:]...), append(guards[:8:8], guards[16:]...))
}

// runCounter adds from two queue pairs at once to one number: none is lost, and every value is
// seen once.
func runCounter(t *testing.T, f Fabric) {
	const each = 100
	var results [2]Region
	a0, b0 := f.Connect(t, Link{Type: verbs.QPTypeRC})
	a1, _ := f.Connect(t, Link{Type: verbs.QPTypeRC})
	ends := [2]End{a0, a1}
	shared := b0.Region(t, RegionConfig{Size: 8, Access: verbs.AccessAll})
	shared.Store(make([]byte, 8))
	seen := map[uint64]bool{}
	for i, e := range ends {
		results[i] = e.Region(t, RegionConfig{Size: 8 * each, Access: verbs.AccessLocalWrite})
		for k := range each {
			wr := verbs.SendWR{
				ID: uint64(k), Opcode: verbs.WRFetchAdd, CompareAdd: 1, Flags: verbs.SendSignaled,
				SGE: []verbs.SGE{results[i].Piece(8*k, 8)}, RemoteAddr: shared.Addr(), RKey: shared.RKey(),
			}
			if _, err := e.Send(wr); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, e := range ends {
		for range each {
			if wc := next(t, e); wc.Err() != nil {
				t.Fatal(wc.Err())
			}
		}
		values := results[i].Load()
		for k := range each {
			v := binary.NativeEndian.Uint64(values[8*k:])
			if v >= 2*each || seen[v] {
				t.Fatalf("value %d is out of range or was seen before", v)
			}
			seen[v] = true
		}
	}
	if got := binary.NativeEndian.Uint64(shared.Load()); got != 2*each {
		t.Errorf("the sum is %d, not %d", got, 2*each)
	}
}
