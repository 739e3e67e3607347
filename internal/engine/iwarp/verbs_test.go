package iwarp

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

func getNative(b []byte) uint64    { return binary.NativeEndian.Uint64(b) }
func putNative(b []byte, v uint64) { binary.NativeEndian.PutUint64(b, v) }

// remote points a work request at the peer's memory.
func remote(x abi.SendWQE, peer *node, off int) abi.SendWQE {
	x.RKey, x.RemoteAddr = uint32(peer.region.Key), testBase+uint64(off)
	return x
}

func TestSend_Variants_CompleteTheReceiveAsTheySay(t *testing.T) {
	w := connected(t, worldConfig{})
	for id := range uint64(5) {
		w.b.receive(id, w.b.at(int(id)*100, 100))
	}
	window, _ := w.b.table.AllocWindow(testPD, rdma.MWType2)
	key := window.Key + 1
	bind := wqeOf(rdma.WRBindMW, 50)
	bind.RKey, bind.Extra, bind.RemoteAddr = uint32(key), uint32(w.b.region.Key), testBase
	bind.CompareAdd, bind.Swap = 100, uint64(rdma.AccessRemoteRead)
	w.b.post(w.now, bind)
	w.settle()
	wantStatus(t, w.b.sends.take(), rdma.WCSuccess)

	x := wqeOf(rdma.WRSend, 0)
	w.a.post(w.now, x, w.a.at(0, 10))
	x.Flags |= uint8(rdma.SendSolicited)
	w.a.post(w.now, x, w.a.at(0, 11))
	x.Opcode, x.ImmOrRKey = uint8(rdma.WRSendWithImm), 0x01020304
	w.a.post(w.now, x, w.a.at(0, 12))
	x.Opcode, x.ImmOrRKey, x.Flags = uint8(rdma.WRSendWithInv), uint32(key), signaled
	w.a.post(w.now, x, w.a.at(0, 13))
	x = remote(wqeOf(rdma.WRWriteWithImm, 0), w.b, 5000)
	x.ImmOrRKey = 0x0a0b0c0d
	w.a.post(w.now, x, w.a.at(0, 3000))
	w.settle()
	ok := rdma.WCSuccess
	wantStatus(t, w.a.sends.take(), ok, ok, ok, ok, ok)
	got := w.b.recvs.take()
	wantStatus(t, got, ok, ok, ok, ok, ok)
	want := []struct {
		op    rdma.WCOpcode
		bytes uint32
		flags rdma.WCFlags
		value uint32
	}{
		{rdma.WCOpRecv, 10, 0, 0},
		{rdma.WCOpRecv, 11, 0, 0},
		{rdma.WCOpRecv, 12, rdma.WCWithImm, 0x01020304},
		{rdma.WCOpRecv, 13, rdma.WCWithInv, uint32(key)},
		{rdma.WCOpRecvWriteImm, 3000, rdma.WCWithImm, 0x0a0b0c0d},
	}
	for i, x := range want {
		e := got[i]
		if rdma.WCOpcode(e.Opcode) != x.op || e.ByteLen != x.bytes ||
			rdma.WCFlags(e.WCFlags) != x.flags || e.ImmOrRKey != x.value || e.WRID != uint64(i) {
			t.Errorf("receive %d: %+v, want %+v", i, e, x)
		}
	}
	if w.b.recvs.solicited != 2 {
		t.Errorf("%d solicited events", w.b.recvs.solicited)
	}
	if window.IsBound() {
		t.Error("the window was not invalidated")
	}
}

func TestAtomics_ChangeMemoryAndReturnWhatWas(t *testing.T) {
	for _, s := range []*space{nil, {}} {
		w := connected(t, worldConfig{b: nodeConfig{space: s}})
		putNative(w.b.mem[800:], 40)
		add := remote(wqeOf(rdma.WRFetchAdd, 1), w.b, 800)
		add.CompareAdd = 2
		w.a.post(w.now, add, w.a.at(0, 8))
		swap := remote(wqeOf(rdma.WRCompareSwap, 2), w.b, 800)
		swap.CompareAdd, swap.Swap = 42, 7
		w.a.post(w.now, swap, w.a.at(8, 8))
		w.a.post(w.now, swap, w.a.at(16, 4), w.a.at(20, 4)) // fails to match
		w.settle()
		wantStatus(t, w.a.sends.take(), rdma.WCSuccess, rdma.WCSuccess, rdma.WCSuccess)
		if a, b, c := getNative(w.a.mem), getNative(w.a.mem[8:]), getNative(w.a.mem[16:]); a != 40 ||
			b != 42 || c != 7 || getNative(w.b.mem[800:]) != 7 {
			t.Errorf("returned %d %d %d, left %d", a, b, c, getNative(w.b.mem[800:]))
		}
	}
}

func TestAtomicRequest_MasksMakeFields(t *testing.T) {
	const low = 0x00000000ffffffff
	for _, x := range []struct {
		r         iwarp.AtomicRequest
		old, want uint64
	}{
		{iwarp.AtomicRequest{Data: 1}, ^uint64(0), 0},
		{iwarp.AtomicRequest{Data: 1, DataMask: 1 << 31}, low, 0},
		{iwarp.AtomicRequest{Data: 1<<32 | 1, DataMask: 1<<31 | 1<<63}, low, 1 << 32},
		{iwarp.AtomicRequest{
			Op: 2, Data: 5, DataMask: low, Compare: 9 << 32, CompareMask: ^uint64(low),
		}, 9<<32 | 77, 9<<32 | 5},
		{iwarp.AtomicRequest{
			Op: 2, Data: 5, DataMask: low, Compare: 8 << 32, CompareMask: ^uint64(low),
		}, 9<<32 | 77, 9<<32 | 77},
	} {
		if got := x.r.Apply(x.old); got != x.want {
			t.Errorf("%v on %#x: %#x, want %#x", x.r, x.old, got, x.want)
		}
	}
}

// TestRead_ORD_IsQueuedAndIRDIsKept posts more READs than both ends agreed on.
func TestRead_ORD_IsQueuedAndIRDIsKept(t *testing.T) {
	w := connected(t, worldConfig{
		a: nodeConfig{params: Params{IRD: 4, ORD: 8, RTR: RTRAny}},
		b: nodeConfig{params: Params{IRD: 2, ORD: 1}},
	})
	pattern(w.b.mem[:64000], 5)
	for i := range 100 {
		w.a.post(w.now, remote(wqeOf(rdma.WRRead, uint64(i)), w.b, i*640), w.a.at(100_000+i*640, 640))
		if i%10 == 0 {
			add := remote(wqeOf(rdma.WRFetchAdd, uint64(i)), w.b, 200_000)
			add.CompareAdd = 1
			w.a.post(w.now, add, w.a.at(0, 8))
		}
	}
	w.run(0)
	most := 0
	for w.step() {
		most = max(most, w.a.q.Stats().ReadsPending)
	}
	w.settle()
	got := w.a.sends.take()
	if len(got) != 110 {
		t.Fatalf("%d completions", len(got))
	}
	last := uint64(0)
	for _, e := range got {
		if e.Status != 0 || e.WRID < last {
			t.Fatalf("%+v after %d", e, last)
		}
		last = e.WRID
	}
	if !bytes.Equal(w.b.mem[:64000], w.a.mem[100_000:164_000]) || getNative(w.b.mem[200_000:]) != 10 {
		t.Error("bytes differ")
	}
	if most > 2 {
		t.Errorf("%d READs under way, agreed on 2", most)
	}
}

func TestRead_WithoutORD_Fails(t *testing.T) {
	w := connected(t, worldConfig{
		a: nodeConfig{params: Params{IRD: 4, RTR: RTRAny}}, b: nodeConfig{params: Params{ORD: 4}},
	})
	w.a.post(w.now, remote(wqeOf(rdma.WRRead, 1), w.b, 0), w.a.at(0, 8))
	w.settle()
	got := w.a.sends.take()
	wantStatus(t, got, rdma.WCLocQPOpErr)
	if abi.Vendor(got[0].VendorErr) != abi.VendorRDAtomic {
		t.Errorf("%+v", got[0])
	}
	if e := w.b.end(); e.How != HowTerminateReceived || e.Code != iwarp.CodeRDMAPLocal {
		t.Errorf("the peer was told %+v", e)
	}
}

func TestFence_WaitsForReads(t *testing.T) {
	w := connected(t, worldConfig{})
	w.hold[1] = true // answers do not arrive
	w.b.receive(1, w.b.at(0, 10))
	w.a.post(w.now, remote(wqeOf(rdma.WRRead, 1), w.b, 0), w.a.at(0, 8))
	x := wqeOf(rdma.WRSend, 2)
	x.Flags |= uint8(rdma.SendFence)
	w.a.post(w.now, x, w.a.at(0, 10))
	w.settle()
	if len(w.b.recvs.entries) != 0 {
		t.Fatal("a fenced SEND has overtaken a READ")
	}
	w.hold[1] = false
	w.settle()
	wantStatus(t, w.b.recvs.take(), rdma.WCSuccess)
	wantStatus(t, w.a.sends.take(), rdma.WCSuccess, rdma.WCSuccess)
}

func TestBadWorkRequests_FailInTheirTurn(t *testing.T) {
	for _, x := range []struct {
		name   string
		wqe    abi.SendWQE
		list   func(n *node) []abi.SGE
		status rdma.WCStatus
		vendor abi.Vendor
	}{
		{"unknown opcode", wqeOf(100, 2), nil, rdma.WCLocQPOpErr, abi.VendorOpcode},
		{"FLUSH", wqeOf(rdma.WRFlush, 2), nil, rdma.WCLocQPOpErr, abi.VendorOpcode},
		{"ATOMIC WRITE", wqeOf(rdma.WRAtomicWrite, 2), nil, rdma.WCLocQPOpErr, abi.VendorOpcode},
		{
			"flags",
			abi.SendWQE{WRID: 2, Opcode: uint8(rdma.WRSend), Flags: 0x82},
			nil,
			rdma.WCLocQPOpErr, abi.VendorBadWQE,
		},
		{"too many entries", wqeOf(rdma.WRSend, 2), func(n *node) []abi.SGE {
			return slices.Repeat([]abi.SGE{n.at(0, 1)}, testSGEs+1)
		}, rdma.WCLocQPOpErr, abi.VendorBadWQE},
		{"wrong key", wqeOf(rdma.WRSend, 2), func(*node) []abi.SGE {
			return []abi.SGE{{Addr: testBase, Length: 8, LKey: 0x777}}
		}, rdma.WCLocProtErr, abi.VendorLocalKey},
		{"over the end", wqeOf(rdma.WRSend, 2), func(n *node) []abi.SGE {
			return []abi.SGE{n.at(0, 4), n.at(1<<20-4, 8)}
		}, rdma.WCLocProtErr, abi.VendorLocalBounds},
		{"atomic of 4 bytes", wqeOf(rdma.WRFetchAdd, 2), func(n *node) []abi.SGE {
			return []abi.SGE{n.at(0, 4)}
		}, rdma.WCLocLenErr, abi.VendorLength},
		{"READ inline", abi.SendWQE{
			WRID: 2, Opcode: uint8(rdma.WRRead), Flags: signaled | uint8(rdma.SendInline),
		}, nil, rdma.WCLocQPOpErr, abi.VendorInline},
		{"bind of nothing", wqeOf(rdma.WRBindMW, 2), nil, rdma.WCMWBindErr, abi.VendorWindow},
		{
			"invalidate of nothing", wqeOf(rdma.WRLocalInvalidate, 2), nil,
			rdma.WCMWBindErr, abi.VendorWindow,
		},
	} {
		w := connected(t, worldConfig{})
		w.b.receive(1, w.b.at(0, 100))
		w.a.receive(8, w.a.at(0, 100))
		w.a.post(w.now, remote(wqeOf(rdma.WRRead, 0), w.b, 0), w.a.at(500, 10))
		w.a.write(wqeOf(rdma.WRSend, 1), nil, []abi.SGE{w.a.at(0, 10)})
		var list []abi.SGE
		if x.list != nil {
			list = x.list(w.a)
		}
		w.a.write(x.wqe, nil, list)
		w.a.write(wqeOf(rdma.WRSend, 3), nil, []abi.SGE{w.a.at(0, 10)})
		w.a.ring(w.now)
		w.settle()
		got := w.a.sends.take()
		wantStatus(t, got, rdma.WCSuccess, rdma.WCSuccess, x.status, rdma.WCWRFlushErr)
		if abi.Vendor(got[2].VendorErr) != x.vendor || got[2].WRID != 2 {
			t.Errorf("%s: %+v", x.name, got[2])
		}
		wantStatus(t, w.a.recvs.take(), rdma.WCWRFlushErr)
		wantStatus(t, w.b.recvs.take(), rdma.WCSuccess)
		if e := w.b.end(); e.How != HowTerminateReceived || e.Code != iwarp.CodeRDMAPLocal {
			t.Errorf("%s: the peer was told %+v", x.name, e)
		}
		if len(w.a.causes) != 1 || w.a.causes[0].WRID != 2 || w.a.causes[0].Status != x.status {
			t.Errorf("%s: evidence %+v", x.name, w.a.causes)
		}
	}
}

func TestSlots_OfUnsignaledRequests_ComeBackWithTheNextCompletion(t *testing.T) {
	w := connected(t, worldConfig{a: nodeConfig{entries: 8}, b: nodeConfig{entries: 1024}})
	for i := range 1000 {
		w.b.receive(uint64(i), w.b.at(0, 10))
	}
	for round := range 100 {
		for i := range 8 {
			x := wqeOf(rdma.WRSend, uint64(i))
			if i < 7 {
				x.Flags = 0
			}
			w.a.post(w.now, x, w.a.at(0, 10))
		}
		w.settle()
		got := w.a.sends.take()
		wantStatus(t, got, rdma.WCSuccess)
		if got[0].WRID != 7 || got[0].SQIndex != uint32(round+1)*8 || w.a.sq.Free() != 8 {
			t.Fatalf("round %d: %+v, %d free", round, got[0], w.a.sq.Free())
		}
	}
}

func TestDoorbellBeforeTheConnection_IsServedWithIt(t *testing.T) {
	w := newWorld(t, worldConfig{a: nodeConfig{params: Params{IRD: 4, ORD: 4, RTR: RTRAny}}})
	w.a.post(0, wqeOf(rdma.WRSend, 1), w.a.at(0, 10))
	w.b.post(0, wqeOf(rdma.WRSend, 1), w.b.at(0, 10))
	w.a.receive(1, w.a.at(0, 10))
	w.b.receive(1, w.b.at(0, 10))
	w.dial()
	for _, n := range []*node{w.a, w.b} {
		wantStatus(t, n.sends.take(), rdma.WCSuccess)
		wantStatus(t, n.recvs.take(), rdma.WCSuccess)
	}
}

func TestSharedReceives_StayAndTheirUserIsTold(t *testing.T) {
	w := connected(t, worldConfig{b: nodeConfig{shared: true}})
	w.b.receive(1, w.b.at(0, 10))
	w.b.receive(2, w.b.at(0, 10))
	w.a.post(w.now, wqeOf(rdma.WRSend, 1), w.a.at(0, 10))
	w.settle()
	wantStatus(t, w.b.recvs.take(), rdma.WCSuccess)
	w.b.q.Modify(w.now, &Attr{}, 0, rdma.QPStateError)
	w.settle()
	want := []rdma.EventType{rdma.EventQPLastWQEReached}
	if len(w.b.recvs.take()) != 0 || !slices.Equal(w.b.raised, want) {
		t.Errorf("events %v", w.b.raised)
	}
}

func TestReceive_WhoseMemoryIsGone_FailsAndTheSenderIsTold(t *testing.T) {
	w := connected(t, worldConfig{})
	w.b.receive(5, w.b.at(0, 10))
	w.b.table.Deregister(w.b.region)
	w.a.post(w.now, wqeOf(rdma.WRSend, 1), w.a.at(0, 10))
	w.settle()
	wantStatus(t, w.b.recvs.take(), rdma.WCLocProtErr)
	if e := w.a.end(); e.Code != iwarp.CodeDDPLocal {
		t.Errorf("%+v", e)
	}
	c := w.b.causes
	if len(c) != 1 || c[0].Fault != mem.FaultKey || c[0].WRID != 5 || !c[0].TookReceive {
		t.Errorf("evidence %+v", c)
	}
}

// TestProcessThatHasEnded_TellsNobody: the memory of a dead process may go before the NIC notices.
// Its peer sees a stream that breaks, never a Terminate about memory.
func TestProcessThatHasEnded_TellsNobody(t *testing.T) {
	for _, op := range []rdma.WROpcode{rdma.WRSend, rdma.WRWrite, rdma.WRRead, rdma.WRFetchAdd} {
		s := &space{}
		w := connected(t, worldConfig{b: nodeConfig{space: s}})
		w.b.receive(5, w.b.at(0, 10))
		s.ended = true
		w.a.post(w.now, remote(wqeOf(op, 1), w.b, 0), w.a.at(0, 8))
		w.settle()
		if e := w.b.end(); e.How != HowError || w.b.c.Closing() != CloseAbort {
			t.Errorf("%v: %+v", op, e)
		}
		if len(w.a.causes) != 0 {
			t.Errorf("%v: the peer was told %+v", op, w.a.causes)
		}
	}
}

func TestInline_BytesAreThoseOfThePost(t *testing.T) {
	for _, n := range []int{0, 1, 64, inlineMx} {
		w := connected(t, worldConfig{})
		w.b.receive(1, w.b.at(0, inlineMx))
		b := make([]byte, n)
		pattern(b, 4)
		w.a.c.isHeld = true // until the program has used its memory for something else
		w.a.postInline(w.now, wqeOf(rdma.WRSend, 1), b)
		w.a.postInline(w.now, remote(wqeOf(rdma.WRWrite, 2), w.b, 5000), b)
		want := bytes.Clone(b)
		clear(b)
		w.a.c.isHeld = false
		w.settle()
		wantStatus(t, w.a.sends.take(), rdma.WCSuccess, rdma.WCSuccess)
		got := w.b.recvs.take()
		wantStatus(t, got, rdma.WCSuccess)
		if got[0].ByteLen != uint32(n) || !bytes.Equal(w.b.mem[:n], want) ||
			!bytes.Equal(w.b.mem[5000:5000+n], want) {
			t.Errorf("%d bytes inline differ", n)
		}
	}
}

// TestSend_ToNullAndBeyond sends from and receives into memory that is none, and lists with
// entries of no bytes and no key.
func TestSend_ToNullAndBeyond(t *testing.T) {
	w := connected(t, worldConfig{a: nodeConfig{conn: ConnConfig{FPDU: FPDULarge}}})
	null := func(n *node) uint32 {
		r, refusal := n.table.Register(mem.Config{
			Kind: mem.KindNull, PD: testPD, Length: 1 << 47, Access: rdma.AccessLocalWrite,
		})
		if refusal != nil {
			t.Fatal(refusal)
		}
		return uint32(r.Key)
	}
	pattern(w.b.mem[:9000], 1)
	w.b.receive(1, w.b.at(0, 3000), abi.SGE{Length: 3000, LKey: null(w.b)}, abi.SGE{LKey: 77},
		w.b.at(3000, 3000))
	pattern(w.a.mem[:9000], 2)
	w.a.post(w.now, wqeOf(rdma.WRSend, 1), w.a.at(0, 4000), abi.SGE{LKey: 99},
		abi.SGE{Length: 5000, LKey: null(w.a)})
	w.settle()
	wantStatus(t, w.a.sends.take(), rdma.WCSuccess)
	wantStatus(t, w.b.recvs.take(), rdma.WCSuccess)
	if !bytes.Equal(w.b.mem[:3000], w.a.mem[:3000]) ||
		!bytes.Equal(w.b.mem[3000:6000], make([]byte, 3000)) {
		t.Error("bytes differ")
	}
}
