package nic

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
	"github.com/softrnic/softrnic/internal/wire/tm"
)

// tagBench is a connection from a sender to a queue pair whose receives come from a queue that
// matches tags.
type tagBench struct {
	*bench
	scq, rcq *appCQ
	sender   *appQP
	receiver *appQP
	srq      *appSRQ
	ops      *ring.Producer
	srqMem   []byte

	source     abi.RegMRRsp
	sourceAddr uint64
	sourceMem  []byte
	target     abi.RegMRRsp
	targetAddr uint64
	targetMem  []byte
}

const (
	tagRegion = 64 << 10
	allTag    = ^uint64(0)
	// Where ordinary receives go in the target region: plainBytes each, from plainAt on.
	plainAt    = 32 << 10
	plainBytes = 2048
)

func newTagBench(t *testing.T, tags uint32) *tagBench {
	t.Helper()
	x := &tagBench{bench: newBench(t)}
	x.scq, x.rcq = x.cq(4096, 0), x.cq(4096, 0)
	access := rdma.AccessLocalWrite | rdma.AccessRemoteRead
	x.source, x.sourceAddr, x.sourceMem = x.region(tagRegion, access)
	x.target, x.targetAddr, x.targetMem = x.region(tagRegion, rdma.AccessLocalWrite)
	rsp, shared, r := x.c.CreateSRQ(&abi.CreateSRQReq{
		PD: x.pd, MaxWR: 8, MaxSGE: 1, Type: srqTypeTags, CQ: x.rcq.handle, MaxTags: tags,
		MaxTagOps: 2048,
	})
	x.granted(r)
	m := shared.Bytes()
	x.srqMem = m
	x.srq = &appSRQ{rsp, ring.NewProducer(m[rsp.Offset:],
		ring.Geometry{Entries: rsp.Entries, Stride: rsp.Stride},
		ring.Word(m, abi.OffRQProducer), ring.Word(m, abi.OffRQConsumer))}
	x.ops = ring.NewProducer(m[rsp.TagOffset:],
		ring.Geometry{Entries: rsp.TagOps, Stride: rsp.TagStride},
		ring.Word(m, abi.OffSQProducer), ring.Word(m, abi.OffSQConsumer))
	x.sender = x.rc(x.scq)
	x.receiver = x.tagged()
	x.connectPair(x.sender, x.receiver)
	return x
}

// tagged makes a queue pair on the queue that matches tags.
func (x *tagBench) tagged() *appQP {
	x.t.Helper()
	return x.qp(abi.CreateQPReq{
		Type: uint32(rdma.QPTypeRC), PD: x.pd, SendCQ: x.scq.handle, RecvCQ: x.rcq.handle,
		SRQ: x.srq.rsp.Handle,
	})
}

func (x *tagBench) connectPair(a, b *appQP) {
	x.t.Helper()
	a.connect(b.rsp.QPN)
	b.connect(a.rsp.QPN)
}

// op posts an operation on the list and returns its handle.
func (x *tagBench) op(w abi.TagWQE, list ...abi.SGE) uint32 {
	x.t.Helper()
	if x.ops.Free() == 0 {
		x.t.Fatal("operations full")
	}
	handle := x.ops.Pushed()
	slot := x.ops.Slot()
	w.NumSGE = uint16(len(list))
	abi.EncodeTagWQE(slot, &w)
	for i := range list {
		abi.EncodeSGE(slot[abi.TagWQEBytes:], i, &list[i])
	}
	x.ops.Push()
	x.ops.Publish()
	(&appQP{b: x.bench, rsp: abi.CreateQPRsp{Doorbell: x.srq.rsp.Doorbell}}).ring()
	return handle
}

// into is a piece of the target region.
func (x *tagBench) into(at, n uint32) abi.SGE {
	return abi.SGE{Addr: x.targetAddr + uint64(at), Length: n, LKey: x.target.LKey}
}

// add posts a buffer at offset at of the target region, unsignaled.
func (x *tagBench) add(id, tag, mask uint64, at, n uint32) uint32 {
	x.t.Helper()
	return x.op(abi.TagWQE{RecvWRID: id, Tag: tag, Mask: mask}, x.into(at, n))
}

// plain posts ordinary receives, which are number i and so on.
func (x *tagBench) plain(ids ...uint64) {
	for _, id := range ids {
		x.srq.recv(id, x.into(plainAt+uint32(id%8)*plainBytes, plainBytes))
	}
}

// eager returns a message with a tag.
func eager(tag uint64, context uint32, payload []byte) []byte {
	h := tm.Header{Opcode: tm.OpEager, Context: context, Tag: tag}
	return append(h.Append(nil), payload...)
}

// request returns a rendezvous request for n bytes at offset at of the source region.
func (x *tagBench) request(tag uint64, at, n uint32) []byte {
	h := tm.Header{Opcode: tm.OpRendezvous, Context: uint32(tag) + 1, Tag: tag}
	r := tm.Rendezvous{VA: x.sourceAddr + uint64(at), RKey: rdma.Key(x.source.RKey), Length: n}
	return r.Append(h.Append(nil))
}

// sendFrom lets a queue pair send a message, which is laid at offset at of the source region.
func (x *tagBench) sendFrom(q *appQP, at int, message []byte) {
	x.t.Helper()
	copy(x.sourceMem[at:], message)
	q.send(abi.SendWQE{Opcode: uint8(rdma.WRSend), Flags: uint8(rdma.SendSignaled)}, abi.SGE{
		Addr: x.sourceAddr + uint64(at), Length: uint32(len(message)), LKey: x.source.LKey,
	})
}

// deliver sends a message and returns what completes at the receiver.
func (x *tagBench) deliver(message []byte) []abi.CQE {
	x.t.Helper()
	x.sendFrom(x.sender, 0, message)
	x.run(second)
	return x.rcq.poll()
}

func (x *tagBench) released() uint32 { return ring.Word(x.srqMem, abi.OffTagsReleased).Load() }

// seen is a completion as the tests want it.
type seen struct {
	id     uint64
	status rdma.WCStatus
	op     rdma.WCOpcode
	flags  rdma.WCFlags
	bytes  uint32
}

func (x *tagBench) wants(got []abi.CQE, want ...seen) {
	x.t.Helper()
	var list []seen
	for _, e := range got {
		list = append(list, seen{
			e.WRID, rdma.WCStatus(e.Status), rdma.WCOpcode(e.Opcode), rdma.WCFlags(e.WCFlags), e.ByteLen,
		})
	}
	if fmt.Sprint(list) != fmt.Sprint(want) {
		x.t.Errorf("completions\n%v, want\n%v", list, want)
	}
}

const (
	whole = rdma.WCTagMatch | rdma.WCTagDataValid
	good  = rdma.WCSuccess
)

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}

// TestTags_EagerOfOnePacket_CompletesOnceWithoutItsHeader: data, tag and context of the message
// that matched, and the buffer is room again.
func TestTags_EagerOfOnePacket_CompletesOnceWithoutItsHeader(t *testing.T) {
	x := newTagBench(t, 8)
	x.add(70, 7, allTag, 0, 100)
	x.add(71, 8, allTag, 128, 100)
	got := x.deliver(eager(8, 0xaabbccdd, []byte("hello")))
	x.wants(got, seen{71, good, rdma.WCOpTagRecv, whole, 5})
	if tag, context := got[0].Tag(); tag != 8 || context != 0xaabbccdd ||
		got[0].QPNum != x.receiver.rsp.QPN {
		t.Errorf("tag %#x, context %#x, QP %#x", tag, context, got[0].QPNum)
	}
	if string(x.targetMem[128:133]) != "hello" || x.targetMem[133] != 0 || x.released() != 1 {
		t.Errorf("data %q, released %d", x.targetMem[128:134], x.released())
	}
	x.wants(x.deliver(eager(7, 0, nil)), seen{70, good, rdma.WCOpTagRecv, whole, 0})
	x.leavesNothing()
}

// TestTags_EagerOfManyPackets_CompletesTwice: the match at once, the data at the end.
func TestTags_EagerOfManyPackets_CompletesTwice(t *testing.T) {
	x := newTagBench(t, 8)
	data := pattern(5000)
	x.op(abi.TagWQE{RecvWRID: 5, Tag: 9, Mask: allTag}, x.into(0, 3000), x.into(8000, 2000))
	got := x.deliver(eager(9, 1, data))
	x.wants(got, seen{5, good, rdma.WCOpTagRecv, rdma.WCTagMatch, 0},
		seen{5, good, rdma.WCOpTagRecv, rdma.WCTagDataValid, 5000})
	if tag, context := got[0].Tag(); tag != 9 || context != 1 {
		t.Errorf("tag %d, context %d", tag, context)
	}
	if tag, _ := got[1].Tag(); tag != 0 {
		t.Errorf("tag %d without a match", tag)
	}
	if !bytes.Equal(x.targetMem[:3000], data[:3000]) ||
		!bytes.Equal(x.targetMem[8000:10000], data[3000:]) || x.released() != 1 {
		t.Error("data are not in the buffer's two pieces")
	}
	x.leavesNothing()
}

// TestTags_SeveralFit_OldestIsTaken, whichever queue pair a message comes by.
func TestTags_SeveralFit_OldestIsTaken(t *testing.T) {
	x := newTagBench(t, 8)
	other, peer := x.rc(x.scq), x.tagged()
	x.connectPair(other, peer)
	x.add(1, 0x10, 0xf0, 0, 8)
	x.add(2, 0x12, allTag, 8, 8)
	x.add(3, 0, 0, 16, 8)
	for i, c := range []struct {
		from *appQP
		tag  uint64
		id   uint64
	}{{x.sender, 0x12, 1}, {other, 0x13, 3}, {x.sender, 0x12, 2}} {
		x.sendFrom(c.from, 1024*i, eager(c.tag, 0, nil))
		x.run(second)
		x.wants(x.rcq.poll(), seen{c.id, good, rdma.WCOpTagRecv, whole, 0})
	}
	x.leavesNothing()
}

// TestTags_Unexpected_NewBuffersWaitForTheCount: those of before go on matching. A program that
// claims to know more than there was is not in step either.
func TestTags_Unexpected_NewBuffersWaitForTheCount(t *testing.T) {
	x := newTagBench(t, 8)
	x.plain(1, 2, 3)
	x.add(70, 7, allTag, 0, 100)
	message := eager(5, 6, []byte("nobody waits"))
	got := x.deliver(message)
	x.wants(got, seen{1, good, rdma.WCOpTagRecv, 0, uint32(len(message))})
	if tag, _ := got[0].Tag(); tag != 0 {
		t.Errorf("tag %d of an unexpected message", tag)
	}
	if !bytes.Equal(x.targetMem[plainAt+plainBytes:][:len(message)], message) {
		t.Error("the receive does not hold all of it")
	}

	signaled := uint8(rdma.TagSignaled)
	x.op(abi.TagWQE{WRID: 10, RecvWRID: 80, Tag: 8, Mask: allTag, Flags: signaled}, x.into(0, 8))
	x.run(second)
	x.wants(x.rcq.poll(), seen{10, good, rdma.WCOpTagAdd, rdma.WCTagSyncWanted, 0})
	x.wants(x.deliver(eager(7, 0, nil)), seen{70, good, rdma.WCOpTagRecv, whole, 0})
	x.wants(x.deliver(eager(8, 0, nil)), seen{2, good, rdma.WCOpTagRecv, 0, tm.HeaderLen})

	counted := signaled | uint8(rdma.TagCounted)
	for _, c := range []struct {
		count uint32
		flags rdma.WCFlags
	}{{1, rdma.WCTagSyncWanted}, {3, rdma.WCTagSyncWanted}, {2, 0}} {
		x.op(abi.TagWQE{
			WRID: 11, Opcode: uint8(rdma.TagSync), Flags: counted, Unexpected: c.count,
		})
		x.run(second)
		x.wants(x.rcq.poll(), seen{11, good, rdma.WCOpTagSync, c.flags, 0})
	}
	x.add(81, 8, allTag, 0, 8)
	x.wants(x.deliver(eager(8, 0, nil)), seen{80, good, rdma.WCOpTagRecv, whole, 0})
	status := x.n.Status().Contexts[0].SRQs[0].Tags
	if status == nil || *status != (TagStatus{Room: 8, Used: 1, Unexpected: 2, Handled: 2}) {
		t.Errorf("status %+v", status)
	}
	x.leavesNothing()
}

// TestTags_CountWithAdd_IsEnough: a buffer that brings the count is matched at once.
func TestTags_CountWithAdd_IsEnough(t *testing.T) {
	x := newTagBench(t, 8)
	x.plain(1, 2)
	x.deliver(eager(5, 0, nil))
	x.add(80, 8, allTag, 0, 8) // waits
	x.op(abi.TagWQE{
		RecvWRID: 90, Tag: 9, Mask: allTag, Flags: uint8(rdma.TagCounted), Unexpected: 1,
	}, x.into(8, 8))
	x.wants(x.deliver(eager(9, 0, nil)), seen{90, good, rdma.WCOpTagRecv, whole, 0})
	x.wants(x.deliver(eager(8, 0, nil)), seen{80, good, rdma.WCOpTagRecv, whole, 0})
	x.leavesNothing()
}

// TestTags_MessagesWithoutATag_AreNotCounted: those that say so, FINs, unknown ones and those cut
// short in the header.
func TestTags_MessagesWithoutATag_AreNotCounted(t *testing.T) {
	x := newTagBench(t, 8)
	x.add(70, 0, 0, 0, 100)
	fin := x.request(3, 0, 8)
	fin[0] = byte(tm.OpFin)
	none := make([]byte, 20)
	strange := eager(1, 0, nil)
	strange[0] = 0xee
	for i, m := range [][]byte{none, fin, strange, eager(1, 0, nil)[:15], {byte(tm.OpEager)}, nil} {
		x.plain(uint64(i))
		x.wants(x.deliver(m), seen{uint64(i), good, rdma.WCOpTagNone, 0, uint32(len(m))})
		if got := x.targetMem[plainAt+i*plainBytes:][:len(m)]; !bytes.Equal(got, m) {
			t.Errorf("message %d: %x", i, got)
		}
	}
	x.add(71, 9, allTag, 0, 8)
	x.wants(x.deliver(eager(9, 0, nil)), seen{70, good, rdma.WCOpTagRecv, whole, 0})
	x.wants(x.deliver(eager(9, 0, nil)), seen{71, good, rdma.WCOpTagRecv, whole, 0})
	x.leavesNothing()
}

// TestTags_NoReceive_RNRCountsNothing: an unexpected message without a receive comes again, and is
// matched then.
func TestTags_NoReceive_RNRCountsNothing(t *testing.T) {
	x := newTagBench(t, 8)
	x.sendFrom(x.sender, 0, eager(8, 0, nil))
	x.run(clock.Time(1000))
	x.wants(x.rcq.poll())
	x.add(80, 8, allTag, 0, 8)
	x.run(second)
	x.wants(x.rcq.poll(), seen{80, good, rdma.WCOpTagRecv, whole, 0})
	x.leavesNothing()
}

// TestTags_Immediate_ComesWithTheData, not with the match.
func TestTags_Immediate_ComesWithTheData(t *testing.T) {
	x := newTagBench(t, 8)
	x.add(70, 7, allTag, 0, 4096)
	data := eager(7, 0, pattern(3000))
	copy(x.sourceMem, data)
	x.sender.send(abi.SendWQE{Opcode: uint8(rdma.WRSendWithImm), ImmOrRKey: 77}, abi.SGE{
		Addr: x.sourceAddr, Length: uint32(len(data)), LKey: x.source.LKey,
	})
	x.run(second)
	got := x.rcq.poll()
	x.wants(got, seen{70, good, rdma.WCOpTagRecv, rdma.WCTagMatch, 0},
		seen{70, good, rdma.WCOpTagRecv, rdma.WCTagDataValid | rdma.WCWithImm, 3000})
	if got[1].ImmOrRKey != 77 {
		t.Errorf("immediate %d", got[1].ImmOrRKey)
	}
	x.leavesNothing()
}

// TestTags_WriteWithImmediate_TakesAnOrdinaryReceive, which completes where the queue says.
func TestTags_WriteWithImmediate_TakesAnOrdinaryReceive(t *testing.T) {
	x := newTagBench(t, 8)
	x.plain(3)
	x.sender.send(abi.SendWQE{Opcode: uint8(rdma.WRWriteWithImm), ImmOrRKey: 5})
	x.run(second)
	x.wants(x.rcq.poll(), seen{3, good, rdma.WCOpRecvWriteImm, rdma.WCWithImm, 0})
	x.leavesNothing()
}

// TestTags_Delete_GivesTheBufferBack, once, and fails for one that was matched.
func TestTags_Delete_GivesTheBufferBack(t *testing.T) {
	x := newTagBench(t, 8)
	x.plain(1)
	first := x.add(70, 7, allTag, 0, 100)
	second1 := x.add(71, 7, allTag, 0, 100)
	del := func(id uint64, handle uint32) {
		x.op(abi.TagWQE{
			WRID: id, Opcode: uint8(rdma.TagDel), Handle: handle, Flags: uint8(rdma.TagSignaled),
		})
		x.run(second)
	}
	del(1, first)
	x.wants(x.rcq.poll(), seen{1, good, rdma.WCOpTagDel, 0, 0})
	x.wants(x.deliver(eager(7, 0, nil)), seen{71, good, rdma.WCOpTagRecv, whole, 0})
	for id, handle := range []uint32{first, second1, 12345} {
		del(uint64(id), handle)
		got := x.rcq.poll()
		x.wants(got, seen{uint64(id), rdma.WCTagErr, rdma.WCOpTagDel, 0, 0})
		if len(got) == 1 && abi.Vendor(got[0].VendorErr) != abi.VendorTagGone {
			t.Errorf("evidence %d", got[0].VendorErr)
		}
	}
	if x.released() != 2 {
		t.Errorf("released %d", x.released())
	}
	x.leavesNothing()
}

// TestTags_BadOperations_FailAndStayInBounds: a full list, too many entries, an unknown opcode.
// They complete although nobody asked.
func TestTags_BadOperations_FailAndStayInBounds(t *testing.T) {
	x := newTagBench(t, 2)
	x.add(1, 1, allTag, 0, 8)
	x.add(2, 2, allTag, 0, 8)
	x.op(abi.TagWQE{WRID: 3, RecvWRID: 3, Tag: 3, Mask: allTag}, x.into(0, 8))
	x.op(abi.TagWQE{WRID: 4}, make([]abi.SGE, limits.MaxTagSGE)...)
	x.op(abi.TagWQE{WRID: 5, Opcode: 3})
	slot := x.ops.Slot()
	abi.EncodeTagWQE(slot, &abi.TagWQE{WRID: 6, NumSGE: 0xffff})
	x.ops.Push()
	x.op(abi.TagWQE{WRID: 7, Opcode: uint8(rdma.TagSync)})
	x.run(second)
	const bad = rdma.WCTagErr
	got := x.rcq.poll()
	x.wants(got, seen{3, bad, rdma.WCOpTagAdd, 0, 0}, seen{4, bad, rdma.WCOpTagAdd, 0, 0},
		seen{5, bad, rdma.WCOpTagSync, 0, 0}, seen{6, bad, rdma.WCOpTagAdd, 0, 0})
	for i, v := range []abi.Vendor{
		abi.VendorTagsFull, abi.VendorTagsFull, abi.VendorBadWQE,
		abi.VendorBadWQE,
	} {
		if abi.Vendor(got[i].VendorErr) != v {
			t.Errorf("operation %d: evidence %d", i, got[i].VendorErr)
		}
	}
	if x.released() != 3 {
		t.Errorf("released %d, want those three that the list did not take", x.released())
	}
	x.leavesNothing()
}

// TestTags_CorruptIndex_EndsOperationsOnly: the application hears of it, what is in the list stays.
func TestTags_CorruptIndex_EndsOperationsOnly(t *testing.T) {
	x := newTagBench(t, 4)
	x.add(1, 1, allTag, 0, 8)
	x.run(second)
	ring.Word(x.srqMem, abi.OffSQProducer).Store(0x80000000)
	x.sendFrom(x.sender, 0, eager(1, 0, nil))
	events := x.run(second)
	x.wants(x.rcq.poll(), seen{1, good, rdma.WCOpTagRecv, whole, 0})
	errs := 0
	for _, e := range events {
		if e.Type == rdma.EventSRQErr && e.Handle == x.srq.rsp.Handle {
			errs++
		}
	}
	if errs != 1 {
		t.Errorf("%d events of the queue, of %+v", errs, events)
	}
	x.leavesNothing()
}

// TestCreateSRQ_Tags_WhatIsRefused, and which queue pairs may use the queue.
func TestCreateSRQ_Tags_WhatIsRefused(t *testing.T) {
	x := newTagBench(t, 4)
	for name, change := range map[string]func(*abi.CreateSRQReq){
		"no CQ":         func(r *abi.CreateSRQReq) { r.CQ = 0 },
		"no tags":       func(r *abi.CreateSRQReq) { r.MaxTags = 0 },
		"too many tags": func(r *abi.CreateSRQReq) { r.MaxTags = limits.MaxTags + 1 },
		"no operations": func(r *abi.CreateSRQReq) { r.MaxTagOps = 0 },
		"too many":      func(r *abi.CreateSRQReq) { r.MaxTagOps = limits.MaxTagOps + 1 },
	} {
		req := abi.CreateSRQReq{
			PD: x.pd, MaxWR: 8, MaxSGE: 1, Type: srqTypeTags, CQ: x.rcq.handle, MaxTags: 1,
			MaxTagOps: 1,
		}
		change(&req)
		if _, _, r := x.c.CreateSRQ(&req); r == nil || !errors.Is(r, syscall.EINVAL) {
			t.Errorf("%s: %v", name, r)
		}
	}
	for _, kind := range []rdma.QPType{rdma.QPTypeUC, rdma.QPTypeUD} {
		_, _, r := x.c.CreateQP(x.now, &abi.CreateQPReq{
			Type: uint32(kind), PD: x.pd, SendCQ: x.scq.handle, RecvCQ: x.rcq.handle,
			SRQ: x.srq.rsp.Handle,
		})
		if r == nil || !errors.Is(r, syscall.EINVAL) {
			t.Errorf("%v: %v", kind, r)
		}
	}
	if r := x.c.DestroyCQ(x.rcq.handle); r == nil || !errors.Is(r, syscall.EBUSY) {
		t.Errorf("its CQ goes: %v", r)
	}
	x.leavesNothing()
}

// TestCreateSRQ_Tags_RoomIsBounded for one program and for all, and comes back.
func TestCreateSRQ_Tags_RoomIsBounded(t *testing.T) {
	x := newTagBench(t, limits.MaxTags)
	full := func(c *Context, pd, cq uint32) (n uint32) {
		for {
			_, _, r := c.CreateSRQ(&abi.CreateSRQReq{
				PD: pd, MaxWR: 1, MaxSGE: 1, Type: srqTypeTags, CQ: cq, MaxTags: limits.MaxTags,
				MaxTagOps: 1,
			})
			if r != nil {
				if !errors.Is(r, syscall.ENOMEM) {
					t.Fatal(r)
				}
				return n
			}
			n++
		}
	}
	const half = limits.MaxTagsInAll / limits.MaxTags / 2
	if n := full(x.c, x.pd, x.rcq.handle); n != half-1 {
		t.Errorf("%d queues beside the first", n)
	}
	for i, want := range []uint32{half, 0} {
		c, _ := x.open()
		pd, r := c.AllocPD()
		x.granted(r)
		cq, _, r := c.CreateCQ(&abi.CreateCQReq{Entries: 1})
		x.granted(r)
		if n := full(c, pd, cq.Handle); n != want {
			t.Errorf("program %d: %d queues", i+2, n)
		}
		defer x.n.CloseContext(x.now, c)
	}
	x.n.CloseContext(x.now, x.c)
	if x.n.counts.tags != limits.MaxTagsInAll/2 {
		t.Errorf("%d tags are counted", x.n.counts.tags)
	}
}

// TestTags_QueueDestroyedWithBuffers_LeavesNothing: the slot of its doorbell serves the next.
func TestTags_QueueDestroyedWithBuffers_LeavesNothing(t *testing.T) {
	x := newTagBench(t, 4)
	x.add(1, 1, allTag, 0, 8)
	x.add(2, 1, allTag, 0, 8)
	x.run(second)
	if r := x.c.DestroySRQ(x.srq.rsp.Handle); r == nil || !errors.Is(r, syscall.EBUSY) {
		t.Fatalf("with a queue pair: %v", r)
	}
	x.granted(x.c.DestroyQP(x.now, x.receiver.rsp.Handle))
	x.granted(x.c.DestroySRQ(x.srq.rsp.Handle))
	x.wants(x.rcq.poll())
	slots := len(x.c.slots)
	x.rc(x.scq)
	x.rc(x.scq)
	if len(x.c.slots) != slots || len(x.c.tagSlots) != 0 {
		t.Errorf("%d slots, before %d; %d queues", len(x.c.slots), slots, len(x.c.tagSlots))
	}
	x.granted(x.c.DestroyCQ(x.rcq.handle))
	x.leavesNothing()
}

// TestTags_SteadyState_AllocatesNothing.
func TestTags_SteadyState_AllocatesNothing(t *testing.T) {
	x := newTagBench(t, 8)
	message, request := eager(1, 0, pattern(600)), x.request(2, 2048, 600)
	var p ibt.Packet
	drive := func() {
		for busy := true; busy; {
			busy = x.n.HandleDoorbells(x.now)
			for x.n.PollTransmit(x.now, &p) {
				busy = true
				x.n.HandlePacket(x.now, &p)
			}
		}
	}
	round := func() {
		x.add(1, 1, allTag, 0, 1024)
		x.add(2, 2, allTag, 1024, 1024)
		x.sender.recv(1, abi.SGE{Addr: x.sourceAddr + 8192, Length: 64, LKey: x.source.LKey})
		x.sendFrom(x.sender, 0, message)
		x.sendFrom(x.sender, 1024, request)
		drive()
		for _, q := range []*appCQ{x.scq, x.rcq} {
			n, _ := q.cons.Pending()
			q.cons.Release(n)
		}
	}
	for range 20 {
		round()
	}
	before := x.released()
	if n := testing.AllocsPerRun(50, round); n != 0 {
		t.Errorf("%v allocations a round", n)
	}
	if got := x.released() - before; got != 102 {
		t.Errorf("%d buffers were used", got)
	}
	if binary.BigEndian.Uint64(x.sourceMem[8192+8:]) != 2 || x.sourceMem[8192] != byte(tm.OpFin) {
		t.Error("no FIN came")
	}
}
