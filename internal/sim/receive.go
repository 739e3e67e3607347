package sim

import (
	"sync/atomic"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
	"github.com/softrnic/softrnic/internal/sim/check"
)

// receive is a posted receive.
type receive struct {
	id     uint64
	app    *app
	owner  *endpoint    // nil: of a shared queue
	shared *sharedQueue // nil: of a queue pair
	pieces []piece
	claims []*check.Claim
	total  int
	isBad  bool // its buffers are named by keys that nobody has
}

// newReceive makes a receive of total bytes; nil where there is no memory for it now.
func (a *app) newReceive(owner *endpoint, total, most int) *receive {
	list := a.cut(total, most, forReceive)
	if list == nil {
		return nil
	}
	r := &receive{id: a.world.newID(), app: a, owner: owner, pieces: list, total: total}
	r.claims = make([]*check.Claim, 0, len(list))
	for _, p := range list {
		r.claims = append(r.claims, a.mem.Claim(p.off, p.n))
	}
	a.receives[r.id] = r
	return r
}

// enqueue writes the receive into a ring and shows it.
func (r *receive) enqueue(rq *ring.Producer) {
	slot := rq.Slot()
	list := r.app.sges(r.pieces)
	abi.EncodeRecvWQE(slot, &abi.RecvWQE{WRID: r.id, NumSGE: uint32(len(list))})
	for i := range list {
		if r.isBad {
			list[i].LKey ^= 0x00a5a500
		}
		abi.EncodeSGE(slot[abi.RecvWQEBytes:], i, &list[i])
	}
	rq.Push()
	rq.Publish()
}

// drop ends the receive; what lies in its buffers is not determined.
func (r *receive) drop() {
	for _, p := range r.pieces {
		r.app.mem.Adopt(p.off, p.n)
	}
	r.finish()
}

func (r *receive) finish() {
	for _, c := range r.claims {
		r.app.mem.Release(c)
	}
	r.app.uncut(r.pieces)
	delete(r.app.receives, r.id)
}

// uniqueBytes is a length from which on two messages do not look alike by chance.
const uniqueBytes = 16

// complete judges the receive's completion.
func (r *receive) complete(q *cq, c *abi.CQE) {
	a := r.app
	e := r.owner
	if e == nil {
		e = r.shared.userOf(c.QPNum)
		r.shared.ledger.Complete(c)
		r.shared.done++
	} else {
		e.received.Complete(c)
	}
	switch {
	case e == nil || e.isGone || e.qpn != c.QPNum:
		a.world.court.Failf("%s: receive %d completes for QP %#x, which is not there",
			a.name, r.id, c.QPNum)
		r.drop()
	case q != e.recvCQ && !e.isTarget() || e.isTarget() && q != r.shared.cq:
		a.world.court.Failf("%s: receive %d completes in the wrong CQ", e.name, r.id)
		r.drop()
	case rdma.WCStatus(c.Status) != rdma.WCSuccess:
		e.judgeRefusal(r, rdma.WCStatus(c.Status))
		r.drop()
	default:
		m := r.land(e, c)
		switch {
		case m == nil:
		case !e.isReliable() && m.Bytes < uniqueBytes && !m.HasImm:
			q.solicited++ // it may as well have been another one
		case m.Solicited:
			q.noteSolicited(c)
		}
	}
}

// land compares what arrived with what was sent, and returns the message that it was.
func (r *receive) land(e *endpoint, c *abi.CQE) *check.Message {
	a := r.app
	head := 0
	if e.kind == rdma.QPTypeUD {
		head = ibt.GRHBytes
		if rdma.WCFlags(c.WCFlags)&rdma.WCGRH == 0 || int(c.ByteLen) < head {
			a.world.court.Failf("%s: a datagram without a GRH", e.name)
			r.drop()
			return nil
		}
		c.ByteLen -= uint32(head)
	}
	stream := e.streamFrom(r, c)
	if stream == nil {
		a.world.court.Failf("%s: a message from QP %#x, which sent none", e.name, c.SrcQP)
		r.drop()
		return nil
	}
	filled := 0
	var payload []byte
	if rdma.WCOpcode(c.Opcode) == rdma.WCOpRecv {
		filled = head + int(c.ByteLen)
		payload = a.gather(r.pieces, head, int(c.ByteLen))
	}
	m := stream.Receive(c, payload)
	e.landed++
	if e.kind == rdma.QPTypeUC {
		// An earlier message that was cut short may have left bytes.
		filled = r.total
	}
	r.settle(e, filled)
	return m
}

// settle takes the first filled bytes as they are; the rest must not have changed.
func (r *receive) settle(e *endpoint, filled int) {
	m := r.app.mem
	for _, p := range r.pieces {
		n := min(filled, p.n)
		m.Adopt(p.off, n)
		filled -= n
		if !m.Untouched(p.off+n, p.n-n) {
			r.app.world.court.Failf("%s: receive %d changed behind the message", e.name, r.id)
			m.Adopt(p.off, p.n)
		}
	}
	r.finish()
}

// sharedQueue is an application's end of an SRQ.
type sharedQueue struct {
	app      *app
	isXRC    bool
	cq       *cq
	handle   uint32
	number   uint32 // XRC
	rq       *ring.Producer
	ledger   check.RecvQueue
	depth    int
	maxSGE   int
	each     int // bytes of a receive
	consumed *atomic.Uint32
	posted   uint32
	done     uint32 // completions
	// lost bounds the receives that queue pairs had in use as they ended.
	lost   uint32
	isGone bool
}

// newSharedQueue makes one of the application's queue pairs, or of the host's XRC domain, whose
// receives complete in a queue of its own.
func (a *app) newSharedQueue(xrc *cq) *sharedQueue {
	w := a.world
	s := &sharedQueue{app: a, maxSGE: w.between(1, 4), cq: a.cqs[0]}
	s.each = max(min(w.plan.maxMessage, sharedMost), 1)
	req := abi.CreateSRQReq{PD: a.pd}
	budget := w.plan.receiveBudget
	if xrc != nil {
		s.cq, s.isXRC = xrc, true
		req.Type, req.XRCD, req.CQ = srqTypeXRC, a.xrcd, xrc.handle
	} else {
		s.each = max(s.each, w.plan.mtu.Bytes()+ibt.GRHBytes)
		budget *= 2
	}
	s.depth = max(1, min(64, budget/s.each))
	req.MaxWR, req.MaxSGE = uint32(s.depth), uint32(s.maxSGE)
	if w.chance(0.5) {
		req.Limit = uint32(w.between(1, s.depth))
	}
	rsp, shared, refusal := a.ctx.CreateSRQ(&req)
	if refusal != nil {
		w.court.Failf("%s: create_srq: %v", a.name, refusal)
		return nil
	}
	m := shared.Bytes()
	s.handle, s.number = rsp.Handle, rsp.SRQN
	s.rq = ring.NewProducer(m[rsp.Offset:],
		ring.Geometry{Entries: rsp.Entries, Stride: rsp.Stride},
		ring.Word(m, abi.OffRQProducer), ring.Word(m, abi.OffRQConsumer))
	s.consumed = ring.Word(m, abi.OffRQConsumer)
	s.ledger = check.RecvQueue{Court: &w.court, Name: a.name + " SRQ", Shared: true}
	s.fill()
	return s
}

// fill posts receives until the queue has its depth. What queue pairs have taken does not count:
// they may keep it for long.
func (s *sharedQueue) fill() {
	waiting, _ := s.cq.ring.Pending()
	for int(s.posted-s.consumed.Load()) < s.depth && waiting < sharedWaiting {
		if s.rq.Free() == 0 {
			s.app.world.court.Failf("%s: the shared receive queue is full before its time", s.app.name)
			return
		}
		r := s.app.newReceive(nil, s.each, s.maxSGE)
		if r == nil {
			return
		}
		r.shared = s
		r.enqueue(s.rq)
		s.posted++
		s.ledger.Post(r.id)
	}
}

// srqTypeXRC is IBV_SRQT_XRC.
const srqTypeXRC = 1

// sharedWaiting is how many completions may wait while more receives are posted; sharedLoad is what
// a shared queue may have in its CQ then.
const (
	sharedWaiting = 256
	sharedLoad    = sharedWaiting + 128
)

// sharedMost is the longest message for which applications share receives: one that a queue pair
// takes to its grave is lost to the application, and so is its memory.
const sharedMost = 9000
