package nic

import (
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
)

// arena is an Allocator over Go memory that counts what is out.
type arena struct{ live int }

type heapBlock struct {
	heap *arena
	b    []byte
}

func (h *arena) Alloc(n int) (Shared, error) {
	h.live++
	words := make([]uint64, (n+7)/8) // 8-byte aligned, as mappings are
	return &heapBlock{h, bytesOf(words)[:n]}, nil
}

func (b *heapBlock) Bytes() []byte { return b.b }
func (b *heapBlock) Release()      { b.heap.live-- }

// bench is one NIC with one application on it.
type bench struct {
	t     testing.TB
	n     *NIC
	heap  *arena
	now   clock.Time
	c     *Context
	pd    uint32
	bells []byte
}

// oneDevice is a NIC's only device, of RoCE.
var oneDevice = []DeviceConfig{{Name: "rnic0"}}

// gid is an IPv4-mapped GID.
func gid(last byte) (g [16]byte) {
	copy(g[10:], []byte{0xff, 0xff, 10, 0, 0, last})
	return g
}

func newBench(t testing.TB) *bench {
	t.Helper()
	return newBenchOf(t, Config{
		Devices: oneDevice, NodeGUID: 0x1234, Secret: 42, Version: "test",
	})
}

func newBenchOf(t testing.TB, cfg Config) *bench {
	t.Helper()
	b := &bench{t: t, heap: new(arena)}
	cfg.Memory = b.heap
	b.n = New(cfg)
	b.n.HandOver(true) // as the daemon does unless somebody looks at packets
	v6 := [16]byte{0: 0xfd, 15: 1}
	b.n.SetPort(0, 0, Port{MTU: rdma.MTU1024, Active: true, GIDs: []abi.GIDEntry{
		{GID: gid(1), Index: 0, Port: 1, Type: 2}, {GID: v6, Index: 2, Port: 1, Type: 2},
	}})
	b.c, b.bells = b.open()
	pd, r := b.c.AllocPD()
	b.granted(r)
	b.pd = pd
	return b
}

func (b *bench) open() (*Context, []byte) {
	b.t.Helper()
	bells := bytesOf(make([]uint64, abi.DoorbellPageBytes/8))
	c, r := b.n.OpenContext(b.now, ContextConfig{Name: "test", PID: 7, Doorbells: bells})
	b.granted(r)
	return c, bells
}

func (b *bench) granted(r *rdma.Refusal) {
	b.t.Helper()
	if r != nil {
		b.t.Fatal(r)
	}
}

// appCQ is the application's end of a completion queue.
type appCQ struct {
	handle uint32
	mem    []byte
	cons   *ring.Consumer
}

func (b *bench) cq(entries, channel uint32) *appCQ {
	b.t.Helper()
	rsp, shared, r := b.c.CreateCQ(&abi.CreateCQReq{Entries: entries, Channel: channel})
	b.granted(r)
	m := shared.Bytes()
	return &appCQ{rsp.Handle, m, ring.NewConsumer(m[abi.QueueHeaderBytes:],
		ring.Geometry{Entries: rsp.Entries, Stride: abi.CQEBytes},
		ring.Word(m, abi.OffCQProducer), ring.Word(m, abi.OffCQConsumer))}
}

func (q *appCQ) arm(v uint32) { ring.Word(q.mem, abi.OffCQArm).Store(v) }

func (q *appCQ) poll() (out []abi.CQE) {
	n, _ := q.cons.Pending()
	for i := range n {
		var e abi.CQE
		abi.DecodeCQE(q.cons.Slot(i), &e)
		out = append(out, e)
	}
	q.cons.Release(n)
	return out
}

// appQP is the application's end of a queue pair.
type appQP struct {
	b      *bench
	rsp    abi.CreateQPRsp
	mem    []byte
	sq, rq *ring.Producer
}

func (b *bench) qp(req abi.CreateQPReq) *appQP {
	b.t.Helper()
	rsp, shared, r := b.c.CreateQP(b.now, &req)
	b.granted(r)
	m := shared.Bytes()
	q := &appQP{b: b, rsp: rsp, mem: m}
	q.sq = ring.NewProducer(m[rsp.SQOffset:],
		ring.Geometry{Entries: rsp.SQEntries, Stride: rsp.SQStride},
		ring.Word(m, abi.OffSQProducer), ring.Word(m, abi.OffSQConsumer))
	if rsp.RQEntries > 0 {
		q.rq = ring.NewProducer(m[rsp.RQOffset:],
			ring.Geometry{Entries: rsp.RQEntries, Stride: rsp.RQStride},
			ring.Word(m, abi.OffRQProducer), ring.Word(m, abi.OffRQConsumer))
	}
	return q
}

func (b *bench) rc(cq *appCQ) *appQP {
	b.t.Helper()
	return b.qp(abi.CreateQPReq{
		Type: uint32(rdma.QPTypeRC), PD: b.pd, SendCQ: cq.handle, RecvCQ: cq.handle,
		MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 2, MaxRecvSGE: 2,
	})
}

func (q *appQP) modify(a abi.QPAttr, mask rdma.QPAttrMask) *rdma.Refusal {
	req := abi.ModifyQPReq{Handle: q.rsp.Handle, Mask: uint32(mask), Attr: a}
	_, r := q.b.c.ModifyQP(q.b.now, &req)
	return r
}

const (
	toInit = rdma.QPAttrState | rdma.QPAttrPKeyIndex | rdma.QPAttrPort | rdma.QPAttrAccessFlags
	toRTR  = rdma.QPAttrState | rdma.QPAttrAV | rdma.QPAttrPathMTU | rdma.QPAttrDestQPN |
		rdma.QPAttrRQPSN | rdma.QPAttrMaxDestRdAtomic | rdma.QPAttrMinRNRTimer
	toRTS = rdma.QPAttrState | rdma.QPAttrTimeout | rdma.QPAttrRetryCnt | rdma.QPAttrRNRRetry |
		rdma.QPAttrSQPSN | rdma.QPAttrMaxQPRdAtomic
)

// fullAttr is good for every step of an RC QP that talks to dest on this NIC.
func fullAttr(dest uint32) abi.QPAttr {
	return abi.QPAttr{
		Port: 1, AccessFlags: uint32(accessQP &^ rdma.AccessMWBind), PathMTU: uint32(rdma.MTU1024),
		DestQPN: dest, RQPSN: 5, SQPSN: 5, MaxRdAtomic: 4, MaxDestRdAtomic: 4, MinRNRTimer: 12,
		Timeout: 14, RetryCnt: 7, RNRRetry: 7,
		AH: abi.AHAttr{DGID: gid(1), IsGlobal: 1, Port: 1, HopLimit: 1},
	}
}

func (q *appQP) connect(dest uint32) {
	q.b.t.Helper()
	a := fullAttr(dest)
	for _, step := range []struct {
		to   rdma.QPState
		mask rdma.QPAttrMask
	}{{sInit, toInit}, {sRTR, toRTR}, {sRTS, toRTS}} {
		a.State = uint32(step.to)
		q.b.granted(q.modify(a, step.mask))
	}
}

func (q *appQP) state() rdma.QPState {
	return rdma.QPState(ring.Word(q.mem, abi.OffQPState).Load())
}

func (q *appQP) ring() {
	slot := q.rsp.Doorbell
	w := ring.Word64(q.b.bells, abi.OffDoorbellWords+8*int(slot/64))
	w.Or(1 << (slot % 64))
	ring.Word64(q.b.bells, abi.OffDoorbellSummary+8*int(slot/4096)).Or(1 << (slot / 64 % 64))
}

func (q *appQP) send(w abi.SendWQE, list ...abi.SGE) {
	q.b.t.Helper()
	if q.sq.Free() == 0 {
		q.b.t.Fatal("send queue full")
	}
	s := q.sq.Slot()
	w.NumSGE = uint16(len(list))
	abi.EncodeSendWQE(s, &w)
	for i := range list {
		abi.EncodeSGE(s[abi.SendWQEBytes:], i, &list[i])
	}
	q.sq.Push()
	q.sq.Publish()
	q.ring()
}

func (q *appQP) recv(id uint64, list ...abi.SGE) {
	q.b.t.Helper()
	s := q.rq.Slot()
	abi.EncodeRecvWQE(s, &abi.RecvWQE{WRID: id, NumSGE: uint32(len(list))})
	for i := range list {
		abi.EncodeSGE(s[abi.RecvWQEBytes:], i, &list[i])
	}
	q.rq.Push()
	q.rq.Publish()
	if ring.Word(q.mem, abi.OffRQDoorbell).Load() != 0 {
		q.ring()
	}
}

// run drives the NIC, looping its packets back, until it is quiet or d has passed.
func (b *bench) run(d clock.Time) (events []Event) {
	b.t.Helper()
	end := b.now + d
	var p ibt.Packet
	for {
		b.n.HandleDoorbells(b.now)
		for b.n.PollTransmit(b.now, &p) {
			if b.n.IsLocal(p.DGID) {
				b.n.HandlePacket(b.now, &p)
			}
		}
		var e Event
		for b.n.PollEvent(&e) {
			events = append(events, e)
		}
		if b.n.HasWork() {
			continue
		}
		next := b.n.PollTimeout()
		if next > end {
			b.now = end
			return events
		}
		b.now = max(b.now, next)
		b.n.HandleTimeout(b.now)
	}
}

// region registers n mapped bytes.
func (b *bench) region(n int, access rdma.Access) (abi.RegMRRsp, uint64, []byte) {
	b.t.Helper()
	m := bytesOf(make([]uint64, (n+7)/8))[:n]
	addr := uint64(0x100000) * uint64(1+b.n.memory.Len())
	rsp, r := b.c.RegMR(&abi.RegMRReq{
		PD: b.pd, Access: uint32(access), Addr: addr, Length: uint64(n), IOVA: addr,
	}, []mem.Segment{{Addr: addr, Length: uint64(n), Mapped: m}})
	b.granted(r)
	return rsp, addr, m
}
