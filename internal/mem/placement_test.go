package mem

import (
	"encoding/binary"
	"testing"

	"github.com/softrnic/softrnic/internal/rdma"
)

func placementTable(t *testing.T, access rdma.Access) (*Table, *Region, []byte) {
	t.Helper()
	table, m := NewTable(5), make([]byte, 64)
	r, refusal := table.Register(Config{
		PD: 1, Access: access | rdma.AccessLocalWrite, Addr: 0x1000, IOVA: 0x1000, Length: 64,
		Segments: []Segment{{Addr: 0x1000, Length: 64, Mapped: m}},
	})
	if refusal != nil {
		t.Fatal(refusal)
	}
	return table, r, m
}

func TestStore_ChecksThenWritesAtOnce(t *testing.T) {
	table, r, m := placementTable(t, rdma.AccessRemoteWrite)
	if f := table.Store(r.Key, Accessor{PD: 1}, 0x1008, 7); f != FaultNone {
		t.Fatal(f)
	}
	if got := binary.NativeEndian.Uint64(m[8:]); got != 7 || m[0] != 0 || m[16] != 0 {
		t.Errorf("stored %d around %v", got, m[:24])
	}
	for want, f := range map[Fault]Fault{
		FaultPD:     table.Store(r.Key, Accessor{PD: 2}, 0x1008, 9),
		FaultKey:    table.Store(r.Key+1, Accessor{PD: 1}, 0x1008, 9),
		FaultBounds: table.Store(r.Key, Accessor{PD: 1}, 0x1040, 9),
	} {
		if f != want {
			t.Errorf("fault %v, want %v", f, want)
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		table.Store(r.Key, Accessor{PD: 1}, 0x1008, 1)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestCheckFlush_AsksForRightsNotForBounds(t *testing.T) {
	table, r, _ := placementTable(t, rdma.AccessFlushGlobal)
	who := Accessor{PD: 1}
	for _, row := range []struct {
		key  rdma.Key
		who  Accessor
		want rdma.Access
		f    Fault
	}{
		{r.Key, who, rdma.AccessFlushGlobal, FaultNone},
		{r.Key, who, rdma.AccessFlushPersist, FaultRights},
		{r.Key, Accessor{PD: 2}, rdma.AccessFlushGlobal, FaultPD},
		{r.Key + 1, who, rdma.AccessFlushGlobal, FaultKey},
	} {
		if f := table.CheckFlush(row.key, row.who, row.want); f != row.f {
			t.Errorf("%v for %v: %v, want %v", row.key, row.want, f, row.f)
		}
	}
}
