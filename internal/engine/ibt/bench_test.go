package ibt

import (
	"runtime"
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/rdma"
)

// exchange moves packets by reference between the nodes until both are quiet.
func (w *world) exchange(p *Packet) {
	for {
		worked := false
		for w.a.q.PollTransmit(w.now, p) {
			w.b.q.HandlePacket(w.now, p)
			worked = true
		}
		for w.b.q.PollTransmit(w.now, p) {
			w.a.q.HandlePacket(w.now, p)
			worked = true
		}
		w.now += 1000
		if !worked && !w.a.q.HasWork() && !w.b.q.HasWork() {
			return
		}
	}
}

func quietWorld(tb testing.TB, c worldConfig) *world {
	w := newWorld(tb, c)
	for _, n := range []*node{w.a, w.b} {
		n.sends.discard, n.recvs.discard = true, true
	}
	return w
}

// flow is a steady state: post some work, exchange until it is complete.
type flow struct {
	name string
	c    worldConfig
	op   rdma.WROpcode
	size int
	list int // entries
}

var flows = []flow{
	{name: "write", op: rdma.WRWrite, size: 65536, list: 1},
	{name: "write gathered", op: rdma.WRWrite, size: 65536, list: 3},
	{name: "send", op: rdma.WRSend, size: 5000, list: 1},
	{name: "send small", op: rdma.WRSend, size: 2, list: 1},
	{name: "send imm", op: rdma.WRSendWithImm, size: 2, list: 2},
	{name: "read", op: rdma.WRRead, size: 65536, list: 1},
	{name: "fetch_add", op: rdma.WRFetchAdd, size: 8, list: 1},
	{name: "uc write", op: rdma.WRWrite, size: 65536, list: 1, c: worldConfig{qpType: rdma.QPTypeUC}},
	{name: "ud send", op: rdma.WRSend, size: 1024, list: 1, c: worldConfig{qpType: rdma.QPTypeUD}},
}

// round posts n work requests and waits for them.
func (f *flow) round(w *world, p *Packet, n int) {
	wqe := abi.SendWQE{
		Opcode: uint8(f.op), Flags: signaled, RemoteAddr: testBase + half,
		RKey: uint32(w.b.region.Key), AH: 1, RemoteQPN: 0x22, RemoteQKey: 0x1234,
	}
	var list [4]abi.SGE
	for i := range f.list {
		list[i] = w.a.at(0, f.size/f.list)
	}
	list[f.list-1] = w.a.at(0, f.size-(f.list-1)*(f.size/f.list))
	recv := w.b.at(half, 65536)
	for range n {
		if f.op == rdma.WRSend || f.op == rdma.WRSendWithImm {
			w.b.receive(1, recv)
		}
		w.a.write(wqe, nil, list[:f.list])
	}
	w.a.sq.Publish()
	w.a.q.HandleDoorbell(w.now)
	w.exchange(p)
}

func TestCost_SteadyState_AllocatesNothing(t *testing.T) {
	for i := range flows {
		f := &flows[i]
		for _, mapped := range []bool{true, false} {
			c := f.c
			if !mapped {
				c.spaceA, c.spaceB = &space{}, &space{}
			}
			w := quietWorld(t, c)
			var p Packet
			for range 5 {
				f.round(w, &p, 64)
			}
			before := w.a.sends.seen
			if n := testing.AllocsPerRun(20, func() { f.round(w, &p, 64) }); n != 0 {
				t.Errorf("%s (mapped %v): %v allocations a round", f.name, mapped, n)
			}
			if w.a.sends.seen-before != 21*64 {
				t.Errorf("%s: %d of %d completed", f.name, w.a.sends.seen-before, 21*64)
			}
		}
	}
}

func benchmarkFlow(b *testing.B, f flow, batch int) {
	f.c.edit = func(_ string, a *Attr) {
		a.PathMTU = rdma.MTU4096
		a.MaxRdAtomic, a.MaxDestRdAtomic = 16, 16
	}
	w := quietWorld(b, f.c)
	var p Packet
	f.round(w, &p, batch)
	b.SetBytes(int64(f.size))
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; done += batch {
		f.round(w, &p, batch)
	}
}

func BenchmarkLoop(b *testing.B) {
	for _, f := range []flow{
		{name: "write64K", op: rdma.WRWrite, size: 65536, list: 1},
		{name: "read64K", op: rdma.WRRead, size: 65536, list: 1},
		{name: "send2", op: rdma.WRSend, size: 2, list: 1},
		{name: "write2", op: rdma.WRWrite, size: 2, list: 1},
	} {
		b.Run(f.name, func(b *testing.B) { benchmarkFlow(b, f, 64) })
	}
}

// TestCost_IdleQP measures what a QP takes before it is used.
func TestCost_IdleQP_IsSmall(t *testing.T) {
	w := newWorld(t, worldConfig{})
	scratch := work.NewScratch()
	cfg := w.a.q.cfg
	cfg.Scratch = scratch
	keep := make([]*QP, 1000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range keep {
		keep[i] = New(cfg)
	}
	runtime.ReadMemStats(&after)
	per := (after.TotalAlloc - before.TotalAlloc) / uint64(len(keep))
	if per > 8192 {
		t.Errorf("an idle queue pair takes %d bytes", per)
	}
	t.Logf("an idle queue pair takes %d bytes", per)
}
