package ring

import (
	"encoding/binary"
	"sync"
	"testing"
)

func pair(entries uint32) (*Producer, *Consumer, []byte) {
	geo := Geometry{Entries: entries, Stride: 8}
	mem := make([]byte, 256+geo.Bytes())
	prod, cons := Word(mem, 0), Word(mem, 128)
	return NewProducer(mem[256:], geo, prod, cons), NewConsumer(mem[256:], geo, prod, cons), mem
}

func TestRing_Concurrent_KeepsOrderAndLosesNothing(t *testing.T) {
	p, c, _ := pair(16)
	const total = 20000
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := uint64(0); i < total; {
			if p.Free() == 0 {
				continue
			}
			binary.LittleEndian.PutUint64(p.Slot(), i)
			p.Push()
			p.Publish()
			i++
		}
	})
	for want := uint64(0); want < total; {
		n, ok := c.Pending()
		if !ok {
			t.Fatal("correct producer called corrupt")
		}
		for i := range n {
			if got := binary.LittleEndian.Uint64(c.Slot(i)); got != want {
				t.Fatalf("slot %d: got %d", want, got)
			}
			want++
		}
		c.Release(n)
	}
	wg.Wait()
}

func TestRing_IndexWrap_Continues(t *testing.T) {
	geo := Geometry{Entries: 4, Stride: 8}
	mem := make([]byte, 256+geo.Bytes())
	Word(mem, 0).Store(0xfffffffe)
	Word(mem, 128).Store(0xfffffffe)
	p := NewProducer(mem[256:], geo, Word(mem, 0), Word(mem, 128))
	c := NewConsumer(mem[256:], geo, Word(mem, 0), Word(mem, 128))
	for range 4 {
		p.Slot()[0]++
		p.Push()
	}
	p.Publish()
	if p.Free() != 0 {
		t.Fatalf("free %d of a full ring", p.Free())
	}
	if n, ok := c.Pending(); n != 4 || !ok {
		t.Fatalf("pending %d %v", n, ok)
	}
	c.Release(4)
	if p.Free() != 4 {
		t.Fatalf("free %d of an empty ring", p.Free())
	}
}

func TestRing_HostileIndices_AreBounded(t *testing.T) {
	p, c, mem := pair(8)
	for _, v := range []uint32{9, 1 << 31, 0xffffffff} {
		Word(mem, 0).Store(v)
		if n, ok := c.Pending(); ok || n != 0 {
			t.Errorf("producer index %#x: pending %d, ok %v", v, n, ok)
		}
	}
	Word(mem, 0).Store(0)
	for p.Free() > 0 {
		p.Push()
	}
	Word(mem, 128).Store(77)
	if p.Free() != 0 || !p.IsCorrupt() {
		t.Errorf("consumer index beyond the producer: free %d, corrupt %v", p.Free(), p.IsCorrupt())
	}
	c.Skip()
	if n, ok := c.Pending(); n != 0 || !ok {
		t.Errorf("after Skip: %d %v", n, ok)
	}
}

func TestRoundEntries(t *testing.T) {
	for in, want := range map[uint32]uint32{0: 1, 1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 32768: 32768} {
		if got := RoundEntries(in); got != want {
			t.Errorf("RoundEntries(%d) = %d, want %d", in, got, want)
		}
	}
}

func TestProducer_MoveTo_KeepsWhatIsUnread(t *testing.T) {
	for _, row := range []struct {
		name            string
		start           uint32
		pushed, read    uint32
		entries, larger uint32
	}{
		{"Grow", 0, 4, 1, 4, 16},
		{"Shrink", 5, 6, 4, 8, 2},
		{"AcrossWrap", 0xfffffffe, 4, 0, 4, 8},
		{"Empty", 7, 3, 3, 8, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			geo := Geometry{Entries: row.entries, Stride: 8}
			header, slots := make([]byte, 256), make([]byte, geo.Bytes())
			Word(header, 0).Store(row.start)
			Word(header, 128).Store(row.start)
			p := NewProducer(slots, geo, Word(header, 0), Word(header, 128))
			c := NewConsumer(slots, geo, Word(header, 0), Word(header, 128))
			push := func(v uint32) {
				binary.LittleEndian.PutUint64(p.Slot(), uint64(v))
				p.Push()
				p.Publish()
			}
			for i := range row.pushed {
				push(i)
			}
			c.Release(row.read)
			left := row.pushed - row.read
			if got := p.Unreleased(); got != left {
				t.Fatalf("%d unreleased, want %d", got, left)
			}
			other := Geometry{Entries: row.larger, Stride: 8}
			moved := make([]byte, other.Bytes())
			p = p.MoveTo(moved, other)
			c = NewConsumer(moved, other, Word(header, 0), Word(header, 128))
			if p.Free() != row.larger-left {
				t.Fatalf("%d free after the move, want %d", p.Free(), row.larger-left)
			}
			for i := row.pushed; p.Free() > 0; i++ {
				push(i)
			}
			n, ok := c.Pending()
			if n != row.larger || !ok {
				t.Fatalf("%d pending, want %d", n, row.larger)
			}
			for i := range n {
				if got := binary.LittleEndian.Uint64(c.Slot(i)); got != uint64(row.read+i) {
					t.Errorf("slot %d holds %d, want %d", i, got, row.read+i)
				}
			}
		})
	}
}

func TestConsumer_MoveTo_KeepsWhatIsPosted(t *testing.T) {
	for _, entries := range []uint32{2, 4, 32} {
		geo := Geometry{Entries: 4, Stride: 8}
		mem := make([]byte, 256+geo.Bytes())
		Word(mem, 0).Store(0xfffffffd)
		Word(mem, 128).Store(0xfffffffd)
		p := NewProducer(mem[256:], geo, Word(mem, 0), Word(mem, 128))
		c := NewConsumer(mem[256:], geo, Word(mem, 0), Word(mem, 128))
		for i := range uint64(4) {
			binary.LittleEndian.PutUint64(p.Slot(), i)
			p.Push()
			p.Publish()
		}
		c.Release(2)
		other := Geometry{Entries: entries, Stride: 8}
		slots := make([]byte, other.Bytes())
		c = c.MoveTo(slots, other)
		p = NewProducer(slots, other, Word(mem, 0), Word(mem, 128))
		for i := uint64(4); p.Free() > 0; i++ {
			binary.LittleEndian.PutUint64(p.Slot(), i)
			p.Push()
		}
		p.Publish()
		n, ok := c.Pending()
		if n != entries || !ok {
			t.Fatalf("%d pending of %d", n, entries)
		}
		for i := range n {
			if got := binary.LittleEndian.Uint64(c.Slot(i)); got != uint64(i)+2 {
				t.Errorf("%d entries: slot %d holds %d", entries, i, got)
			}
		}
	}
}
