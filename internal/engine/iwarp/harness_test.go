package iwarp

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
)

const (
	testPD   mem.PD = 7
	testBase        = uint64(0x10_0000)
	testSGEs        = 4
	inlineMx        = 256
	signaled        = uint8(rdma.SendSignaled)
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
}

func (s *space) IsGone() bool { return s.ended }

func (s *space) Read(addr uint64, dst []byte) bool {
	if s.gone || s.ended {
		return false
	}
	copy(dst, s.bytes[addr-s.base:])
	return true
}

func (s *space) Write(addr uint64, src []byte) bool {
	if s.gone || s.ended {
		return false
	}
	copy(s.bytes[addr-s.base:], src)
	return true
}

// node is one NIC with one QP and its connection.
type node struct {
	t        testing.TB
	name     string
	table    *mem.Table
	region   *mem.Region
	mem      []byte
	q        *QP
	c        *Conn
	sq, rq   *ring.Producer
	sends    queue
	recvs    queue
	counters [work.CounterCount]uint64
	raised   []rdma.EventType
	causes   []work.Cause
	events   []Event
	private  [][]byte // of events
	params   Params
	refuses  bool // rejects requests, with params.PrivateData
	ended    bool // the peer's stream, as far as this node was told
}

func (n *node) Memory() *mem.Table             { return n.table }
func (n *node) Raise(_ *QP, e rdma.EventType)  { n.raised = append(n.raised, e) }
func (n *node) Note(_ *QP, c work.Cause)       { n.causes = append(n.causes, c) }
func (n *node) Count(c work.Counter, k uint64) { n.counters[c] += k }

func newRing(entries, stride uint32) (*ring.Producer, *ring.Consumer) {
	geo := ring.Geometry{Entries: entries, Stride: stride}
	m := make([]byte, 256+geo.Bytes())
	prod, cons := ring.Word(m, 0), ring.Word(m, 128)
	return ring.NewProducer(m[256:], geo, prod, cons), ring.NewConsumer(m[256:], geo, prod, cons)
}

// nodeConfig varies a node.
type nodeConfig struct {
	bytes   int
	entries uint32
	all     bool   // SignalAll
	shared  bool   // the receive queue is one that QPs share
	space   *space // memory is not mapped
	conn    ConnConfig
	params  Params
	access  rdma.Access // of the QP; 0 is any
	// receivePD is that of the receive queue, where it is another than the QP's.
	receivePD mem.PD
}

func newNode(t testing.TB, name string, c nodeConfig) *node {
	t.Helper()
	if c.bytes == 0 {
		c.bytes = 1 << 20
	}
	if c.entries == 0 {
		c.entries = 256
	}
	if c.access == 0 {
		c.access = rdma.AccessLocalWrite | rdma.AccessRemoteAny
	}
	n := &node{t: t, name: name, table: mem.NewTable(uint64(name[0])), mem: make([]byte, c.bytes)}
	const all = rdma.AccessLocalWrite | rdma.AccessRemoteAny | rdma.AccessMWBind
	n.region = n.register(testPD, all, c.space)
	var sq, rq *ring.Consumer
	n.sq, sq = newRing(c.entries, abi.SQStride(testSGEs, inlineMx))
	n.rq, rq = newRing(c.entries, abi.RQStride(testSGEs))
	n.q = New(Config{
		Host: n, QPN: rdma.QPN(name[0]), PD: testPD, SQ: sq,
		RQ: work.NewReceiveQueue(rq, testSGEs, c.shared), SendCQ: &n.sends, RecvCQ: &n.recvs,
		MaxSGE: testSGEs, MaxInline: inlineMx, SignalAll: c.all,
		ReceivePD: c.receivePD,
	})
	n.q.Modify(0, &Attr{Access: c.access}, rdma.QPAttrAccessFlags, rdma.QPStateInit)
	n.params = c.params
	n.c = NewConn(c.conn)
	return n
}

// register makes a region over all of the node's memory.
func (n *node) register(pd mem.PD, access rdma.Access, s *space) *mem.Region {
	n.t.Helper()
	cfg := mem.Config{
		PD: pd, Addr: testBase, IOVA: testBase, Length: uint64(len(n.mem)), Access: access,
		Segments: []mem.Segment{{Addr: testBase, Length: uint64(len(n.mem)), Mapped: n.mem}},
	}
	if s != nil {
		s.base, s.bytes = testBase, n.mem
		cfg.Space, cfg.Segments[0].Mapped = s, nil
	}
	r, refusal := n.table.Register(cfg)
	if refusal != nil {
		n.t.Fatal(refusal)
	}
	return r
}

// at returns a scatter/gather entry of the node's memory.
func (n *node) at(off, length int) abi.SGE {
	return abi.SGE{Addr: testBase + uint64(off), Length: uint32(length), LKey: uint32(n.region.Key)}
}

// post writes a send work request and rings.
func (n *node) post(now clock.Time, w abi.SendWQE, list ...abi.SGE) {
	n.write(w, nil, list)
	n.ring(now)
}

func (n *node) ring(now clock.Time) {
	n.sq.Publish()
	n.q.HandleDoorbell(now)
}

func (n *node) postInline(now clock.Time, w abi.SendWQE, b []byte) {
	n.t.Helper()
	w.Flags |= uint8(rdma.SendInline)
	w.InlineLen = uint32(len(b))
	n.write(w, b, nil)
	n.ring(now)
}

func (n *node) write(w abi.SendWQE, inline []byte, list []abi.SGE) {
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

// poll takes the events of a node's connection, and decides on requests.
func (n *node) poll(now clock.Time) {
	var e Event
	for n.c.PollEvent(&e) {
		n.private = append(n.private, slices.Clone(e.PrivateData))
		n.events = append(n.events, e)
		if e.Kind != EventRequest {
			continue
		}
		if n.refuses {
			n.c.Reject(now, n.params.PrivateData)
		} else {
			n.c.Accept(now, n.q, &n.params)
		}
	}
}

// kinds lists the events of a node.
func (n *node) kinds() []EventKind {
	var out []EventKind
	for i := range n.events {
		out = append(out, n.events[i].Kind)
	}
	return out
}

// end returns how the node's connection ended.
func (n *node) end() End {
	n.t.Helper()
	if len(n.events) == 0 || n.events[len(n.events)-1].Kind != EventClosed {
		n.t.Fatalf("%s: not closed: %v", n.name, n.kinds())
	}
	return n.events[len(n.events)-1].End
}

// world is two nodes, and the TCP between them in virtual time.
type world struct {
	t    testing.TB
	a, b *node
	now  clock.Time
	// split says how many of n bytes the socket takes, and how many of n arrive at once; nil: all.
	split func(n int) int
	air   [2][]byte // on the way from a, from b
	fin   [2]bool
	// hold keeps what a node sends from arriving.
	hold [2]bool
	// trace sees what each sends.
	trace func(n *node, b []byte)
	v     work.Vector
}

// worldConfig varies both ends.
type worldConfig struct {
	a, b  nodeConfig
	split func(n int) int
	local bool // both are of one NIC
}

func newWorld(t testing.TB, c worldConfig) *world {
	t.Helper()
	w := &world{t: t, split: c.split}
	for _, p := range []*Params{&c.a.params, &c.b.params} {
		if p.IRD == 0 && p.ORD == 0 {
			p.IRD, p.ORD = 4, 4
		}
	}
	c.a.conn.Initiator = true
	w.a, w.b = newNode(t, "a", c.a), newNode(t, "b", c.b)
	if c.local {
		w.a.c.KeepLocal()
		w.b.c.KeepLocal()
	}
	return w
}

// connected is a world whose MPA is through.
func connected(t testing.TB, c worldConfig) *world {
	t.Helper()
	if c.a.params.RTR == 0 {
		c.a.params.RTR = RTRAny
	}
	w := newWorld(t, c)
	w.dial()
	if w.a.q.State() != rdma.QPStateRTS || w.b.q.State() != rdma.QPStateRTS {
		t.Fatalf("not connected: a %v %v, b %v %v",
			w.a.q.State(), w.a.events, w.b.q.State(), w.b.events)
	}
	w.a.events, w.b.events = nil, nil
	return w
}

func (w *world) dial() {
	w.t.Helper()
	w.a.c.Request(w.now, w.a.q, &w.a.params)
	w.run(time.Second)
}

func (w *world) part(n int) int {
	if w.split == nil || n == 0 {
		return n
	}
	return min(n, w.split(n))
}

// transmit lets a node's socket take what there is, once.
func (w *world) transmit(i int, n *node) bool {
	n.poll(w.now)
	if n.q.HasWork() {
		n.q.Work(w.now)
	}
	worked := false
	if n.c.HasWork() && n.c.Fill(w.now, &w.v) {
		var b []byte
		for _, p := range w.v.Pieces {
			b = append(b, p...)
		}
		if len(b) != w.v.Bytes || len(w.v.Pieces) > work.VectorPieces {
			w.t.Fatalf("vector of %d bytes says %d, %d pieces", len(b), w.v.Bytes, len(w.v.Pieces))
		}
		k := w.part(len(b))
		w.air[i] = append(w.air[i], b[:k]...)
		if w.trace != nil {
			w.trace(n, b[:k])
		}
		n.c.HandleSent(w.now, k)
		worked = true
	}
	n.poll(w.now)
	if n.c.IsClosed() && !w.fin[i] && n.c.Closing() == CloseFIN {
		w.fin[i] = true
		worked = true
	}
	return worked
}

// land delivers what is on its way to a node.
func (w *world) land(i int, to *node) bool {
	if w.hold[i] {
		return false
	}
	if len(w.air[i]) > 0 {
		k := w.part(len(w.air[i]))
		b := slices.Clone(w.air[i][:k])
		w.air[i] = w.air[i][k:]
		to.c.HandleStream(w.now, b)
		clear(b) // the engine may not keep it
		to.poll(w.now)
		return true
	}
	if w.fin[i] && !to.ended {
		to.ended = true
		to.c.HandleEnd(w.now, 0)
		to.poll(w.now)
		return true
	}
	return false
}

// step does what there is to do now.
func (w *world) step() bool {
	worked := w.transmit(0, w.a)
	worked = w.transmit(1, w.b) || worked
	worked = w.land(0, w.b) || worked
	return w.land(1, w.a) || worked
}

// run lets time pass until nothing is left to happen, at most for limit.
func (w *world) run(limit time.Duration) {
	w.t.Helper()
	end := w.now.Add(limit)
	for steps := 0; ; steps++ {
		if steps > 5_000_000 {
			w.t.Fatal("no end of work at one instant")
		}
		if w.step() || w.a.q.HasWork() || w.b.q.HasWork() {
			continue
		}
		next := min(w.a.c.PollTimeout(), w.b.c.PollTimeout())
		if next > end {
			w.now = end
			return
		}
		w.now = max(w.now, next)
		for _, n := range []*node{w.a, w.b} {
			if n.c.PollTimeout() <= w.now {
				n.c.HandleTimeout(w.now)
			}
		}
	}
}

// settle runs for long enough that everything ends that ends by itself.
func (w *world) settle() { w.t.Helper(); w.run(30 * time.Second) }

func pattern(b []byte, seed byte) {
	for i := range b {
		b[i] = byte(i)*7 + byte(i>>8)*13 + byte(i>>16)*31 + seed
	}
}

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

func wantKinds(t testing.TB, n *node, want ...EventKind) {
	t.Helper()
	if !slices.Equal(n.kinds(), want) {
		t.Fatalf("%s: events %v, want %v", n.name, fmt.Sprint(n.events), want)
	}
}

// wqeOf is a signaled work request.
func wqeOf(op rdma.WROpcode, id uint64) abi.SendWQE {
	return abi.SendWQE{WRID: id, Opcode: uint8(op), Flags: signaled}
}
