package nic

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
)

const second = clock.Time(time.Second)

const everyRight = rdma.AccessLocalWrite | rdma.AccessRemoteWrite | rdma.AccessRemoteRead |
	rdma.AccessRemoteAtomic

// pairRC connects two RC QPs of one NIC.
func pairRC(b *bench) (a, z *appQP, cq *appCQ) {
	cq = b.cq(64, 0)
	a, z = b.rc(cq), b.rc(cq)
	a.connect(z.rsp.QPN)
	z.connect(a.rsp.QPN)
	return a, z, cq
}

func TestNIC_LocalWrite_MovesBytesAndCompletes(t *testing.T) {
	b := newBench(t)
	a, _, cq := pairRC(b)
	src, srcAddr, srcMem := b.region(5000, 0)
	dst, dstAddr, dstMem := b.region(5000, everyRight)
	for i := range srcMem {
		srcMem[i] = byte(i * 3)
	}
	a.send(abi.SendWQE{
		WRID: 77, Opcode: uint8(rdma.WRWrite), Flags: uint8(rdma.SendSignaled),
		RemoteAddr: dstAddr, RKey: dst.RKey,
	}, abi.SGE{Addr: srcAddr, Length: 5000, LKey: src.LKey})
	b.run(second)
	got := cq.poll()
	if len(got) != 1 || got[0].WRID != 77 || got[0].Status != 0 ||
		got[0].Opcode != uint32(rdma.WCOpWrite) || got[0].QPNum != a.rsp.QPN {
		t.Fatalf("completions %+v", got)
	}
	if !bytes.Equal(srcMem, dstMem) {
		t.Error("bytes differ")
	}
}

func TestNIC_RevokedKey_FailsTheNextAccess(t *testing.T) {
	b := newBench(t)
	a, z, cq := pairRC(b)
	src, srcAddr, _ := b.region(64, 0)
	dst, dstAddr, dstMem := b.region(64, everyRight)
	if _, r := b.c.DeregMR(dst.Handle); r != nil {
		t.Fatal(r)
	}
	a.send(abi.SendWQE{
		WRID: 1, Opcode: uint8(rdma.WRWrite), RemoteAddr: dstAddr, RKey: dst.RKey,
	}, abi.SGE{Addr: srcAddr, Length: 64, LKey: src.LKey})
	b.run(second)
	got := cq.poll()
	if len(got) != 1 || got[0].Status != uint32(rdma.WCRemAccessErr) || got[0].WRID != 1 {
		t.Fatalf("completions %+v", got)
	}
	if a.state() != sError || z.state() != sError {
		t.Errorf("states %v and %v", a.state(), z.state())
	}
	if !bytes.Equal(dstMem, make([]byte, 64)) {
		t.Error("a dead key let bytes through")
	}
	if r := b.n.Causes(0); len(r) == 0 || !strings.Contains(r[0].Text(), "QP 0x") {
		t.Errorf("causes %+v", r)
	}
}

func TestCQ_Overrun_RaisesEventAndFailsItsQPs(t *testing.T) {
	b := newBench(t)
	cq := b.cq(1, 0)
	a, z := b.rc(cq), b.rc(cq)
	a.connect(z.rsp.QPN)
	z.connect(a.rsp.QPN)
	for i := range 4 {
		a.send(abi.SendWQE{WRID: uint64(i), Opcode: uint8(rdma.WRWrite), Flags: uint8(rdma.SendSignaled)})
	}
	events := b.run(second)
	var types []rdma.EventType
	for _, e := range events {
		types = append(types, e.Type)
	}
	if len(events) < 3 || types[0] != rdma.EventCommEst && types[0] != rdma.EventCQErr {
		t.Fatalf("events %v", types)
	}
	seen := map[rdma.EventType]int{}
	for _, e := range types {
		seen[e]++
	}
	if seen[rdma.EventCQErr] != 1 || seen[rdma.EventQPFatal] != 2 {
		t.Errorf("events %v", types)
	}
	if ring.Word(cq.mem, abi.OffCQState).Load() != 1 || a.state() != sError || z.state() != sError {
		t.Errorf("CQ state %d, QPs %v %v", ring.Word(cq.mem, abi.OffCQState).Load(), a.state(), z.state())
	}
}

func TestCQ_Arm_SolicitedOnlyAndOnce(t *testing.T) {
	b := newBench(t)
	channel, r := b.c.CreateChannel()
	b.granted(r)
	sendCQ, recvCQ := b.cq(16, 0), b.cq(16, channel)
	req := abi.CreateQPReq{
		Type: uint32(rdma.QPTypeRC), PD: b.pd, SendCQ: sendCQ.handle, RecvCQ: recvCQ.handle,
		MaxSendWR: 8, MaxRecvWR: 8,
	}
	a, z := b.qp(req), b.qp(req)
	a.connect(z.rsp.QPN)
	z.connect(a.rsp.QPN)
	completions := func() (n int) {
		for _, e := range b.run(second) {
			if e.Channel == channel && e.Handle == recvCQ.handle {
				n++
			}
		}
		return n
	}
	send := func(flags rdma.SendFlags) {
		z.recv(1)
		a.send(abi.SendWQE{Opcode: uint8(rdma.WRSend), Flags: uint8(flags | rdma.SendSignaled)})
	}
	send(0)
	if n := completions(); n != 0 {
		t.Errorf("%d events of an unarmed CQ", n)
	}
	recvCQ.arm(abi.ArmSolicited)
	send(0)
	if n := completions(); n != 0 {
		t.Errorf("%d events for an unsolicited completion", n)
	}
	send(rdma.SendSolicited)
	if n := completions(); n != 1 {
		t.Errorf("%d events for a solicited completion", n)
	}
	send(rdma.SendSolicited)
	if n := completions(); n != 0 {
		t.Errorf("%d events without a new arm", n)
	}
	recvCQ.arm(abi.ArmNext)
	send(0)
	send(0)
	if n := completions(); n != 1 {
		t.Errorf("%d events for one arm", n)
	}
	if got := len(recvCQ.poll()); got != 6 {
		t.Errorf("%d receive completions", got)
	}
	sendCQ.poll()
}

func TestQP_Error_FlushesBothQueuesAndLaterPosts(t *testing.T) {
	b := newBench(t)
	a, _, cq := pairRC(b)
	for i := range uint64(3) {
		a.recv(10 + i)
	}
	b.granted(a.modify(abi.QPAttr{State: uint32(sError)}, rdma.QPAttrState))
	a.recv(20)
	a.send(abi.SendWQE{WRID: 30, Opcode: uint8(rdma.WRSend)})
	b.run(second)
	seen := map[uint64]int{}
	for _, e := range cq.poll() {
		if e.Status != uint32(rdma.WCWRFlushErr) {
			t.Errorf("wr %d: %v", e.WRID, rdma.WCStatus(e.Status))
		}
		seen[e.WRID]++
	}
	for _, id := range []uint64{10, 11, 12, 20, 30} {
		if seen[id] != 1 {
			t.Errorf("wr %d flushed %d times", id, seen[id])
		}
	}
	b.granted(a.modify(abi.QPAttr{State: uint32(sReset)}, rdma.QPAttrState))
	b.granted(a.modify(abi.QPAttr{State: uint32(sReset)}, rdma.QPAttrState))
	if a.state() != sReset || ring.Word(a.mem, abi.OffRQDoorbell).Load() != 0 {
		t.Errorf("after reset: %v", a.state())
	}
}

// TestModify_G01_StaleGIDIndex: an index without a GID is EINVAL with a hint, at once.
func TestModify_G01_StaleGIDIndex(t *testing.T) {
	b := newBench(t)
	q := b.rc(b.cq(4, 0))
	a := fullAttr(9)
	a.State = uint32(sInit)
	b.granted(q.modify(a, toInit))
	a.State = uint32(sRTR)
	refused := func(name, word string, change func(*abi.QPAttr)) {
		t.Helper()
		bad := a
		change(&bad)
		r := q.modify(bad, toRTR)
		if r == nil || r.Errno != syscall.EINVAL || !strings.Contains(r.Reason, word) {
			t.Errorf("%s: %v", name, r)
		}
		if q.state() != sInit {
			t.Errorf("%s: state %v after a refusal", name, q.state())
		}
	}
	refused("stale", "sgid_index 1", func(a *abi.QPAttr) { a.AH.SGIDIndex = 1 })
	refused("G02 IPv6 source", "IP versions", func(a *abi.QPAttr) { a.AH.SGIDIndex = 2 })
	refused("no GRH", "is_global", func(a *abi.QPAttr) { a.AH.IsGlobal = 0 })
	refused("zero dgid", "dgid", func(a *abi.QPAttr) { a.AH.DGID = [16]byte{} })
	for _, to := range []struct{ name, addr, word string }{
		{"0.0.0.0", "::ffff:0.0.0.0", "no address"},
		{"multicast", "::ffff:224.0.0.251", "multicast"},
		{"broadcast", "::ffff:255.255.255.255", "broadcast"},
	} {
		refused(to.name, to.word, func(a *abi.QPAttr) {
			a.AH.DGID = netip.MustParseAddr(to.addr).As16()
		})
	}
	refused("IPv6 multicast", "multicast", func(a *abi.QPAttr) {
		a.AH.SGIDIndex, a.AH.DGID = 2, netip.MustParseAddr("ff0e::7").As16()
	})
	refused("port", "port_num", func(a *abi.QPAttr) { a.AH.Port = 2 })
	refused("mtu 0", "path_mtu", func(a *abi.QPAttr) { a.PathMTU = 0 })
	refused("mtu 6", "path_mtu", func(a *abi.QPAttr) { a.PathMTU = 6 })
	refused("mtu over the wire's", "active MTU", func(a *abi.QPAttr) {
		a.AH.DGID = gid(9)
		a.PathMTU = uint32(rdma.MTU2048)
	})
	refused("rnr timer", "min_rnr_timer", func(a *abi.QPAttr) { a.MinRNRTimer = 32 })
	refused("rd atomic", "max_dest_rd_atomic", func(a *abi.QPAttr) { a.MaxDestRdAtomic = 129 })
	refused("qpn", "dest_qp_num", func(a *abi.QPAttr) { a.DestQPN = 1 << 24 })
	a.CurState = uint32(sRTS)
	r := q.modify(a, toRTR|rdma.QPAttrCurState)
	if r == nil || !strings.Contains(r.Reason, "cur_qp_state") {
		t.Errorf("wrong current state: %v", r)
	}
}

func TestModify_Reset_ForgetsAddressAndPort(t *testing.T) {
	b := newBench(t)
	a, _, _ := pairRC(b)
	b.granted(a.modify(abi.QPAttr{State: uint32(sReset)}, rdma.QPAttrState))
	got, r := b.c.QueryQP(a.rsp.Handle)
	b.granted(r)
	if got.AH != (abi.AHAttr{}) || got.Port != 0 || got.DestQPN != 0 {
		t.Errorf("after RESET: ah_attr %+v, port %d, destination %#x", got.AH, got.Port, got.DestQPN)
	}
}

func TestContext_Close_LeavesNothing(t *testing.T) {
	b := newBench(t)
	a, _, _ := pairRC(b)
	b.region(100, everyRight)
	if _, r := b.c.CreateAH(&abi.CreateAHReq{PD: b.pd, Attr: fullAttr(1).AH}); r != nil {
		t.Fatal(r)
	}
	_, _, r := b.c.CreateSRQ(&abi.CreateSRQReq{PD: b.pd, MaxWR: 4, MaxSGE: 1})
	b.granted(r)
	a.send(abi.SendWQE{Opcode: uint8(rdma.WRSend)})
	b.n.HandleDoorbells(b.now)
	b.n.CloseContext(b.now, b.c)
	b.n.CloseContext(b.now, b.c)
	if b.heap.live != 0 || len(b.n.qps) != 0 || len(b.n.ahs) != 0 || b.n.memory.Len() != 0 ||
		b.n.counts != (census{}) || b.n.HasWork() || b.n.PollTimeout() != clock.Never {
		t.Errorf("left: %d blocks, %d QPs, %d AHs, %d MRs, census %+v",
			b.heap.live, len(b.n.qps), len(b.n.ahs), b.n.memory.Len(), b.n.counts)
	}
}

func TestObjects_InUse_AreBusy(t *testing.T) {
	b := newBench(t)
	cq := b.cq(4, 0)
	q := b.rc(cq)
	mr, _, _ := b.region(8, 0)
	busy := func(what string, r *rdma.Refusal) {
		t.Helper()
		if r == nil || r.Errno != syscall.EBUSY {
			t.Errorf("%s: %v", what, r)
		}
	}
	busy("CQ", b.c.DestroyCQ(cq.handle))
	busy("PD", b.c.DeallocPD(b.pd))
	b.granted(b.c.DestroyQP(b.now, q.rsp.Handle))
	b.granted(b.c.DestroyCQ(cq.handle))
	busy("PD with MR", b.c.DeallocPD(b.pd))
	_, r := b.c.DeregMR(mr.Handle)
	b.granted(r)
	b.granted(b.c.DeallocPD(b.pd))
	if r := b.c.DestroyQP(b.now, q.rsp.Handle); r == nil || r.Errno != syscall.EINVAL {
		t.Errorf("destroyed twice: %v", r)
	}
}

func TestContext_ForeignHandles_AreUnknown(t *testing.T) {
	b := newBench(t)
	cq := b.cq(4, 0)
	q := b.rc(cq)
	mr, _, _ := b.region(8, 0)
	other, _ := b.open()
	if _, r := other.QueryQP(q.rsp.Handle); r == nil {
		t.Error("foreign QP queried")
	}
	if _, r := other.DeregMR(mr.Handle); r == nil {
		t.Error("foreign region deregistered")
	}
	if r := other.DestroyCQ(cq.handle); r == nil {
		t.Error("foreign CQ destroyed")
	}
	if _, _, r := other.CreateQP(0, &abi.CreateQPReq{
		Type: uint32(rdma.QPTypeRC), PD: b.pd, SendCQ: cq.handle, RecvCQ: cq.handle,
	}); r == nil {
		t.Error("QP over foreign objects")
	}
}

// TestNIC_HostileQueues_StayInBounds writes noise over everything that a client can write.
func TestNIC_HostileQueues_StayInBounds(t *testing.T) {
	b := newBench(t)
	a, z, cq := pairRC(b)
	_, _, dst := b.region(4096, everyRight)
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		for _, m := range [][]byte{a.mem, z.mem, cq.mem, b.bells} {
			for range 1 + random.IntN(64) {
				m[random.IntN(len(m))] = byte(random.Uint32())
			}
			if random.IntN(4) == 0 {
				m[random.IntN(256)] = byte(random.Uint32())
			}
		}
		a.ring()
		b.run(clock.Time(time.Millisecond))
		if s := b.n.qps[rdma.QPN(a.rsp.QPN)].state(); !s.IsValid() {
			t.Fatalf("E02: state %d", s)
		}
		if random.IntN(20) == 0 {
			for _, q := range []*appQP{a, z} {
				b.granted(q.modify(abi.QPAttr{State: uint32(sReset)}, rdma.QPAttrState))
				q.connect(a.rsp.QPN ^ z.rsp.QPN ^ q.rsp.QPN)
			}
		}
	}
	_ = dst
	healthy, _, healthyCQ := pairRC(b)
	healthy.send(abi.SendWQE{WRID: 5, Opcode: uint8(rdma.WRWrite), Flags: uint8(rdma.SendSignaled)})
	b.run(second)
	if got := healthyCQ.poll(); len(got) != 1 || got[0].Status != 0 {
		t.Errorf("another pair after the noise: %+v", got)
	}
}

func TestSRQ_Limit_RaisesOnce(t *testing.T) {
	b := newBench(t)
	rsp, shared, r := b.c.CreateSRQ(&abi.CreateSRQReq{PD: b.pd, MaxWR: 8, MaxSGE: 1})
	b.granted(r)
	m := shared.Bytes()
	p := ring.NewProducer(m[rsp.Offset:], ring.Geometry{Entries: rsp.Entries, Stride: rsp.Stride},
		ring.Word(m, abi.OffRQProducer), ring.Word(m, abi.OffRQConsumer))
	for i := range uint64(4) {
		abi.EncodeRecvWQE(p.Slot(), &abi.RecvWQE{WRID: i})
		p.Push()
	}
	p.Publish()
	b.granted(b.c.ModifySRQ(&abi.SRQAttr{Handle: rsp.Handle, Mask: srqLimit, Limit: 3}))
	cq := b.cq(32, 0)
	a := b.rc(cq)
	z := b.qp(abi.CreateQPReq{
		Type: uint32(rdma.QPTypeRC), PD: b.pd, SendCQ: cq.handle, RecvCQ: cq.handle, SRQ: rsp.Handle,
		MaxSendWR: 4,
	})
	a.connect(z.rsp.QPN)
	z.connect(a.rsp.QPN)
	for range 3 {
		a.send(abi.SendWQE{Opcode: uint8(rdma.WRSend)})
	}
	limit := 0
	for _, e := range b.run(second) {
		if e.Type == rdma.EventSRQLimitReached && e.Handle == rsp.Handle {
			limit++
		}
	}
	if limit != 1 {
		t.Errorf("%d limit events", limit)
	}
	if got := len(cq.poll()); got != 3 {
		t.Errorf("%d completions", got)
	}
	last := 0
	b.granted(z.modify(abi.QPAttr{State: uint32(sError)}, rdma.QPAttrState))
	for _, e := range b.run(second) {
		if e.Type == rdma.EventQPLastWQEReached && e.Handle == z.rsp.Handle {
			last++
		}
	}
	if last != 1 {
		t.Errorf("%d last-WQE events", last)
	}
}

func TestPort_Changes_RaiseEvents(t *testing.T) {
	b := newBench(t)
	types := func() (out []rdma.EventType) {
		for _, e := range b.run(0) {
			out = append(out, e.Type)
		}
		return out
	}
	p := b.n.devices[0].port.Port
	b.n.SetPort(0, 0, p)
	if got := types(); len(got) != 0 {
		t.Errorf("no change: %v", got)
	}
	p.Active = false
	b.n.SetPort(0, 0, p)
	if got := types(); len(got) != 1 || got[0] != rdma.EventPortErr {
		t.Errorf("down: %v", got)
	}
	p.Active, p.GIDs = true, p.GIDs[:1]
	b.n.SetPort(0, 0, p)
	if got := types(); len(got) != 2 || got[0] != rdma.EventPortActive ||
		got[1] != rdma.EventGIDChange {
		t.Errorf("up with another table: %v", got)
	}
}

// TestCreateQP_TypesNotMade: a type that devices may have and this one has not is EOPNOTSUPP; a
// number that is no type at all is a wrong argument.
func TestCreateQP_TypesNotMade(t *testing.T) {
	b := newBench(t)
	q := b.cq(4, 0)
	for number, want := range map[uint32]syscall.Errno{
		0: syscall.EINVAL, 1: syscall.EINVAL, 77: syscall.EINVAL,
		8: syscall.EOPNOTSUPP, 0xff: syscall.EOPNOTSUPP,
	} {
		req := abi.CreateQPReq{Type: number, PD: b.pd, SendCQ: q.handle, RecvCQ: q.handle}
		if _, _, r := b.c.CreateQP(b.now, &req); r == nil || r.Errno != want {
			t.Errorf("type %d: %v, want %v", number, r, want)
		}
	}
}
