package check

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
)

// expect wants exactly one failure that holds text, or none where text is empty.
func expect(t *testing.T, c *Court, text string) {
	t.Helper()
	switch {
	case text == "" && c.HasFailed():
		t.Errorf("unexpected: %v", c.Failures())
	case text != "" && (c.Count() == 0 || !strings.Contains(c.Failures()[0], text)):
		t.Errorf("got %q, want one with %q", c.Failures(), text)
	}
}

func TestContent_AnyPiece_EqualsTheWhole(t *testing.T) {
	var whole [100]byte
	Fill(whole[:], 7, 0)
	for off := range 40 {
		for n := range 40 {
			piece := make([]byte, n)
			Fill(piece, 7, off)
			if string(piece) != string(whole[off:off+n]) {
				t.Fatalf("offset %d, %d bytes", off, n)
			}
			if n > 0 {
				if at := Mismatch(piece, 7, off); at != -1 {
					t.Fatalf("offset %d, %d bytes: mismatch at %d", off, n, at)
				}
				piece[n-1] ^= 1
				if at := Mismatch(piece, 7, off); at != n-1 {
					t.Fatalf("offset %d, %d bytes: mismatch at %d, want %d", off, n, at, n-1)
				}
			}
		}
	}
}

// step is a completion or, with a negative id, nothing.
type step struct {
	id     uint64
	status rdma.WCStatus
}

func TestSendQueue_EveryMistake_IsFound(t *testing.T) {
	const flush, access = rdma.WCWRFlushErr, rdma.WCRemAccessErr
	rows := []struct {
		name  string
		may   StatusSet
		steps []step
		want  string
	}{
		{"in order", 0, []step{{1, 0}, {3, 0}, {4, access}, {5, flush}}, ""},
		{"skips a signaled one", 0, []step{{3, 0}}, "no completion of signaled"},
		{"twice", 0, []step{{1, 0}, {1, 0}}, "not outstanding"},
		{"unsignaled completes", 0, []step{{1, 0}, {2, 0}}, "unsignaled"},
		{"bad one succeeds", 0, []step{{1, 0}, {3, 0}, {4, 0}}, "has to fail"},
		{"bad one is skipped", 0, []step{{1, 0}, {3, 0}, {5, 0}}, "passed; it has to fail"},
		{"error without a cause", 0, []step{{1, access}}, "without a cause"},
		{"flush without a cause", 0, []step{{1, flush}}, "without a cause"},
		{
			"success after an error", Statuses(access),
			[]step{{1, access}, {2, flush}, {3, 0}},
			"succeeded after an error",
		},
		{"not flushed", Statuses(access), []step{{1, access}, {3, flush}}, "was not flushed"},
		{
			"another error after one", Statuses(access),
			[]step{{1, access}, {2, access}},
			"after an error",
		},
	}
	for _, r := range rows {
		var c Court
		q := SendQueue{Court: &c, Name: "q", QPN: 9, May: r.may}
		done := map[uint64]int{}
		for id := uint64(1); id <= 5; id++ {
			s := Send{ID: id, Signaled: id != 2, Bytes: -1, Done: func(rdma.WCStatus) { done[id]++ }}
			if id == 4 {
				s.Must, s.Signaled = Statuses(access), false
			}
			q.Post(s)
		}
		for _, s := range r.steps {
			q.Complete(&abi.CQE{WRID: s.id, Status: uint32(s.status), QPNum: 9})
		}
		expect(t, &c, r.want)
		for id, n := range done {
			if n != 1 {
				t.Errorf("%s: request %d is done %d times", r.name, id, n)
			}
		}
		if t.Failed() {
			t.Fatal(r.name)
		}
	}
}

func TestSendQueue_Fields_AreCompared(t *testing.T) {
	rows := []struct {
		c    abi.CQE
		want string
	}{
		{abi.CQE{WRID: 1, Opcode: uint32(rdma.WCOpRead), ByteLen: 5, QPNum: 9}, ""},
		{abi.CQE{WRID: 1, Opcode: uint32(rdma.WCOpSend), ByteLen: 5, QPNum: 9}, "opcode"},
		{abi.CQE{WRID: 1, Opcode: uint32(rdma.WCOpRead), ByteLen: 4, QPNum: 9}, "byte_len"},
		{abi.CQE{WRID: 1, Opcode: uint32(rdma.WCOpRead), ByteLen: 5, QPNum: 8}, "qp_num"},
	}
	for _, r := range rows {
		var c Court
		q := SendQueue{Court: &c, QPN: 9}
		q.Post(Send{ID: 1, Opcode: rdma.WCOpRead, Signaled: true, Bytes: 5})
		q.Complete(&r.c)
		expect(t, &c, r.want)
	}
}

func TestSendQueue_Close_TellsEveryOpenRequest(t *testing.T) {
	var c Court
	q := SendQueue{Court: &c}
	var got []rdma.WCStatus
	for id := range uint64(3) {
		q.Post(Send{ID: id, Done: func(s rdma.WCStatus) { got = append(got, s) }})
	}
	if !q.HasUnsignaledTail() {
		t.Error("unsignaled tail not seen")
	}
	q.Close()
	if len(got) != 3 || got[0] != rdma.WCWRFlushErr || q.Open() != 0 {
		t.Errorf("outcomes %v, open %d", got, q.Open())
	}
}

func TestRecvQueue_OrderAndTwice(t *testing.T) {
	for _, shared := range []bool{false, true} {
		var c Court
		q := RecvQueue{Court: &c, Shared: shared}
		q.Post(1)
		q.Post(2)
		q.Complete(&abi.CQE{WRID: 2})
		if shared {
			expect(t, &c, "")
		} else {
			expect(t, &c, "before 1 older")
		}
		q.Complete(&abi.CQE{WRID: 1})
		q.Complete(&abi.CQE{WRID: 1})
		if !c.HasFailed() {
			t.Error("a receive that completes twice")
		}
	}
}

func TestMemory_StrayWrite_IsFound(t *testing.T) {
	var c Court
	m := NewMemory(&c, "m", 1000)
	a := m.Claim(100, 50)
	b := m.Claim(120, 100)
	for i := 100; i < 220; i++ {
		m.Bytes[i]++
	}
	m.Verify("all claimed")
	expect(t, &c, "")
	m.Release(a)
	m.Adopt(100, 20)
	m.Verify("still claimed by the other")
	expect(t, &c, "")
	m.Bytes[220]++
	m.Verify("one behind")
	expect(t, &c, "byte 0xdc")
	m.Release(b)
}

// TestMemory_StrayWrite_IsFoundInEachPage: in a page that is in use by each look, in another one as
// it comes into use or in the end.
func TestMemory_StrayWrite_IsFoundInEachPage(t *testing.T) {
	const pages = blankPages + 2
	for page := range pages {
		for _, off := range []int{0, 77, pageBytes - 1} {
			for _, later := range []func(m *Memory){
				func(m *Memory) { m.VerifyAll("in the end") },
				func(m *Memory) { m.Claim(page*pageBytes+50, 1) },
				func(m *Memory) { m.StorePart(0, len(m.Bytes), 9, 0) },
			} {
				var c Court
				m := NewMemory(&c, "m", pages*pageBytes-5)
				m.StorePart(3*pageBytes-10, 2*pageBytes, 7, 0)
				m.Release(m.Claim(6*pageBytes-1, 2))
				m.VerifyAll("as it was")
				expect(t, &c, "")
				at := min(page*pageBytes+off, len(m.Bytes)-1)
				m.Bytes[at] ^= 0x10
				m.Verify("afterwards")
				if !m.inUse[page] {
					expect(t, &c, "")
					later(m)
				}
				expect(t, &c, fmt.Sprintf("byte %#x changed", at))
			}
		}
	}
}

func TestMemory_Recycled_HoldsNothingOfItsLastLife(t *testing.T) {
	const size = 5*pageBytes + 123
	var c Court
	m := NewMemory(&c, "m", size)
	fresh := slices.Clone(m.Bytes)
	was := &m.Bytes[0]
	m.StorePart(10, 2*pageBytes, 7, 0)
	x := m.Claim(size-5, 5)
	m.Bytes[size-1]++
	m.Adopt(x.Off, x.Len)
	m.Release(x)
	m.Claim(3*pageBytes, 1)
	m.Bytes[3*pageBytes]++
	m.Verify("all claimed")
	expect(t, &c, "")
	m.Recycle()

	var later Court
	n := NewMemory(&later, "n", size)
	if &n.Bytes[0] != was || !bytes.Equal(n.Bytes, fresh) {
		t.Errorf("the same bytes: %v, as they were: %v", &n.Bytes[0] == was,
			bytes.Equal(n.Bytes, fresh))
	}
	n.Bytes[10]++
	n.VerifyAll("a stray write")
	expect(t, &later, "byte 0xa changed")
	n.Recycle() // a memory that is not as it should be
	if o := NewMemory(&c, "o", size); &o.Bytes[0] == was {
		t.Error("what a fault was found in is used again")
	}
}

func TestMemory_Frozen_NothingMayChange(t *testing.T) {
	var c Court
	m := NewMemory(&c, "m", 100)
	m.Claim(10, 10)
	m.Bytes[15]++
	m.Freeze()
	m.Verify("as it was")
	expect(t, &c, "")
	m.Bytes[15]++
	m.Verify("after the end")
	expect(t, &c, "without a right")
}

func TestWindow_Writes_InPostingOrder(t *testing.T) {
	var c Court
	m := NewMemory(&c, "m", 300)
	w := &Window{Mem: m, Name: "w", Off: 100, Len: 100}
	first := w.Post(0, 60, 11, 0)
	second := w.Post(40, 60, 12, 0)
	want := w.Predict(30, 30)
	var model [100]byte
	Fill(model[:60], 11, 0)
	Fill(model[40:], 12, 0)
	if string(want) != string(model[30:60]) {
		t.Error("prediction is not the last write")
	}
	copy(m.Bytes[100:200], model[:])
	w.Confirm(first)
	w.Confirm(second)
	m.Verify("both confirmed")
	expect(t, &c, "")
	m.Bytes[150]++
	m.Verify("changed later")
	expect(t, &c, "without a right")
}

func TestWindow_ConfirmedButAbsent_IsFound(t *testing.T) {
	var c Court
	m := NewMemory(&c, "m", 300)
	w := &Window{Mem: m, Name: "w", Off: 100, Len: 100}
	x := w.Post(10, 20, 11, 0)
	Fill(m.Bytes[110:129], 11, 0)
	w.Confirm(x)
	expect(t, &c, "is not there")
}

func TestWindow_FlushedButAbsent_IsFound(t *testing.T) {
	for _, isThere := range []bool{true, false} {
		var c Court
		m := NewMemory(&c, "m", 300)
		w := &Window{Mem: m, Name: "w", Off: 100, Len: 100}
		first := w.Post(0, 20, 11, 0)
		w.Post(10, 20, 12, 0)
		list := w.Pending()
		w.Post(15, 5, 13, 0) // posted after the FLUSH: may be there or not
		w.Confirm(first)     // judged when it was confirmed, covered or not
		c = Court{}
		if isThere {
			Fill(m.Bytes[110:130], 12, 0)
			Fill(m.Bytes[115:118], 13, 0)
		}
		w.Flushed(list)
		if isThere {
			expect(t, &c, "")
		} else {
			expect(t, &c, "as a FLUSH")
		}
	}
}

func TestWindow_Close_OldOrNewButNothingElse(t *testing.T) {
	for _, stray := range []bool{false, true} {
		var c Court
		m := NewMemory(&c, "m", 300)
		w := &Window{Mem: m, Name: "w", Off: 100, Len: 100}
		w.Doubt(w.Post(0, 50, 11, 0))
		w.Post(20, 50, 12, 0)
		Fill(m.Bytes[100:120], 11, 0)
		Fill(m.Bytes[125:140], 12, 5)
		if stray {
			m.Bytes[145] ^= 0x80
		}
		w.Close()
		if stray {
			expect(t, &c, "which nobody wrote")
			continue
		}
		expect(t, &c, "")
		m.Verify("after closing")
		expect(t, &c, "")
		m.Bytes[126]++
		m.Verify("a late write")
		expect(t, &c, "without a right")
	}
}

func TestCounter_EveryMistake_IsFound(t *testing.T) {
	rows := []struct {
		seen  []uint64
		final uint64
		want  string
	}{
		{[]uint64{100, 101, 103}, 104, ""},
		{[]uint64{100, 101, 103}, 103, ""},
		{[]uint64{100, 101, 101}, 103, "two fetch-and-adds saw"},
		{[]uint64{101, 100}, 102, "after"},
		{[]uint64{100, 101, 104}, 104, "only 4 were posted"},
		{[]uint64{100, 101, 102}, 102, "the cell counts 2"},
		{[]uint64{100, 101, 102}, 105, "the cell counts 5"},
	}
	for _, r := range rows {
		var c Court
		x := NewCounter(&c, "cell", 100)
		for range 4 {
			x.Post()
		}
		for _, v := range r.seen {
			x.Succeed(1, v)
		}
		x.Final(r.final)
		expect(t, &c, r.want)
	}
}

func TestChain_EveryMistake_IsFound(t *testing.T) {
	type result struct{ compare, value, before uint64 }
	rows := []struct {
		results []result
		final   uint64
		want    string
	}{
		{[]result{{1, 2, 1}, {2, 3, 2}}, 3, ""},
		{[]result{{1, 2, 1}, {9, 3, 2}}, 2, ""},     // lost the race
		{[]result{{1, 2, 1}}, 4, ""},                // 2→4 has no known outcome
		{[]result{{1, 2, 1}, {1, 3, 1}}, 2, "both"}, // one value replaced twice
		{[]result{{1, 2, 1}}, 1, "does not end in"},
		{[]result{{1, 2, 1}, {9, 3, 77}}, 2, "nobody stored"},
		{[]result{{3, 9, 3}}, 1, "nothing had stored"},
	}
	for _, r := range rows {
		var c Court
		x := NewChain(&c, "cell", 1)
		for _, s := range r.results {
			x.Post(s.compare, s.value)
		}
		x.Post(2, 4)
		if r.results[0].compare == 3 {
			x.Post(8, 3) // 3 is somebody's value, yet 8 never was there
		}
		for _, s := range r.results {
			x.Succeed(s.compare, s.value, s.before)
		}
		x.Final(r.final)
		expect(t, &c, r.want)
	}
}

func receiveOf(m *Message) (*abi.CQE, []byte) {
	c := &abi.CQE{Opcode: uint32(rdma.WCOpRecv), ByteLen: uint32(m.Bytes)}
	if m.IsWrite {
		c.Opcode = uint32(rdma.WCOpRecvWriteImm)
	}
	if m.HasImm {
		c.WCFlags, c.ImmOrRKey = uint32(rdma.WCWithImm), m.Imm
	}
	b := make([]byte, m.Bytes)
	Fill(b, m.Seed, 0)
	return c, b
}

func TestStream_Reliable_AllInOrder(t *testing.T) {
	messages := func(s *Stream) []*Message {
		list := []*Message{
			{Bytes: 100, Seed: 1},
			{Bytes: 0, HasImm: true, Imm: 5},
			{Bytes: 100, Seed: 3},
			{Bytes: 8, HasImm: true, Imm: 6, IsWrite: true},
		}
		for _, m := range list {
			s.Sent(m)
		}
		return list
	}
	rows := []struct {
		name  string
		order []int
		want  string
	}{
		{"in order", []int{0, 1, 2, 3}, ""},
		{"one lost", []int{0, 2}, "byte_len"},
		{"one doubled", []int{0, 0}, "byte_len"},
		{"swapped", []int{2, 1, 0, 3}, "payload"},
		{"too many", []int{0, 1, 2, 3, 3}, "beyond"},
	}
	for _, r := range rows {
		var c Court
		s := &Stream{Court: &c, Name: r.name, Exact: true}
		list := messages(s)
		for _, i := range r.order {
			cqe, b := receiveOf(list[i])
			s.Receive(cqe, b)
		}
		expect(t, &c, r.want)
	}
	var c Court
	s := &Stream{Court: &c, Exact: true}
	list := messages(s)
	cqe, b := receiveOf(list[0])
	s.Receive(cqe, b)
	s.Confirm()
	s.Confirm()
	s.Finish()
	expect(t, &c, "2 messages succeeded, 1 receives completed")
}

func TestStream_Unreliable_LossButNoDamage(t *testing.T) {
	var c Court
	s := &Stream{Court: &c, Ordered: true}
	list := []*Message{{Bytes: 40, Seed: 1}, {Bytes: 40, Seed: 2}, {Bytes: 40, Seed: 3}}
	for _, m := range list {
		s.Sent(m)
	}
	for _, i := range []int{0, 2} {
		cqe, b := receiveOf(list[i])
		s.Receive(cqe, b)
	}
	expect(t, &c, "")
	cqe, b := receiveOf(list[1])
	s.Receive(cqe, b)
	expect(t, &c, "no sent message holds") // it was overtaken

	c = Court{}
	s = &Stream{Court: &c}
	for _, m := range list {
		s.Sent(m)
	}
	for _, i := range []int{2, 0, 0} {
		cqe, b := receiveOf(list[i])
		s.Receive(cqe, b)
	}
	expect(t, &c, "")
	cqe, b = receiveOf(list[1])
	b[39]++
	s.Receive(cqe, b)
	expect(t, &c, "no sent message holds")
}

func TestStream_Refuse_OnlyWhatDoesNotFit(t *testing.T) {
	var c Court
	s := &Stream{Court: &c, Exact: true}
	s.Sent(&Message{Bytes: 1})
	s.Sent(&Message{Bytes: 99, Must: Statuses(rdma.WCLocLenErr)})
	if s.Refuse(rdma.WCLocLenErr) {
		t.Error("the first message fits")
	}
	cqe, b := receiveOf(&Message{Bytes: 1})
	s.Receive(cqe, b)
	if !s.Refuse(rdma.WCLocLenErr) {
		t.Error("the second message does not fit")
	}
	expect(t, &c, "")
}
