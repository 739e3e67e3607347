package ibt

import (
	"slices"
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

func (n *node) modify(now clock.Time, to rdma.QPState) {
	n.q.Modify(now, &Attr{}, rdma.QPAttrState, to)
}

// posted returns what lies in the send and the receive ring.
func (n *node) posted() [2]uint32 {
	k, _ := n.q.send.ring.Pending()
	return [2]uint32{k, n.q.cfg.RQ.(*work.RingReceiveQueue).Available()}
}

func ids(list []abi.CQE) (out []uint64) {
	for i := range list {
		out = append(out, list[i].WRID)
	}
	return out
}

// TestState_Error_E05_FlushesEachOnce: requests on the wire, fetched, and still in the ring, the
// receive in use and those behind: one flush completion each, at once, in order.
func TestState_Error_E05_FlushesEachOnce(t *testing.T) {
	w := newWorld(t, worldConfig{})
	w.judge = func(*node, *Packet) fate { return lose }
	for id := range uint64(100) {
		x := w.writeWR(id)
		if id%3 == 0 {
			x.Flags = 0 // an error completes in any case
		}
		w.a.post(0, x, w.a.at(0, 1000))
	}
	for id := range uint64(50) {
		w.a.receive(1000+id, w.a.at(0, 5000))
	}
	p := w.request(ib.RCSendFirst, 100, mtuBytes(1024))
	p.Address, p.Headers.BTH.DestQPN = w.b.q.attr.AV, 0x11
	w.a.q.HandlePacket(0, p)
	w.transmit(w.a)
	w.a.modify(0, rdma.QPStateError)
	sends, recvs := w.a.sends.take(), w.a.recvs.take()
	if len(sends) != 100 || !slices.IsSorted(ids(sends)) || len(recvs) != 50 ||
		!slices.IsSorted(ids(recvs)) || recvs[0].WRID != 1000 {
		t.Fatalf("flushed %v and %v", ids(sends), ids(recvs))
	}
	for _, e := range append(sends, recvs...) {
		if e.Status != uint32(rdma.WCWRFlushErr) || e.VendorErr != uint32(abi.VendorFlushed) ||
			e.QPNum != 0x11 {
			t.Fatalf("completion %+v", e)
		}
	}
	// What is posted in error is flushed too.
	w.a.receive(7, w.a.at(0, 8))
	w.a.post(0, w.writeWR(8), w.a.at(0, 8))
	if s, r := ids(w.a.sends.take()), ids(w.a.recvs.take()); !slices.Equal(s, []uint64{8}) ||
		!slices.Equal(r, []uint64{7}) {
		t.Fatalf("posted in error: %v, %v", s, r)
	}
	if w.a.q.HasWork() || w.a.q.PollTimeout() != clock.Never {
		t.Fatal("a QP in error has work")
	}
	w.a.modify(0, rdma.QPStateError)
	if len(w.a.sends.take())+len(w.a.recvs.take()) != 0 {
		t.Fatal("flushed twice")
	}
}

// TestState_Error_FlushIsBounded: one call flushes a slice, the rest follows.
func TestState_Error_FlushIsBounded(t *testing.T) {
	const n = 1024
	w := newWorld(t, worldConfig{entries: n})
	w.judge = func(*node, *Packet) fate { return lose }
	for id := range uint64(n) {
		w.a.post(0, w.writeWR(id), w.a.at(0, 8))
		w.a.receive(id, w.a.at(0, 8))
	}
	w.a.modify(0, rdma.QPStateError)
	if len(w.a.sends.entries) > limits.WQEsPerDoorbell || !w.a.q.HasWork() {
		t.Fatalf("%d flushed in one call", len(w.a.sends.entries))
	}
	var p Packet
	for w.a.q.HasWork() {
		if w.a.q.PollTransmit(0, &p) {
			t.Fatal("a packet in error")
		}
	}
	if len(w.a.sends.take()) != n || len(w.a.recvs.take()) != n {
		t.Fatal("not all flushed")
	}
}

func TestState_Reset_DropsInSilence(t *testing.T) {
	w := newWorld(t, worldConfig{})
	for id := range uint64(60) {
		w.a.post(0, w.writeWR(id), w.a.at(0, 3000))
		w.a.receive(id, w.a.at(0, 8))
	}
	w.transmit(w.a)
	w.air = nil
	w.a.modify(0, rdma.QPStateReset)
	if w.a.q.State() != rdma.QPStateReset || w.a.q.HasWork() || w.a.q.PollTimeout() != clock.Never ||
		w.a.sends.seen+w.a.recvs.seen != 0 || w.a.posted() != [2]uint32{} {
		t.Fatal("something is left after RESET")
	}
	w.a.modify(0, rdma.QPStateReset) // RESET to RESET is legal
	w.a.bring(testAttr("a", "b", 0x22))
	w.a.post(0, w.writeWR(1), w.a.at(0, 3000))
	w.settle()
	wantStatus(t, w.a.sends.take(), rdma.WCSuccess)
}

func TestState_SharedReceives_LastWQEReached(t *testing.T) {
	w := newWorld(t, worldConfig{sharedB: true})
	w.b.receive(1, w.b.at(0, 5000))
	w.b.receive(2, w.b.at(0, 5000))
	w.give(w.request(ib.RCSendFirst, 100, mtuBytes(1024)))
	w.b.modify(0, rdma.QPStateError)
	wantStatus(t, w.b.recvs.take(), rdma.WCWRFlushErr)
	want := []rdma.EventType{rdma.EventQPLastWQEReached}
	if !slices.Equal(w.b.events, want) || w.b.posted()[1] != 1 {
		t.Fatalf("events %v, %d receives left", w.b.events, w.b.posted()[1])
	}
	w.b.q.HandleDoorbell(0)
	if len(w.b.events) != 1 {
		t.Fatal("the event came twice")
	}
}

func TestState_SQD_DrainsThenResumes(t *testing.T) {
	w := newWorld(t, worldConfig{})
	for id := range uint64(60) {
		w.a.post(0, w.writeWR(id), w.a.at(0, 3000))
	}
	w.transmit(w.a)
	w.a.q.Modify(w.now, &Attr{SQDAsyncNotify: true},
		rdma.QPAttrState|rdma.QPAttrEnSQDAsyncNotify, rdma.QPStateSQD)
	if !w.a.q.IsDraining() || len(w.a.events) != 0 {
		t.Fatal("not draining")
	}
	w.settle()
	done := len(w.a.sends.take())
	if w.a.q.IsDraining() || !slices.Equal(w.a.events, []rdma.EventType{rdma.EventSQDrained}) ||
		done == 0 || done == 60 || w.a.q.HasWork() {
		t.Fatalf("drained %v, events %v, %d done, work %v",
			w.a.q.Stats().IsDrained, w.a.events, done, w.a.q.HasWork())
	}
	w.a.modify(w.now, rdma.QPStateRTS)
	w.settle()
	if done += len(w.a.sends.take()); done != 60 {
		t.Fatalf("%d done after the pause", done)
	}
}

func TestState_SQD_Idle_DrainedAtOnce(t *testing.T) {
	w := newWorld(t, worldConfig{})
	w.a.q.Modify(0, &Attr{SQDAsyncNotify: true},
		rdma.QPAttrState|rdma.QPAttrEnSQDAsyncNotify, rdma.QPStateSQD)
	if !slices.Equal(w.a.events, []rdma.EventType{rdma.EventSQDrained}) {
		t.Fatalf("events %v", w.a.events)
	}
	w.a.post(0, w.writeWR(1), w.a.at(0, 8))
	w.settle()
	if len(w.a.sends.take()) != 0 {
		t.Fatal("sent in SQD")
	}
}

// TestState_CorruptIndex_EndsTheQP: an index that no library writes makes the ring meaningless.
func TestState_CorruptIndex_EndsTheQP(t *testing.T) {
	for _, bad := range []uint32{1 << 31, ringSize + 5, 0xffffffff} {
		w := newWorld(t, worldConfig{})
		w.a.post(0, w.writeWR(1), w.a.at(0, 8))
		w.transmit(w.a)
		putNative(w.a.sqMem, uint64(bad))
		w.a.q.HandleDoorbell(w.now)
		want := []rdma.EventType{rdma.EventQPFatal}
		if w.a.q.State() != rdma.QPStateError || !slices.Equal(w.a.events, want) {
			t.Fatalf("index %#x: state %v, events %v", bad, w.a.q.State(), w.a.events)
		}
		wantStatus(t, w.a.sends.take(), rdma.WCWRFlushErr)
		if w.a.q.HasWork() {
			t.Fatal("work is left")
		}
	}
}

func TestState_Attr_TellsCurrentPSNs(t *testing.T) {
	w := newWorld(t, worldConfig{})
	w.a.post(0, w.writeWR(1), w.a.at(0, 3000))
	w.settle()
	a, b := w.a.q.Attr(), w.b.q.Attr()
	if a.SQPSN != 103 || b.RQPSN != 103 || a.PathMTU != rdma.MTU1024 {
		t.Fatalf("sq_psn %v, rq_psn %v", a.SQPSN, b.RQPSN)
	}
}
