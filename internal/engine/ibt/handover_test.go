package ibt

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/rdma"
)

// handOver lets n hand over what it can, as the NIC does.
func (w *world) handOver(n, to *node, p *Packet) bool {
	if !n.q.MayHandOver() || !to.q.TakesFrom(n.q) {
		return false
	}
	for range 64 {
		if !n.q.HandOver(w.now, to.q, p) {
			break
		}
	}
	k := n.q.EndHandOver(to.q)
	w.handed += k
	return k > 0
}

// story is what one program did, and what came of it.
type story struct {
	sends, recvs [2][]abi.CQE // of a and b
	mem          [2][]byte
	states       [2]rdma.QPState
	stats        [2]Stats
	counters     [2][work.CounterCount]uint64
	handed       int
}

func storyOf(w *world) (s story) {
	for i, n := range []*node{w.a, w.b} {
		s.sends[i], s.recvs[i] = n.sends.take(), n.recvs.take()
		for _, list := range [][]abi.CQE{s.sends[i], s.recvs[i]} {
			for k := range list {
				list[k].Timestamp = 0
			}
		}
		s.mem[i], s.states[i], s.stats[i] = n.mem, n.q.State(), n.q.Stats()
		s.counters[i] = n.counters
	}
	s.handed = w.handed
	return s
}

// randomWork is one work request; some are wrong in some way.
func randomWork(r *rand.Rand, n, to *node, isHarmless bool) (abi.SendWQE, []abi.SGE) {
	ops := []rdma.WROpcode{
		rdma.WRSend, rdma.WRSend, rdma.WRSend, rdma.WRSendWithImm, rdma.WRWrite, rdma.WRWrite,
		rdma.WRWriteWithImm, rdma.WRRead, rdma.WRFetchAdd, rdma.WRSendWithInv,
	}
	if isHarmless {
		ops = ops[:len(ops)-1] // the last one ends the connection here
	}
	size := []int{0, 1, 2, 64, 1023, 1024, 1025, 5000}[r.IntN(8)]
	x := abi.SendWQE{
		WRID: r.Uint64(), Opcode: uint8(ops[r.IntN(len(ops))]), ImmOrRKey: r.Uint32(),
		Flags:      uint8([]rdma.SendFlags{0, rdma.SendSignaled}[r.IntN(2)]),
		RemoteAddr: testBase + half + uint64(r.IntN(1000))*8, RKey: uint32(to.region.Key),
		CompareAdd: r.Uint64(),
	}
	if r.IntN(8) == 0 {
		x.Flags |= uint8(rdma.SendSolicited)
	}
	if r.IntN(8) == 0 {
		x.Flags |= uint8(rdma.SendFence)
	}
	if rdma.WROpcode(x.Opcode) == rdma.WRFetchAdd {
		size = 8
	}
	// READs and atomics have memory of their own on both sides: without a fence there is no order
	// between their data and what follows.
	base := 0
	switch rdma.WROpcode(x.Opcode) {
	case rdma.WRRead:
		base, x.RemoteAddr = half/2, x.RemoteAddr-half
	case rdma.WRFetchAdd:
		base, x.RemoteAddr = half/2, x.RemoteAddr+half-16384
	}
	list := []abi.SGE{n.at(base+r.IntN(half/2-8192)&^7, size)}
	if size > 8 && r.IntN(4) == 0 {
		list[0].Length = 8
		list = append(list, n.at(base+r.IntN(1000), size-8))
	}
	if !isHarmless && r.IntN(40) == 0 {
		switch r.IntN(4) {
		case 0:
			x.RKey++
		case 1:
			list[0].LKey++
		case 2:
			x.Opcode = 99
		default:
			list[0].Addr = testBase - 1
		}
	}
	return x, list
}

// play lets both nodes send to each other at random.
func play(t *testing.T, seed uint64, handsOver, isHarmless bool) story {
	r := rand.New(rand.NewPCG(seed, 7))
	w := newWorld(t, worldConfig{sharedB: seed%3 == 0, all: seed%5 == 0})
	w.handsOver = handsOver
	pattern(w.a.mem, 1)
	pattern(w.b.mem, 2)
	for range 30 {
		for i, n := range []*node{w.a, w.b} {
			to := []*node{w.b, w.a}[i]
			for range r.IntN(6) {
				// Short ones, none, and now and then too few of them: the sender has to wait.
				x := to.at(half+r.IntN(half-32768)&^7, []int{0, 64, 8192, 8192, 8192}[r.IntN(5)])
				if isHarmless {
					x.Length = 8192
				}
				if to.rq.Free() > 0 {
					to.receive(r.Uint64(), x)
				}
			}
			for range r.IntN(6) {
				if !isHarmless && n == w.b {
					break // errors of both sides race, and the link decides which comes first
				}
				x, list := randomWork(r, n, to, isHarmless)
				if n.sq.Free() > 0 {
					n.write(x, nil, list)
				}
			}
			n.sq.Publish()
			n.q.HandleDoorbell(w.now)
		}
		w.run(1e6)
	}
	for _, n := range []*node{w.a, w.b} {
		for range 100 {
			if n.rq.Free() > 0 {
				n.receive(0, n.at(half, 8192))
			}
		}
	}
	w.settle()
	return storyOf(w)
}

// TestHandOver_RandomPrograms_AsByPackets compares what programs see with and without packets:
// every completion, every byte of memory, and how the queue pairs end.
func TestHandOver_RandomPrograms_AsByPackets(t *testing.T) {
	handed := 0
	for seed := range uint64(120) {
		isHarmless := seed%2 == 0
		want, got := play(t, seed, false, isHarmless), play(t, seed, true, isHarmless)
		handed += got.handed
		if want.handed != 0 {
			t.Fatal("handed over although nobody may")
		}
		for i := range 2 {
			if err := differ(&want, &got, i, isHarmless); err != nil {
				t.Fatalf("seed %d, node %d: %v", seed, i, err)
			}
		}
	}
	if handed < 1000 {
		t.Errorf("%d messages were handed over: this has tried nothing", handed)
	}
}

func differ(want, got *story, i int, isHarmless bool) error {
	if want.states[i] != got.states[i] {
		return fmt.Errorf("state %v, by packets %v", got.states[i], want.states[i])
	}
	for _, x := range [][2][]abi.CQE{
		{want.sends[i], got.sends[i]}, {want.recvs[i], got.recvs[i]},
	} {
		if len(x[0]) != len(x[1]) {
			return fmt.Errorf("%d completions, by packets %d", len(x[1]), len(x[0]))
		}
		for k := range x[0] {
			if x[0][k] != x[1][k] {
				return fmt.Errorf("completion %d %+v, by packets %+v", k, x[1][k], x[0][k])
			}
		}
	}
	if !bytes.Equal(want.mem[i], got.mem[i]) {
		return fmt.Errorf("memory differs")
	}
	a, b := &want.stats[i], &got.stats[i]
	if a.SendFetched != b.SendFetched || a.SendCompleted != b.SendCompleted ||
		a.RecvTaken != b.RecvTaken || a.RecvCompleted != b.RecvCompleted || a.Pending != b.Pending {
		return fmt.Errorf("statistics %+v, by packets %+v", b, a)
	}
	for _, c := range []work.Counter{work.CountRDMASends, work.CountRDMARecvs} {
		if isHarmless && want.counters[i][c] != got.counters[i][c] {
			return fmt.Errorf("counter %d: %d, by packets %d", c, got.counters[i][c], want.counters[i][c])
		}
	}
	return nil
}

// TestHandOver_SteadyState_AllocatesNothing also counts: as many packets as with packets.
func TestHandOver_SteadyState_AllocatesNothing(t *testing.T) {
	w := quietWorld(t, worldConfig{})
	var p Packet
	round := func() {
		for range 64 {
			w.b.receive(1, w.b.at(half, 64))
			w.a.write(abi.SendWQE{Opcode: uint8(rdma.WRSend), Flags: signaled}, nil,
				[]abi.SGE{w.a.at(0, 2)})
		}
		w.a.sq.Publish()
		w.a.q.HandleDoorbell(w.now)
		if !w.handOver(w.a, w.b, &p) {
			t.Fatal("not handed over")
		}
	}
	round()
	if n := testing.AllocsPerRun(20, round); n != 0 {
		t.Errorf("%v allocations a round", n)
	}
	messages := uint64(22 * 64)
	if w.handed != int(messages) || w.a.sends.seen != w.handed || w.b.recvs.seen != w.handed {
		t.Errorf("%d handed over, %d sends, %d receives", w.handed, w.a.sends.seen, w.b.recvs.seen)
	}
	if w.sent != 0 || w.a.q.HasWork() || w.b.q.HasWork() {
		t.Errorf("%d packets, and work is left", w.sent)
	}
	if k := w.a.counters[work.CountSentPackets]; k != messages {
		t.Errorf("%d packets counted, want %d", k, messages)
	}
	if k := w.b.counters[work.CountRcvdBytes]; k != 2*messages {
		t.Errorf("%d bytes counted, want %d", k, 2*messages)
	}
}

// TestHandOver_NotPlain_GoesByPackets looks at each thing that forbids it.
func TestHandOver_NotPlain_GoesByPackets(t *testing.T) {
	for _, row := range []struct {
		name string
		c    worldConfig
		do   func(w *world)
	}{
		{name: "UC", c: worldConfig{qpType: rdma.QPTypeUC}, do: func(*world) {}},
		{name: "PeerElsewhere", c: worldConfig{edit: func(name string, a *Attr) {
			if name == "b" {
				a.DestQPN = 0x33
			}
		}}, do: func(*world) {}},
		{name: "OtherPartition", c: worldConfig{edit: func(name string, a *Attr) {
			if name == "b" {
				a.PKey = 0x8001
			}
		}}, do: func(*world) {}},
		{name: "OtherAddress", c: worldConfig{edit: func(name string, a *Attr) {
			if name == "b" {
				a.AV.DGID[15]++
			}
		}}, do: func(*world) {}},
		{name: "OutOfSequence", c: worldConfig{edit: func(name string, a *Attr) {
			if name == "b" {
				a.RQPSN++
			}
		}}, do: func(*world) {}},
		{name: "PeerInError", do: func(w *world) {
			w.b.q.Modify(0, &w.b.q.attr, rdma.QPAttrState, rdma.QPStateError)
		}},
		{name: "Draining", do: func(w *world) {
			w.a.q.Modify(0, &w.a.q.attr, rdma.QPAttrState, rdma.QPStateSQD)
		}},
		{name: "UnderWay", do: func(w *world) {
			w.a.post(w.now, abi.SendWQE{Opcode: uint8(rdma.WRWrite)})
			w.transmit(w.a)
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, row.c)
			row.do(w)
			w.b.receive(1, w.b.at(half, 64))
			w.a.post(w.now, abi.SendWQE{Opcode: uint8(rdma.WRSend), Flags: signaled}, w.a.at(0, 2))
			var p Packet
			if w.handOver(w.a, w.b, &p) || len(w.b.recvs.entries) > 0 && row.name != "PeerInError" {
				t.Error("handed over")
			}
		})
	}
}
