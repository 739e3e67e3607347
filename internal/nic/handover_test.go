package nic

import (
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
)

// wide makes a queue pair with room for many requests.
func (b *bench) wide(cq *appCQ) *appQP {
	b.t.Helper()
	return b.qp(abi.CreateQPReq{
		Type: uint32(rdma.QPTypeRC), PD: b.pd, SendCQ: cq.handle, RecvCQ: cq.handle,
		MaxSendWR: 512, MaxRecvWR: 512, MaxSendSGE: 1, MaxRecvSGE: 1,
	})
}

// crowd is a number of connected pairs whose senders have n sends to make, each with a receive.
func (b *bench) crowd(pairs, n int) (senders, receivers []*appQP, cqs [2]*appCQ) {
	cqs = [2]*appCQ{b.cq(4096, 0), b.cq(4096, 0)}
	for range pairs {
		a, z := b.wide(cqs[0]), b.wide(cqs[1])
		a.connect(z.rsp.QPN)
		z.connect(a.rsp.QPN)
		for i := range n {
			z.recv(uint64(i))
			a.send(abi.SendWQE{
				WRID: uint64(i), Opcode: uint8(rdma.WRSend), Flags: uint8(rdma.SendSignaled),
			})
		}
		senders, receivers = append(senders, a), append(receivers, z)
	}
	return senders, receivers, cqs
}

func TestHandOver_Sends_NeedNoPackets(t *testing.T) {
	b := newBench(t)
	_, _, cqs := b.crowd(1, 100)
	var p ibt.Packet
	b.n.HandleDoorbells(b.now)
	for i := 0; b.n.HasWork(); i++ {
		if b.n.PollTransmit(b.now, &p) {
			t.Fatalf("a packet: %v", p.Headers.String())
		}
		if i > 100 {
			t.Fatal("no end")
		}
	}
	if k := b.n.TakeHandedOver(); k != 100 {
		t.Errorf("%d handed over", k)
	}
	for i, q := range cqs {
		list := q.poll()
		if len(list) != 100 {
			t.Fatalf("queue %d: %d completions", i, len(list))
		}
		for k := range list {
			if list[k].WRID != uint64(k) || list[k].Status != 0 {
				t.Fatalf("queue %d: completion %d is %+v", i, k, list[k])
			}
		}
	}
	if b.n.PollTimeout() < b.now+second {
		t.Error("a timer runs although nothing is under way")
	}
}

func TestHandOver_Forbidden_GoesByPackets(t *testing.T) {
	b := newBench(t)
	b.n.HandOver(false)
	_, _, cqs := b.crowd(1, 10)
	b.run(second)
	if k := b.n.TakeHandedOver(); k != 0 {
		t.Errorf("%d handed over", k)
	}
	if n := len(cqs[1].poll()); n != 10 {
		t.Errorf("%d received", n)
	}
}

// TestHandOver_ManyQueuePairs_TakeTurns: none waits for more than the quota of each other one.
func TestHandOver_ManyQueuePairs_TakeTurns(t *testing.T) {
	b := newBench(t)
	const pairs = 5
	senders, _, _ := b.crowd(pairs, 512)
	b.n.HandleDoorbells(b.now)
	var p ibt.Packet
	handed := 0
	for range pairs * 512 / limits.PacketsPerPoll {
		b.n.PollTransmit(b.now, &p)
		if k := b.n.TakeHandedOver(); k > handOversPerPoll {
			t.Fatalf("%d at once", k)
		} else {
			handed += k
		}
		least, most := uint32(512), uint32(0)
		for _, q := range senders {
			done := ring.Word(q.mem, abi.OffSQConsumer).Load()
			least, most = min(least, done), max(most, done)
		}
		if most-least > limits.PacketsPerPoll {
			t.Fatalf("one has %d done, another %d", most, least)
		}
	}
	if handed != pairs*512 {
		t.Errorf("%d handed over", handed)
	}
}

// TestHandOver_Overrun_FailsItsQPs: what is gathered counts for the queue's room.
func TestHandOver_Overrun_FailsItsQPs(t *testing.T) {
	b := newBench(t)
	small, large := b.cq(4, 0), b.cq(64, 0)
	a, z := b.wide(large), b.wide(small)
	a.connect(z.rsp.QPN)
	z.connect(a.rsp.QPN)
	for i := range 10 {
		z.recv(uint64(i))
		a.send(abi.SendWQE{Opcode: uint8(rdma.WRSend), Flags: uint8(rdma.SendSignaled)})
	}
	b.run(second)
	if n := len(small.poll()); n != 4 {
		t.Errorf("%d completions in a queue of 4", n)
	}
	if ring.Word(small.mem, abi.OffCQState).Load() != 1 || z.state() != sError {
		t.Errorf("CQ state %d, QP %v", ring.Word(small.mem, abi.OffCQState).Load(), z.state())
	}
}

// TestHandOver_ArmedQueue_RaisesOneEvent for a batch, solicited where one of it is.
func TestHandOver_ArmedQueue_RaisesOneEvent(t *testing.T) {
	for _, row := range []struct {
		arm   uint32
		flags rdma.SendFlags
		want  int
	}{
		{abi.ArmNext, 0, 1}, {abi.ArmSolicited, 0, 0}, {abi.ArmSolicited, rdma.SendSolicited, 1},
	} {
		b := newBench(t)
		channel, r := b.c.CreateChannel()
		b.granted(r)
		cq, other := b.cq(64, channel), b.cq(64, 0)
		a, z := b.wide(other), b.wide(cq)
		a.connect(z.rsp.QPN)
		z.connect(a.rsp.QPN)
		cq.arm(row.arm)
		for i := range 10 {
			z.recv(uint64(i))
			flags := rdma.SendFlags(0)
			if i == 5 {
				flags = row.flags
			}
			a.send(abi.SendWQE{Opcode: uint8(rdma.WRSend), Flags: uint8(flags)})
		}
		n := 0
		for _, e := range b.run(second) {
			if e.Channel == channel {
				n++
			}
		}
		if n != row.want {
			t.Errorf("armed %d, flags %v: %d events, want %d", row.arm, row.flags, n, row.want)
		}
	}
}
