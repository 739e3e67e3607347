package mem

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
)

func TestViewScatter_GivesWhatOneEntryHolds(t *testing.T) {
	table, r, m := placementTable(t, 0)
	readOnly, _ := table.Register(Config{
		PD: 1, Addr: 0x9000, IOVA: 0x9000, Length: 8,
		Segments: []Segment{{Addr: 0x9000, Length: 8, Mapped: make([]byte, 8)}},
	})
	list := []abi.SGE{
		{Addr: 0x1000, Length: 10, LKey: uint32(r.Key)},
		{Addr: 0x1020, LKey: uint32(r.Key)},
		{Addr: 0x1020, Length: 10, LKey: uint32(r.Key)},
		{Addr: 0x9000, Length: 8, LKey: uint32(readOnly.Key)},
	}
	for _, x := range []struct {
		off, n uint64
		want   []byte
		f      Fault
	}{
		{0, 10, m[:10], FaultNone},
		{4, 100, m[4:10], FaultNone},
		{10, 3, m[32:35], FaultNone},
		{20, 1, nil, FaultRights},
		{28, 1, nil, FaultNone},
		{3, 0, nil, FaultNone},
	} {
		got, f := table.ViewScatter(1, list, x.off, x.n)
		if f != x.f || len(got) != len(x.want) || len(got) > 0 && &got[0] != &x.want[0] {
			t.Errorf("%+v: %d bytes, %v", x, len(got), f)
		}
	}
	if _, f := table.ViewScatter(2, list, 0, 1); f != FaultPD {
		t.Errorf("another PD: %v", f)
	}
}

func TestViewForRemote_AsksForTheRightToWrite(t *testing.T) {
	table, r, m := placementTable(t, rdma.AccessRemoteWrite)
	who := Accessor{PD: 1}
	got, f := table.ViewForRemote(r.Key, who, 0x1008, 16)
	if f != FaultNone || len(got) != 16 || &got[0] != &m[8] {
		t.Errorf("%d bytes, %v", len(got), f)
	}
	if _, f := table.ViewForRemote(r.Key, who, 0x1038, 16); f != FaultBounds {
		t.Errorf("over the end: %v", f)
	}
	if got, f := table.ViewForRemote(r.Key, who, 0x1000, 0); got != nil || f != FaultNone {
		t.Errorf("nothing: %v, %v", got, f)
	}
	table, r, _ = placementTable(t, rdma.AccessRemoteRead)
	if _, f := table.ViewForRemote(r.Key, who, 0x1008, 16); f != FaultRights {
		t.Errorf("without the right: %v", f)
	}
}

func TestUpdateRemote_ReturnsWhatWas(t *testing.T) {
	table, r, m := placementTable(t, rdma.AccessRemoteAtomic)
	who := Accessor{PD: 1}
	binary.NativeEndian.PutUint64(m[8:], 5)
	twice := func(v uint64) uint64 { return 2 * v }
	if old, f := table.UpdateRemote(r.Key, who, 0x1008, twice); f != FaultNone || old != 5 {
		t.Errorf("%d, %v", old, f)
	}
	if got := binary.NativeEndian.Uint64(m[8:]); got != 10 {
		t.Errorf("left %d", got)
	}
	if _, f := table.UpdateRemote(r.Key, who, 0x1040, twice); f != FaultBounds {
		t.Errorf("over the end: %v", f)
	}
	table, r, _ = placementTable(t, rdma.AccessRemoteWrite)
	if _, f := table.UpdateRemote(r.Key, who, 0x1008, twice); f != FaultRights {
		t.Errorf("without the right: %v", f)
	}
}

func TestCopy_IsAsLongAsTheShorter(t *testing.T) {
	b := make([]byte, 4)
	Copy(b, []byte("abcdef"))
	Copy(b[2:], []byte("x"))
	if !bytes.Equal(b, []byte("abxd")) {
		t.Errorf("%q", b)
	}
}
