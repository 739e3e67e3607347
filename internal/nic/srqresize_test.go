package nic

import (
	"errors"
	"syscall"
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
)

// TestResizeSRQ_ReceivesThatArePosted_Stay: a queue pair takes those from before the resize, then
// those from after it, in order.
func TestResizeSRQ_ReceivesThatArePosted_Stay(t *testing.T) {
	b := newBench(t)
	q := b.cq(32, 0)
	mr, addr, _ := b.region(4096, rdma.AccessLocalWrite)
	rsp, shared, r := b.c.CreateSRQ(&abi.CreateSRQReq{PD: b.pd, MaxWR: 2, MaxSGE: 1})
	b.granted(r)
	header := shared.Bytes()
	ends := func(m []byte, offset, entries, stride uint32) *appSRQ {
		return &appSRQ{rsp, ring.NewProducer(m[offset:], ring.Geometry{Entries: entries, Stride: stride},
			ring.Word(header, abi.OffRQProducer), ring.Word(header, abi.OffRQConsumer))}
	}
	s := ends(header, rsp.Offset, rsp.Entries, rsp.Stride)
	post := func(id uint64) { s.recv(id, abi.SGE{Addr: addr, Length: 64, LKey: mr.LKey}) }
	resize := func(n uint32) *rdma.Refusal {
		rsp, shared, r := b.c.ResizeSRQ(&abi.ResizeSRQReq{Handle: rsp.Handle, Entries: n, MaxSGE: 5})
		if r == nil {
			s = ends(shared.Bytes(), 0, rsp.Entries, rsp.Stride)
		}
		return r
	}
	req := abi.CreateQPReq{
		Type: uint32(rdma.QPTypeRC), PD: b.pd, SendCQ: q.handle, RecvCQ: q.handle, MaxSendWR: 16,
		MaxSendSGE: 1,
	}
	sender := b.qp(req)
	req.SRQ = rsp.Handle
	receiver := b.qp(req)
	sender.connect(receiver.rsp.QPN)
	receiver.connect(sender.rsp.QPN)

	post(1)
	post(2)
	b.granted(resize(8))
	for id := uint64(3); id <= 8; id++ {
		post(id)
	}
	for _, n := range []uint32{0, 4, limits.MaxQPWR + 1} {
		if r := resize(n); r == nil || !errors.Is(r, syscall.EINVAL) {
			t.Errorf("resize to %d with 8 receives: %v", n, r)
		}
	}
	for range 8 {
		sender.send(abi.SendWQE{Opcode: uint8(rdma.WRSend)})
	}
	b.run(second)
	for i, e := range q.poll() {
		if e.WRID != uint64(i+1) || e.Status != 0 {
			t.Errorf("completion %d is %+v", i, e)
		}
	}
	b.granted(resize(1))
	post(9)
	sender.send(abi.SendWQE{Opcode: uint8(rdma.WRSend)})
	b.run(second)
	if got := q.poll(); len(got) != 1 || got[0].WRID != 9 {
		t.Errorf("after shrinking: %+v", got)
	}
	a, r := b.c.QuerySRQ(rsp.Handle)
	b.granted(r)
	if a.MaxWR != 1 || a.MaxSGE != 5 {
		t.Errorf("max_wr %d, max_sge %d", a.MaxWR, a.MaxSGE)
	}
	_, _, r = b.c.ResizeSRQ(&abi.ResizeSRQReq{
		Handle: rsp.Handle, Entries: 4, MaxSGE: limits.MaxSGE + 1,
	})
	if r == nil || !errors.Is(r, syscall.EINVAL) {
		t.Errorf("too many entries: %v", r)
	}
	b.leavesNothing()
}

// leavesNothing closes the context and wants all memory of its queues back.
func (b *bench) leavesNothing() {
	b.t.Helper()
	b.n.CloseContext(b.now, b.c)
	if b.heap.live != 0 {
		b.t.Errorf("%d blocks of memory are left", b.heap.live)
	}
}
