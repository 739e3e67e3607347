package nic

import (
	"errors"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
)

// resize does what an application does with the reply.
func (q *appCQ) resize(b *bench, entries uint32) *rdma.Refusal {
	rsp, shared, r := b.c.ResizeCQ(&abi.ResizeCQReq{Handle: q.handle, Entries: entries})
	if r != nil {
		return r
	}
	q.cons = ring.NewConsumer(shared.Bytes(),
		ring.Geometry{Entries: rsp.Entries, Stride: abi.CQEBytes},
		ring.Word(q.mem, abi.OffCQProducer), ring.Word(q.mem, abi.OffCQConsumer))
	return nil
}

// pushTo lets the NIC write completions of the given ids.
func (b *bench) pushTo(q *appCQ, ids ...uint64) {
	b.n.now = b.now
	for _, id := range ids {
		b.c.cqs[q.handle].Push(&abi.CQE{WRID: id}, false)
	}
}

func idsOf(list []abi.CQE) (out []uint64) {
	for _, e := range list {
		out = append(out, e.WRID)
	}
	return out
}

func TestResizeCQ_GrowAndShrink_KeepsCompletionsInOrder(t *testing.T) {
	b := newBench(t)
	q := b.cq(4, 0)
	b.pushTo(q, 1, 2, 3)
	q.cons.Release(1)
	b.granted(q.resize(b, 9))
	b.pushTo(q, 4, 5, 6, 7, 8, 9, 10, 11)
	if r := q.resize(b, 8); r == nil || !errors.Is(r, syscall.EINVAL) {
		t.Errorf("10 completions fit into 8 entries: %v", r)
	}
	if got := idsOf(q.poll()); !slices.Equal(got, []uint64{2, 3, 4, 5, 6, 7, 8, 9, 10, 11}) {
		t.Errorf("after growing: %v", got)
	}
	b.granted(q.resize(b, 1))
	b.pushTo(q, 12)
	if got := idsOf(q.poll()); !slices.Equal(got, []uint64{12}) {
		t.Errorf("after shrinking: %v", got)
	}
	before := b.heap.live
	b.granted(q.resize(b, 64))
	if b.heap.live != before {
		t.Errorf("a resize leaves %d blocks of memory behind", b.heap.live-before)
	}
	b.granted(b.c.DestroyCQ(q.handle))
	if b.heap.live != 0 {
		t.Errorf("%d blocks of memory are left", b.heap.live)
	}
}

func TestResizeCQ_WrongArguments_AreRefused(t *testing.T) {
	b := newBench(t)
	q := b.cq(4, 0)
	for _, req := range []abi.ResizeCQReq{
		{Handle: q.handle, Entries: 0},
		{Handle: q.handle, Entries: limits.MaxCQE + 1},
		{Handle: q.handle + 99, Entries: 4},
	} {
		if _, _, r := b.c.ResizeCQ(&req); r == nil || !errors.Is(r, syscall.EINVAL) {
			t.Errorf("%+v: %v", req, r)
		}
	}
	ring.Word(q.mem, abi.OffCQConsumer).Store(77) // an index that no correct application writes
	if r := q.resize(b, 1); r == nil || !errors.Is(r, syscall.EINVAL) {
		t.Errorf("a corrupt index: %v", r)
	}
	b.granted(q.resize(b, 8))
}

func TestPush_IgnoredOverrun_LosesEntriesOnly(t *testing.T) {
	b := newBench(t)
	rsp, _, r := b.c.CreateCQ(&abi.CreateCQReq{Entries: 1, Flags: cqIgnoreOverrun})
	b.granted(r)
	q := b.c.cqs[rsp.Handle]
	for range 3 {
		q.Push(&abi.CQE{}, false)
	}
	if events := b.run(0); len(events) > 0 || q.failed || b.n.counters.CQOverruns != 2 {
		t.Errorf("events %v, failed %v, %d overruns", events, q.failed, b.n.counters.CQOverruns)
	}
}

func TestModeration_CountOrPeriod_RaisesOneEvent(t *testing.T) {
	b := newBench(t)
	channel, r := b.c.CreateChannel()
	b.granted(r)
	q := b.cq(16, channel)
	b.granted(b.c.ModifyCQ(&abi.ModifyCQReq{Handle: q.handle, Count: 3, PeriodMicroseconds: 50}))
	period := clock.Time(50 * time.Microsecond)

	q.arm(abi.ArmNext)
	b.pushTo(q, 1, 2)
	if events := b.run(period - 1); len(events) > 0 {
		t.Errorf("events before count and period: %v", events)
	}
	b.pushTo(q, 3)
	if events := b.run(0); len(events) != 1 || events[0].Handle != q.handle {
		t.Errorf("events at the count: %v", events)
	}
	if events := b.run(10 * period); len(events) > 0 {
		t.Errorf("events after the event: %v", events)
	}

	q.arm(abi.ArmNext)
	b.pushTo(q, 4)
	if at := b.n.PollTimeout(); at != b.now+period {
		t.Errorf("wakes at %v, want %v", at, b.now+period)
	}
	if events := b.run(period); len(events) != 1 {
		t.Errorf("events at the period: %v", events)
	}

	q.arm(abi.ArmNext)
	b.c.cqs[q.handle].Push(&abi.CQE{Status: uint32(rdma.WCWRFlushErr)}, false)
	if events := b.run(0); len(events) != 1 {
		t.Errorf("an error waits: %v", events)
	}
}

func TestModeration_Ends_WithWhatWasHeld(t *testing.T) {
	b := newBench(t)
	channel, r := b.c.CreateChannel()
	b.granted(r)
	q := b.cq(16, channel)
	b.granted(b.c.ModifyCQ(&abi.ModifyCQReq{Handle: q.handle, Count: 9, PeriodMicroseconds: 9}))
	q.arm(abi.ArmNext)
	b.pushTo(q, 1)
	b.granted(b.c.ModifyCQ(&abi.ModifyCQReq{Handle: q.handle}))
	if events := b.run(0); len(events) != 1 {
		t.Errorf("events after the end of moderation: %v", events)
	}
	b.granted(b.c.ModifyCQ(&abi.ModifyCQReq{Handle: q.handle, Count: 9, PeriodMicroseconds: 9}))
	q.arm(abi.ArmNext)
	b.pushTo(q, 2)
	b.granted(b.c.DestroyCQ(q.handle))
	if at := b.n.PollTimeout(); at != clock.Never {
		t.Errorf("a queue that is gone wakes the NIC at %v", at)
	}
	for _, req := range []abi.ModifyCQReq{
		{Handle: q.handle, Count: 1}, {Handle: b.cq(1, 0).handle, Count: cqModerationMax + 1},
	} {
		if r := b.c.ModifyCQ(&req); r == nil || !errors.Is(r, syscall.EINVAL) {
			t.Errorf("%+v: %v", req, r)
		}
	}
}
