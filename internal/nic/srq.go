package nic

import (
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
)

// srq is a shared receive queue. It implements work.ReceiveQueue and watches the limit.
type srq struct {
	*work.RingReceiveQueue
	context *Context
	handle  uint32
	pd      uint32
	shared  Shared
	slots   Shared // nil while those that shared has are in use
	ring    *ring.Consumer
	maxSGE  uint32
	limit   uint32 // 0: not armed
	users   int
	// postsRefused counts what the library refused, as far as it was noted.
	postsRefused uint32

	// cq gets the completions of receives over XRC and with tag matching.
	cq   *cq
	tags *tagging // nil without tag matching

	// Of XRC.
	number uint32
	domain *xrcDomain
	xrcd   *xrcHandle
	target ibt.Target
}

// Values of enum ibv_srq_attr_mask.
const (
	srqMaxWR uint32 = 1 << 0
	srqLimit uint32 = 1 << 1
)

// Values of enum ibv_srq_type.
const (
	srqTypeBasic = 0
	srqTypeXRC   = 1
)

// CreateSRQ makes a shared receive queue; its memory goes to the application.
func (c *Context) CreateSRQ(req *abi.CreateSRQReq) (abi.CreateSRQRsp, Shared, *rdma.Refusal) {
	var rsp abi.CreateSRQRsp
	switch {
	case c.pds[req.PD] == nil:
		return rsp, nil, refusef(syscall.EINVAL, "protection domain %d is unknown", req.PD)
	case req.Type == srqTypeXRC && c.xrcds[req.XRCD] == nil:
		return rsp, nil, refusef(syscall.EINVAL, "XRC domain %d is unknown", req.XRCD)
	case req.Type == srqTypeXRC && c.cqs[req.CQ] == nil:
		return rsp, nil, refusef(syscall.EINVAL, "completion queue %d is unknown", req.CQ)
	case req.Type > srqTypeTags, req.Type == srqTypeTags && !c.device.transport.hasTags:
		return rsp, nil, refusef(syscall.EOPNOTSUPP, "SRQ type %d is not supported", req.Type)
	case req.MaxWR == 0 || req.MaxWR > limits.MaxQPWR:
		return rsp, nil, refusef(syscall.EINVAL, "max_wr %d outside 1…%d", req.MaxWR, limits.MaxQPWR)
	case req.MaxSGE > limits.MaxSGE:
		return rsp, nil, refusef(syscall.EINVAL, "max_sge %d over %d", req.MaxSGE, limits.MaxSGE)
	case req.Limit > req.MaxWR:
		return rsp, nil, refusef(syscall.EINVAL, "srq_limit %d over max_wr", req.Limit)
	case c.nic.counts.srqs >= limits.MaxSRQ:
		return rsp, nil, refusef(syscall.ENOMEM, "limit of %d shared receive queues", limits.MaxSRQ)
	}
	if r := mayHave("shared receive queues", len(c.srqs), c.most().SRQs); r != nil {
		return rsp, nil, r
	}
	if req.Type == srqTypeTags {
		if r := c.checkTags(req); r != nil {
			return rsp, nil, r
		}
	}
	return c.newSRQ(req)
}

// newSRQ builds the object over memory of its own and enters it everywhere.
func (c *Context) newSRQ(req *abi.CreateSRQReq) (abi.CreateSRQRsp, Shared, *rdma.Refusal) {
	sge := max(req.MaxSGE, 1)
	geo := ring.Geometry{Entries: ring.RoundEntries(req.MaxWR), Stride: abi.RQStride(sge)}
	rsp := abi.CreateSRQRsp{
		Entries: geo.Entries, Stride: geo.Stride, Offset: abi.QueueHeaderBytes, MaxSGE: sge,
		Bytes: uint32(abi.QueueHeaderBytes + geo.Bytes()),
	}
	layTags(req, &rsp)
	shared, err := c.nic.cfg.Memory.Alloc(int(rsp.Bytes))
	if err != nil {
		return rsp, nil, refusef(syscall.ENOMEM, "queue memory: %v", err)
	}
	m := shared.Bytes()
	cons := ring.NewConsumer(m[abi.QueueHeaderBytes:], geo,
		ring.Word(m, abi.OffRQProducer), ring.Word(m, abi.OffRQConsumer))
	s := &srq{
		RingReceiveQueue: work.NewReceiveQueue(cons, sge, true), context: c, handle: c.nic.id(),
		pd: req.PD, shared: shared, ring: cons, maxSGE: sge, limit: req.Limit,
	}
	s.number = s.handle
	switch req.Type {
	case srqTypeXRC:
		s.join(req)
	case srqTypeTags:
		s.matchTags(req, &rsp)
	}
	c.srqs[s.handle] = s
	c.pds[req.PD].users++
	c.nic.counts.srqs++
	rsp.Handle, rsp.SRQN = s.handle, s.number
	return rsp, shared, nil
}

// join makes it one of an XRC domain, which requests of peers find by its number.
func (s *srq) join(req *abi.CreateSRQReq) {
	c := s.context
	s.number, s.xrcd, s.cq = c.nic.newSRQN(), c.xrcds[req.XRCD], c.cqs[req.CQ]
	s.domain = s.xrcd.domain
	pd := mem.PD(req.PD)
	s.target = ibt.Target{PD: pd, ReceivePD: pd, RQ: s, RecvCQ: s.cq}
	s.xrcd.users++
	s.cq.users++
	c.nic.srqns[s.number] = s
}

// leave is the opposite of join. Queue pairs that were filling a receive of it forget that.
func (s *srq) leave() {
	delete(s.context.nic.srqns, s.number)
	for _, q := range s.domain.targets {
		q.ibt.DropTarget(s)
	}
	s.xrcd.users--
	s.cq.users--
}

// Take implements work.ReceiveQueue. Falling below the limit raises the event once and disarms it
// (IBTA 10.2.9.3).
func (s *srq) Take(w *work.RecvWR) work.TakeResult {
	result := s.RingReceiveQueue.Take(w)
	if s.limit > 0 {
		s.checkLimit()
	}
	return result
}

func (s *srq) checkLimit() {
	if pending, _ := s.ring.Pending(); pending < s.limit {
		s.limit = 0
		s.context.nic.raise(s.context, rdma.EventSRQLimitReached, s.handle)
	}
}

// ResizeSRQ gives a shared receive queue other slots, which hold what is posted at the same indices
// as before (IBTA 11.2.3.3).
func (c *Context) ResizeSRQ(req *abi.ResizeSRQReq) (abi.CreateSRQRsp, Shared, *rdma.Refusal) {
	var rsp abi.CreateSRQRsp
	s := c.srqs[req.Handle]
	switch {
	case s == nil:
		return rsp, nil, refusef(syscall.EINVAL, "shared receive queue %d is unknown", req.Handle)
	case req.Entries == 0 || req.Entries > limits.MaxQPWR:
		return rsp, nil, refusef(syscall.EINVAL, "max_wr %d outside 1…%d", req.Entries, limits.MaxQPWR)
	case req.MaxSGE > limits.MaxSGE:
		return rsp, nil, refusef(syscall.EINVAL, "max_sge %d over %d", req.MaxSGE, limits.MaxSGE)
	}
	sge := max(req.MaxSGE, s.maxSGE)
	geo := ring.Geometry{Entries: ring.RoundEntries(req.Entries), Stride: abi.RQStride(sge)}
	n, ok := s.ring.Pending()
	switch {
	case !ok:
		return rsp, nil, refusef(syscall.EINVAL, "the queue's index was written over")
	case n > geo.Entries || s.limit > geo.Entries:
		return rsp, nil, refusef(syscall.EINVAL, "max_wr %d: %d receives are posted, and the limit is %d",
			req.Entries, n, s.limit)
	}
	shared, err := c.nic.cfg.Memory.Alloc(geo.Bytes())
	if err != nil {
		return rsp, nil, refusef(syscall.ENOMEM, "queue memory: %v", err)
	}
	s.ring, s.maxSGE = s.ring.MoveTo(shared.Bytes(), geo), sge
	s.MoveTo(s.ring, sge)
	if s.slots != nil {
		s.slots.Release()
	}
	s.slots = shared
	return abi.CreateSRQRsp{
		Handle: s.handle, SRQN: s.number, Entries: geo.Entries, Stride: geo.Stride, MaxSGE: s.maxSGE,
		Bytes: uint32(geo.Bytes()),
	}, shared, nil
}

// ModifySRQ arms the limit. ResizeSRQ changes the size; here a max_wr within it is granted.
func (c *Context) ModifySRQ(a *abi.SRQAttr) *rdma.Refusal {
	s := c.srqs[a.Handle]
	switch {
	case s == nil:
		return refusef(syscall.EINVAL, "shared receive queue %d is unknown", a.Handle)
	case a.Mask&^(srqMaxWR|srqLimit) != 0:
		return refusef(syscall.EINVAL, "srq_attr_mask %#x has unknown bits", a.Mask)
	case a.Mask&srqMaxWR != 0 && a.MaxWR > s.ring.Entries():
		return refusef(syscall.EINVAL, "max_wr %d over %d", a.MaxWR, s.ring.Entries())
	case a.Mask&srqLimit != 0 && a.Limit > s.ring.Entries():
		return refusef(syscall.EINVAL, "srq_limit %d over max_wr %d", a.Limit, s.ring.Entries())
	}
	if a.Mask&srqLimit != 0 {
		s.limit = a.Limit
		if s.limit > 0 {
			s.checkLimit()
		}
	}
	return nil
}

// QuerySRQ answers ibv_query_srq.
func (c *Context) QuerySRQ(handle uint32) (abi.SRQAttr, *rdma.Refusal) {
	s := c.srqs[handle]
	if s == nil {
		return abi.SRQAttr{}, refusef(syscall.EINVAL, "shared receive queue %d is unknown", handle)
	}
	return abi.SRQAttr{
		Handle: handle, MaxWR: s.ring.Entries(), MaxSGE: s.maxSGE, Limit: s.limit,
	}, nil
}

// DestroySRQ removes a shared receive queue that no QP uses.
func (c *Context) DestroySRQ(handle uint32) *rdma.Refusal {
	s := c.srqs[handle]
	if s == nil {
		return refusef(syscall.EINVAL, "shared receive queue %d is unknown", handle)
	}
	if s.users > 0 {
		return refusef(syscall.EBUSY, "shared receive queue %d still serves %d QPs", handle, s.users)
	}
	c.nic.removeSRQ(s)
	return nil
}

func (n *NIC) removeSRQ(s *srq) {
	s.noteRefusedPosts()
	if s.domain != nil {
		s.leave()
	}
	if s.tags != nil {
		s.tags.end()
	}
	delete(s.context.srqs, s.handle)
	s.context.pds[s.pd].users--
	n.counts.srqs--
	if s.slots != nil {
		s.slots.Release()
	}
	s.shared.Release()
}
