package daemon_test

import (
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/verbs"
)

// idleQPBytes is what a queue pair that does nothing may cost beyond its rings, which are no heap:
// here the NIC and the program together.
const idleQPBytes = 8192

// heapNow is what the process holds on its heap.
func heapNow() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what finalizers and pools kept
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestScale_10000QPs_PassDataAndCostLittle makes 10,000 queue pairs in one context, connects them,
// lets each of them write and send, and destroys them; and all that again, which wants no more.
func TestScale_10000QPs_PassDataAndCostLittle(t *testing.T) {
	const count = 10000
	d := startLocal(t)
	e := newEnd(t, open(t, d), rdma.QPTypeRC, 16*count, true)
	var left [2]int64
	for round := range left {
		before := heapNow()
		qps := connectMany(t, e, count)
		idle := (heapNow() - before) / count
		passData(t, e, qps, uint64(2*round*count))
		passData(t, e, qps, uint64((2*round+1)*count))
		worked := (heapNow() - before) / count
		t.Logf("%d bytes of heap a queue pair, %d after it has worked", idle, worked)
		if idle > idleQPBytes || worked > idleQPBytes {
			t.Errorf("a queue pair costs %d bytes, and %d after it has worked; at most %d", idle,
				worked, idleQPBytes)
		}
		for i := range qps {
			if err := qps[i].Close(); err != nil {
				t.Fatalf("queue pair %d: %v", i, err)
			}
		}
		left[round] = heapNow()
	}
	// Tables keep the size that they once had.
	if grown := left[1] - left[0]; grown > 20*count {
		t.Errorf("%d bytes stay behind", grown)
	}
}

func connectMany(t *testing.T, e *end, count int) []*verbs.QP {
	t.Helper()
	qps := make([]*verbs.QP, count)
	ends := make([]verbs.Endpoint, count)
	for i := range qps {
		var err error
		qps[i], err = e.pd.CreateQP(verbs.QPConfig{
			Type: rdma.QPTypeRC, SendCQ: e.cq, MaxSendWR: 4, MaxRecvWR: 4,
		})
		if err == nil {
			ends[i], err = qps[i].Endpoint()
		}
		if err != nil {
			t.Fatalf("queue pair %d: %v", i, err)
		}
	}
	for i := range qps {
		if err := qps[i].ConnectTo(ends[i^1]); err != nil {
			t.Fatalf("queue pair %d: %v", i, err)
		}
	}
	return qps
}

// passData lets every other queue pair write a word to its peer, and then send another.
func passData(t *testing.T, e *end, qps []*verbs.QP, value uint64) {
	t.Helper()
	words := e.mr.Bytes()
	for i := 0; i < len(qps); i += 2 {
		peer := qps[i+1]
		binary.NativeEndian.PutUint64(words[16*i:], value+uint64(i))
		if _, err := peer.PostRecv(verbs.RecvWR{SGE: e.mr.SGE(16*i+24, 8)}); err != nil {
			t.Fatalf("queue pair %d: %v", i, err)
		}
		for _, wr := range []verbs.SendWR{
			{
				Opcode: rdma.WRWrite, SGE: e.mr.SGE(16*i, 8), RemoteAddr: e.mr.Addr() + uint64(16*i+16),
				RKey: e.mr.RKey(),
			},
			{Opcode: rdma.WRSend, SGE: e.mr.SGE(16*i, 8), Flags: verbs.SendSignaled},
		} {
			if _, err := qps[i].PostSend(wr); err != nil {
				t.Fatalf("queue pair %d: %v", i, err)
			}
		}
		if i%64 == 62 || i == len(qps)-2 {
			for range i%64 + 2 {
				e.ok()
			}
		}
	}
	for i := 0; i < len(qps); i += 2 {
		for _, at := range []int{16*i + 16, 16*i + 24} {
			if got := binary.NativeEndian.Uint64(words[at:]); got != value+uint64(i) {
				t.Fatalf("queue pair %d: %d arrived", i, got)
			}
		}
	}
}
