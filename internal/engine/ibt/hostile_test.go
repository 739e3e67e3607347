package ibt

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

// script turns bytes into decisions; when they are used up every answer is 0.
type script struct{ b []byte }

func (s *script) byte() byte {
	if len(s.b) == 0 {
		return 0
	}
	x := s.b[0]
	s.b = s.b[1:]
	return x
}

// n returns a number below n.
func (s *script) n(n int) int {
	return int(binary.LittleEndian.Uint16([]byte{s.byte(), s.byte()})) % n
}

// near returns a PSN close to one that matters.
func (s *script) near(p rdma.PSN) rdma.PSN {
	if s.n(8) == 0 {
		return rdma.PSN(s.n(1<<16) << 8)
	}
	return p.Add(uint32(s.n(7)) + rdma.PSNMask - 2)
}

var hostileTypes = []rdma.QPType{rdma.QPTypeRC, rdma.QPTypeUC, rdma.QPTypeUD}

// FuzzHostile_E02 drives a QP with packets of any content, work requests of any bytes, indices of
// any value, and verbs in any order. Nothing may panic or leave the states; no byte that no key
// opens may change; work ends.
func FuzzHostile_E02(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 5))
	for range 40 {
		b := make([]byte, 400)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) { hostile(t, b) })
}

// TestHostile_E02_StateIsAlwaysLegal runs the fuzz target over many random scripts.
func TestHostile_E02_StateIsAlwaysLegal(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 3))
		b := make([]byte, 3000)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		hostile(t, b)
	})
}

func hostile(t *testing.T, b []byte) {
	s := &script{b}
	c := worldConfig{qpType: hostileTypes[s.n(3)], bytes: 16 << 10, sharedB: s.n(4) == 0}
	if s.n(3) == 0 {
		c.spaceB = &space{}
	}
	w := newWorld(t, c)
	guard := w.b.fence(t)
	for len(s.b) > 0 {
		w.now = w.now.Add(time.Duration(s.n(1<<14)) * time.Microsecond)
		hostileStep(w, s)
		w.drain(s)
		if !w.b.q.State().IsValid() {
			t.Fatalf("state %d", w.b.q.State())
		}
	}
	w.drain(s)
	guard()
}

// fence returns a check that the outer quarter of the node's memory, which a key of a foreign
// domain covers, is untouched: the QP's own key is cut to the middle.
func (n *node) fence(t *testing.T) func() {
	quarter := uint64(len(n.mem) / 4)
	old := n.region.Segments()[0]
	c := mem.Config{
		PD: testPD, Addr: testBase + quarter, IOVA: testBase + quarter, Length: 2 * quarter,
		Access:   n.region.Access,
		Segments: []mem.Segment{{Addr: testBase + quarter, Length: 2 * quarter}},
	}
	if old.Mapped != nil {
		c.Segments[0].Mapped = n.mem[quarter : 3*quarter]
	} else {
		c.Space = &space{base: testBase, bytes: n.mem}
	}
	n.table.Deregister(n.region)
	var r *rdma.Refusal
	if n.region, r = n.table.Register(c); r != nil {
		t.Fatal(r)
	}
	return func() {
		t.Helper()
		for i, x := range n.mem {
			if x != 0 && (uint64(i) < quarter || uint64(i) >= 3*quarter) {
				t.Fatalf("byte %d outside the region has changed", i)
			}
		}
	}
}

func hostileStep(w *world, s *script) {
	switch s.n(10) {
	case 0, 1, 2, 3, 4:
		w.b.q.HandlePacket(w.now, hostilePacket(w, s))
	case 5, 6:
		hostilePost(w.b, s)
		w.b.q.HandleDoorbell(w.now)
	case 7:
		hostileReceive(w.b, s)
	case 8:
		if w.b.q.PollTimeout() <= w.now {
			w.b.q.HandleTimeout(w.now)
		}
	case 9:
		hostileVerb(w, s)
	}
}

func hostilePacket(w *world, s *script) *Packet {
	op := ib.Opcode(s.byte())
	if s.n(3) > 0 {
		op = serviceBase(w.b.q.Type()) | op&0x1f
	}
	info := op.Info()
	psn := s.near(w.b.q.recv.expected)
	if info.Role != ib.RoleRequest {
		psn = s.near(w.b.q.send.una)
	}
	sizes := []int{0, 1, 8, 1023, 1024, 1025, 4096}
	p := w.request(op, psn, mtuBytes(sizes[s.n(len(sizes))]))
	p.TrafficClass = s.byte()
	lengths := []uint32{0, 1, 8, 1024, 2048, 8192, 1 << 31, 0xffffffff}
	p.Headers.RETH = ib.RETH{
		VA: testBase + uint64(s.n(20<<10)) - 2048, RKey: w.b.region.Key,
		Length: lengths[s.n(len(lengths))],
	}
	if s.n(8) == 0 {
		p.Headers.RETH.RKey = rdma.Key(s.n(1 << 16))
	}
	p.Headers.Atomic = ib.AtomicETH{VA: p.Headers.RETH.VA &^ 7, RKey: p.Headers.RETH.RKey, SwapAdd: 1}
	p.Headers.AETH = ib.AETH{Syndrome: ib.Syndrome(s.byte()), MSN: rdma.MSN(s.n(100))}
	p.Headers.DETH = ib.DETH{QKey: 0x1234, SrcQPN: 5}
	return p
}

func hostilePost(n *node, s *script) {
	if n.sq.Free() == 0 {
		return
	}
	ops := []uint8{0, 1, 2, 3, 4, 5, 6, 9, s.byte()}
	x := abi.SendWQE{
		WRID: uint64(s.n(100)), Opcode: ops[s.n(len(ops))], Flags: s.byte() & 0xf, RemoteAddr: testBase,
		RKey: uint32(n.region.Key), AH: uint32(s.n(3)), RemoteQPN: uint32(s.n(64)),
		InlineLen: uint32(s.n(600)),
	}
	if s.n(3) > 0 {
		x.Flags &^= uint8(rdma.SendInline)
	}
	x.NumSGE = uint16(s.n(testSGEs + 2))
	slot := n.sq.Slot()
	abi.EncodeSendWQE(slot, &x)
	for i := range testSGEs {
		e := n.at(len(n.mem)/4+s.n(8000), s.n(3000))
		if s.n(9) == 0 {
			e.LKey++
		}
		abi.EncodeSGE(slot[abi.SendWQEBytes:], i, &e)
	}
	n.sq.Push()
	n.sq.Publish()
	if s.n(40) == 0 {
		binary.NativeEndian.PutUint32(n.sqMem, uint32(s.n(1<<16))<<s.n(16))
	}
}

func hostileReceive(n *node, s *script) {
	if n.rq.Free() == 0 {
		return
	}
	slot := n.rq.Slot()
	abi.EncodeRecvWQE(slot, &abi.RecvWQE{WRID: 1, NumSGE: uint32(s.n(testSGEs + 2))})
	for i := range testSGEs {
		e := n.at(len(n.mem)/4+s.n(8000), s.n(3000))
		if s.n(12) == 0 {
			e.LKey++
		}
		abi.EncodeSGE(slot[abi.RecvWQEBytes:], i, &e)
	}
	n.rq.Push()
	n.rq.Publish()
}

func hostileVerb(w *world, s *script) {
	a := testAttr("b", "a", 0x11)
	a.MaxRdAtomic, a.MaxDestRdAtomic = uint8(s.n(3)), uint8(s.n(3))
	switch s.n(12) {
	case 0:
		w.b.q.Modify(w.now, &a, rdma.QPAttrState, rdma.QPStateReset)
	case 1:
		w.b.q.Modify(w.now, &a, rdma.QPAttrState, rdma.QPStateError)
	case 2:
		if w.b.q.State() == rdma.QPStateRTS {
			w.b.q.Modify(w.now, &a, rdma.QPAttrState, rdma.QPStateSQD)
		}
	case 3:
		w.b.q.HandleUnreachable(w.now)
	default:
		switch w.b.q.State() {
		case rdma.QPStateReset, rdma.QPStateError:
			w.b.q.Modify(w.now, &a, rdma.QPAttrState, rdma.QPStateReset)
			w.b.bring(a)
		case rdma.QPStateSQD, rdma.QPStateSQE:
			w.b.q.Modify(w.now, &a, rdma.QPAttrState, rdma.QPStateRTS)
		}
	}
}

// drain takes what b has to send, and demands that it has an end.
func (w *world) drain(*script) {
	w.t.Helper()
	var p Packet
	for i := 0; w.b.q.PollTransmit(w.now, &p) || w.b.q.HasWork(); i++ {
		if i > 1<<22 {
			w.t.Fatal("work has no end")
		}
		if len(p.Payload) > 4096 {
			w.t.Fatalf("payload of %d bytes", len(p.Payload))
		}
	}
	_ = w.b.q.Stats()
	_ = w.b.q.Attr()
}

// TestHostile_Loss_T03_ThroughputDegradesWorkStaysBounded: heavy loss makes transfers slower, and
// never costs more packets than a few per packet that arrives.
func TestHostile_Loss_T03_ThroughputDegradesWorkStaysBounded(t *testing.T) {
	var clean clock.Time
	for _, percent := range []int{0, 1, 5, 20} {
		r := rand.New(rand.NewPCG(uint64(percent), 9))
		w := newWorld(t, worldConfig{})
		w.judge = faults{lose: percent}.judge(r)
		const rounds, size = 40, 200 << 10
		for id := range uint64(rounds) {
			w.a.post(w.now, w.writeWR(id), w.a.at(0, size))
			w.run(10 * time.Second)
		}
		got := w.a.sends.take()
		if len(got) != rounds || got[rounds-1].Status != 0 {
			t.Fatalf("%d %%: %d completions, last %+v", percent, len(got), got[len(got)-1])
		}
		need := rounds * size / 1024
		t.Logf("loss %2d %%: %9v for %d MiB, %.2f packets each, window %d, %d timeouts", percent,
			time.Duration(w.now), rounds*size>>20, float64(w.sent)/float64(need), w.a.q.Stats().Window,
			w.a.q.Stats().Timeouts)
		if w.sent > 6*need {
			t.Fatalf("%d %%: %d packets for %d", percent, w.sent, need)
		}
		if percent == 0 {
			clean = w.now
		} else if w.now < clean {
			t.Fatalf("%d %% loss is faster than none", percent)
		}
	}
}
