package sim

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
	"github.com/softrnic/softrnic/internal/sim/check"
)

// endpoint is an application's end of a queue pair.
type endpoint struct {
	app  *app
	pair *pair // nil: UD
	peer *endpoint
	kind rdma.QPType
	name string

	handle, qpn, slot  uint32
	sq, rq             *ring.Producer
	state, rqBell      *atomic.Uint32
	maxSend, maxRecv   int
	maxSGE, maxRecvSGE int
	maxInline          int
	signalAll          bool
	sendCQ, recvCQ     *cq
	srq                *sharedQueue
	receiveBytes       int

	ledger   check.SendQueue
	received check.RecvQueue
	out, in  *check.Stream            // connected
	from     map[uint64]*check.Stream // UD, by the sender's place
	handles  map[*endpoint]uint32     // UD: address handles
	landed   int

	near, far *window // what the peer may write here; what this end may write there
	shares    []share // XRC: further handles of a target
	aimed     *target // XRC: where the request goes that is made now
	flushes   []flush // posted since the last reset
	door      *door   // over near; nil without

	// In a world of iWARP.
	dial   dial
	unseen []unseen
	parted parting

	isGone bool
	// mayOverrun: its send CQ is too small, and completions may get lost.
	mayOverrun bool
	isOpen     bool // posting is allowed
	isDrained  bool // the event has come
	drainTill  clock.Time
	errorAt    clock.Time // since when the state is ERR
	postedAt   clock.Time // the last time
	psn        rdma.PSN
	asked      abi.QPAttr // what was set since the last reset
}

// newEndpoint makes a queue pair with random properties.
func (a *app) newEndpoint(kind rdma.QPType, maxMessage int) *endpoint {
	w := a.world
	e := &endpoint{
		app: a, kind: kind, errorAt: clock.Never, drainTill: clock.Never,
		signalAll: w.chance(0.2), receiveBytes: max(maxMessage, 1),
		from: map[uint64]*check.Stream{}, handles: map[*endpoint]uint32{},
	}
	if e.isTarget() {
		if !e.create(&abi.CreateQPReq{Type: uint32(kind), XRCD: a.xrcd}) {
			return nil
		}
		a.endpoints = append(a.endpoints, e)
		return e
	}
	if kind == rdma.QPTypeUD {
		e.receiveBytes = w.plan.mtu.Bytes() + ibt.GRHBytes
	}
	depth := max(1, min(32, w.plan.receiveBudget/e.receiveBytes))
	req := abi.CreateQPReq{
		Type: uint32(kind), PD: a.pd, MaxSendWR: uint32(w.pick(1, 2, 8, 8, 32, 32, 200)),
		MaxRecvWR: uint32(depth), MaxSendSGE: uint32(w.pick(1, 2, 5, 32)),
		MaxRecvSGE: uint32(w.pick(1, 3)), MaxInline: uint32(w.pick(0, 16, 200)),
	}
	if e.signalAll {
		req.SignalAll = 1
	}
	if kind == rdma.QPTypeXRCSend {
		req.MaxRecvWR, req.MaxRecvSGE = 0, 0
	} else if a.srq != nil && w.chance(0.7) && kind != rdma.QPTypeUC {
		e.srq, req.SRQ = a.srq, a.srq.handle
	}
	if !e.create(&req) {
		return nil
	}
	a.endpoints = append(a.endpoints, e)
	return e
}

func (e *endpoint) create(req *abi.CreateQPReq) bool {
	a, w := e.app, e.app.world
	e.chooseCQs(req)
	rsp, shared, refusal := a.ctx.CreateQP(w.now, req)
	if refusal != nil {
		w.court.Failf("%s: create_qp: %v", a.name, refusal)
		return false
	}
	m := shared.Bytes()
	e.handle, e.qpn, e.slot = rsp.Handle, rsp.QPN, rsp.Doorbell
	e.maxSend, e.maxSGE = int(rsp.SQEntries), int(rsp.MaxSendSGE)
	e.maxRecv, e.maxRecvSGE = int(rsp.RQEntries), int(rsp.MaxRecvSGE)
	e.maxInline = int(rsp.MaxInline)
	if !e.isTarget() {
		e.sq = ring.NewProducer(m[rsp.SQOffset:],
			ring.Geometry{Entries: rsp.SQEntries, Stride: rsp.SQStride},
			ring.Word(m, abi.OffSQProducer), ring.Word(m, abi.OffSQConsumer))
		e.sendCQ.load += e.maxSend
	}
	if e.srq == nil && !e.isXRC() {
		e.rq = ring.NewProducer(m[rsp.RQOffset:],
			ring.Geometry{Entries: rsp.RQEntries, Stride: rsp.RQStride},
			ring.Word(m, abi.OffRQProducer), ring.Word(m, abi.OffRQConsumer))
	}
	if e.recvCQ != nil {
		e.recvCQ.load += e.maxRecv
	}
	e.state, e.rqBell = ring.Word(m, abi.OffQPState), ring.Word(m, abi.OffRQDoorbell)
	e.name = fmt.Sprintf("%s %v QP %#x", a.name, e.kind, e.qpn)
	e.newLedgers()
	return true
}

// chooseCQs finds queues for what the queue pair completes.
func (e *endpoint) chooseCQs(req *abi.CreateQPReq) {
	a, w := e.app, e.app.world
	if e.isTarget() {
		return
	}
	e.sendCQ = a.room(2 * int(req.MaxSendWR))
	if !e.isXRC() {
		e.recvCQ = a.room(2 * int(req.MaxRecvWR))
	}
	if w.plan.overruns && e.kind == rdma.QPTypeRC && w.chance(0.2) {
		// Too small for what is posted: it may overrun, and both connection ends with it.
		e.sendCQ = a.newCQ(1)
		e.mayOverrun = true
	}
	if e.srq != nil {
		// Any of them may take all receives of the shared queue, so that they share a CQ too.
		e.recvCQ = a.cqs[0]
	}
	req.SendCQ = e.sendCQ.handle
	if e.recvCQ != nil {
		req.RecvCQ = e.recvCQ.handle
	}
}

func (e *endpoint) newLedgers() {
	w := e.app.world
	e.ledger = check.SendQueue{Court: &w.court, Name: e.name, QPN: e.qpn}
	e.received = check.RecvQueue{Court: &w.court, Name: e.name}
	e.flushes, e.unseen, e.parted = nil, nil, parting{}
}

func (a *app) endpointOf(qpn uint32) *endpoint {
	for _, e := range a.endpoints {
		if e.qpn == qpn {
			return e
		}
	}
	return nil
}

// qpState reads the state that the NIC shows.
func (e *endpoint) qpState() rdma.QPState {
	s := rdma.QPState(e.state.Load())
	if !s.IsValid() {
		e.app.world.court.Failf("%s: state %d", e.name, s)
	}
	return s
}

// may tolerates errors from now on.
func (e *endpoint) may(list ...rdma.WCStatus) {
	if e != nil {
		e.ledger.May |= check.Statuses(list...)
	}
}

// modify changes the queue pair; a refusal is a failure, as the simulator asks for legal things.
func (e *endpoint) modify(a *abi.QPAttr, mask rdma.QPAttrMask) bool {
	w := e.app.world
	w.trace.note(w.now, "%s: modify to state %d, mask %d", e.name, int(a.State), int(mask))
	_, refusal := e.app.ctx.ModifyQP(w.now, &abi.ModifyQPReq{
		Handle: e.handle, Mask: uint32(mask), Attr: *a,
	})
	if refusal != nil {
		w.court.Failf("%s: modify_qp: %v", e.name, refusal)
		return false
	}
	e.remember(a, mask)
	return true
}

func (e *endpoint) setState(s rdma.QPState) bool {
	return e.modify(&abi.QPAttr{State: uint32(s)}, rdma.QPAttrState)
}

// fill posts receives. In the error state it rarely does: they come back flushed.
func (e *endpoint) fill() {
	w := e.app.world
	s := e.qpState()
	if e.srq != nil || e.isXRC() || e.isGone || s == rdma.QPStateReset {
		return
	}
	if s == rdma.QPStateError && (w.isCalm || !e.ledger.May.Has(rdma.WCWRFlushErr) ||
		!w.chance(0.01)) {
		return
	}
	for e.received.Open() < e.maxRecv {
		if e.rq.Free() == 0 {
			w.court.Failf("%s: %d receives are posted, yet the queue of %d is full",
				e.name, e.received.Open(), e.maxRecv)
			return
		}
		r := e.app.newReceive(e, e.receiveBytes, e.maxRecvSGE)
		if r == nil {
			return
		}
		r.isBad = e.blunders()
		r.enqueue(e.rq)
		e.received.Post(r.id)
		e.postedAt = w.now
		if e.rqBell.Load() != 0 {
			e.app.ringBell(e.slot)
		}
	}
}

// blunders decides whether the next receive is a bad one, and tolerates what that does.
func (e *endpoint) blunders() bool {
	w := e.app.world
	if e.pair == nil || !e.isOpen || e.pair.isSpoiled || e.peer.isGone || w.isCalm ||
		!w.chance(w.plan.bad/4) {
		return false
	}
	w.mark("bad.receive")
	e.pair.spoil()
	e.peer.may(rdma.WCRemOpErr)
	return true
}

// streamFrom returns the stream that a completed receive belongs to.
func (e *endpoint) streamFrom(r *receive, c *abi.CQE) *check.Stream {
	switch {
	case e.kind == rdma.QPTypeUD:
		return e.from[e.app.world.sender(e.app.gather(r.pieces, 0, ibt.GRHBytes), c.SrcQP)]
	case e.isTarget():
		return e.pair.streamTo(r.shared)
	}
	return e.in
}

// hasCause reports that something has happened that may put the queue pair into error.
func (e *endpoint) hasCause() bool {
	return e.ledger.May != 0 || e.ledger.HasFailed() || e.pair != nil && e.pair.isSpoiled
}

// judgeRefusal judges a receive that completed with an error.
func (e *endpoint) judgeRefusal(r *receive, status rdma.WCStatus) {
	if status == rdma.WCWRFlushErr {
		if !e.hasCause() {
			e.app.world.court.Failf("%s: a receive is flushed without a cause", e.name)
		}
		return
	}
	in := e.in
	if e.isTarget() {
		in = e.pair.streamTo(r.shared)
	}
	isTold := in != nil && in.Refuse(status) || e.pair != nil && e.pair.isSpoiled
	if !isTold && !e.app.process.isDead {
		e.app.world.court.Failf("%s: a receive fails with %v without a cause", e.name, status)
	}
}

// handleEvent takes an asynchronous event about this queue pair.
func (e *endpoint) handleEvent(t rdma.EventType) {
	w := e.app.world
	switch t {
	case rdma.EventSQDrained:
		if e.drainTill == clock.Never || e.isDrained {
			w.court.Failf("%s: an event SQ drained, which nobody asked for", e.name)
		}
		e.isDrained = true
	case rdma.EventQPFatal, rdma.EventQPReqErr, rdma.EventQPAccessErr:
		if !e.hasCause() {
			w.court.Failf("%s: %v without a cause", e.name, t)
		}
	default:
		// The others say nothing that could be held against anybody.
	}
}

// noteError remembers when the queue pair was first seen in error.
func (e *endpoint) noteError() {
	if e.errorAt == clock.Never && e.qpState() == rdma.QPStateError {
		e.errorAt = e.app.world.now
	}
}

// flushTime is how long a queue pair in error may take to flush everything; bellDelay comes on top
// for what was posted after.
const flushTime = 5 * time.Millisecond

// destroy ends the queue pair by the verb.
func (e *endpoint) destroy() {
	if e.isGone || e.app.isGone {
		return
	}
	w := e.app.world
	e.drainCQs()
	if e.isFlushed() {
		if n := e.ledger.Open(); n > 0 && !e.ledger.HasUnsignaledTail() {
			w.court.Failf("%s: %d send requests are not flushed in the error state", e.name, n)
		}
		if n := e.received.Open(); n > 0 {
			w.court.Failf("%s: %d receives are not flushed in the error state", e.name, n)
		}
	}
	w.trace.note(w.now, "%s: destroy", e.name)
	if w.streams != nil {
		e.pair.spoil()
	}
	isFirst := w.streams != nil && w.chance(0.5)
	if isFirst {
		e.hangUp()
		e.drainCQs()
	}
	e.dropShares()
	if refusal := e.app.ctx.DestroyQP(w.now, e.handle); refusal != nil {
		w.court.Failf("%s: destroy_qp: %v", e.name, refusal)
	}
	e.hangUp()
	e.vanish()
}

// isFlushed reports a queue pair that is in the error state for so long that nothing is open.
func (e *endpoint) isFlushed() bool {
	since := max(e.errorAt, e.postedAt.Add(bellDelay))
	return !e.mayOverrun && e.errorAt != clock.Never && e.app.world.now.Sub(since) > flushTime
}

// drainCQs takes all completions that are there, so that none of a queue pair that goes away is
// left.
func (e *endpoint) drainCQs() {
	if e.isTarget() {
		e.pair.drainTargets()
		return
	}
	e.sendCQ.pollAll()
	if e.recvCQ != nil {
		e.recvCQ.pollAll()
	}
}

// vanish forgets the queue pair, which is gone in one way or another.
func (e *endpoint) vanish() {
	if e.isGone {
		return
	}
	e.isGone = true
	e.abandon()
	e.forget()
	delete(e.app.dials, e.dial.id)
	e.app.world.observe.forget(e)
	if e.sendCQ != nil {
		e.sendCQ.load -= e.maxSend
	}
	if e.recvCQ != nil {
		e.recvCQ.load -= e.maxRecv
	}
	e.app.endpoints = slices.DeleteFunc(e.app.endpoints, func(x *endpoint) bool { return x == e })
	e.removeDoor()
	if e.near != nil {
		e.near.close()
	}
	if e.isTarget() {
		e.pair.closeTargets()
	}
	if e.mayOverrun && !e.app.isGone {
		e.sendCQ.destroy()
	}
	if e.pair != nil {
		e.pair.lost(e)
	}
}

// forget drops what is posted, as destroy and reset do.
func (e *endpoint) forget() {
	e.ledger.Close()
	e.received.Close()
	for _, id := range slices.Sorted(maps.Keys(e.app.receives)) {
		if r := e.app.receives[id]; r.owner == e {
			r.drop()
		}
	}
	for id, x := range e.app.sends {
		if x == e {
			delete(e.app.sends, id)
		}
	}
}
