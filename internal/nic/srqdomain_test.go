package nic

import (
	"bytes"
	"syscall"
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
)

// otherPD makes another protection domain the one that objects are made in.
func (b *bench) otherPD() {
	b.t.Helper()
	pd, r := b.c.AllocPD()
	b.granted(r)
	b.pd = pd
}

// TestSRQ_OfAnotherPD_JudgesItsReceives: the list of a receive is the shared queue's, the remote
// key of a WRITE the queue pair's (IBTA 10.2.9.1, 10.6.3.3).
func TestSRQ_OfAnotherPD_JudgesItsReceives(t *testing.T) {
	b := newBench(t)
	cq := b.cq(32, 0)
	access := rdma.AccessLocalWrite | rdma.AccessRemoteWrite
	own, ownAddr, ownMem := b.region(64, access)
	qpPD := b.pd
	b.otherPD()
	lent, lentAddr, lentMem := b.region(64, access)
	rsp, shared, r := b.c.CreateSRQ(&abi.CreateSRQReq{PD: b.pd, MaxWR: 8, MaxSGE: 1})
	b.granted(r)
	m := shared.Bytes()
	srq := &appSRQ{rsp, ring.NewProducer(m[rsp.Offset:],
		ring.Geometry{Entries: rsp.Entries, Stride: rsp.Stride},
		ring.Word(m, abi.OffRQProducer), ring.Word(m, abi.OffRQConsumer))}
	b.pd = qpPD
	req := abi.CreateQPReq{
		Type: uint32(rdma.QPTypeRC), PD: b.pd, SendCQ: cq.handle, RecvCQ: cq.handle, MaxSendWR: 4,
		SRQ: rsp.Handle,
	}
	z := b.qp(req)
	req.SRQ, req.MaxRecvWR = 0, 4
	a := b.qp(req)
	a.connect(z.rsp.QPN)
	z.connect(a.rsp.QPN)
	srq.recv(1, abi.SGE{Addr: lentAddr, Length: 64, LKey: lent.LKey})
	copy(ownMem, "hello")
	sge := abi.SGE{Addr: ownAddr, Length: 5, LKey: own.LKey}
	a.send(abi.SendWQE{Opcode: uint8(rdma.WRSend), WRID: 2}, sge)
	a.send(abi.SendWQE{
		Opcode: uint8(rdma.WRWrite), WRID: 3, RemoteAddr: ownAddr + 8, RKey: own.RKey,
		Flags: uint8(rdma.SendSignaled),
	}, sge)
	b.run(second)
	got := map[uint64]uint32{}
	for _, e := range cq.poll() {
		got[e.WRID] = e.Status
	}
	if status, ok := got[1]; !ok || status != 0 || !bytes.HasPrefix(lentMem, []byte("hello")) {
		t.Errorf("completions %v, memory %q", got, lentMem[:5])
	}
	if string(ownMem[8:13]) != "hello" {
		t.Errorf("a WRITE into the queue pair's own domain left %q", ownMem[8:13])
	}
	srq.recv(4, abi.SGE{Addr: ownAddr, Length: 64, LKey: own.LKey})
	a.send(abi.SendWQE{Opcode: uint8(rdma.WRSend), WRID: 5}, sge)
	b.run(second)
	isRefused := false
	for _, e := range cq.poll() {
		isRefused = isRefused ||
			e.WRID == 4 && rdma.WCStatus(e.Status) == rdma.WCLocProtErr
	}
	if !isRefused {
		t.Error("a receive with a key of the queue pair's domain is taken")
	}
}

// TestCreateQP_SharedQueueOfUC_IsRefused, as ibv_create_qp(3) says; an XRC initiator has no
// receives at all, and whatever queue comes with it means nothing.
func TestCreateQP_SharedQueueOfUC_IsRefused(t *testing.T) {
	b := newBench(t)
	cq := b.cq(32, 0)
	srq, _, r := b.c.CreateSRQ(&abi.CreateSRQReq{PD: b.pd, MaxWR: 8, MaxSGE: 1})
	b.granted(r)
	for typ, want := range map[rdma.QPType]syscall.Errno{
		rdma.QPTypeUC: syscall.EINVAL, rdma.QPTypeRC: 0, rdma.QPTypeUD: 0, rdma.QPTypeXRCSend: 0,
	} {
		_, _, r := b.c.CreateQP(b.now, &abi.CreateQPReq{
			Type: uint32(typ), PD: b.pd, SendCQ: cq.handle, RecvCQ: cq.handle, SRQ: srq.Handle,
		})
		if r == nil && want != 0 || r != nil && r.Errno != want {
			t.Errorf("%v: %v, want %v", typ, r, want)
		}
	}
}

// TestTags_QueueOfAnotherPD_JudgesItsBuffers: what is fetched for a rendezvous goes into a buffer
// of the shared queue, too.
func TestTags_QueueOfAnotherPD_JudgesItsBuffers(t *testing.T) {
	x := newTagBench(t, 8)
	x.otherPD()
	x.sender, x.receiver = x.rc(x.scq), x.tagged()
	x.connectPair(x.sender, x.receiver)
	// The sender's memory moves with it.
	segments := []mem.Segment{{Addr: x.sourceAddr, Length: tagRegion, Mapped: x.sourceMem}}
	source, r := x.c.RegMR(&abi.RegMRReq{
		PD: x.pd, Access: uint32(rdma.AccessLocalWrite | rdma.AccessRemoteRead),
		Addr: x.sourceAddr, Length: tagRegion, IOVA: x.sourceAddr,
	}, segments)
	x.granted(r)
	x.source = source
	x.takeFin(3)
	x.add(70, 7, allTag, 0, 100)
	x.wants(x.deliver(eager(7, 0, []byte("hello"))), seen{70, good, rdma.WCOpTagRecv, whole, 5})
	x.add(71, 8, allTag, 128, limits.MaxRendezvousHeader+5000)
	copy(x.sourceMem[dataAt:], "by rendezvous")
	x.wants(x.deliver(x.request(8, dataAt, 13)),
		seen{71, good, rdma.WCOpTagRecv, rdma.WCTagMatch, 0},
		seen{71, good, rdma.WCOpTagRecv, rdma.WCTagDataValid, 13})
	if string(x.targetMem[:5]) != "hello" || string(x.targetMem[128:141]) != "by rendezvous" {
		t.Errorf("buffers hold %q and %q", x.targetMem[:5], x.targetMem[128:141])
	}
}
