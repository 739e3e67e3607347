package nic

import (
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
)

// BenchmarkWrite is what a small WRITE between two queue pairs of one NIC costs the adapter, from
// doorbell to completion.
func BenchmarkWrite(b *testing.B) {
	n := newBench(b)
	a, _, cq := pairRC(n)
	mr, addr, _ := n.region(4096, everyRight)
	wqe := abi.SendWQE{
		Opcode: uint8(rdma.WRWrite), Flags: uint8(rdma.SendSignaled), RemoteAddr: addr, RKey: mr.RKey,
	}
	list := abi.SGE{Addr: addr, Length: 64, LKey: mr.LKey}
	b.ReportAllocs()
	for b.Loop() {
		a.send(wqe, list)
		n.run(0)
		for {
			if pending, _ := cq.cons.Pending(); pending > 0 {
				cq.cons.Release(pending)
				break
			}
			n.run(second)
		}
	}
}
