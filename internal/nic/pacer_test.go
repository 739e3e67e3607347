package nic

import (
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/rdma"
)

// sendUC posts bytes over UC to a destination and counts the packets that leave until d has passed.
func sendUC(t *testing.T, rate uint64, dest byte, d time.Duration) (bytes int, b *bench) {
	t.Helper()
	b = newBench(t)
	b.n.pacer.rate = rate
	cq := b.cq(64, 0)
	q := b.qp(abi.CreateQPReq{
		Type: uint32(rdma.QPTypeUC), PD: b.pd, SendCQ: cq.handle, RecvCQ: cq.handle, MaxSendWR: 8,
	})
	a := fullAttr(77)
	a.AH.DGID = gid(dest)
	for _, step := range []struct {
		to   rdma.QPState
		mask rdma.QPAttrMask
	}{
		{sInit, toInit},
		{sRTR, rdma.QPAttrState | aAV | aMTU | aDest | aRQPSN},
		{sRTS, rdma.QPAttrState | aSQPSN},
	} {
		a.State = uint32(step.to)
		b.granted(q.modify(a, step.mask))
	}
	src, addr, _ := b.region(1<<20, 0)
	for range 4 {
		q.send(abi.SendWQE{Opcode: uint8(rdma.WRSend)}, abi.SGE{
			Addr: addr, Length: 1 << 20, LKey: src.LKey,
		})
	}
	var p ibt.Packet
	for end := b.now + clock.Time(d); ; {
		b.n.HandleDoorbells(b.now)
		for b.n.PollTransmit(b.now, &p) {
			bytes += len(p.Payload)
		}
		if b.n.HasWork() {
			continue
		}
		next := b.n.PollTimeout()
		if next > end {
			return bytes, b
		}
		b.now = max(b.now, next)
		b.n.HandleTimeout(b.now)
	}
}

func TestPacer_UnreliableToOtherHosts_KeepsTheRate(t *testing.T) {
	bytes, b := sendUC(t, 100e6, 9, 10*time.Millisecond)
	if low, high := 900_000, 1_000_000+2*paceBurst; bytes < low || bytes > high {
		t.Errorf("%d bytes in 10 ms at 100 MB/s", bytes)
	}
	b.n.CloseContext(b.now, b.c)
	if b.n.PollTimeout() != clock.Never || b.n.HasWork() || b.n.pacer.held.len() != 0 {
		t.Error("a queue pair that was held left something behind")
	}
}

func TestPacer_NoRateOrOwnHost_HoldsNothing(t *testing.T) {
	if bytes, _ := sendUC(t, 0, 9, 0); bytes != 4<<20 {
		t.Errorf("%d bytes at once without a rate", bytes)
	}
	if bytes, _ := sendUC(t, 100e6, 1, 0); bytes != 4<<20 {
		t.Errorf("%d bytes at once within the NIC", bytes)
	}
}
