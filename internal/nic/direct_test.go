package nic

import (
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
)

// directBench is a NIC that lets libraries go direct, with two connected queue pairs: a initiates.
type directBench struct {
	*bench
	tickets []byte
	cq      *appCQ
	a, b    *appQP
}

func newDirectBench(t *testing.T) *directBench {
	t.Helper()
	d := &directBench{tickets: bytesOf(make([]uint64, 4))}
	d.bench = newBenchOf(t, Config{
		Devices: oneDevice, NodeGUID: 0x1234, Secret: 42, Version: "test", Tickets: d.tickets,
	})
	d.cq = d.bench.cq(64, 0)
	d.a, d.b = d.rc(d.cq), d.rc(d.cq)
	d.b.connect(d.a.rsp.QPN)
	d.a.connect(d.b.rsp.QPN)
	return d
}

func (q *appQP) grant() uint32 { return ring.Word(q.mem, abi.OffQPGrant).Load() }

func (q *appQP) rights() uint32 { return q.grant() & (1<<abi.GrantLinkShift - 1) }

func (q *appQP) busy() {
	ring.Word(q.mem, abi.OffDirectBusy).Add(1)
}

func (d *directBench) mapRemote(q *appQP, key uint32, addr, n uint64) (
	abi.MapRemoteRsp, RemotePart, *rdma.Refusal,
) {
	return d.c.MapRemote(&abi.MapRemoteReq{QP: q.rsp.Handle, RKey: key, Addr: addr, Length: n})
}

func (d *directBench) ticket(slot uint32) uint64 {
	return ring.Word64(d.tickets, 8*int(slot)).Load()
}

const allRights = abi.GrantWrite | abi.GrantRead | abi.GrantAtomic | abi.GrantAtomicWrite

const remoteAll = rdma.AccessLocalWrite | rdma.AccessRemoteWrite | rdma.AccessRemoteRead |
	rdma.AccessRemoteAtomic

func TestDirect_Grant_FollowsBothEnds(t *testing.T) {
	d := newDirectBench(t)
	if d.a.rights() != allRights || d.b.rights() != allRights {
		t.Fatalf("rights %#x and %#x", d.a.rights(), d.b.rights())
	}
	if d.a.grant() != d.b.grant() {
		t.Errorf("the ends do not agree on their connection: %#x, %#x", d.a.grant(), d.b.grant())
	}
	link := d.a.grant()
	step := func(what string, r *rdma.Refusal, a, b uint32) {
		t.Helper()
		d.granted(r)
		if d.a.rights() != a || d.b.rights() != b {
			t.Errorf("%s: rights %#x and %#x, not %#x and %#x", what, d.a.rights(), d.b.rights(), a, b)
		}
	}
	onlyRead := abi.QPAttr{AccessFlags: uint32(rdma.AccessRemoteRead)}
	step("the target takes rights back", d.b.modify(onlyRead, rdma.QPAttrAccessFlags),
		abi.GrantRead, allRights)
	back := fullAttr(0)
	step("and gives them", d.b.modify(back, rdma.QPAttrAccessFlags), allRights, allRights)
	if d.a.grant() != link {
		t.Error("the connection is another although it has not changed")
	}
	state := func(s rdma.QPState) abi.QPAttr { return abi.QPAttr{State: uint32(s)} }
	step("the initiator drains", d.a.modify(state(sSQD), rdma.QPAttrState), 0, allRights)
	step("and goes on", d.a.modify(state(sRTS), rdma.QPAttrState), allRights, allRights)
	step("the target fails", d.b.modify(state(sError), rdma.QPAttrState), 0, 0)
	step("is reset", d.b.modify(state(sReset), rdma.QPAttrState), 0, 0)
	d.b.connect(d.a.rsp.QPN)
	if d.a.rights() != allRights || d.a.grant() == link {
		t.Errorf("connected anew: %#x after %#x", d.a.grant(), link)
	}
	d.granted(d.c.DestroyQP(d.now, d.b.rsp.Handle))
	if d.a.grant() != 0 {
		t.Errorf("a grant %#x at nobody", d.a.grant())
	}
}

func TestDirect_Grant_OnlyWhereBothMayAndWant(t *testing.T) {
	for name, change := range map[string]func(d *directBench, other *Context){
		"another user":   func(_ *directBench, other *Context) { other.cfg.UID = 1001 },
		"keeps out":      func(_ *directBench, other *Context) { other.cfg.KeepsOut = true },
		"no tickets":     func(d *directBench, _ *Context) { d.n.direct.tickets = nil },
		"while held":     func(d *directBench, _ *Context) { d.n.HoldDirect(true) },
		"no responder":   nil,
		"plain":          func(*directBench, *Context) {},
		"another's peer": nil,
	} {
		d := newDirectBench(t)
		first := d.c
		other, _ := d.open()
		if change != nil {
			change(d, other)
		}
		x := d.rc(d.cq)
		d.c = other
		pd, r := other.AllocPD()
		d.granted(r)
		d.pd = pd
		y := d.rc(d.bench.cq(8, 0))
		to := y.rsp.QPN
		if name == "another's peer" {
			to = d.a.rsp.QPN
		}
		x.b = &bench{t: t, n: d.n, c: first}
		if name != "no responder" {
			y.connect(x.rsp.QPN)
		}
		x.connect(to)
		if isPlain := name == "plain"; x.rights() != 0 != isPlain || y.rights() != 0 != isPlain {
			t.Errorf("%s: grants %#x and %#x", name, x.grant(), y.grant())
		}
	}
}

// The index of what is complete never runs ahead of the completions.
func TestDirect_Done_AfterTheCompletionIsShown(t *testing.T) {
	d := newDirectBench(t)
	rsp, addr, _ := d.region(4096, remoteAll)
	done := ring.Word(d.a.mem, abi.OffSQDone)
	for i := range uint32(20) {
		d.a.send(abi.SendWQE{
			Opcode: uint8(rdma.WRWrite), Flags: uint8(rdma.SendSignaled), RemoteAddr: addr,
			RKey: rsp.RKey,
		}, abi.SGE{Addr: addr, Length: 8, LKey: rsp.LKey})
		if got := done.Load(); got != i {
			t.Fatalf("%d of %d are done before the NIC has looked", got, i+1)
		}
		var p ibt.Packet
		d.n.HandleDoorbells(d.now)
		for d.n.PollTransmit(d.now, &p) {
			d.n.HandlePacket(d.now, &p)
			n, _ := d.cq.cons.Pending()
			if done.Load() > i && n == 0 {
				t.Fatal("done before the completion is there")
			}
		}
		if len(d.cq.poll()) != 1 || done.Load() != i+1 {
			t.Fatalf("%d done after %d", done.Load(), i+1)
		}
	}
}

func TestDirect_MapRemote_JudgesTheKey(t *testing.T) {
	d := newDirectBench(t)
	rsp, addr, bytes := d.region(4096, remoteAll)
	m, part, r := d.mapRemote(d.a, rsp.RKey, addr+100, 8)
	d.granted(r)
	if m.Addr != addr || m.Length != 4096 || &part.Bytes[0] != &bytes[0] ||
		part.Handle != rsp.Handle || m.Link != d.a.grant()>>abi.GrantLinkShift {
		t.Errorf("%+v of %+v", m, part)
	}
	if d.ticket(m.Slot) != m.Ticket || m.Ticket == 0 {
		t.Errorf("ticket %d stands at slot %d, not %d", d.ticket(m.Slot), m.Slot, m.Ticket)
	}
	local, localAddr, _ := d.region(64, rdma.AccessLocalWrite)
	mw, r := d.c.AllocMW(&abi.AllocMWReq{PD: d.pd, Type: uint32(rdma.MWType2)})
	d.granted(r)
	pd := d.pd
	d.pd, r = d.c.AllocPD()
	d.granted(r)
	foreign, foreignAddr, _ := d.region(64, remoteAll)
	d.pd = pd
	for name, ask := range map[string]struct {
		key     uint32
		addr, n uint64
	}{
		"unknown":        {rsp.RKey ^ 1, addr, 8},
		"no remote":      {local.RKey, localAddr, 8},
		"another domain": {foreign.RKey, foreignAddr, 8},
		"beyond":         {rsp.RKey, addr + 4090, 8},
		"before":         {rsp.RKey, addr - 8, 8},
		"wrapping":       {rsp.RKey, addr, 1<<64 - 8},
		"of no bytes":    {rsp.RKey, addr, 0},
		"a window":       {mw.RKey, addr, 8},
	} {
		if _, _, r := d.mapRemote(d.a, ask.key, ask.addr, ask.n); r == nil {
			t.Errorf("%s: not refused", name)
		}
	}
	d.granted(d.a.modify(abi.QPAttr{State: uint32(sError)}, rdma.QPAttrState))
	if _, _, r := d.mapRemote(d.a, rsp.RKey, addr, 8); r == nil {
		t.Error("a queue pair in error gets memory")
	}
}

// Whatever ends a key ends its ticket, and waits for who is at work.
func TestDirect_Revocation_WaitsForTheBusy(t *testing.T) {
	for name, end := range map[string]func(d *directBench, mr abi.RegMRRsp) *rdma.Refusal{
		"dereg": func(d *directBench, mr abi.RegMRRsp) *rdma.Refusal {
			_, r := d.c.DeregMR(mr.Handle)
			return r
		},
		"rereg": func(d *directBench, mr abi.RegMRRsp) *rdma.Refusal {
			_, _, r := d.c.ReregMR(&abi.ReregMRReq{
				Handle: mr.Handle, Flags: uint32(rdma.ReregPD), PD: d.pd,
			}, nil)
			return r
		},
		"error": func(d *directBench, _ abi.RegMRRsp) *rdma.Refusal {
			return d.b.modify(abi.QPAttr{State: uint32(sError)}, rdma.QPAttrState)
		},
		"access": func(d *directBench, _ abi.RegMRRsp) *rdma.Refusal {
			return d.b.modify(abi.QPAttr{}, rdma.QPAttrAccessFlags)
		},
		"destroy": func(d *directBench, _ abi.RegMRRsp) *rdma.Refusal {
			return d.c.DestroyQP(d.now, d.b.rsp.Handle)
		},
		"hold": func(d *directBench, _ abi.RegMRRsp) *rdma.Refusal {
			d.n.HoldDirect(true)
			return nil
		},
	} {
		d := newDirectBench(t)
		mr, addr, _ := d.region(4096, remoteAll)
		m, _, r := d.mapRemote(d.a, mr.RKey, addr, 8)
		d.granted(r)
		d.a.busy()
		d.granted(end(d, mr))
		if d.a.rights() != 0 && d.ticket(m.Slot) == m.Ticket {
			t.Errorf("%s: rights %#x, and the ticket stands", name, d.a.rights())
		}
		waits := d.n.TakeDirectWaits()
		if len(waits) != 1 || waits[0].IsOver() {
			t.Fatalf("%s: %d waits", name, len(waits))
		}
		d.a.busy()
		if !waits[0].IsOver() {
			t.Errorf("%s: waits for one who is out", name)
		}
		d.a.busy() // it begins something else, and sees that the right is gone
		if !waits[0].IsOver() {
			t.Errorf("%s: waits for what began later", name)
		}
	}
}

// endUnderBusyLibrary ends a connection whose initiator is at work in the target's region.
func endUnderBusyLibrary(t *testing.T) (*directBench, abi.RegMRRsp) {
	t.Helper()
	d := newDirectBench(t)
	mr, addr, _ := d.region(4096, remoteAll)
	_, _, r := d.mapRemote(d.a, mr.RKey, addr, 8)
	d.granted(r)
	d.a.busy()
	d.granted(d.a.modify(abi.QPAttr{State: uint32(sError)}, rdma.QPAttrState))
	_ = d.n.TakeDirectWaits() // the initiator's own, or somebody else's
	return d, mr
}

// isAwaited wants the target to wait for that library, and for no longer than it is at work.
func (d *directBench) isAwaited(what string) {
	d.t.Helper()
	waits := d.n.TakeDirectWaits()
	if len(waits) != 1 || waits[0].IsOver() {
		d.t.Fatalf("%s: %d waits", what, len(waits))
	}
	d.a.busy()
	if !waits[0].IsOver() {
		d.t.Errorf("%s: waits for one who is out", what)
	}
}

// A connection that ends by itself, or by the initiator's own doing, promises the target nothing.
// What the target does then with its own queue pair does, for a library at work since before.
func TestDirect_OwnEnd_WaitsForTheBusyOfAnEndedConnection(t *testing.T) {
	for name, end := range map[string]func(d *directBench) *rdma.Refusal{
		"destroy": func(d *directBench) *rdma.Refusal {
			return d.c.DestroyQP(d.now, d.b.rsp.Handle)
		},
		"error": func(d *directBench) *rdma.Refusal {
			return d.b.modify(abi.QPAttr{State: uint32(sError)}, rdma.QPAttrState)
		},
		"reset": func(d *directBench) *rdma.Refusal {
			return d.b.modify(abi.QPAttr{State: uint32(sReset)}, rdma.QPAttrState)
		},
	} {
		d, _ := endUnderBusyLibrary(t)
		d.granted(end(d))
		d.isAwaited(name)
	}
}

// Nor does it promise anything of the target's regions. The end of one does.
func TestDirect_Dereg_WaitsForTheBusyOfAnEndedConnection(t *testing.T) {
	d, mr := endUnderBusyLibrary(t)
	_, r := d.c.DeregMR(mr.Handle)
	d.granted(r)
	d.isAwaited("dereg")
}

// What is remembered of a busy library goes with its queue pair, whose memory nobody may look at
// then.
func TestDirect_Destroy_ForgetsTheBusy(t *testing.T) {
	d := newDirectBench(t)
	mr, addr, _ := d.region(4096, remoteAll)
	_, _, r := d.mapRemote(d.a, mr.RKey, addr, 8)
	d.granted(r)
	d.a.busy()
	d.granted(d.a.modify(abi.QPAttr{State: uint32(sError)}, rdma.QPAttrState))
	d.granted(d.c.DestroyQP(d.now, d.a.rsp.Handle))
	_ = d.n.TakeDirectWaits()
	_, r = d.c.DeregMR(mr.Handle)
	d.granted(r)
	if w := d.n.TakeDirectWaits(); len(w) != 0 {
		t.Errorf("%d waits for a queue pair that is gone", len(w))
	}
}

// Nobody waits for a queue pair that is gone, nor for one that is idle.
func TestDirect_Revocation_OfTheIdleWaitsForNobody(t *testing.T) {
	d := newDirectBench(t)
	mr, addr, _ := d.region(4096, remoteAll)
	_, _, r := d.mapRemote(d.a, mr.RKey, addr, 8)
	d.granted(r)
	_, r = d.c.DeregMR(mr.Handle)
	d.granted(r)
	if w := d.n.TakeDirectWaits(); len(w) != 0 {
		t.Errorf("%d waits for an idle library", len(w))
	}
	d.a.busy()
	d.granted(d.b.modify(abi.QPAttr{State: uint32(sError)}, rdma.QPAttrState))
	w := d.n.TakeDirectWaits()
	d.granted(d.c.DestroyQP(d.now, d.a.rsp.Handle))
	if len(w) != 1 || !w[0].IsOver() {
		t.Error("waits for a queue pair that is gone")
	}
}

// Slots are few and come back; no ticket is given twice.
func TestDirect_Tickets_AreNeverGivenTwice(t *testing.T) {
	d := newDirectBench(t)
	seen := map[uint64]bool{}
	for range 3 {
		var regions []abi.RegMRRsp
		for range len(d.tickets)/8 + 1 {
			mr, addr, _ := d.region(64, remoteAll)
			regions = append(regions, mr)
			m, _, r := d.mapRemote(d.a, mr.RKey, addr, 8)
			if full := len(regions) > len(d.tickets)/8; full != (r != nil) {
				t.Fatalf("ticket %d: %v", len(regions), r)
			}
			if again, _, _ := d.mapRemote(d.a, mr.RKey, addr+8, 8); r == nil && again != m {
				t.Errorf("asked twice: %+v, %+v", m, again)
			}
			if r == nil && seen[m.Ticket] {
				t.Errorf("ticket %d came before", m.Ticket)
			}
			seen[m.Ticket] = true
		}
		for _, mr := range regions {
			_, r := d.c.DeregMR(mr.Handle)
			d.granted(r)
		}
	}
}

func TestDirect_CloseContext_LeavesNothing(t *testing.T) {
	d := newDirectBench(t)
	mr, addr, _ := d.region(64, remoteAll)
	m, _, r := d.mapRemote(d.a, mr.RKey, addr, 8)
	d.granted(r)
	d.n.CloseContext(d.now, d.c)
	if d.ticket(m.Slot) != 0 || len(d.n.direct.regions) != 0 ||
		len(d.n.direct.free) != len(d.tickets)/8 {
		t.Errorf("ticket %d, %d regions, %d free slots", d.ticket(m.Slot), len(d.n.direct.regions),
			len(d.n.direct.free))
	}
}

// What a library says is added to both ends; a lie that cannot be true is not.
func TestDirect_Counters_AreTheSumOfBoth(t *testing.T) {
	d := newDirectBench(t)
	say := func(ops, sent, received uint64) {
		ring.Word64(d.a.mem, abi.OffDirectSent).Store(sent)
		ring.Word64(d.a.mem, abi.OffDirectReceived).Store(received)
		ring.Word64(d.a.mem, abi.OffDirectOps).Store(ops)
	}
	want := func(what string, ops, out, back uint64) {
		t.Helper()
		s := d.n.Status()
		a, b := s.Contexts[0].QPs[0].Counters, s.Contexts[0].QPs[1].Counters
		if a[work.CountDirectOps] != ops || a[work.CountDirectBytes] != out+back ||
			a[work.CountSentBytes] != out || a[work.CountRcvdBytes] != back ||
			b[work.CountSentBytes] != back || b[work.CountRcvdBytes] != out {
			t.Errorf("%s: %v, %v", what, a, b)
		}
		if s.Engine[work.CountDirectOps] != ops || s.Engine[work.CountSentBytes] != out+back {
			t.Errorf("%s: device %v", what, s.Engine)
		}
		if !s.Contexts[0].QPs[0].IsDirect {
			t.Error("the queue pair does not show that it goes direct")
		}
	}
	say(3, 300, 40)
	want("first", 3, 300, 40)
	want("again", 3, 300, 40)
	say(4, 1<<60, 40)
	want("a lie", 3, 300, 40)
	say(5, 1<<60+100, 50)
	want("after it", 4, 400, 50)
}

// Completions in the library's own list take room of the queue, and only as long as they are there.
func TestDirect_List_TakesRoomOfTheQueue(t *testing.T) {
	d := newDirectBench(t)
	small := d.bench.cq(4, 0)
	q := d.c.cqs[small.handle]
	head, tail := ring.Word(small.mem, abi.OffCQListHead), ring.Word(small.mem, abi.OffCQListTail)
	push := func() bool {
		before := q.pushed
		q.Push(&abi.CQE{}, false)
		return q.pushed > before
	}
	ring.Word64(small.mem, abi.OffCQListCount).Store(1 << 33)
	if got := d.n.Status().Contexts[0].CQs; got[len(got)-1].Pushed != 1<<33 {
		t.Errorf("the library's own completions do not count: %+v", got)
	}
	head.Store(0xfffffffe)
	tail.Store(1) // three
	if !push() {
		t.Fatal("no room for the fourth")
	}
	small.poll()
	if !push() {
		t.Fatal("no room after a poll")
	}
	head.Store(0) // two are polled
	for i := range 2 {
		if !push() {
			t.Fatalf("no room for %d more", 2-i)
		}
	}
	head.Store(77) // no library of ours
	small.poll()
	if !push() {
		t.Fatal("indices of nobody take room")
	}
	head.Store(1)
	tail.Store(5)
	if push() || !q.failed {
		t.Error("one more than there is room for")
	}
}
