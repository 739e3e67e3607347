package mem

import (
	"bytes"
	"encoding/binary"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
)

// sliceSpace is an address space backed by one slice that begins at base.
type sliceSpace struct {
	base  uint64
	bytes []byte
	fail  bool
	gone  bool
}

func (s *sliceSpace) at(addr uint64, n int) []byte {
	off := addr - s.base
	if s.fail || off > uint64(len(s.bytes)) || uint64(n) > uint64(len(s.bytes))-off {
		return nil
	}
	return s.bytes[off : off+uint64(n)]
}

func (s *sliceSpace) Read(addr uint64, dst []byte) bool {
	b := s.at(addr, len(dst))
	return b != nil && copy(dst, b) == len(dst)
}

func (s *sliceSpace) Write(addr uint64, src []byte) bool {
	b := s.at(addr, len(src))
	return b != nil && copy(b, src) == len(src)
}

func (s *sliceSpace) IsGone() bool { return s.gone }

const (
	testBase = 0x10000
	allRight = rdma.AccessLocalWrite | rdma.AccessRemoteWrite | rdma.AccessRemoteRead |
		rdma.AccessRemoteAtomic
)

// mixed registers 3000 bytes: a mapped middle of 1000 between two remote pieces.
func mixed(t testing.TB, table *Table, access rdma.Access) (*Region, *sliceSpace, []byte) {
	t.Helper()
	space := &sliceSpace{base: testBase, bytes: make([]byte, 3000)}
	mapped := make([]byte, 1000)
	r, refusal := table.Register(Config{
		PD: 1, Access: access, Addr: testBase, Length: 3000, IOVA: 0x7000_0000, Space: space,
		Segments: []Segment{
			{Addr: testBase, Length: 1000},
			{Addr: testBase + 1000, Length: 1000, Mapped: mapped},
			{Addr: testBase + 2000, Length: 1000},
		},
	})
	if refusal != nil {
		t.Fatal(refusal)
	}
	return r, space, mapped
}

func TestTable_WriteAcrossSegments_ReadsBack(t *testing.T) {
	table := NewTable(1)
	r, space, mapped := mixed(t, table, allRight)
	src := make([]byte, 1500)
	for i := range src {
		src[i] = byte(i*7 + 1)
	}
	if f := table.Write(r.Key, 1, r.Base+800, src, rdma.AccessRemoteWrite); f != FaultNone {
		t.Fatal(f)
	}
	dst := make([]byte, 1500)
	if f := table.Read(r.Key, 1, r.Base+800, dst, rdma.AccessRemoteRead); f != FaultNone {
		t.Fatal(f)
	}
	if !bytes.Equal(src, dst) || !bytes.Equal(mapped, src[200:1200]) ||
		!bytes.Equal(space.bytes[800:1000], src[:200]) {
		t.Error("bytes differ after a write across mapped and remote segments")
	}
	if space.bytes[799] != 0 || space.bytes[2300] != 0 {
		t.Error("a byte outside the range changed")
	}
}

func TestTable_Check_RefusesInOrder(t *testing.T) {
	table := NewTable(2)
	r, space, _ := mixed(t, table, rdma.AccessLocalWrite|rdma.AccessRemoteRead)
	b := make([]byte, 8)
	rows := []struct {
		name string
		key  rdma.Key
		pd   PD
		addr uint64
		want rdma.Access
		f    Fault
	}{
		{"key", r.Key ^ 0x100, 1, r.Base, 0, FaultKey},
		{"variant", r.Key ^ 1, 1, r.Base, 0, FaultKey},
		{"pd", r.Key, 2, r.Base, 0, FaultPD},
		{"rights", r.Key, 1, r.Base, rdma.AccessRemoteWrite, FaultRights},
		{"end", r.Key, 1, r.Base + 2993, 0, FaultBounds},
		{"before", r.Key, 1, r.Base - 1, 0, FaultBounds},
		{"wrap", r.Key, 1, ^uint64(0) - 3, 0, FaultBounds},
		{"va is not iova", r.Key, 1, testBase, 0, FaultBounds},
		{"last byte", r.Key, 1, r.Base + 2992, 0, FaultNone},
	}
	for _, row := range rows {
		if f := table.Read(row.key, row.pd, row.addr, b, row.want); f != row.f {
			t.Errorf("%s: %v, want %v", row.name, f, row.f)
		}
	}
	space.fail = true
	if f := table.Read(r.Key, 1, r.Base, b, 0); f != FaultMemory {
		t.Errorf("unreachable process: %v", f)
	}
	space.gone = true
	if f := table.Read(r.Key, 1, r.Base, b, 0); f != FaultGone {
		t.Errorf("a process that has ended: %v", f)
	}
	table.Deregister(r)
	if f := table.Read(r.Key, 1, r.Base, b, 0); f != FaultKey {
		t.Errorf("dead key: %v", f)
	}
	table.Deregister(r)
	if table.Len() != 0 {
		t.Errorf("%d regions after a double deregistration", table.Len())
	}
}

func TestTable_Register_RefusesBadRegions(t *testing.T) {
	space := &sliceSpace{base: 0, bytes: make([]byte, 100)}
	seg := func(a, n uint64) []Segment { return []Segment{{Addr: a, Length: n}} }
	rows := map[string]Config{
		"wrap":        {Addr: ^uint64(0) - 5, Length: 10, Space: space, Segments: seg(^uint64(0)-5, 10)},
		"iova wrap":   {Addr: 0, Length: 10, IOVA: ^uint64(0) - 5, Space: space, Segments: seg(0, 10)},
		"no local":    {Length: 10, Access: rdma.AccessRemoteWrite, Space: space, Segments: seg(0, 10)},
		"atomic only": {Length: 10, Access: rdma.AccessRemoteAtomic, Space: space, Segments: seg(0, 10)},
		"short":       {Length: 10, Space: space, Segments: seg(0, 9)},
		"long":        {Length: 10, Space: space, Segments: seg(0, 11)},
		"gap":         {Length: 10, Space: space, Segments: append(seg(0, 4), seg(5, 5)...)},
		"empty piece": {Length: 10, Space: space, Segments: append(seg(0, 10), seg(10, 0)...)},
		"no space":    {Length: 10, Segments: seg(0, 10)},
		"mapped size": {Length: 10, Segments: []Segment{{Length: 10, Mapped: make([]byte, 9)}}},
		"huge":        {Length: 1 << 60, Space: space, Segments: seg(0, 1<<60)},
	}
	table := NewTable(3)
	for name, c := range rows {
		if _, r := table.Register(c); r == nil || r.Errno != syscall.EINVAL {
			t.Errorf("%s: refusal %v", name, r)
		}
	}
	if table.Len() != 0 {
		t.Errorf("%d regions after refusals", table.Len())
	}
}

func TestTable_Keys_AreUniqueAndNotSequential(t *testing.T) {
	table := NewTable(4)
	seen := map[rdma.Key]bool{}
	var last rdma.Key
	neighbours := 0
	for range 1000 {
		r, _, _ := mixed(t, table, allRight)
		if seen[r.Key] {
			t.Fatalf("key %v given twice", r.Key)
		}
		seen[r.Key] = true
		if d := int64(r.Key.Index()) - int64(last.Index()); d >= -1 && d <= 1 {
			neighbours++
		}
		last = r.Key
	}
	if neighbours > 10 {
		t.Errorf("%d of 1000 keys follow the one before", neighbours)
	}
}

func TestTable_ReusedSlot_OldKeyStaysDead(t *testing.T) {
	table := NewTable(5)
	r, _, _ := mixed(t, table, allRight)
	old := r.Key
	table.Deregister(r)
	for range 200 {
		n, _, _ := mixed(t, table, allRight)
		if n.Key == old {
			t.Fatal("a dead key came back soon")
		}
		table.Deregister(n)
	}
	if table.Find(old) != nil {
		t.Error("dead key found")
	}
}

func TestScramble_IsAPermutation(t *testing.T) {
	s := newScramble(99)
	for i := uint32(0); i < 1<<24; i += 997 {
		sealed := s.seal(i)
		if sealed>>24 != 0 || s.open(sealed) != i {
			t.Fatalf("%#x → %#x → %#x", i, sealed, s.open(sealed))
		}
	}
}

// peer is a queue pair in the protection domain of the tests.
var peer = Accessor{PD: 1, QP: 17}

func TestTable_Atomics_MappedAndRemote(t *testing.T) {
	table := NewTable(6)
	r, space, mapped := mixed(t, table, allRight)
	for _, off := range []uint64{0, 1000} {
		if old, f := table.FetchAdd(r.Key, peer, r.Base+off, 5); old != 0 || f != FaultNone {
			t.Errorf("offset %d: fetch-add %d %v", off, old, f)
		}
		if old, f := table.CompareSwap(r.Key, peer, r.Base+off, 4, 9); old != 5 || f != FaultNone {
			t.Errorf("offset %d: failing compare-swap %d %v", off, old, f)
		}
		if old, f := table.CompareSwap(r.Key, peer, r.Base+off, 5, 9); old != 5 || f != FaultNone {
			t.Errorf("offset %d: compare-swap %d %v", off, old, f)
		}
	}
	ne := binary.NativeEndian
	if ne.Uint64(space.bytes) != 9 || ne.Uint64(mapped) != 9 {
		t.Error("atomic result not in memory")
	}
	if _, f := table.FetchAdd(r.Key, peer, r.Base+2993, 1); f != FaultBounds {
		t.Errorf("atomic over the end: %v", f)
	}
}

// TestScatterGather_EqualsModel compares lists of any shape with a flat copy.
func TestScatterGather_EqualsModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		table := NewTable(7)
		r, _, _ := mixed(t, table, allRight)
		var list []abi.SGE
		used := uint64(0)
		for range rapid.IntRange(0, 6).Draw(rt, "entries") {
			n := rapid.Uint64Range(0, 400).Draw(rt, "length")
			list = append(list, abi.SGE{Addr: r.Base + used, Length: uint32(n), LKey: uint32(r.Key)})
			used += n
		}
		if ListBytes(list) != used {
			rt.Fatalf("ListBytes %d, want %d", ListBytes(list), used)
		}
		off := rapid.Uint64Range(0, used).Draw(rt, "offset")
		n := rapid.Uint64Range(0, used-off).Draw(rt, "n")
		src := make([]byte, n)
		for i := range src {
			src[i] = byte(i) ^ 0xa5
		}
		if f := table.Scatter(1, list, off, src); f != FaultNone {
			rt.Fatal(f)
		}
		flat := make([]byte, used)
		if used > 0 {
			if f := table.Read(r.Key, 1, r.Base, flat, 0); f != FaultNone {
				rt.Fatal(f)
			}
		}
		model := make([]byte, used)
		copy(model[off:], src)
		if !bytes.Equal(flat, model) {
			rt.Fatal("scatter differs from the model")
		}
		got := make([]byte, n)
		if f := table.Gather(1, list, off, got); f != FaultNone || !bytes.Equal(got, src) {
			rt.Fatalf("gather: %v", f)
		}
		if v, f := table.ViewList(1, list, off, n); f != FaultNone || v != nil && !bytes.Equal(v, src) {
			rt.Fatalf("view: %v", f)
		}
		if f := table.Gather(1, list, off, make([]byte, used-off+1)); f != FaultBounds {
			rt.Fatalf("gather beyond the list: %v", f)
		}
	})
}

func TestScatter_WithoutLocalWrite_IsRefused(t *testing.T) {
	table := NewTable(8)
	r, space, _ := mixed(t, table, rdma.AccessRemoteRead)
	list := []abi.SGE{{Addr: r.Base, Length: 8, LKey: uint32(r.Key)}}
	if f := table.Scatter(1, list, 0, []byte{1}); f != FaultRights || space.bytes[0] != 0 {
		t.Errorf("scatter into a read-only region: %v", f)
	}
}

// Piece is the one that holds the bytes, else the longest, and never what is not mapped.
func TestRegion_Piece_HoldsTheBytesOrIsTheLongest(t *testing.T) {
	tab := NewTable(5)
	short, long := make([]byte, 100), make([]byte, 300)
	r, refusal := tab.Register(Config{
		PD: 1, Access: rdma.AccessLocalWrite, Addr: 1000, Length: 500, IOVA: 70000,
		Space: new(sliceSpace),
		Segments: []Segment{
			{Addr: 1000, Length: 100},
			{Addr: 1100, Length: 100, Mapped: short},
			{Addr: 1200, Length: 300, Mapped: long},
		},
	})
	if refusal != nil {
		t.Fatal(refusal)
	}
	for _, row := range []struct {
		addr, n, start uint64
		piece          []byte
	}{
		{70100, 100, 70100, short},
		{70150, 8, 70100, short},
		{70199, 2, 70200, long},
		{70000, 8, 70200, long},
		{70200, 300, 70200, long},
		{70200, 301, 0, nil},
		{69999, 8, 0, nil},
		{70000, 0, 0, nil},
	} {
		start, piece := r.Piece(row.addr, row.n)
		if start != row.start || len(piece) != len(row.piece) {
			t.Errorf("%d bytes at %d: %d bytes at %d", row.n, row.addr, len(piece), start)
		}
	}
}
