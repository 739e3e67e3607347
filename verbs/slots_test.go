package verbs

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
)

// work does at once what is posted: sends complete where they are signaled, and each send also
// arrives at a receive of the same queue pair if there is one.
func (n *fakeNIC) work(qp *QP) {
	q, cq := n.qp(qp), n.cq(qp.cfg.SendCQ)
	pending, _ := q.sq.Pending()
	for range pending {
		var w abi.SendWQE
		abi.DecodeSendWQE(q.sq.Slot(0), &w)
		q.sq.Release(1)
		if rdma.SendFlags(w.Flags)&SendSignaled != 0 {
			n.complete(cq, abi.CQE{
				WRID: w.WRID, Opcode: uint32(WCOpSend), QPNum: q.rsp.QPN, SQIndex: q.sq.Released(),
			})
		}
		if k, _ := q.rq.Pending(); k > 0 {
			var r abi.RecvWQE
			abi.DecodeRecvWQE(q.rq.Slot(0), &r)
			q.rq.Release(1)
			n.complete(cq, abi.CQE{WRID: r.WRID, Opcode: uint32(WCOpRecv), QPNum: q.rsp.QPN})
		}
	}
}

func (n *fakeNIC) complete(q *fakeCQ, e abi.CQE) {
	if q.isFull() {
		n.t.Error("the completion queue overruns")
		return
	}
	q.push(e)
}

// fill posts signaled sends until the queue is full and returns how many.
func fill(t *testing.T, q *QP, first uint64) int {
	t.Helper()
	for k := 0; ; k++ {
		_, err := q.PostSend(SendWR{ID: first + uint64(k), Opcode: WRSend, Flags: SendSignaled})
		if errors.Is(err, ErrQueueFull) {
			return k
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// narrowRig has two queue pairs of four requests and a completion queue for all their requests.
func narrowRig(t *testing.T, entries int) (*fakeNIC, *CQ, [2]*QP) {
	t.Helper()
	n, c := openFake(t)
	pd, err := c.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	cq, err := c.CreateCQ(CQConfig{Entries: entries})
	if err != nil {
		t.Fatal(err)
	}
	var qps [2]*QP
	for i := range qps {
		qps[i], err = pd.CreateQP(QPConfig{Type: QPTypeRC, SendCQ: cq, MaxSendWR: 4, MaxRecvWR: 4})
		if err != nil {
			t.Fatal(err)
		}
		n.qp(qps[i]).setState(QPStateRTS)
	}
	return n, cq, qps
}

func TestSlots_PostUntilFull_NeverOverruns(t *testing.T) {
	n, cq, qps := narrowRig(t, 16)
	var sent, received [2]uint64
	var wcs [5]WC
	for round := range uint64(100) {
		for i, q := range qps {
			for k := range uint64(4) {
				if _, err := q.PostRecv(RecvWR{ID: 4*round + k}); err != nil {
					t.Fatal(err)
				}
			}
			if k := fill(t, q, 4*round); k != 4 {
				t.Fatalf("round %d, queue pair %d: %d fit", round, i, k)
			}
			n.work(q)
			_, err := q.PostRecv(RecvWR{})
			if fill(t, q, 0) != 0 || !errors.Is(err, ErrQueueFull) {
				t.Fatalf("round %d: done, not polled, and there is room: %v", round, err)
			}
		}
		for got := 0; got < 16; {
			k, err := cq.Poll(wcs[:])
			if k == 0 || err != nil {
				t.Fatalf("round %d: %d completions, %v", round, got, err)
			}
			got += k
			for _, w := range wcs[:k] {
				next := &sent
				if w.Opcode == WCOpRecv {
					next = &received
				}
				i := slices.IndexFunc(qps[:], func(q *QP) bool { return q.QPN() == w.QPN })
				if w.ID != next[i] {
					t.Fatalf("%+v, want %d", w, next[i])
				}
				next[i]++
			}
		}
	}
}

func TestSlots_Unsignaled_ComeBackWithTheNextCompletion(t *testing.T) {
	n, cq, qps := narrowRig(t, 4)
	q := qps[0]
	var wcs [4]WC
	quiet := SendWR{Opcode: WRSend}
	for round := range uint64(100) {
		if k, err := q.PostSend(quiet, quiet, quiet); k != 3 || err != nil {
			t.Fatalf("round %d: %d, %v", round, k, err)
		}
		if k := fill(t, q, round); k != 1 {
			t.Fatalf("round %d: %d fit after three", round, k)
		}
		n.work(q)
		if k, err := cq.Poll(wcs[:]); k != 1 || err != nil || wcs[0].ID != round {
			t.Fatalf("round %d: %d, %v, %+v", round, k, err, wcs[0])
		}
	}
	_, err := q.PostSend(SendWR{Opcode: WRSend, Flags: SendSignaled}, quiet, quiet, quiet)
	n.work(q)
	if k, _ := cq.Poll(wcs[:]); k != 1 || err != nil || fill(t, q, 0) != 1 {
		t.Errorf("unsignaled requests came back by themselves: %d, %v", k, err)
	}
}

func TestSlots_Reset_GivesEverythingBack(t *testing.T) {
	n, cq, qps := narrowRig(t, 16)
	q := qps[0]
	var wcs [2]WC
	for round := range uint64(20) {
		if k := fill(t, q, 0); k != 4 {
			t.Fatalf("round %d: %d fit", round, k)
		}
		k, err := q.PostRecv(RecvWR{}, RecvWR{}, RecvWR{}, RecvWR{})
		if k != 4 || err != nil {
			t.Fatalf("round %d: %d receives, %v", round, k, err)
		}
		n.work(q)
		if round%2 == 1 {
			if k, err := cq.Poll(wcs[:]); k != 2 || err != nil {
				t.Fatalf("polled %d, %v", k, err)
			}
		}
		if err := q.ToReset(); err != nil {
			t.Fatal(err)
		}
		if k, err := cq.Poll(wcs[:]); k != 0 || err != nil {
			t.Fatalf("after the reset: %d, %v", k, err)
		}
	}
}

// TestSlots_ClosedQueuePair_IsNotTouched: its memory is gone, though completions may still come
// from a NIC that does wrong.
func TestSlots_ClosedQueuePair_IsNotTouched(t *testing.T) {
	n, cq, qps := narrowRig(t, 16)
	late := abi.CQE{QPNum: uint32(qps[0].QPN()), Opcode: uint32(WCOpSend), SQIndex: 1}
	if err := qps[0].Close(); err != nil {
		t.Fatal(err)
	}
	n.complete(n.cq(cq), late)
	if k, err := cq.Poll(make([]WC, 4)); k != 1 || err != nil {
		t.Errorf("%d, %v", k, err)
	}
	late.QPNum, late.SQIndex = uint32(qps[1].QPN()), 77 // more than was posted
	n.complete(n.cq(cq), late)
	if k, err := cq.Poll(make([]WC, 4)); k != 1 || err != nil || fill(t, qps[1], 0) != 4 {
		t.Errorf("an impossible index: %d, %v", k, err)
	}
}

// TestSlots_PostPollResetClose_AtOnce has something for the race detector to look at.
func TestSlots_PostPollResetClose_AtOnce(t *testing.T) {
	n, cq, qps := narrowRig(t, 64)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		var wcs [3]WC
		for {
			select {
			case <-stop:
				return
			default:
				if _, err := cq.Poll(wcs[:]); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	for _, q := range qps {
		for round := range uint64(50) {
			fill(t, q, round)
			n.work(q)
			if round%10 == 9 {
				if err := q.ToReset(); err != nil {
					t.Error(err)
				}
			}
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	wg.Wait()
}

func TestSlotTable_FindsEachQueue_AndForgetsEmptyPages(t *testing.T) {
	table, kept := slotTable{}, map[slotKey]*slots{}
	for i := range uint32(3 * slotsPerPage) {
		key := slotKey{qpn: 1000 + i, isRecv: i%3 == 0}
		kept[key] = new(slots)
		table.set(key, kept[key])
	}
	for key, want := range kept {
		other := slotKey{key.qpn, !key.isRecv}
		if table.get(key) != want || table.get(other) != nil {
			t.Fatalf("%+v: another queue's slots", key)
		}
		table.remove(key)
		table.remove(other)
		if table.get(key) != nil {
			t.Fatalf("%+v is still there", key)
		}
	}
	if len(table) != 0 {
		t.Errorf("%d pages of nobody", len(table))
	}
}
