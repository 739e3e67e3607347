package ibt

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

const (
	testPD   mem.PD = 7
	testBase        = uint64(0x10_0000)
	ringSize        = 256
	testSGEs        = 4
	inlineMx        = 256
)

// queue is a completion queue in memory.
type queue struct {
	entries   []abi.CQE
	solicited int
	discard   bool
	seen      int
}

func (c *queue) Push(e *abi.CQE, solicited bool) {
	c.seen++
	if solicited {
		c.solicited++
	}
	if !c.discard {
		c.entries = append(c.entries, *e)
	}
}

// take returns what came since the last take.
func (c *queue) take() []abi.CQE {
	out := c.entries
	c.entries = nil
	return out
}

// space is process memory that the NIC does not map.
type space struct {
	base  uint64
	bytes []byte
	gone  bool // unmapped
	ended bool // with the process
	calls int
}

func (s *space) IsGone() bool { return s.ended }

func (s *space) Read(addr uint64, dst []byte) bool {
	s.calls++
	if s.gone || s.ended {
		return false
	}
	copy(dst, s.bytes[addr-s.base:])
	return true
}

func (s *space) Write(addr uint64, src []byte) bool {
	s.calls++
	if s.gone || s.ended {
		return false
	}
	copy(s.bytes[addr-s.base:], src)
	return true
}

// node is one NIC with one QP.
type node struct {
	t        testing.TB
	name     string
	table    *mem.Table
	region   *mem.Region
	mem      []byte
	q        *QP
	sq, rq   *ring.Producer
	sends    queue
	recvs    queue
	counters [work.CounterCount]uint64
	events   []rdma.EventType
	causes   []work.Cause
	handles  map[uint32]*Address
	sqMem    []byte
}

func (n *node) Memory() *mem.Table                           { return n.table }
func (n *node) AddressHandle(h uint32, _ mem.PD) *Address    { return n.handles[h] }
func (n *node) NetworkHeader(p *Packet, dst *[GRHBytes]byte) { copy(dst[8:24], p.SGID[:]) }
func (n *node) Raise(_ *QP, e rdma.EventType)                { n.events = append(n.events, e) }
func (n *node) Note(_ *QP, c work.Cause)                     { n.causes = append(n.causes, c) }
func (n *node) Count(c work.Counter, k uint64)               { n.counters[c] += k }

// nodeConfig varies a node.
type nodeConfig struct {
	qpType  rdma.QPType
	name    string
	qpn     rdma.QPN
	bytes   int
	space   *space // memory is not mapped
	shared  bool
	entries uint32
	all     bool // SignalAll
}

func newRing(entries, stride uint32) (*ring.Producer, *ring.Consumer, []byte) {
	geo := ring.Geometry{Entries: entries, Stride: stride}
	m := make([]byte, 256+geo.Bytes())
	prod, cons := ring.Word(m, 0), ring.Word(m, 128)
	return ring.NewProducer(m[256:], geo, prod, cons), ring.NewConsumer(m[256:], geo, prod, cons), m
}

func newNode(t testing.TB, c nodeConfig) *node {
	t.Helper()
	if c.bytes == 0 {
		c.bytes = 1 << 20
	}
	if c.entries == 0 {
		c.entries = ringSize
	}
	n := &node{t: t, name: c.name, table: mem.NewTable(uint64(c.qpn)), mem: make([]byte, c.bytes)}
	n.handles = map[uint32]*Address{}
	cfg := mem.Config{
		PD: testPD, Addr: testBase, IOVA: testBase, Length: uint64(c.bytes),
		Access:   rdma.AccessLocalWrite | rdma.AccessRemoteAny,
		Segments: []mem.Segment{{Addr: testBase, Length: uint64(c.bytes), Mapped: n.mem}},
	}
	if c.space != nil {
		c.space.base, c.space.bytes = testBase, n.mem
		cfg.Space, cfg.Segments[0].Mapped = c.space, nil
	}
	var r *rdma.Refusal
	if n.region, r = n.table.Register(cfg); r != nil {
		t.Fatal(r)
	}
	var sq, rq *ring.Consumer
	n.sq, sq, n.sqMem = newRing(c.entries, abi.SQStride(testSGEs, inlineMx))
	n.rq, rq, _ = newRing(c.entries, abi.RQStride(testSGEs))
	own := Config{
		Host: n, Type: c.qpType, QPN: c.qpn, PD: testPD, SQ: sq,
		RQ: work.NewReceiveQueue(rq, testSGEs, c.shared), SendCQ: &n.sends, RecvCQ: &n.recvs,
		MaxSGE: testSGEs, MaxInline: inlineMx, SignalAll: c.all,
	}
	if c.qpType == rdma.QPTypeXRCRecv {
		own.Domain = &oneQueue{Target{
			PD: testPD, ReceivePD: testPD, RQ: work.NewReceiveQueue(rq, testSGEs, true), RecvCQ: &n.recvs,
		}}
		own.PD, own.SQ, own.RQ, own.SendCQ, own.RecvCQ = 0, nil, nil, nil, nil
	}
	n.q = New(own)
	return n
}

// oneQueue is an XRC domain with one shared receive queue.
type oneQueue struct{ target Target }

// xrcQueue is that queue's number.
const xrcQueue = 0x77

// Target implements Domain.
func (d *oneQueue) Target(srqn uint32) *Target {
	if srqn != xrcQueue {
		return nil
	}
	return &d.target
}

// at returns a scatter/gather entry of the node's memory.
func (n *node) at(off, length int) abi.SGE {
	return abi.SGE{Addr: testBase + uint64(off), Length: uint32(length), LKey: uint32(n.region.Key)}
}

// post writes a send work request and rings.
func (n *node) post(now clock.Time, w abi.SendWQE, list ...abi.SGE) {
	n.t.Helper()
	n.write(w, nil, list)
	n.sq.Publish()
	n.q.HandleDoorbell(now)
}

func (n *node) postInline(now clock.Time, w abi.SendWQE, b []byte) {
	n.t.Helper()
	w.Flags |= uint8(rdma.SendInline)
	w.InlineLen = uint32(len(b))
	n.write(w, b, nil)
	n.sq.Publish()
	n.q.HandleDoorbell(now)
}

func (n *node) write(w abi.SendWQE, inline []byte, list []abi.SGE) {
	n.t.Helper()
	if n.sq.Free() == 0 {
		n.t.Fatal("send queue full")
	}
	if inline == nil {
		w.NumSGE = uint16(len(list))
	}
	slot := n.sq.Slot()
	abi.EncodeSendWQE(slot, &w)
	copy(slot[abi.SendWQEBytes:], inline)
	for i := range list {
		abi.EncodeSGE(slot[abi.SendWQEBytes:], i, &list[i])
	}
	n.sq.Push()
}

// receive posts a receive.
func (n *node) receive(id uint64, list ...abi.SGE) {
	n.t.Helper()
	if n.rq.Free() == 0 {
		n.t.Fatal("receive queue full")
	}
	slot := n.rq.Slot()
	abi.EncodeRecvWQE(slot, &abi.RecvWQE{WRID: id, NumSGE: uint32(len(list))})
	for i := range list {
		abi.EncodeSGE(slot[abi.RecvWQEBytes:], i, &list[i])
	}
	n.rq.Push()
	n.rq.Publish()
}

// testAddr is the address of one of the two nodes.
func testAddr(name string) rdma.GID {
	if name == "b" {
		return rdma.GIDFromAddr(netip.MustParseAddr("10.0.0.2"))
	}
	return rdma.GIDFromAddr(netip.MustParseAddr("10.0.0.1"))
}

// testAttr is a pair of attributes that most tests agree with.
func testAttr(local, remote string, dest rdma.QPN) Attr {
	return Attr{
		AV:      Address{SGID: testAddr(local), DGID: testAddr(remote), HopLimit: 64, Port: 1, SL: 3},
		PathMTU: rdma.MTU1024, PKey: rdma.PKeyDefault, QKey: 0x1234, DestQPN: dest,
		Access: rdma.AccessLocalWrite | rdma.AccessRemoteAny, Timeout: 14, RetryCnt: 7, RNRRetry: 7,
		MinRNRTimer: 12, MaxRdAtomic: 4, MaxDestRdAtomic: 4, RQPSN: 100, SQPSN: 100,
	}
}

// bring takes a QP from RESET to RTS.
func (n *node) bring(a Attr) {
	all := rdma.QPAttrAll
	n.q.Modify(0, &a, all, rdma.QPStateInit)
	n.q.Modify(0, &a, all, rdma.QPStateRTR)
	n.q.Modify(0, &a, all, rdma.QPStateRTS)
}

// fate is what a link does to a packet.
type fate uint8

const (
	deliver fate = iota
	lose
	double
	delay // so that later packets overtake it
)

type flying struct {
	at   clock.Time
	to   *node
	seq  int
	p    Packet
	data []byte
}

// world is two nodes and the link between them, in virtual time.
type world struct {
	t     testing.TB
	a, b  *node
	now   clock.Time
	delay time.Duration
	// judge decides on a packet; nil delivers all.
	judge func(from *node, p *Packet) fate
	// handsOver lets messages go without packets where they can; handed counts those.
	handsOver bool
	handed    int
	// runMax is how many packets are polled as one.
	runMax uint32
	mark   func(p *Packet) // may change packets in flight
	air    []flying
	seq    int
	log    []string
	trace  bool
	sent   int
	steps  int
}

// worldConfig varies both ends alike.
type worldConfig struct {
	qpType       rdma.QPType
	bytes        int
	edit         func(name string, a *Attr)
	spaceA       *space
	spaceB       *space
	entries      uint32
	sharedB, all bool
}

func newWorld(t testing.TB, c worldConfig) *world {
	t.Helper()
	if c.qpType == 0 {
		c.qpType = rdma.QPTypeRC
	}
	w := &world{t: t, delay: 5 * time.Microsecond}
	w.a = newNode(t, nodeConfig{
		qpType: c.qpType, name: "a", qpn: 0x11, bytes: c.bytes, space: c.spaceA,
		entries: c.entries, all: c.all,
	})
	other := c.qpType
	if other == rdma.QPTypeXRCSend {
		other = rdma.QPTypeXRCRecv
	}
	w.b = newNode(t, nodeConfig{
		qpType: other, name: "b", qpn: 0x22, bytes: c.bytes, space: c.spaceB,
		entries: c.entries, all: c.all, shared: c.sharedB,
	})
	at, bt := testAttr("a", "b", 0x22), testAttr("b", "a", 0x11)
	if c.edit != nil {
		c.edit("a", &at)
		c.edit("b", &bt)
	}
	w.a.bring(at)
	w.b.bring(bt)
	w.a.handles[1] = &at.AV
	w.b.handles[1] = &bt.AV
	return w
}

// transmit takes all that n has to send.
func (w *world) transmit(n *node) bool {
	to := w.b
	if n == w.b {
		to = w.a
	}
	p := Packet{RunMax: w.runMax}
	worked := w.handsOver && w.handOver(n, to, &p)
	for range 64 {
		if !n.q.PollTransmit(w.now, &p) {
			break
		}
		worked = true
		for _, x := range apart(w.t, &p) {
			w.launch(n, to, &x)
		}
	}
	return worked
}

// apart returns the packets that one stands for.
func apart(t testing.TB, p *Packet) []Packet {
	t.Helper()
	n := int(p.More) + 1
	if p.More > 0 && p.More >= p.RunMax {
		t.Fatalf("%d packets as one, of %d", n, p.RunMax)
	}
	part := len(p.Payload) / n
	var out []Packet
	for i := range n {
		x := Packet{Address: p.Address, Headers: p.Headers}
		x.Headers.BTH.PSN = p.Headers.BTH.PSN.Add(uint32(i))
		x.Payload = p.Payload[i*part : (i+1)*part : (i+1)*part]
		out = append(out, x)
	}
	return out
}

func (w *world) launch(from, to *node, p *Packet) {
	w.sent++
	f := deliver
	if w.judge != nil {
		f = w.judge(from, p)
	}
	if w.trace {
		mark := [...]string{"", " LOST", " TWICE", " LATE"}[f]
		w.log = append(w.log, fmt.Sprintf("%8.3fms %s: %s len=%d%s",
			float64(w.now)/1e6, from.name, p.Headers.String(), len(p.Payload), mark))
	}
	copies, extra := 1, time.Duration(0)
	switch f {
	case lose:
		copies = 0
	case double:
		copies = 2
	case delay:
		extra = 3*w.delay + time.Duration(w.seq%7)*time.Microsecond
	case deliver:
	}
	for range copies {
		w.seq++
		x := flying{at: w.now.Add(w.delay + extra), to: to, seq: w.seq, p: *p}
		x.data = slices.Clone(p.Payload)
		x.p.Payload = x.data
		if w.mark != nil {
			w.mark(&x.p)
		}
		w.air = append(w.air, x)
	}
}

// land delivers what has arrived, in order of time.
func (w *world) land() bool {
	slices.SortStableFunc(w.air, func(x, y flying) int {
		if x.at != y.at {
			return int(x.at - y.at)
		}
		return x.seq - y.seq
	})
	n := 0
	for n < len(w.air) && w.air[n].at <= w.now {
		x := &w.air[n]
		x.to.q.HandlePacket(w.now, &x.p)
		n++
	}
	w.air = w.air[n:]
	return n > 0
}

// run lets time pass until nothing is left to happen, at most for limit.
func (w *world) run(limit time.Duration) {
	w.t.Helper()
	end := w.now.Add(limit)
	for w.steps = 0; ; w.steps++ {
		if w.steps > 5_000_000 {
			w.t.Fatal("no end of work at one instant")
		}
		worked := w.transmit(w.a)
		worked = w.transmit(w.b) || worked
		if worked || w.a.q.HasWork() || w.b.q.HasWork() {
			if !worked {
				continue
			}
		}
		next := min(w.a.q.PollTimeout(), w.b.q.PollTimeout())
		for i := range w.air {
			next = min(next, w.air[i].at)
		}
		if next == clock.Never || next > end {
			return
		}
		w.now = max(w.now, next)
		w.land()
		for _, n := range []*node{w.a, w.b} {
			if n.q.PollTimeout() <= w.now {
				n.q.HandleTimeout(w.now)
			}
		}
	}
}

// settle runs for long enough that every retry ends.
func (w *world) settle() { w.t.Helper(); w.run(30 * time.Second) }

// flush prints the trace of a failed test.
func (w *world) traceOnFailure() {
	w.trace = true
	w.t.Cleanup(func() {
		if w.t.Failed() {
			for _, l := range w.log {
				w.t.Log(l)
			}
		}
	})
}

func pattern(b []byte, seed byte) {
	for i := range b {
		b[i] = byte(i)*7 + byte(i>>8)*13 + byte(i>>16)*31 + seed
	}
}

const signaled = uint8(rdma.SendSignaled)

// wantStatus checks completions of a queue in order.
func wantStatus(t testing.TB, got []abi.CQE, want ...rdma.WCStatus) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d completions, want %d: %+v", len(got), len(want), got)
	}
	for i := range got {
		if rdma.WCStatus(got[i].Status) != want[i] {
			t.Fatalf("completion %d: %v (vendor %#x), want %v",
				i, rdma.WCStatus(got[i].Status), got[i].VendorErr, want[i])
		}
	}
}

func putNative(b []byte, v uint64) { binary.NativeEndian.PutUint64(b, v) }
func getNative(b []byte) uint64    { return binary.NativeEndian.Uint64(b) }

// request makes a request packet to b as if a had sent it.
func (w *world) request(op ib.Opcode, psn rdma.PSN, payload []byte) *Packet {
	p := &Packet{Address: w.a.q.attr.AV, Payload: payload}
	p.Headers.BTH = ib.BTH{
		Opcode: op, PSN: psn, DestQPN: w.b.q.QPN(), PKey: rdma.PKeyDefault, AckReq: true,
		PadCount: ib.PadCount(len(payload)),
	}
	return p
}

// replies drains what n has to say and returns it.
func (w *world) replies(n *node) []Packet {
	var out []Packet
	var p Packet
	for n.q.PollTransmit(w.now, &p) {
		c := p
		c.Payload = slices.Clone(p.Payload)
		out = append(out, c)
	}
	return out
}

// answer makes a packet of b's responder to a.
func (w *world) answer(op ib.Opcode, psn rdma.PSN, s ib.Syndrome) *Packet {
	p := &Packet{Address: w.b.q.attr.AV}
	p.Headers.BTH = ib.BTH{Opcode: op, PSN: psn, DestQPN: w.a.q.QPN(), PKey: rdma.PKeyDefault}
	p.Headers.AETH = ib.AETH{Syndrome: s}
	return p
}
