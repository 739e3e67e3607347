package nic

import (
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
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
