package nic

import (
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/engine/iwarp"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
)

// engine is what the transports' queue pairs have in common for verbs.
type engine interface {
	HandleDoorbell(now clock.Time)
	State() rdma.QPState
	Release()
}

// qp is a queue pair as verbs know it; the transport is the engine's. It implements ibt.Host.
type qp struct {
	nic     *NIC
	device  *device
	context *Context
	engine  engine
	ibt     *ibt.QP   // the engine itself where the wire is one of packets, else nil
	iwarp   *iwarp.QP // the engine itself where it is one of streams, else nil
	stream  *stream   // its connection, or the one that it is to have
	qpn     rdma.QPN
	qpType  rdma.QPType
	handle  uint32
	slot    uint32
	shared  Shared
	sendCQ  *cq
	recvCQ  *cq
	srq     *srq
	domain  *xrcDomain      // XRC_RECV
	others  []share         // its further handles
	init    abi.CreateQPReq // capacities as granted
	av      abi.AHAttr      // as given to modify, for query
	port    uint8

	stateWord  *atomic.Uint32
	rqDoorbell *atomic.Uint32
	shown      rdma.QPState
	isAwaiting bool // of iWARP: a message waits for a receive
	dead       bool

	groups []*group // multicast

	direct directEnd

	lastCause    abi.Cause
	errors       uint64
	postsRefused uint32 // by the library, as far as they were noted
	counters     EngineCounters

	// Run queue and timer heap.
	turn       turn[*qp]
	isFlushing bool // of iWARP: its queues are being flushed
	isPaced    bool // UC, UD: the last packet went to another host
	isHeld     bool // waits in the pacer
	quota      int
	timer      timer[*qp]
}

// CreateQP makes a queue pair; its memory goes to the application.
func (c *Context) CreateQP(now clock.Time, req *abi.CreateQPReq) (
	abi.CreateQPRsp, Shared, *rdma.Refusal,
) {
	c.nic.now = now
	var rsp abi.CreateQPRsp
	if r := c.checkCreateQP(req); r != nil {
		return rsp, nil, r
	}
	grant(req)
	rsp = layout(req)
	shared, err := c.nic.cfg.Memory.Alloc(int(rsp.Bytes))
	if err != nil {
		return rsp, nil, refusef(syscall.ENOMEM, "queue memory: %v", err)
	}
	q := c.newQP(req, &rsp, shared)
	rsp.Handle, rsp.QPN, rsp.Doorbell = q.handle, uint32(q.qpn), q.slot
	return rsp, shared, nil
}

func (c *Context) checkCreateQP(req *abi.CreateQPReq) *rdma.Refusal {
	if r := c.checkQPParts(req); r != nil {
		return r
	}
	switch {
	case req.MaxSendWR > limits.MaxQPWR:
		return refusef(syscall.EINVAL, "cap.max_send_wr %d over %d", req.MaxSendWR, limits.MaxQPWR)
	case req.SRQ == 0 && req.MaxRecvWR > limits.MaxQPWR:
		return refusef(syscall.EINVAL, "cap.max_recv_wr %d over %d", req.MaxRecvWR, limits.MaxQPWR)
	case req.MaxSendSGE > limits.MaxSGE:
		return refusef(syscall.EINVAL, "cap.max_send_sge %d over %d", req.MaxSendSGE, limits.MaxSGE)
	case req.SRQ == 0 && req.MaxRecvSGE > limits.MaxSGE:
		return refusef(syscall.EINVAL, "cap.max_recv_sge %d over %d", req.MaxRecvSGE, limits.MaxSGE)
	case req.MaxInline > limits.MaxInline:
		return refusef(syscall.EINVAL, "cap.max_inline_data %d over %d", req.MaxInline, limits.MaxInline)
	case req.CreateFlags != 0:
		return refusef(syscall.EOPNOTSUPP, "create_flags %#x are not supported", req.CreateFlags)
	case c.nic.counts.qps >= limits.MaxQP:
		return refusef(syscall.ENOMEM, "limit of %d queue pairs", limits.MaxQP)
	}
	if r := c.checkSlots(); r != nil {
		return r
	}
	return mayHave("queue pairs", len(c.qps), c.most().QPs)
}

// Values of enum ibv_qp_type that no device here makes.
const (
	qpTypeRawPacket rdma.QPType = 8
	qpTypeDriver    rdma.QPType = 0xff
)

// checkQPType refuses the types of queue pairs that the device's transport does not have.
func (d *device) checkQPType(t rdma.QPType) *rdma.Refusal {
	switch t {
	case rdma.QPTypeRC, rdma.QPTypeUC, rdma.QPTypeUD, rdma.QPTypeXRCSend, rdma.QPTypeXRCRecv:
		if d.transport.makes(t) {
			return nil
		}
		return refusef(syscall.EOPNOTSUPP, "%s has no %v queue pairs: %v does not know them",
			d.name, t, d.transport)
	case qpTypeRawPacket, qpTypeDriver:
		return refusef(syscall.EOPNOTSUPP, "qp_type %d is not supported", uint32(t))
	}
	return refusef(syscall.EINVAL, "qp_type %d is none that there is", uint32(t))
}

// checkQPParts checks the objects that a queue pair of the type is made of. What it is not made of
// is taken out of the request: verbs ignore it.
func (c *Context) checkQPParts(req *abi.CreateQPReq) *rdma.Refusal {
	t := rdma.QPType(req.Type)
	if r := c.device.checkQPType(t); r != nil {
		return r
	}
	switch t {
	case rdma.QPTypeRC, rdma.QPTypeUC, rdma.QPTypeUD:
		req.XRCD = 0
	case rdma.QPTypeXRCSend:
		req.RecvCQ, req.XRCD, req.SRQ, req.MaxRecvWR, req.MaxRecvSGE = 0, 0, 0, 0, 0
	case rdma.QPTypeXRCRecv:
		*req = abi.CreateQPReq{Type: req.Type, XRCD: req.XRCD, CreateFlags: req.CreateFlags}
		if c.xrcds[req.XRCD] == nil {
			return refusef(syscall.EINVAL, "XRC domain %d is unknown", req.XRCD)
		}
		return nil
	}
	srq := c.srqs[req.SRQ]
	switch {
	case c.pds[req.PD] == nil:
		return refusef(syscall.EINVAL, "protection domain %d is unknown", req.PD)
	case c.cqs[req.SendCQ] == nil:
		return refusef(syscall.EINVAL, "completion queue %d is unknown", req.SendCQ)
	case t != rdma.QPTypeXRCSend && c.cqs[req.RecvCQ] == nil:
		return refusef(syscall.EINVAL, "completion queue %d is unknown", req.RecvCQ)
	case req.SRQ != 0 && srq == nil:
		return refusef(syscall.EINVAL, "shared receive queue %d is unknown", req.SRQ)
	case srq != nil && srq.tags != nil && t != rdma.QPTypeRC:
		return refusef(syscall.EINVAL, "shared receive queue %d matches tags of RC, not of %v",
			req.SRQ, t)
	case srq != nil && t == rdma.QPTypeUC: // ibv_create_qp(3)
		return refusef(syscall.EINVAL, "a UC queue pair takes no receives from a shared queue")
	case srq != nil && srq.domain != nil:
		return refusef(syscall.EINVAL, "shared receive queue %d is one of XRC", req.SRQ)
	}
	return nil
}

// grant rounds the capacities up to what the QP really has; verbs report them back.
func grant(req *abi.CreateQPReq) {
	if rdma.QPType(req.Type) == rdma.QPTypeXRCRecv {
		return
	}
	req.MaxSendWR = ring.RoundEntries(req.MaxSendWR)
	req.MaxSendSGE = max(req.MaxSendSGE, 1)
	// Inline bytes and scatter/gather entries share the slot, so room for one is room for both.
	room := abi.SQStride(req.MaxSendSGE, req.MaxInline) - abi.SendWQEBytes
	req.MaxInline = min(room, limits.MaxInline)
	req.MaxSendSGE = min(room/abi.SGEBytes, limits.MaxSGE)
	if !hasReceives(req) {
		req.MaxRecvWR, req.MaxRecvSGE = 0, 0
		return
	}
	req.MaxRecvWR = ring.RoundEntries(req.MaxRecvWR)
	req.MaxRecvSGE = max(req.MaxRecvSGE, 1)
}

// hasReceives reports a queue pair with a receive queue of its own.
func hasReceives(req *abi.CreateQPReq) bool {
	return req.SRQ == 0 && rdma.QPType(req.Type) != rdma.QPTypeXRCSend &&
		rdma.QPType(req.Type) != rdma.QPTypeXRCRecv
}

func layout(req *abi.CreateQPReq) abi.CreateQPRsp {
	rsp := abi.CreateQPRsp{
		SQEntries: req.MaxSendWR, SQStride: abi.SQStride(req.MaxSendSGE, req.MaxInline),
		SQOffset: abi.QueueHeaderBytes, MaxSendSGE: req.MaxSendSGE, MaxRecvSGE: req.MaxRecvSGE,
		MaxInline: req.MaxInline,
	}
	rsp.RQOffset = (rsp.SQOffset + rsp.SQEntries*rsp.SQStride + 63) &^ 63
	rsp.Bytes = rsp.RQOffset
	if hasReceives(req) {
		rsp.RQEntries, rsp.RQStride = req.MaxRecvWR, abi.RQStride(req.MaxRecvSGE)
		rsp.Bytes += rsp.RQEntries * rsp.RQStride
	}
	return rsp
}

// newQP builds the object over its memory and enters it everywhere.
func (c *Context) newQP(req *abi.CreateQPReq, rsp *abi.CreateQPRsp, shared Shared) *qp {
	n, m := c.nic, shared.Bytes()
	q := &qp{
		nic: n, device: c.device, context: c, handle: n.id(), shared: shared, init: *req,
		sendCQ: c.cqs[req.SendCQ], recvCQ: c.cqs[req.RecvCQ], srq: c.srqs[req.SRQ],
		stateWord: ring.Word(m, abi.OffQPState), rqDoorbell: ring.Word(m, abi.OffRQDoorbell),
	}
	q.turn.owner, q.timer.owner, q.timer.order = q, q, q.handle
	q.qpn, q.qpType = n.newQPN(), rdma.QPType(req.Type)
	cfg := ibt.Config{
		Host: q, Type: q.qpType, QPN: q.qpn, PD: mem.PD(req.PD),
		MaxSGE: rsp.MaxSendSGE, MaxInline: rsp.MaxInline,
		SignalAll: req.SignalAll != 0, Scratch: n.scratch,
	}
	if x := c.xrcds[req.XRCD]; x != nil {
		q.domain, cfg.Domain = x.domain, x.domain
	} else {
		q.slot = c.takeSlot()
		c.slots[q.slot] = q
		cfg.SQ = ring.NewConsumer(m[rsp.SQOffset:],
			ring.Geometry{Entries: rsp.SQEntries, Stride: rsp.SQStride},
			ring.Word(m, abi.OffSQProducer), ring.Word(m, abi.OffSQConsumer))
	}
	if q.sendCQ != nil {
		cfg.SendCQ = q.sendCQ
	}
	if q.recvCQ != nil {
		cfg.RecvCQ = q.recvCQ
	}
	switch {
	case q.srq != nil:
		cfg.RQ, cfg.ReceivePD = q.srq, mem.PD(q.srq.pd)
		q.serveTags(&cfg)
	case hasReceives(req):
		cfg.RQ = work.NewReceiveQueue(ring.NewConsumer(m[rsp.RQOffset:],
			ring.Geometry{Entries: rsp.RQEntries, Stride: rsp.RQStride},
			ring.Word(m, abi.OffRQProducer), ring.Word(m, abi.OffRQConsumer)), rsp.MaxRecvSGE, false)
	}
	if c.device.transport.hasStreams {
		q.newStreamed(&cfg)
	} else {
		q.ibt = ibt.New(cfg)
		q.engine = q.ibt
	}
	q.direct = q.newDirectEnd(m)
	q.count(1)
	c.qps[q.handle] = q
	n.qps[q.qpn] = q
	n.counts.qps++
	return q
}

// count adds to the users of what the queue pair is made of.
func (q *qp) count(n int) {
	if q.sendCQ != nil {
		q.sendCQ.users += n
	}
	if q.recvCQ != nil {
		q.recvCQ.users += n
	}
	if q.srq != nil {
		q.srq.users += n
	}
	if p := q.context.pds[q.init.PD]; p != nil {
		p.users += n
	}
	if q.domain == nil {
		return
	}
	q.context.xrcds[q.init.XRCD].users += n
	if n > 0 {
		q.domain.targets = append(q.domain.targets, q)
	} else {
		q.domain.targets = slices.DeleteFunc(q.domain.targets, func(x *qp) bool { return x == q })
	}
}

// takeSlot returns a free doorbell slot.
func (c *Context) takeSlot() uint32 {
	if k := len(c.freeSlots); k > 0 {
		s := c.freeSlots[k-1]
		c.freeSlots = c.freeSlots[:k-1]
		return s
	}
	c.slots = append(c.slots, nil)
	return uint32(len(c.slots) - 1)
}

// DestroyQP removes a queue pair; what it had posted vanishes without completions. One that is
// attached to a multicast group stays (ibv_create_qp(3)).
func (c *Context) DestroyQP(now clock.Time, handle uint32) *rdma.Refusal {
	q := c.qps[handle]
	switch {
	case q == nil:
		return refusef(syscall.EINVAL, "queue pair %d is unknown", handle)
	case len(q.groups) > 0:
		return refusef(syscall.EBUSY, "queue pair %v is still attached to %d multicast groups",
			q.qpn, len(q.groups))
	}
	c.nic.destroyHandle(now, c, handle)
	return nil
}

func (n *NIC) removeQP(q *qp) {
	c := q.context
	q.noteRefusedPosts()
	q.showHeld()
	n.direct.leave(q)
	q.dead = true
	n.multicast.detachAll(q)
	q.engine.Release()
	n.memory.ReleaseQP(q.qpn)
	if q.ibt != nil {
		n.unqueue(q)
		n.timers.remove(&q.timer)
	} else {
		n.releaseStreamed(q)
	}
	delete(n.qps, q.qpn)
	delete(c.qps, q.handle)
	if q.domain == nil {
		c.slots[q.slot] = nil
		c.freeSlots = append(c.freeSlots, q.slot)
	}
	q.count(-1)
	n.counts.qps--
	q.shared.Release()
}

// state is where the transport says that the queue pair stands.
func (q *qp) state() rdma.QPState {
	if q.ibt != nil {
		return q.ibt.State()
	}
	return q.engine.State()
}

// fail moves the QP to the error state from outside.
func (q *qp) fail(now clock.Time) {
	if q.ibt != nil {
		a := *q.ibt.Attr()
		q.ibt.Modify(now, &a, rdma.QPAttrState, rdma.QPStateError)
	} else {
		q.iwarp.Modify(now, q.iwarp.Attr(), rdma.QPAttrState, rdma.QPStateError)
	}
	q.nic.settle(q)
}
