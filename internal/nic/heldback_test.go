package nic

import (
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/rdma"
)

const holdTime = clock.Time(300 * time.Microsecond)

func newHoldingBench(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	b.n.cfg.HoldCompletions = time.Duration(holdTime)
	return b
}

// With the option on, one poll finds completions of sends
// and of receives, which some adapters do and programs have to be ready for.
func TestHold_SendAndReceive_T20_ComeTogetherWithOneEvent(t *testing.T) {
	b := newHoldingBench(t)
	channel, r := b.c.CreateChannel()
	b.granted(r)
	cq := b.cq(64, channel)
	a, z := b.rc(cq), b.rc(cq)
	a.connect(z.rsp.QPN)
	z.connect(a.rsp.QPN)
	b.run(holdTime)
	cq.arm(abi.ArmNext)
	for i := range 3 {
		z.recv(uint64(10 + i))
		a.send(abi.SendWQE{
			WRID: uint64(i), Opcode: uint8(rdma.WRSend), Flags: uint8(rdma.SendSignaled),
		})
	}
	events := b.run(holdTime / 2)
	if got := cq.poll(); len(got) != 0 || completionEvents(events) != 0 {
		t.Fatalf("at once %+v, events %+v", got, events)
	}
	events = b.run(holdTime)
	got := cq.poll()
	sends, receives := 0, 0
	for _, e := range got {
		if e.Opcode == uint32(rdma.WCOpRecv) {
			receives++
		} else {
			sends++
		}
	}
	if sends != 3 || receives != 3 || completionEvents(events) != 1 {
		t.Errorf("%d sends and %d receives in one poll, events %+v", sends, receives, events)
	}
}

func completionEvents(events []Event) (n int) {
	for _, e := range events {
		if e.Channel != 0 {
			n++
		}
	}
	return n
}

func TestHold_QueueJustDeepEnough_DoesNotOverrun(t *testing.T) {
	b := newHoldingBench(t)
	cq := b.cq(2, 0)
	a, z := b.rc(cq), b.rc(b.cq(8, 0))
	a.connect(z.rsp.QPN)
	z.connect(a.rsp.QPN)
	for i := range 2 {
		a.send(abi.SendWQE{
			WRID: uint64(i), Opcode: uint8(rdma.WRWrite), Flags: uint8(rdma.SendSignaled),
		})
	}
	b.run(holdTime / 2)
	if got := cq.poll(); len(got) != 2 || a.state() != sRTS {
		t.Errorf("%+v, state %v", got, a.state())
	}
}

// Nothing may appear after the end: what was held is to be seen before, so that the library can
// cancel it.
func TestHold_QueuePairEnds_NothingComesLater(t *testing.T) {
	for name, end := range map[string]func(*bench, *appQP, *appCQ) *rdma.Refusal{
		"destroyed": func(b *bench, q *appQP, _ *appCQ) *rdma.Refusal {
			return b.c.DestroyQP(b.now, q.rsp.Handle)
		},
		"reset": func(_ *bench, q *appQP, _ *appCQ) *rdma.Refusal {
			return q.modify(abi.QPAttr{State: uint32(sReset)}, rdma.QPAttrState)
		},
		"resized": func(b *bench, _ *appQP, cq *appCQ) *rdma.Refusal {
			_, _, r := b.c.ResizeCQ(&abi.ResizeCQReq{Handle: cq.handle, Entries: 64})
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newHoldingBench(t)
			cq := b.cq(64, 0)
			a, z := b.rc(cq), b.rc(b.cq(8, 0))
			a.connect(z.rsp.QPN)
			z.connect(a.rsp.QPN)
			a.send(abi.SendWQE{Opcode: uint8(rdma.WRWrite), Flags: uint8(rdma.SendSignaled)})
			b.run(holdTime / 2)
			b.granted(end(b, a, cq))
			if got := cq.poll(); len(got) != 1 {
				t.Errorf("%d completions to cancel", len(got))
			}
			b.run(2 * holdTime)
			if got := cq.poll(); len(got) != 0 {
				t.Errorf("later %+v", got)
			}
		})
	}
}
