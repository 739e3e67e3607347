package nic

import (
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
)

// Capability bits of extensions (enum ibv_device_cap_flags and its extension).
const (
	capMemoryWindows = 1<<17 | 1<<23 | 1<<24
	capFlush         = 1<<38 | 1<<39
)

// An adapter that announces what it refuses, or does what it does not announce, misleads programs
// that choose by capability.
func TestCapabilities_T16_AgreeWithOperations(t *testing.T) {
	for _, c := range []struct {
		name string
		op   rdma.WROpcode
		caps uint64 // one of these announces it; 0 when every adapter has it
	}{
		{"ATOMIC WRITE", rdma.WRAtomicWrite, capAtomicWrite},
		{"FLUSH", rdma.WRFlush, capFlush},
		{"BIND", rdma.WRBindMW, capMemoryWindows},
		{"LOCAL INVALIDATE", rdma.WRLocalInvalidate, capMemMgtExtensions},
		{"WRITE", rdma.WRWrite, 0},
	} {
		b := newBench(t)
		cq := b.cq(16, 0)
		a, z := b.rc(cq), b.rc(cq)
		a.connect(z.rsp.QPN)
		z.connect(a.rsp.QPN)
		a.send(abi.SendWQE{WRID: 1, Opcode: uint8(c.op), Flags: uint8(rdma.SendSignaled)})
		b.run(second)
		done := cq.poll()
		if len(done) != 1 {
			t.Fatalf("%s: completions %+v", c.name, done)
		}
		refused := rdma.WCStatus(done[0].Status) == rdma.WCLocQPOpErr
		announced := c.caps == 0 || b.c.DeviceAttr().CapFlags&c.caps != 0
		if refused == announced {
			t.Errorf("%s: announced %v, yet status %v", c.name, announced,
				rdma.WCStatus(done[0].Status))
		}
	}
}

// onDemandOps are what a queue pair can do with memory that is paged on demand, by the bits that
// announce it.
//
//tidy:table
var onDemandOps = []struct {
	cap uint32
	wqe abi.SendWQE
	n   uint32 // bytes of this side
}{
	{odpSend | odpRecv, abi.SendWQE{Opcode: uint8(rdma.WRSend)}, 16},
	{odpWrite, abi.SendWQE{Opcode: uint8(rdma.WRWrite)}, 16},
	{odpRead, abi.SendWQE{Opcode: uint8(rdma.WRRead)}, 16},
	{odpAtomic, abi.SendWQE{Opcode: uint8(rdma.WRFetchAdd), CompareAdd: 1}, 8},
	{odpFlush, abi.SendWQE{Opcode: uint8(rdma.WRFlush), CompareAdd: 1, Swap: 16}, 0},
	{odpStore, abi.SendWQE{Opcode: uint8(rdma.WRAtomicWrite)}, 8},
}

// What is announced for memory paged on demand works, on both sides.
func TestCapabilities_T16_OnDemandPaging_AgreesWithOperations(t *testing.T) {
	const addr = 0x7000
	for _, c := range onDemandOps {
		b := newBench(t)
		space := &elsewhere{map[uint64]byte{}}
		space.put(addr, 64)
		b.c.cfg.Space = space
		a, z, cq := pairRC(b)
		mr, r := b.c.RegMR(&abi.RegMRReq{
			PD: b.pd, Addr: addr, Length: 64, IOVA: addr,
			Access: uint32(everyRight | rdma.AccessFlushGlobal | rdma.AccessOnDemand),
		}, []mem.Segment{{Addr: addr, Length: 64}})
		b.granted(r)
		z.recv(9, abi.SGE{Addr: addr + 32, Length: 16, LKey: mr.LKey})
		w := c.wqe
		w.WRID, w.Flags, w.RemoteAddr, w.RKey = 1, uint8(rdma.SendSignaled), addr, mr.RKey
		var list []abi.SGE
		if c.n > 0 {
			list = []abi.SGE{{Addr: addr + 16, Length: c.n, LKey: mr.LKey}}
		}
		a.send(w, list...)
		b.run(second)
		done := cq.poll()
		works := len(done) > 0
		for i := range done {
			works = works && rdma.WCStatus(done[i].Status) == rdma.WCSuccess
		}
		if announced := b.c.DeviceAttr().ODPCapsRC&c.cap == c.cap; announced != works {
			t.Errorf("opcode %d: announced %v, completions %+v", c.wqe.Opcode, announced, done)
		}
	}
}
