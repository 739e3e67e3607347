package mem

import (
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/softrnic/softrnic/internal/rdma"
)

// binder is a table with a region to bind to.
func binder(t testing.TB) (*Table, *Region, []byte) {
	t.Helper()
	table := NewTable(9)
	bytes := make([]byte, 4096)
	r, refusal := table.Register(Config{
		PD: 1, Access: allRight | rdma.AccessMWBind, Addr: testBase, Length: 4096, IOVA: testBase,
		Segments: []Segment{{Addr: testBase, Length: 4096, Mapped: bytes}},
	})
	if refusal != nil {
		t.Fatal(refusal)
	}
	return table, r, bytes
}

func nextKey(k rdma.Key) rdma.Key { return k&^0xff | rdma.Key(uint8(k)+1) }

func TestWindow_Alloc_RefusesTypesThatAreNone(t *testing.T) {
	table, _, _ := binder(t)
	for _, typ := range []rdma.MWType{0, 3} {
		if _, r := table.AllocWindow(1, typ); r == nil || r.Errno != syscall.EINVAL {
			t.Errorf("type %d: %v", typ, r)
		}
	}
}

func TestWindow_KeyIsNoLocalKey(t *testing.T) {
	table, r, _ := binder(t)
	w, _ := table.AllocWindow(1, rdma.MWType1)
	f := table.Bind(peer, &Binding{
		Key: nextKey(w.Key), Region: r.Key, Addr: testBase, Length: 8, Access: rdma.AccessRemoteRead,
	})
	if f != FaultNone {
		t.Fatal(f)
	}
	b := make([]byte, 8)
	if f := table.Read(w.Key, 1, testBase, b, 0); f != FaultKey {
		t.Errorf("a window's key in a list of this side: %v", f)
	}
	if table.Find(w.Key) != nil || table.FindWindow(w.Key) != w {
		t.Error("a window is found as a region")
	}
}

func TestWindow_BindAndInvalidate_AllocateNothing(t *testing.T) {
	table, r, _ := binder(t)
	w, _ := table.AllocWindow(1, rdma.MWType2)
	b := Binding{Region: r.Key, Addr: testBase, Length: 8, Access: rdma.AccessRemoteRead}
	if n := testing.AllocsPerRun(1000, func() {
		b.Key = nextKey(w.Key)
		if table.Bind(peer, &b) != FaultNone || table.Invalidate(peer, b.Key) != FaultNone {
			t.Fatal("refused")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// modelWindow is what a window should be.
type modelWindow struct {
	w      *Window
	isOpen bool
	qp     rdma.QPN
	addr   uint64
	n      uint64
	access rdma.Access
}

// allows tells whether an access should be let through, and where it should land.
func (m *modelWindow) allows(who Accessor, addr, n uint64, want rdma.Access) (uint64, bool) {
	base := m.addr
	if m.access.Has(rdma.AccessZeroBased) {
		base = 0
	}
	off := addr - base
	ok := m.isOpen && who.PD == m.w.PD && (m.w.Type == rdma.MWType1 || who.QP == m.qp) &&
		m.access.Has(want) && off <= m.n && n <= m.n-off
	return m.addr + off, ok
}

// windowRun drives a table and its model.
type windowRun struct {
	t       *rapid.T
	table   *Table
	region  *Region
	windows []*modelWindow
	dead    []rdma.Key
}

func (x *windowRun) accessor() Accessor {
	return Accessor{
		PD: PD(rapid.IntRange(1, 2).Draw(x.t, "pd")),
		QP: rdma.QPN(rapid.IntRange(17, 19).Draw(x.t, "qp")),
	}
}

func (x *windowRun) pick() *modelWindow {
	if len(x.windows) == 0 {
		x.t.Skip()
	}
	return rapid.SampledFrom(x.windows).Draw(x.t, "window")
}

func (x *windowRun) alloc() {
	typ := rdma.MWType(rapid.IntRange(1, 2).Draw(x.t, "type"))
	w, r := x.table.AllocWindow(1, typ)
	if r != nil {
		x.t.Fatal(r)
	}
	x.windows = append(x.windows, &modelWindow{w: w})
}

func (x *windowRun) free() {
	m := x.pick()
	x.table.FreeWindow(m.w)
	x.dead = append(x.dead, m.w.Key)
	for i, o := range x.windows {
		if o == m {
			x.windows = append(x.windows[:i], x.windows[i+1:]...)
			break
		}
	}
}

func (x *windowRun) bind() {
	m, who := x.pick(), x.accessor()
	b := Binding{
		Key: nextKey(m.w.Key), Region: x.region.Key,
		Addr:   testBase + rapid.Uint64Range(0, 4200).Draw(x.t, "addr"),
		Length: rapid.Uint64Range(0, 4200).Draw(x.t, "length"),
		Access: rdma.Access(rapid.SampledFrom([]uint32{0, 2, 4, 6, 32, 38}).Draw(x.t, "access")),
	}
	isTwo := m.w.Type == rdma.MWType2
	isZero := b.Access.Has(rdma.AccessZeroBased)
	end := b.Addr + b.Length - testBase
	isReady := !isTwo || !m.isOpen && b.Length > 0
	legal := who.PD == 1 && isReady && (isTwo || !isZero) && (b.Length == 0 || end <= 4096)
	old := m.w.Key
	f := x.table.Bind(who, &b)
	if (f == FaultNone) != legal {
		x.t.Fatalf("bind %+v by %+v: %v, legal %v", b, who, f, legal)
	}
	if legal {
		x.dead = append(x.dead, old)
		m.isOpen, m.qp, m.addr, m.n, m.access = b.Length > 0, who.QP, b.Addr, b.Length, b.Access
	}
}

func (x *windowRun) invalidate() {
	m, who := x.pick(), x.accessor()
	legal := m.isOpen && m.w.Type == rdma.MWType2 && who.PD == 1 && who.QP == m.qp
	if f := x.table.Invalidate(who, m.w.Key); (f == FaultNone) != legal {
		x.t.Fatalf("invalidate by %+v: %v, legal %v", who, f, legal)
	}
	m.isOpen = m.isOpen && !legal
}

func (x *windowRun) releaseQP() {
	qp := x.accessor().QP
	x.table.ReleaseQP(qp)
	for _, m := range x.windows {
		if m.w.Type == rdma.MWType2 && m.qp == qp {
			m.isOpen = false
		}
	}
}

func (x *windowRun) access() {
	m, who := x.pick(), x.accessor()
	addr := rapid.SampledFrom([]uint64{0, m.addr, testBase}).Draw(x.t, "base") +
		rapid.Uint64Range(0, 4200).Draw(x.t, "off")
	n := rapid.Uint64Range(1, 300).Draw(x.t, "n")
	want := rapid.SampledFrom([]rdma.Access{
		rdma.AccessRemoteRead, rdma.AccessRemoteWrite,
	}).Draw(x.t, "want")
	at, legal := m.allows(who, addr, n, want)
	r, got, f := x.table.CheckRemote(m.w.Key, who, addr, n, want)
	if (f == FaultNone) != legal || legal && (r != x.region || got != at) {
		x.t.Fatalf("access %#x+%d by %+v: %v at %#x; legal %v at %#x", addr, n, who, f, got, legal, at)
	}
}

// TestWindow_AnySequence_EqualsModel binds, invalidates and uses windows in any order.
func TestWindow_AnySequence_EqualsModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		table, r, _ := binder(t)
		x := &windowRun{t: rt, table: table, region: r}
		rt.Repeat(map[string]func(*rapid.T){
			"alloc":      func(*rapid.T) { x.alloc() },
			"free":       func(*rapid.T) { x.free() },
			"bind":       func(*rapid.T) { x.bind() },
			"invalidate": func(*rapid.T) { x.invalidate() },
			"release":    func(*rapid.T) { x.releaseQP() },
			"access":     func(*rapid.T) { x.access() },
			"": func(*rapid.T) {
				open := 0
				for _, m := range x.windows {
					if m.isOpen != m.w.IsBound() {
						rt.Fatalf("window %v: bound %v", m.w.Key, m.w.IsBound())
					}
					if m.isOpen {
						open++
					}
				}
				if r.Windows() != open {
					rt.Fatalf("the region counts %d windows of %d", r.Windows(), open)
				}
				for _, k := range x.dead {
					_, _, f := table.CheckRemote(k, peer, testBase, 1, rdma.AccessRemoteRead)
					if f != FaultKey {
						rt.Fatalf("dead key %v: %v", k, f)
					}
				}
			},
		})
		for len(x.windows) > 0 {
			x.free()
		}
		if r.Windows() != 0 || len(table.bound) != 0 {
			rt.Fatal("something stays bound")
		}
		table.Deregister(r)
	})
}
