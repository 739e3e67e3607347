package work

import (
	"slices"
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
)

const (
	testSGEs   = 4
	testInline = 40
)

func sendRing(entries uint32) (*ring.Producer, *ring.Consumer) {
	geo := ring.Geometry{Entries: entries, Stride: abi.SQStride(testSGEs, testInline)}
	m := make([]byte, 256+geo.Bytes())
	prod, cons := ring.Word(m, 0), ring.Word(m, 128)
	return ring.NewProducer(m[256:], geo, prod, cons), ring.NewConsumer(m[256:], geo, prod, cons)
}

func push(p *ring.Producer, id uint64) {
	abi.EncodeSendWQE(p.Slot(), &abi.SendWQE{WRID: id})
	p.Push()
	p.Publish()
}

func TestSendQueue_GivesEntriesBackInOrder(t *testing.T) {
	p, c := sendRing(4)
	q := NewSendQueue(c)
	for round := range uint64(10) {
		for i := range uint64(4) {
			push(p, 4*round+i)
		}
		if !q.Load() || q.Unfetched() != 4 {
			t.Fatalf("%d unfetched", q.Unfetched())
		}
		var w SendWR
		for i := range uint64(3) {
			w.Reset()
			w.Copy(q.Fetch(), SendLimits{MaxSGE: testSGEs, MaxInline: testInline})
			if w.WQE.WRID != 4*round+i {
				t.Fatalf("fetched %d", w.WQE.WRID)
			}
		}
		q.Pop()
		if q.DoneIndex() != uint32(4*round+1) || p.Unreleased() != 4 {
			t.Fatalf("done index %d, %d unreleased", q.DoneIndex(), p.Unreleased())
		}
		q.Release()
		if p.Unreleased() != 3 || !q.Load() || q.Unfetched() != 1 {
			t.Fatalf("%d unreleased, %d unfetched", p.Unreleased(), q.Unfetched())
		}
		q.Pop()
		q.Pop()
		var x abi.SendWQE
		if !q.Drop(&x) || x.WRID != 4*round+3 || q.Drop(&x) {
			t.Fatalf("dropped %d", x.WRID)
		}
		q.Release()
		if p.Unreleased() != 0 {
			t.Fatalf("%d unreleased", p.Unreleased())
		}
	}
}

func TestSendQueue_SeesAnIndexThatNoLibraryWrites(t *testing.T) {
	p, c := sendRing(4)
	q := NewSendQueue(c)
	for range 9 {
		p.Push()
	}
	p.Publish()
	var x abi.SendWQE
	if q.Load() || q.Drop(&x) {
		t.Error("a damaged ring is read")
	}
	q.Reset()
	if !q.Load() || q.Unfetched() != 0 {
		t.Error("a reset does not mend the ring")
	}
	// Back behind what is fetched already.
	p, c = sendRing(4)
	q = NewSendQueue(c)
	push(p, 1)
	if !q.Load() {
		t.Fatal("damaged")
	}
	q.Fetch()
	c.Skip()
	if q.Load() {
		t.Error("entries went away, and nobody minds")
	}
}

func TestSendWR_Copy_JudgesTheForm(t *testing.T) {
	limits := SendLimits{MaxSGE: testSGEs, MaxInline: testInline}
	slot := make([]byte, abi.SQStride(testSGEs, testInline))
	entries := func(w *SendWR, wqe abi.SendWQE) rdma.WCStatus {
		abi.EncodeSendWQE(slot, &wqe)
		w.Reset()
		w.Copy(slot, limits)
		return w.Fail
	}
	var w SendWR
	inline := uint8(rdma.SendInline)
	for _, x := range []struct {
		wqe  abi.SendWQE
		want rdma.WCStatus
	}{
		{abi.SendWQE{NumSGE: testSGEs}, rdma.WCSuccess},
		{abi.SendWQE{NumSGE: 1}, rdma.WCSuccess},
		{abi.SendWQE{}, rdma.WCSuccess},
		{abi.SendWQE{NumSGE: testSGEs + 1}, rdma.WCLocQPOpErr},
		{abi.SendWQE{NumSGE: 0xffff}, rdma.WCLocQPOpErr},
		{abi.SendWQE{Flags: inline, InlineLen: testInline}, rdma.WCSuccess},
		{abi.SendWQE{Flags: inline, InlineLen: testInline + 1}, rdma.WCLocQPOpErr},
		{abi.SendWQE{Flags: inline, InlineLen: 0xffffffff}, rdma.WCLocQPOpErr},
		{abi.SendWQE{Flags: inline, NumSGE: 1}, rdma.WCLocQPOpErr},
	} {
		got := entries(&w, x.wqe)
		if got != x.want {
			t.Errorf("%+v: %v", x.wqe, got)
		}
		if got != rdma.WCSuccess && len(w.List()) != 0 {
			t.Errorf("%+v: a list of %d", x.wqe, len(w.List()))
		}
	}
}

func TestSendWR_Lists(t *testing.T) {
	var w SendWR
	list := []abi.SGE{{Addr: 1, Length: 10}, {Addr: 2, Length: 20}, {Addr: 3, Length: 30}}
	for n, want := range map[uint32][]abi.SGE{
		0:  {},
		5:  {{Addr: 1, Length: 5}},
		10: {{Addr: 1, Length: 10}},
		15: {{Addr: 1, Length: 10}, {Addr: 2, Length: 5}},
		60: list,
	} {
		if w.SetList(list, n); !slices.Equal(w.List(), want) {
			t.Errorf("%d bytes: %v", n, w.List())
		}
	}
	table := mem.NewTable(1)
	w.Reset()
	w.SetList([]abi.SGE{{Addr: 9}, {Addr: 1, Length: 1, LKey: 5}}, 1)
	w.CheckList(table, 1, 0)
	if w.Fail != rdma.WCLocProtErr || w.Bad != 1 || w.Fault != mem.FaultKey ||
		w.Vendor != abi.VendorLocalKey {
		t.Errorf("%+v", w)
	}
	w.SetFail(rdma.WCLocLenErr, abi.VendorLength)
	if w.Fail != rdma.WCLocProtErr {
		t.Error("the first reason did not stay")
	}
}

func TestVector_Cut(t *testing.T) {
	for n, want := range map[int][]string{
		0: {}, 1: {"a"}, 3: {"abc"}, 4: {"abc", "d"}, 5: {"abc", "de"}, 8: {"abc", "de", "fgh"},
	} {
		var v Vector
		for _, s := range []string{"abc", "de", "fgh"} {
			v.Append([]byte(s))
		}
		v.Cut(n)
		var got []string
		for _, p := range v.Pieces {
			got = append(got, string(p))
		}
		if !slices.Equal(got, want) && len(want)+len(got) > 0 || v.Bytes != n {
			t.Errorf("%d bytes: %q, %d", n, got, v.Bytes)
		}
	}
	var v Vector
	v.Cut(0)
}
