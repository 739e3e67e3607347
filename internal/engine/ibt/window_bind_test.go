package ibt

import (
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

// bindable makes the node's region one that windows may be bound to.
func (n *node) bindable(access rdma.Access) {
	n.t.Helper()
	n.table.Deregister(n.region)
	r, refusal := n.table.Register(mem.Config{
		PD: testPD, Addr: testBase, IOVA: testBase, Length: uint64(len(n.mem)), Access: access,
		Segments: []mem.Segment{{Addr: testBase, Length: uint64(len(n.mem)), Mapped: n.mem}},
	})
	if refusal != nil {
		n.t.Fatal(refusal)
	}
	n.region = r
}

const bindAccess = rdma.AccessLocalWrite | rdma.AccessMWBind

// window makes a window of the node.
func (n *node) window(typ rdma.MWType) *mem.Window {
	n.t.Helper()
	w, refusal := n.table.AllocWindow(testPD, typ)
	if refusal != nil {
		n.t.Fatal(refusal)
	}
	return w
}

func nextKey(k rdma.Key) rdma.Key { return k&^0xff | rdma.Key(uint8(k)+1) }

// bind returns the work request that binds a window to length bytes at off.
func (n *node) bind(id uint64, w *mem.Window, off, length int, access rdma.Access) abi.SendWQE {
	return abi.SendWQE{
		WRID: id, Opcode: uint8(rdma.WRBindMW), Flags: signaled, RKey: uint32(nextKey(w.Key)),
		RemoteAddr: testBase + uint64(off), CompareAdd: uint64(length), Swap: uint64(access),
		Extra: uint32(n.region.Key),
	}
}

func (w *world) writeTo(id uint64, key rdma.Key, addr uint64, length int) {
	w.a.post(w.now, abi.SendWQE{
		WRID: id, Opcode: uint8(rdma.WRWrite), Flags: signaled, RKey: uint32(key), RemoteAddr: addr,
	}, w.a.at(0, length))
}

func TestWindow_Bind_OpensExactlyThePart(t *testing.T) {
	for _, qpType := range []rdma.QPType{rdma.QPTypeRC, rdma.QPTypeUC} {
		for _, typ := range []rdma.MWType{rdma.MWType1, rdma.MWType2} {
			t.Run(qpType.String()+" "+typ.String(), func(t *testing.T) {
				w := newWorld(t, worldConfig{qpType: qpType})
				w.b.bindable(bindAccess)
				win := w.b.window(typ)
				w.b.post(0, w.b.bind(9, win, 100, 50, rdma.AccessRemoteWrite))
				w.settle()
				wantStatus(t, w.b.sends.take(), rdma.WCSuccess)
				pattern(w.a.mem[:50], 3)
				w.writeTo(1, win.Key, testBase+100, 50)
				w.settle()
				wantStatus(t, w.a.sends.take(), rdma.WCSuccess)
				if string(w.b.mem[100:150]) != string(w.a.mem[:50]) {
					t.Fatal("the bytes did not arrive")
				}
				w.writeTo(2, win.Key, testBase+101, 50)
				w.settle()
				if qpType == rdma.QPTypeRC {
					wantStatus(t, w.a.sends.take(), rdma.WCRemAccessErr)
				}
				if w.b.mem[150] != 0 {
					t.Error("a byte beyond the window changed")
				}
			})
		}
	}
}

func TestWindow_ZeroBased_CountsFromItsStart(t *testing.T) {
	w := newWorld(t, worldConfig{})
	w.b.bindable(bindAccess | rdma.AccessRemoteRead)
	win := w.b.window(rdma.MWType2)
	pattern(w.b.mem[:4000], 5)
	w.b.post(0, w.b.bind(9, win, 300, 3000, rdma.AccessRemoteRead|rdma.AccessZeroBased))
	w.settle()
	w.a.post(w.now, abi.SendWQE{
		WRID: 1, Opcode: uint8(rdma.WRRead), Flags: signaled, RKey: uint32(win.Key), RemoteAddr: 200,
	}, w.a.at(0, 2800))
	w.settle()
	wantStatus(t, w.a.sends.take(), rdma.WCSuccess)
	if string(w.a.mem[:2800]) != string(w.b.mem[500:3300]) {
		t.Error("a READ through a zero-based window brought other bytes")
	}
}

// TestWindow_NotMapped_ReadsThroughScratch: the bytes of a READ come in by copies.
func TestWindow_NotMapped_ReadsThroughScratch(t *testing.T) {
	s := &space{}
	w := newWorld(t, worldConfig{spaceB: s})
	w.b.table.Deregister(w.b.region)
	r, refusal := w.b.table.Register(mem.Config{
		PD: testPD, Addr: testBase, IOVA: testBase, Length: 1 << 20, Access: bindAccess, Space: s,
		Segments: []mem.Segment{{Addr: testBase, Length: 1 << 20}},
	})
	if refusal != nil {
		t.Fatal(refusal)
	}
	w.b.region = r
	win := w.b.window(rdma.MWType2)
	pattern(w.b.mem[:200000], 5)
	access := rdma.AccessRemoteRead | rdma.AccessRemoteAtomic
	w.b.post(0, w.b.bind(9, win, 0, 200000, access))
	w.settle()
	w.a.post(w.now, abi.SendWQE{
		WRID: 1, Opcode: uint8(rdma.WRRead), Flags: signaled, RKey: uint32(win.Key),
		RemoteAddr: testBase + 8,
	}, w.a.at(0, 150000))
	w.a.post(w.now, abi.SendWQE{
		WRID: 2, Opcode: uint8(rdma.WRFetchAdd), Flags: signaled, RKey: uint32(win.Key),
		RemoteAddr: testBase, CompareAdd: 1,
	}, w.a.at(200000, 8))
	w.settle()
	wantStatus(t, w.a.sends.take(), rdma.WCSuccess, rdma.WCSuccess)
	if string(w.a.mem[:150000]) != string(w.b.mem[8:150008]) {
		t.Error("a READ through a window brought other bytes")
	}
	if getNative(w.b.mem[:8]) != getNative(w.a.mem[200000:])+1 {
		t.Error("an atomic through a window did nothing")
	}
}

// bindRule is a bind that must be refused.
type bindRule struct {
	region rdma.Access
	typ    rdma.MWType
	access rdma.Access
	edit   func(*node, *abi.SendWQE)
	fault  mem.Fault
}

const allBindAccess = bindAccess | rdma.AccessRemoteAny

//tidy:table
var bindRules = map[string]bindRule{
	"no bind access": {
		region: rdma.AccessLocalWrite, typ: rdma.MWType2, access: rdma.AccessRemoteWrite,
		fault: mem.FaultRights,
	},
	"no local write": {
		region: rdma.AccessMWBind | rdma.AccessRemoteRead, typ: rdma.MWType2,
		access: rdma.AccessRemoteWrite, fault: mem.FaultRights,
	},
	"no local write for atomics": {
		region: rdma.AccessMWBind, typ: rdma.MWType1, access: rdma.AccessRemoteAtomic,
		fault: mem.FaultRights,
	},
	"flush that the memory has not": {
		region: bindAccess, typ: rdma.MWType2, access: rdma.AccessFlushPersist,
		fault: mem.FaultRights,
	},
	"unknown access": {
		region: allBindAccess, typ: rdma.MWType2, access: rdma.AccessOnDemand,
		fault: mem.FaultWindowAccess,
	},
	"zero-based type 1": {
		region: allBindAccess, typ: rdma.MWType1, access: rdma.AccessZeroBased,
		fault: mem.FaultWindowAccess,
	},
	"same key": {
		region: allBindAccess, typ: rdma.MWType2,
		edit: func(_ *node, x *abi.SendWQE) { x.RKey-- }, fault: mem.FaultWindowKey,
	},
	"no length": {
		region: allBindAccess, typ: rdma.MWType2,
		edit: func(_ *node, x *abi.SendWQE) { x.CompareAdd = 0 }, fault: mem.FaultWindowEmpty,
	},
	"unknown window": {
		region: allBindAccess, typ: rdma.MWType2,
		edit: func(_ *node, x *abi.SendWQE) { x.RKey ^= 0x5500 }, fault: mem.FaultKey,
	},
	"a region's key": {
		region: allBindAccess, typ: rdma.MWType2,
		edit: func(n *node, x *abi.SendWQE) { x.RKey = uint32(n.region.Key) }, fault: mem.FaultKey,
	},
	"unknown region": {
		region: allBindAccess, typ: rdma.MWType1,
		edit: func(_ *node, x *abi.SendWQE) { x.Extra ^= 1 }, fault: mem.FaultRegionKey,
	},
	"before the region": {
		region: allBindAccess, typ: rdma.MWType2,
		edit: func(_ *node, x *abi.SendWQE) { x.RemoteAddr = testBase - 1 }, fault: mem.FaultBounds,
	},
	"around the end": {
		region: allBindAccess, typ: rdma.MWType2,
		edit: func(_ *node, x *abi.SendWQE) { x.CompareAdd = ^uint64(0) }, fault: mem.FaultBounds,
	},
}

// TestWindow_Bind_RefusedByRule has each rule once; nothing may change by a refused bind.
func TestWindow_Bind_RefusedByRule(t *testing.T) {
	for name, c := range bindRules {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, worldConfig{})
			w.b.bindable(c.region)
			win := w.b.window(c.typ)
			x := w.b.bind(9, win, 0, 64, c.access)
			if c.edit != nil {
				c.edit(w.b, &x)
			}
			old := win.Key
			w.b.post(0, x)
			w.settle()
			got := w.b.sends.take()
			wantStatus(t, got, rdma.WCMWBindErr)
			if abi.Vendor(got[0].VendorErr) != abi.VendorWindow ||
				rdma.WCOpcode(got[0].Opcode) != rdma.WCOpBindMW {
				t.Errorf("completion %+v", got[0])
			}
			if win.IsBound() || win.Key != old || w.b.region.Windows() != 0 {
				t.Error("a refused bind changed the window")
			}
			if k := len(w.b.causes); k == 0 || w.b.causes[k-1].Fault != c.fault {
				t.Errorf("causes %+v, want %v", w.b.causes, c.fault)
			}
			if w.b.q.State() != rdma.QPStateError {
				t.Errorf("state %v", w.b.q.State())
			}
		})
	}
}

func TestWindow_OtherPDOrQP_IsRefused(t *testing.T) {
	w := newWorld(t, worldConfig{})
	w.b.bindable(bindAccess)
	win := w.b.window(rdma.MWType2)
	binding := mem.Binding{
		Key: nextKey(win.Key), Region: w.b.region.Key, Addr: testBase, Length: 64,
		Access: rdma.AccessRemoteWrite,
	}
	stranger := mem.Accessor{PD: testPD + 1, QP: 0x22}
	if f := w.b.table.Bind(stranger, &binding); f != mem.FaultPD {
		t.Fatalf("bind from another PD: %v", f)
	}
	neighbour := mem.Accessor{PD: testPD, QP: 0x23}
	if f := w.b.table.Bind(neighbour, &binding); f != mem.FaultNone {
		t.Fatal(f)
	}
	w.writeTo(1, win.Key, testBase, 8)
	w.settle()
	wantStatus(t, w.a.sends.take(), rdma.WCRemAccessErr)
	if w.b.mem[0] != 0 || w.b.causes[0].Fault != mem.FaultQP {
		t.Errorf("byte %d, cause %+v", w.b.mem[0], w.b.causes[0])
	}
	if f := w.b.table.Invalidate(w.b.q.accessor(), win.Key); f != mem.FaultQP {
		t.Errorf("invalidate by another QP: %v", f)
	}
	w.b.table.ReleaseQP(0x23)
	if win.IsBound() || w.b.region.Windows() != 0 {
		t.Error("a window outlives its queue pair")
	}
}

// TestWindow_SendWithInvalidate_RevokesAndTells: each form of SEND that carries a key.
func TestWindow_SendWithInvalidate_RevokesAndTells(t *testing.T) {
	for name, c := range map[string]struct {
		length int
		flags  rdma.SendFlags
	}{
		"only": {8, 0}, "only, solicited": {8, rdma.SendSolicited},
		"last": {3000, 0}, "last, solicited": {3000, rdma.SendSolicited}, "empty": {0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, worldConfig{})
			w.b.bindable(bindAccess)
			win := w.b.window(rdma.MWType2)
			w.b.post(0, w.b.bind(9, win, 0, 4096, rdma.AccessRemoteWrite))
			w.settle()
			w.b.receive(7, w.b.at(8192, 4096))
			w.a.post(w.now, abi.SendWQE{
				WRID: 1, Opcode: uint8(rdma.WRSendWithInv), Flags: signaled | uint8(c.flags),
				ImmOrRKey: uint32(win.Key),
			}, w.a.at(0, c.length))
			w.settle()
			wantStatus(t, w.a.sends.take(), rdma.WCSuccess)
			got := w.b.recvs.take()
			wantStatus(t, got, rdma.WCSuccess)
			if got[0].ImmOrRKey != uint32(win.Key) || got[0].WCFlags != uint32(rdma.WCWithInv) ||
				win.IsBound() {
				t.Fatalf("completion %+v, bound %v", got[0], win.IsBound())
			}
			w.writeTo(2, win.Key, testBase, 8)
			w.settle()
			wantStatus(t, w.a.sends.take(), rdma.WCRemAccessErr)
		})
	}
}

// TestWindow_RemoteInvalidateRefused: the receive fails as well, and the requester learns.
func TestWindow_RemoteInvalidateRefused(t *testing.T) {
	for name, key := range map[string]func(*node) rdma.Key{
		"region":   func(n *node) rdma.Key { return n.region.Key },
		"type 1":   func(n *node) rdma.Key { return n.window(rdma.MWType1).Key },
		"unbound":  func(n *node) rdma.Key { return n.window(rdma.MWType2).Key },
		"old key":  func(n *node) rdma.Key { return n.window(rdma.MWType2).Key - 1 },
		"anything": func(*node) rdma.Key { return 0xffffffff },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, worldConfig{})
			w.b.bindable(bindAccess)
			w.b.receive(7, w.b.at(8192, 4096))
			w.a.post(0, abi.SendWQE{
				WRID: 1, Opcode: uint8(rdma.WRSendWithInv), Flags: signaled,
				ImmOrRKey: uint32(key(w.b)),
			}, w.a.at(0, 8))
			w.settle()
			wantStatus(t, w.a.sends.take(), rdma.WCRemAccessErr)
			wantStatus(t, w.b.recvs.take(), rdma.WCRemAccessErr)
		})
	}
}

// TestWindow_LocalInvalidate_TakesEffectInOrder: what was asked for before is done before, and the
// completions keep the order of the requests, under loss too.
func TestWindow_LocalInvalidate_TakesEffectInOrder(t *testing.T) {
	w := newWorld(t, worldConfig{})
	w.b.bindable(bindAccess)
	win := w.b.window(rdma.MWType2)
	lost := 0
	w.judge = func(from *node, _ *Packet) fate {
		if from == w.b && lost < 3 {
			lost++
			return lose
		}
		return deliver
	}
	for i := range uint64(8) {
		w.a.receive(i, w.a.at(4096, 100))
	}
	send := func(id uint64) {
		w.b.post(w.now, abi.SendWQE{WRID: id, Opcode: uint8(rdma.WRSend), Flags: signaled},
			w.b.at(0, 100))
	}
	send(1)
	bind := w.b.bind(2, win, 0, 64, rdma.AccessRemoteWrite)
	w.b.post(w.now, bind)
	send(3)
	w.b.post(w.now, abi.SendWQE{
		WRID: 4, Opcode: uint8(rdma.WRLocalInvalidate), Flags: signaled, ImmOrRKey: bind.RKey,
	})
	again := bind
	again.WRID, again.RKey = 5, uint32(nextKey(rdma.Key(bind.RKey)))
	w.b.post(w.now, again)
	send(6)
	w.settle()
	got := w.b.sends.take()
	wantStatus(t, got, 0, 0, 0, 0, 0, 0)
	for i := range got {
		if got[i].WRID != uint64(i+1) {
			t.Fatalf("completion %d is of request %d", i, got[i].WRID)
		}
	}
	if lost != 3 || !win.IsBound() || win.Key != rdma.Key(again.RKey) {
		t.Errorf("%d lost, bound %v, key %v", lost, win.IsBound(), win.Key)
	}
	w.writeTo(1, rdma.Key(bind.RKey), testBase, 8)
	w.settle()
	wantStatus(t, w.a.sends.take(), rdma.WCRemAccessErr)
}

// TestWindow_Fence_WaitsForReads: an invalidate with a fence leaves READs before it their keys.
func TestWindow_Fence_WaitsForReads(t *testing.T) {
	w := newWorld(t, worldConfig{})
	w.b.bindable(bindAccess)
	win := w.b.window(rdma.MWType2)
	w.b.post(0, abi.SendWQE{
		WRID: 1, Opcode: uint8(rdma.WRRead), Flags: signaled, RKey: uint32(w.a.region.Key),
		RemoteAddr: testBase,
	}, w.b.at(0, 64))
	x := w.b.bind(2, win, 0, 64, rdma.AccessRemoteWrite)
	x.Flags |= uint8(rdma.SendFence)
	w.b.post(0, x)
	w.transmit(w.b)
	if win.IsBound() {
		t.Fatal("a bind with a fence overtook a READ")
	}
	w.settle()
	wantStatus(t, w.b.sends.take(), rdma.WCSuccess, rdma.WCSuccess)
	if !win.IsBound() {
		t.Error("not bound after all")
	}
}

// TestWindow_FailedBind_ComesInItsTurn: requests before it complete, those after are flushed.
func TestWindow_FailedBind_ComesInItsTurn(t *testing.T) {
	w := newWorld(t, worldConfig{})
	w.b.bindable(rdma.AccessLocalWrite)
	win := w.b.window(rdma.MWType2)
	w.a.receive(1, w.a.at(4096, 100))
	w.b.write(abi.SendWQE{WRID: 1, Opcode: uint8(rdma.WRSend), Flags: signaled}, nil,
		[]abi.SGE{w.b.at(0, 100)})
	w.b.write(w.b.bind(2, win, 0, 64, rdma.AccessRemoteWrite), nil, nil)
	w.b.write(abi.SendWQE{WRID: 3, Opcode: uint8(rdma.WRSend), Flags: signaled}, nil,
		[]abi.SGE{w.b.at(0, 100)})
	w.b.sq.Publish()
	w.b.q.HandleDoorbell(0)
	w.settle()
	wantStatus(t, w.b.sends.take(), rdma.WCSuccess, rdma.WCMWBindErr, rdma.WCWRFlushErr)
}

// TestWindow_ManyLocals_AreBoundedPerCall: a queue full of binds is done, in several calls.
func TestWindow_ManyLocals_AreBoundedPerCall(t *testing.T) {
	w := newWorld(t, worldConfig{entries: 1024})
	w.b.bindable(bindAccess)
	win := w.b.window(rdma.MWType1)
	key := win.Key
	for i := range 1000 {
		key = nextKey(key)
		x := w.b.bind(uint64(i), win, i, 64, rdma.AccessRemoteWrite)
		x.RKey = uint32(key)
		w.b.write(x, nil, nil)
	}
	w.b.sq.Publish()
	w.b.q.HandleDoorbell(0)
	var p Packet
	calls := 0
	for w.b.q.HasWork() {
		if w.b.q.PollTransmit(0, &p) {
			t.Fatal("a bind sent a packet")
		}
		calls++
	}
	if got := len(w.b.sends.take()); got != 1000 || calls < 3 {
		t.Errorf("%d completions in %d calls", got, calls)
	}
	if win.Key != key {
		t.Errorf("key %v, want %v", win.Key, key)
	}
}

// TestWindow_DuplicateInvalidate_IsNotExecutedTwice: the acknowledge of the first was lost, and
// the program has bound the window anew meanwhile.
func TestWindow_DuplicateInvalidate_IsNotExecutedTwice(t *testing.T) {
	w := newWorld(t, worldConfig{})
	w.b.bindable(bindAccess)
	win := w.b.window(rdma.MWType2)
	w.b.post(0, w.b.bind(9, win, 0, 64, rdma.AccessRemoteWrite))
	w.run(time.Millisecond)
	w.b.receive(7, w.b.at(8192, 64))
	p := w.request(ib.RCSendOnlyInv, 100, mtuBytes(8))
	p.Headers.Inv = ib.IETH(win.Key)
	wantAck(t, w.give(p), 100, ack)
	w.b.post(w.now, w.b.bind(9, win, 0, 64, rdma.AccessRemoteWrite))
	w.run(time.Millisecond)
	p = w.request(ib.RCSendOnlyInv, 100, mtuBytes(8))
	p.Headers.Inv = ib.IETH(win.Key)
	wantAck(t, w.give(p), 100, ack)
	if !win.IsBound() {
		t.Error("a repeated packet revoked the new binding")
	}
}

// TestWindow_LateCopyOfRead_AfterRevoke_IsDropped: a network that delivers a READ request twice
// must not end the connection because its key is gone meanwhile.
func TestWindow_LateCopyOfRead_AfterRevoke_IsDropped(t *testing.T) {
	w := newWorld(t, worldConfig{})
	w.b.bindable(bindAccess | rdma.AccessRemoteRead)
	win := w.b.window(rdma.MWType2)
	w.b.post(0, w.b.bind(1, win, 0, 4096, rdma.AccessRemoteRead))
	w.run(time.Millisecond)
	read := w.request(ib.RCReadRequest, 100, nil)
	read.Headers.RETH = ib.RETH{VA: testBase, RKey: win.Key, Length: 2000}
	if got := w.give(read); len(got) != 2 {
		t.Fatalf("%d packets of data", len(got))
	}
	w.b.post(w.now, abi.SendWQE{
		WRID: 2, Opcode: uint8(rdma.WRLocalInvalidate), Flags: signaled, ImmOrRKey: uint32(win.Key),
	})
	w.run(time.Millisecond)
	wantStatus(t, w.b.sends.take(), rdma.WCSuccess, rdma.WCSuccess)
	late := w.request(ib.RCReadRequest, 100, nil)
	late.Headers.RETH = ib.RETH{VA: testBase, RKey: win.Key, Length: 2000}
	if got := w.give(late); len(got) != 0 || w.b.q.State() != rdma.QPStateRTS {
		t.Errorf("%d replies to a late copy, state %v", len(got), w.b.q.State())
	}
	fresh := w.request(ib.RCReadRequest, 102, nil)
	fresh.Headers.RETH = ib.RETH{VA: testBase, RKey: win.Key, Length: 8}
	got := w.give(fresh)
	if len(got) != 1 || got[0].Headers.AETH.Syndrome != ib.NAK(ib.NAKRemoteAccess) {
		t.Errorf("replies to a new READ: %v", got)
	}
}

// TestWindow_Draining_BindWaits: a queue pair in SQD begins nothing, and binds neither.
func TestWindow_Draining_BindWaits(t *testing.T) {
	w := newWorld(t, worldConfig{})
	w.b.bindable(bindAccess)
	win := w.b.window(rdma.MWType1)
	a := *w.b.q.Attr()
	w.b.q.Modify(w.now, &a, rdma.QPAttrState, rdma.QPStateSQD)
	w.b.post(w.now, w.b.bind(1, win, 0, 64, rdma.AccessRemoteWrite))
	w.run(time.Millisecond)
	if win.IsBound() || w.b.q.IsDraining() || len(w.b.sends.take()) != 0 {
		t.Fatal("a draining queue pair binds")
	}
	w.b.q.Modify(w.now, &a, rdma.QPAttrState, rdma.QPStateRTS)
	w.run(time.Millisecond)
	wantStatus(t, w.b.sends.take(), rdma.WCSuccess)
	if !win.IsBound() {
		t.Error("not bound after the drain")
	}
}

// TestWindow_Error_BindIsFlushed: what is posted in error does nothing.
func TestWindow_Error_BindIsFlushed(t *testing.T) {
	w := newWorld(t, worldConfig{})
	w.b.bindable(bindAccess)
	win := w.b.window(rdma.MWType2)
	a := *w.b.q.Attr()
	w.b.q.Modify(w.now, &a, rdma.QPAttrState, rdma.QPStateError)
	w.b.post(w.now, w.b.bind(1, win, 0, 64, rdma.AccessRemoteWrite))
	w.run(time.Millisecond)
	got := w.b.sends.take()
	wantStatus(t, got, rdma.WCWRFlushErr)
	if rdma.WCOpcode(got[0].Opcode) != rdma.WCOpBindMW || win.IsBound() {
		t.Errorf("completion %+v, bound %v", got[0], win.IsBound())
	}
}
