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
			const before, after = 0x0102030405060708, 0x0102030405060709
			const ones = ^uint64(0)
			c.set(before)
			for _, s := range []sum{
				{op: verbs.WRFetchAdd, operand: 1, old: before, after: after},
				{op: verbs.WRCompareSwap, operand: 5, swap: 77, old: after, after: after},
				{op: verbs.WRCompareSwap, operand: after, swap: ones, old: after, after: ones},
				{op: verbs.WRFetchAdd, operand: 3, old: ones, after: 2},
			} {
				c.expect(t, s)
			}
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

// sum is an atomic operation, what it must return and what it must leave.
type sum struct {
	op                        verbs.WROpcode
	operand, swap, old, after uint64
}

func (c *calculator) expect(t *testing.T, s sum) {
	t.Helper()
	c.id++
	_, err := c.a.Send(verbs.SendWR{
		ID: c.id, Opcode: s.op, Flags: verbs.SendSignaled, SGE: []verbs.SGE{c.ra.Piece(8, 8)},
		RemoteAddr: c.rb.Addr() + 8, RKey: c.rb.RKey(), CompareAdd: s.operand, Swap: s.swap,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := verbs.WCOpFetchAdd
	if s.op == verbs.WRCompareSwap {
		want = verbs.WCOpCompareSwap
	}
	wc := next(t, c.a)
	if wc.Err() != nil || wc.ID != c.id || wc.Opcode != want || wc.ByteLen != 8 {
		t.Fatalf("%v: %+v: %v", s.op, wc, wc.Err())
	}
	if got := binary.NativeEndian.Uint64(c.ra.Load()[8:]); got != s.old {
		t.Errorf("%v returned %#x, want %#x", s.op, got, s.old)
	}
	whole := c.rb.Load()
	if got := binary.NativeEndian.Uint64(whole[8:]); got != s.after {
		t.Errorf("%v left %#x, want %#x", s.op, got, s.after)
	}
	guards := pattern(24, 0x33)
	compare(t, s.op.String()+", before", whole[:8], guards[:8])
	compare(t, s.op.String()+", behind", whole[16:], guards[16:])
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
