package nic

import (
	"errors"
	"syscall"
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
)

const xrcFlags = uint32(abi.XRCDCreate)

// xrcd opens a domain in the bench's context.
func (b *bench) xrcd(key *XRCKey) uint32 {
	b.t.Helper()
	h, r := b.c.OpenXRCD(key, xrcFlags)
	b.granted(r)
	return h
}

// appSRQ is the application's end of a shared receive queue.
type appSRQ struct {
	rsp abi.CreateSRQRsp
	rq  *ring.Producer
}

func (b *bench) xrcSRQ(xrcd, pd uint32, q *appCQ) *appSRQ {
	b.t.Helper()
	rsp, shared, r := b.c.CreateSRQ(&abi.CreateSRQReq{
		PD: pd, MaxWR: 8, MaxSGE: 1, Type: srqTypeXRC, XRCD: xrcd, CQ: q.handle,
	})
	b.granted(r)
	m := shared.Bytes()
	return &appSRQ{rsp, ring.NewProducer(m[rsp.Offset:],
		ring.Geometry{Entries: rsp.Entries, Stride: rsp.Stride},
		ring.Word(m, abi.OffRQProducer), ring.Word(m, abi.OffRQConsumer))}
}

func (s *appSRQ) recv(id uint64, list abi.SGE) {
	slot := s.rq.Slot()
	abi.EncodeRecvWQE(slot, &abi.RecvWQE{WRID: id, NumSGE: 1})
	abi.EncodeSGE(slot[abi.RecvWQEBytes:], 0, &list)
	s.rq.Push()
	s.rq.Publish()
}

// xrcPair is a connection from an initiator to a target of a domain.
func (b *bench) xrcPair(xrcd uint32, q *appCQ) (ini, tgt *appQP) {
	b.t.Helper()
	ini = b.qp(abi.CreateQPReq{
		Type: uint32(rdma.QPTypeXRCSend), PD: b.pd, SendCQ: q.handle, MaxSendWR: 8, MaxSendSGE: 1,
		MaxInline: 16,
	})
	tgt = b.qp(abi.CreateQPReq{Type: uint32(rdma.QPTypeXRCRecv), XRCD: xrcd})
	const state = rdma.QPAttrState
	for _, side := range []struct {
		q        *appQP
		dest     uint32
		rtr, rts rdma.QPAttrMask
	}{
		{ini, tgt.rsp.QPN, toRTR &^ (aDestRd | aMinRNR), toRTS},
		{tgt, ini.rsp.QPN, toRTR, state | aTimeout | aSQPSN},
	} {
		a := fullAttr(side.dest)
		for _, step := range []struct {
			to   rdma.QPState
			mask rdma.QPAttrMask
		}{{sInit, toInit}, {sRTR, side.rtr}, {sRTS, side.rts}} {
			a.State = uint32(step.to)
			b.granted(side.q.modify(a, step.mask))
		}
	}
	return ini, tgt
}

// TestXRC_OneConnection_ReachesSeveralQueues: the SRQ that a request names decides about receive,
// completion queue and protection domain.
func TestXRC_OneConnection_ReachesSeveralQueues(t *testing.T) {
	b := newBench(t)
	sends, one, two := b.cq(16, 0), b.cq(16, 0), b.cq(16, 0)
	domain := b.xrcd(nil)
	ini, tgt := b.xrcPair(domain, sends)
	mr, addr, m := b.region(4096, rdma.AccessLocalWrite|rdma.AccessRemoteAny&^
		(rdma.AccessFlushGlobal|rdma.AccessFlushPersist))
	otherPD, r := b.c.AllocPD()
	b.granted(r)
	first, other := b.xrcSRQ(domain, b.pd, one), b.xrcSRQ(domain, otherPD, two)
	first.recv(11, abi.SGE{Addr: addr, Length: 64, LKey: mr.LKey})
	first.recv(12, abi.SGE{Addr: addr + 64, Length: 64, LKey: mr.LKey})
	m[1024] = 0x5a

	send := func(op rdma.WROpcode, s *appSRQ, w abi.SendWQE) rdma.WCStatus {
		w.Opcode, w.Flags, w.Extra = uint8(op), uint8(rdma.SendSignaled), s.rsp.SRQN
		ini.send(w, abi.SGE{Addr: addr + 1024, Length: 8, LKey: mr.LKey})
		b.run(second)
		done := sends.poll()
		if len(done) != 1 {
			t.Fatalf("%v: completions %+v", op, done)
		}
		return rdma.WCStatus(done[0].Status)
	}
	if s := send(rdma.WRSend, first, abi.SendWQE{}); s != rdma.WCSuccess {
		t.Fatalf("SEND: %v", s)
	}
	got := one.poll()
	if len(got) != 1 || got[0].WRID != 11 || got[0].QPNum != tgt.rsp.QPN || m[0] != 0x5a {
		t.Errorf("completions %+v, memory % x", got, m[:4])
	}
	write := abi.SendWQE{RemoteAddr: addr + 256, RKey: mr.RKey, ImmOrRKey: 7}
	if s := send(rdma.WRWriteWithImm, first, write); s != rdma.WCSuccess || m[256] != 0x5a {
		t.Fatalf("WRITE: %v", s)
	}
	if got := one.poll(); len(got) != 1 || got[0].WRID != 12 || got[0].ImmOrRKey != 7 {
		t.Errorf("completions of the WRITE %+v", got)
	}
	read := abi.SendWQE{RemoteAddr: addr, RKey: mr.RKey}
	if s := send(rdma.WRRead, first, read); s != rdma.WCSuccess {
		t.Fatalf("READ: %v", s)
	}
	if s := send(rdma.WRFetchAdd, first, abi.SendWQE{
		RemoteAddr: addr + 512, RKey: mr.RKey, CompareAdd: 3,
	}); s != rdma.WCSuccess || m[512] != 3 {
		t.Fatalf("FETCH_ADD: %v", s)
	}
	// The other queue's protection domain is not that of the region.
	if s := send(rdma.WRWrite, other, write); s != rdma.WCRemAccessErr {
		t.Errorf("WRITE across protection domains: %v", s)
	}
	if len(two.poll()) != 0 {
		t.Error("the second queue completed something")
	}
}

func TestXRC_UnknownQueue_IsAnInvalidRequest(t *testing.T) {
	b := newBench(t)
	q := b.cq(16, 0)
	domain, other := b.xrcd(nil), b.xrcd(nil)
	ini, tgt := b.xrcPair(domain, q)
	foreign := b.xrcSRQ(other, b.pd, q) // of another domain
	ini.send(abi.SendWQE{
		Opcode: uint8(rdma.WRSend), Flags: uint8(rdma.SendSignaled), Extra: foreign.rsp.SRQN,
	})
	events := b.run(second)
	done := q.poll()
	if len(done) != 1 || rdma.WCStatus(done[0].Status) != rdma.WCRemInvReqErr {
		t.Errorf("completions %+v", done)
	}
	if tgt.state() != sError {
		t.Errorf("the target is in %v", tgt.state())
	}
	told := false
	for _, e := range events {
		told = told || e.Type == rdma.EventQPReqErr && e.Handle == tgt.rsp.Handle
	}
	if !told {
		t.Errorf("events %v", events)
	}
}

// TestXRC_QueueGoesInMidMessage_ForgetsIt: the receive that a message was filling is gone, and
// nothing is written to its completion queue.
func TestXRC_QueueGoesInMidMessage_ForgetsIt(t *testing.T) {
	b := newBench(t)
	q, done := b.cq(16, 0), b.cq(16, 0)
	domain := b.xrcd(nil)
	ini, tgt := b.xrcPair(domain, q)
	mr, addr, _ := b.region(8192, rdma.AccessLocalWrite)
	s := b.xrcSRQ(domain, b.pd, done)
	s.recv(1, abi.SGE{Addr: addr, Length: 4096, LKey: mr.LKey})
	ini.send(abi.SendWQE{
		Opcode: uint8(rdma.WRSend), Flags: uint8(rdma.SendSignaled), Extra: s.rsp.SRQN,
	}, abi.SGE{Addr: addr + 4096, Length: 4096, LKey: mr.LKey})
	b.n.HandleDoorbells(b.now)
	var p ibt.Packet
	if !b.n.PollTransmit(b.now, &p) {
		t.Fatal("nothing sent")
	}
	b.n.HandlePacket(b.now, &p)
	b.granted(b.c.DestroySRQ(s.rsp.Handle))
	b.granted(b.c.DestroyCQ(done.handle))
	b.run(second)
	if got := q.poll(); len(got) != 1 || rdma.WCStatus(got[0].Status) != rdma.WCRemInvReqErr {
		t.Errorf("completions %+v", got)
	}
	if tgt.state() != sError {
		t.Errorf("the target is in %v", tgt.state())
	}
}

func TestXRC_FileDomain_IsSharedAndCounted(t *testing.T) {
	b := newBench(t)
	key := &XRCKey{Device: 1, Inode: 2}
	if _, r := b.c.OpenXRCD(key, 0); r == nil || !errors.Is(r, syscall.EAGAIN) {
		t.Errorf("a domain that is not there: %v", r)
	}
	first := b.xrcd(key)
	if _, r := b.c.OpenXRCD(key, xrcFlags|abi.XRCDExclusive); r == nil ||
		!errors.Is(r, syscall.EINVAL) {
		t.Errorf("an exclusive domain that is there: %v", r)
	}
	if _, r := b.c.OpenXRCD(key, 1<<30); r == nil || !errors.Is(r, syscall.EINVAL) {
		t.Errorf("an unknown flag: %v", r)
	}
	again, r := b.c.OpenXRCD(key, 0)
	b.granted(r)
	if b.c.xrcds[first].domain != b.c.xrcds[again].domain {
		t.Error("two domains of one file")
	}
	q := b.cq(4, 0)
	s := b.xrcSRQ(first, b.pd, q)
	for what, r := range map[string]*rdma.Refusal{
		"domain":            b.c.CloseXRCD(first),
		"completion queue":  b.c.DestroyCQ(q.handle),
		"protection domain": b.c.DeallocPD(b.pd),
	} {
		if r == nil || !errors.Is(r, syscall.EBUSY) {
			t.Errorf("%s that is in use: %v", what, r)
		}
	}
	b.granted(b.c.DestroySRQ(s.rsp.Handle))
	b.granted(b.c.CloseXRCD(first))
	b.granted(b.c.CloseXRCD(again))
	if len(b.n.domains) != 0 {
		t.Error("the domain outlives its handles")
	}
	if r := b.c.CloseXRCD(again); r == nil || !errors.Is(r, syscall.EINVAL) {
		t.Errorf("a handle that is gone: %v", r)
	}
}

// TestXRC_OpenedQP_OutlivesItsMaker: another context holds it, and it goes with the last handle.
func TestXRC_OpenedQP_OutlivesItsMaker(t *testing.T) {
	b := newBench(t)
	key := &XRCKey{Inode: 7}
	q := b.cq(16, 0)
	domain := b.xrcd(key)
	ini, tgt := b.xrcPair(domain, q)
	maker := b.c
	other, _ := b.open()
	otherDomain, r := other.OpenXRCD(key, 0)
	b.granted(r)
	req := abi.OpenQPReq{XRCD: otherDomain, QPN: tgt.rsp.QPN, Type: uint32(rdma.QPTypeXRCRecv)}
	h, r := other.OpenQP(&req)
	b.granted(r)
	for _, wrong := range []abi.OpenQPReq{
		{XRCD: otherDomain, QPN: ini.rsp.QPN, Type: uint32(rdma.QPTypeXRCRecv)},
		{XRCD: otherDomain, QPN: tgt.rsp.QPN, Type: uint32(rdma.QPTypeRC)},
		{XRCD: domain, QPN: tgt.rsp.QPN, Type: uint32(rdma.QPTypeXRCRecv)},
	} {
		if _, r := other.OpenQP(&wrong); r == nil || !errors.Is(r, syscall.EINVAL) {
			t.Errorf("%+v: %v", wrong, r)
		}
	}
	b.n.CloseContext(b.now, maker)
	a, r := other.QueryQP(h)
	b.granted(r)
	if rdma.QPState(a.State) != sRTS {
		t.Errorf("state %v after its maker has gone", rdma.QPState(a.State))
	}
	b.run(0) // what there was to tell the maker
	_, r = other.ModifyQP(b.now, &abi.ModifyQPReq{
		Handle: h, Mask: uint32(rdma.QPAttrState), Attr: abi.QPAttr{State: uint32(sError)},
	})
	b.granted(r)
	events := b.run(0)
	if len(events) != 1 || events[0].Context != other || events[0].Handle != h ||
		events[0].Type != rdma.EventQPLastWQEReached {
		t.Errorf("events %+v", events)
	}
	if r := other.CloseXRCD(otherDomain); r == nil || !errors.Is(r, syscall.EBUSY) {
		t.Errorf("a domain with a queue pair: %v", r)
	}
	b.granted(other.DestroyQP(b.now, h))
	b.granted(other.CloseXRCD(otherDomain))
	if len(b.n.qps) != 0 || len(b.n.domains) != 0 || b.heap.live != 0 {
		t.Errorf("left: %d QPs, %d domains, %d blocks", len(b.n.qps), len(b.n.domains), b.heap.live)
	}
}

func TestXRC_CreateQP_WrongParts(t *testing.T) {
	b := newBench(t)
	q := b.cq(4, 0)
	s := b.xrcSRQ(b.xrcd(nil), b.pd, q)
	for _, req := range []abi.CreateQPReq{
		{Type: uint32(rdma.QPTypeXRCRecv)},
		{Type: uint32(rdma.QPTypeXRCRecv), XRCD: 999},
		{Type: uint32(rdma.QPTypeXRCSend), SendCQ: q.handle},
		{Type: uint32(rdma.QPTypeXRCSend), PD: b.pd},
		{Type: uint32(rdma.QPTypeRC), PD: b.pd, SendCQ: q.handle, RecvCQ: q.handle, SRQ: s.rsp.Handle},
	} {
		if _, _, r := b.c.CreateQP(b.now, &req); r == nil || !errors.Is(r, syscall.EINVAL) {
			t.Errorf("%+v: %v", req, r)
		}
	}
	for _, req := range []abi.CreateSRQReq{
		{PD: b.pd, MaxWR: 1, Type: srqTypeXRC, CQ: q.handle, XRCD: 999},
		{PD: b.pd, MaxWR: 1, Type: srqTypeXRC, CQ: 999, XRCD: 1},
	} {
		if _, _, r := b.c.CreateSRQ(&req); r == nil || !errors.Is(r, syscall.EINVAL) {
			t.Errorf("%+v: %v", req, r)
		}
	}
}
