package sim

import (
	"encoding/binary"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/sim/check"
)

// vandal is a hostile application (DESIGN §3): it writes nonsense into the memory that it shares
// with the NIC. Nothing that happens to it is judged, but for two things: the NIC touches nothing
// outside its regions, and all other applications go on as if it were not there.
type vandal struct {
	world  *World
	host   *host
	name   string
	ctx    *nic.Context
	isGone bool
	bells  []byte
	mem    *check.Memory
	region span
	key    uint32
	pd, cq uint32
	cqRing []byte
	qps    []*vandalQP
	held   int // segments
	known  []uint32
	// isStormy: it calls verbs at random too, and has no idea what it still has.
	isStormy bool
	cm       *vandalCM // in a world of iWARP, else nil
}

// vandalQP is a queue pair of a vandal, connected to another one.
type vandalQP struct {
	v      *vandal
	peer   *vandalQP
	kind   rdma.QPType
	rsp    abi.CreateQPRsp
	shared []byte
	// Of an XRC target: its shared queue, and that queue's number, which the initiator has too.
	receives []byte
	srqn     uint32
}

const (
	vandalBase   = 0x7000_0000
	vandalBytes  = 64 << 10
	vandalQueue  = 16
	vandalQPs    = 3
	vandalPeriod = 200 * time.Microsecond
)

// Read, Write and IsGone implement mem.Space.
func (v *vandal) Read(addr uint64, dst []byte) bool {
	b := v.at(addr, len(dst))
	copy(dst, b)
	return b != nil
}

func (v *vandal) Write(addr uint64, src []byte) bool {
	b := v.at(addr, len(src))
	copy(b, src)
	return b != nil
}

func (v *vandal) IsGone() bool { return v.isGone }

func (v *vandal) at(addr uint64, n int) []byte {
	off := addr - vandalBase
	if off < uint64(v.region.off) || off+uint64(n) > uint64(v.region.end()) {
		v.world.court.Failf("%s: the NIC touches %d bytes at %#x, outside the region",
			v.name, n, addr)
		return nil
	}
	return v.mem.Bytes[off : off+uint64(n)]
}

// handleEvent ignores what the NIC says.
func (v *vandal) handleEvent(*nic.Event) {}

func (v *vandal) lose() {
	v.isGone = true
	v.mem.Freeze()
}

func (w *World) newVandal(h *host) *vandal {
	v := &vandal{
		world: w, host: h, name: h.name + ".vandal", bells: make([]byte, abi.DoorbellPageBytes),
		region: span{4096, vandalBytes},
	}
	w.random.Uint64() // as in newApp
	v.mem = check.NewMemory(&w.court, v.name, vandalBytes+2*4096)
	v.mem.Claim(v.region.off, v.region.n)
	ctx, refusal := h.nic.OpenContext(w.now, nic.ContextConfig{
		Name: "vandal", Space: v, Doorbells: v.bells, Owner: v,
		ReleaseSegments: func(s []mem.Segment) { v.held -= len(s) },
	})
	if refusal != nil {
		w.court.Failf("%s: open: %v", v.name, refusal)
		return nil
	}
	v.ctx = ctx
	if refusal = v.build(); refusal != nil {
		w.court.Failf("%s: %v", v.name, refusal)
	}
	w.vandals = append(w.vandals, v)
	v.pace()
	return v
}

func (v *vandal) build() *rdma.Refusal {
	var refusal *rdma.Refusal
	if v.pd, refusal = v.ctx.AllocPD(); refusal != nil {
		return refusal
	}
	seg := mem.Segment{Addr: vandalBase + uint64(v.region.off), Length: uint64(v.region.n)}
	if v.world.chance(0.5) {
		seg.Mapped = v.mem.Bytes[v.region.off:v.region.end()]
	}
	mr, refusal := v.ctx.RegMR(&abi.RegMRReq{
		PD: v.pd, Access: uint32(v.world.remoteRights()), Addr: seg.Addr,
		Length: seg.Length, IOVA: seg.Addr, NumSegments: 1,
	}, []mem.Segment{seg})
	if refusal != nil {
		return refusal
	}
	v.key = mr.RKey
	v.held++
	v.learn(mr.Handle, nil)
	v.learn(v.pd, nil)
	cq, shared, refusal := v.ctx.CreateCQ(&abi.CreateCQReq{Entries: vandalQueue})
	if refusal != nil {
		return refusal
	}
	v.learn(cq.Handle, nil)
	v.cq, v.cqRing = cq.Handle, shared.Bytes()
	kinds := [vandalQPs]rdma.QPType{rdma.QPTypeRC, rdma.QPTypeUC, rdma.QPTypeUD}
	if v.world.streams != nil {
		kinds = [vandalQPs]rdma.QPType{rdma.QPTypeRC, rdma.QPTypeRC, rdma.QPTypeRC}
	}
	for _, k := range kinds {
		rsp, shared, refusal := v.ctx.CreateQP(v.world.now, &abi.CreateQPReq{
			Type: uint32(k), PD: v.pd, SendCQ: v.cq, RecvCQ: v.cq, MaxSendWR: vandalQueue,
			MaxRecvWR: vandalQueue, MaxSendSGE: 3, MaxRecvSGE: 3, MaxInline: 64,
		})
		if refusal != nil {
			return refusal
		}
		v.learn(rsp.Handle, nil)
		v.qps = append(v.qps, &vandalQP{v: v, kind: k, rsp: rsp, shared: shared.Bytes()})
	}
	if v.world.streams != nil {
		return v.openStreams()
	}
	return v.buildXRC()
}

// pairVandals connects the queue pairs of two vandals, or of one with itself.
func pairVandals(a, b *vandal) {
	for i, p := range a.qps {
		for j, q := range b.qps {
			if q.kind == p.other() && (a.cm == nil || i == j) {
				p.peer, q.peer = q, p
			}
		}
	}
	for i := range a.qps {
		a.qps[i].connect()
		if b.cm == nil {
			b.qps[i].connect()
		}
	}
	a.isStormy, b.isStormy = a.world.chance(0.5), b.world.chance(0.5)
}

// connect takes a queue pair from any state to RTS.
func (q *vandalQP) connect() {
	w := q.v.world
	if q.v.cm != nil {
		q.dial()
		return
	}
	modify := func(s rdma.QPState, a abi.QPAttr, mask rdma.QPAttrMask) {
		a.State = uint32(s)
		_, refusal := q.v.ctx.ModifyQP(w.now, &abi.ModifyQPReq{
			Handle: q.rsp.Handle, Mask: uint32(mask | rdma.QPAttrState), Attr: a,
		})
		if refusal != nil && !q.v.isStormy {
			w.court.Failf("%s: modify_qp to %v: %v", q.v.name, s, refusal)
		}
	}
	a := abi.QPAttr{
		Port: 1, AccessFlags: uint32(remoteAny), QKey: qkey + 2, PathMTU: uint32(w.plan.mtu),
		AH: abi.AHAttr{DGID: q.peer.v.host.gids[0], IsGlobal: 1, Port: 1}, DestQPN: q.peer.rsp.QPN,
		MaxDestRdAtomic: 4, MaxRdAtomic: 4, MinRNRTimer: 1, Timeout: 10, RetryCnt: 3, RNRRetry: 3,
	}
	modify(rdma.QPStateReset, a, 0)
	if q.kind == rdma.QPTypeUD {
		modify(rdma.QPStateInit, a, rdma.QPAttrPort|rdma.QPAttrPKeyIndex|rdma.QPAttrQKey)
		modify(rdma.QPStateRTR, a, 0)
		modify(rdma.QPStateRTS, a, rdma.QPAttrSQPSN)
		return
	}
	modify(rdma.QPStateInit, a, rdma.QPAttrPort|rdma.QPAttrPKeyIndex|rdma.QPAttrAccessFlags)
	rtr := rdma.QPAttrAV | rdma.QPAttrPathMTU | rdma.QPAttrDestQPN | rdma.QPAttrRQPSN
	rts := rdma.QPAttrSQPSN
	if q.kind == rdma.QPTypeRC || q.kind == rdma.QPTypeXRCRecv {
		rtr |= rdma.QPAttrMaxDestRdAtomic | rdma.QPAttrMinRNRTimer
	}
	switch q.kind {
	case rdma.QPTypeXRCRecv:
		rts |= rdma.QPAttrTimeout
	case rdma.QPTypeRC, rdma.QPTypeXRCSend:
		rts |= rdma.QPAttrTimeout | rdma.QPAttrRetryCnt | rdma.QPAttrRNRRetry |
			rdma.QPAttrMaxQPRdAtomic
	case rdma.QPTypeUC, rdma.QPTypeUD: // these have no timers
	}
	modify(rdma.QPStateRTR, a, rtr)
	modify(rdma.QPStateRTS, a, rts)
}

func (v *vandal) pace() {
	w := v.world
	w.at(w.now.Add(w.delay(0, vandalPeriod)), func() {
		if v.isGone || w.isCalm {
			return
		}
		v.act()
		v.host.turn()
		v.pace()
	})
}

// act does one piece of mischief.
func (v *vandal) act() {
	w := v.world
	q := v.qps[w.between(0, len(v.qps)-1)]
	w.mark("vandal.act")
	if v.isStormy && w.chance(0.7) {
		v.storm()
		return
	}
	switch w.between(0, 9) {
	case 0:
		v.scribble(q.shared)
		if q.receives != nil {
			v.scribble(q.receives)
		}
	case 1:
		v.scribble(v.cqRing)
	case 2:
		v.scribble(v.bells)
	case 3:
		off := w.pick(abi.OffSQProducer, abi.OffSQConsumer, abi.OffRQProducer, abi.OffRQConsumer)
		binary.NativeEndian.PutUint32(q.shared[off:], w.random.Uint32())
	case 4, 5:
		// Everything that completed is polled.
		copy(v.cqRing[abi.OffCQConsumer:], v.cqRing[abi.OffCQProducer:abi.OffCQProducer+4])
	case 6:
		if !q.peer.v.isGone {
			q.connect()
		}
	default:
		q.postReceives()
		q.postNonsense()
	}
	v.ring(q.rsp.Doorbell)
	v.ring(uint32(w.between(0, abi.DoorbellSlots-1)))
}

// scribble writes a few random bytes, mostly where it hurts.
func (v *vandal) scribble(b []byte) {
	w := v.world
	limit := len(b)
	if w.chance(0.5) {
		limit = min(limit, 0x260) // the indices
	}
	at := w.between(0, limit-9)
	for i := range w.between(1, 8) {
		b[at+i] = byte(w.random.Uint32())
	}
}

func (v *vandal) ring(slot uint32) {
	(&app{world: v.world, host: v.host, bells: v.bells}).ringBell(slot)
}

// advance moves a producer index by n entries.
func advance(shared []byte, off int, n uint32) {
	at := shared[off:]
	binary.NativeEndian.PutUint32(at, binary.NativeEndian.Uint32(at)+n)
}

func (q *vandalQP) postReceives() {
	b := q.shared
	if q.receives != nil {
		b = q.receives
	}
	if q.rsp.RQEntries == 0 {
		return
	}
	entries := queueEntries{b, abi.OffRQProducer, q.rsp.RQOffset, q.rsp.RQStride}
	entries.fill(q.v.world, func(slot []byte) {
		abi.EncodeRecvWQE(slot, &abi.RecvWQE{NumSGE: uint32(q.v.world.pick(0, 1, 3, 4, 1<<31))})
		q.lists(slot[abi.RecvWQEBytes:])
	})
}

// postNonsense posts requests that are valid but for some of their fields.
func (q *vandalQP) postNonsense() {
	w := q.v.world
	if q.rsp.SQEntries == 0 {
		return
	}
	entries := queueEntries{q.shared, abi.OffSQProducer, q.rsp.SQOffset, q.rsp.SQStride}
	entries.fill(w, func(slot []byte) {
		x := abi.SendWQE{
			WRID: w.random.Uint64(), Opcode: uint8(w.between(0, 16)), Flags: uint8(w.between(0, 15)),
			NumSGE: uint16(w.pick(0, 1, 2, 3, 4, 0xffff)), RKey: q.peer.v.key,
			InlineLen:  uint32(w.pick(0, 8, 64, 65, 1<<31)),
			RemoteAddr: vandalBase + 4096 + uint64(w.between(0, vandalBytes)),
			AH:         w.random.Uint32(), RemoteQPN: q.peer.rsp.QPN, RemoteQKey: qkey + 2,
			Extra: q.peer.srqn, Swap: uint64(w.pick(0, 8, vandalBytes, 1<<31)),
			CompareAdd: uint64(w.pick(0, 1, 0x11, 0x21, 3)),
		}
		if w.chance(0.02) {
			x.Extra = w.random.Uint32()
		}
		if w.chance(0.1) {
			x.RKey = w.random.Uint32()
		}
		if w.chance(0.1) {
			x.RemoteAddr = w.random.Uint64()
		}
		abi.EncodeSendWQE(slot, &x)
		q.lists(slot[abi.SendWQEBytes:])
	})
}

// queueEntries are the slots of a queue.
type queueEntries struct {
	shared      []byte
	producer    int
	off, stride uint32
}

// fill fills a few slots behind the producer index and shows them.
func (e *queueEntries) fill(w *World, fill func(slot []byte)) {
	next := binary.NativeEndian.Uint32(e.shared[e.producer:])
	n := uint32(w.between(1, 4))
	for i := range n {
		at := e.off + (next+i)%vandalQueue*e.stride
		fill(e.shared[at : at+e.stride])
	}
	advance(e.shared, e.producer, n)
}

// lists fills the rest of a slot with entries, good ones and bad ones.
func (q *vandalQP) lists(b []byte) {
	w := q.v.world
	for i := range len(b) / abi.SGEBytes {
		s := abi.SGE{
			Addr:   vandalBase + 4096 + uint64(w.between(0, vandalBytes-1)),
			Length: uint32(w.pick(0, 1, 8, 1000, 20000, 1<<31, 1<<32-1)), LKey: q.v.key,
		}
		if w.chance(0.05) {
			s.Addr, s.LKey = w.random.Uint64(), w.random.Uint32()
		}
		abi.EncodeSGE(b, i, &s)
	}
}

// close ends a vandal as a process that dies.
func (v *vandal) close() {
	if v.isGone {
		return
	}
	if v.cm != nil {
		v.host.nic.CloseCM(v.world.now, v.cm.session)
	}
	v.host.nic.CloseContext(v.world.now, v.ctx)
	v.lose()
	if v.held != 0 {
		v.world.court.Failf("%s: %d segments were not given back", v.name, v.held)
	}
}
