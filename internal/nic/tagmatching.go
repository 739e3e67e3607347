package nic

import (
	"sync/atomic"
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
)

// srqTypeTags is IBV_SRQT_TM.
const srqTypeTags = 2

// tagCapRC is IBV_TM_CAP_RC.
const tagCapRC = 1

// setTagAttr reports what tag matching can do.
func setTagAttr(a *abi.DeviceAttr) {
	a.TagCaps = tagCapRC
	a.MaxRendezvousHeader = limits.MaxRendezvousHeader
	a.MaxTags, a.MaxTagOps, a.MaxTagSGE = limits.MaxTags, limits.MaxTagOps, limits.MaxTagSGE
}

// tagging is what a shared receive queue has that matches tags: the list, and the ring of
// operations on it. It implements work.Matcher.
type tagging struct {
	srq      *srq
	list     *work.TagList
	ops      *ring.Consumer
	released *atomic.Uint32
	slot     uint32 // doorbell
	maxTags  uint32
	isBroken bool // the ring's index was written over: nothing more comes from there
	cqe      abi.CQE
}

// TagStatus is a matching list.
type TagStatus struct {
	Room uint32 `json:"room"`
	Used int    `json:"used"` // buffers that wait for a message, or get one
	// Unexpected messages came so far, and Handled says the program. While they differ, buffers that
	// are added are not matched.
	Unexpected uint32 `json:"unexpected"`
	Handled    uint32 `json:"handled"`
}

func (t *tagging) status() *TagStatus {
	if t == nil {
		return nil
	}
	s := &TagStatus{Room: t.maxTags, Used: t.list.Used()}
	s.Unexpected, s.Handled = t.list.Unexpected()
	return s
}

// checkTags judges a request for a queue that matches tags.
func (c *Context) checkTags(req *abi.CreateSRQReq) *rdma.Refusal {
	switch {
	case c.cqs[req.CQ] == nil:
		return refusef(syscall.EINVAL, "completion queue %d is unknown", req.CQ)
	case req.MaxTags == 0 || req.MaxTags > limits.MaxTags:
		return refusef(syscall.EINVAL, "tm_cap.max_num_tags %d outside 1…%d", req.MaxTags,
			limits.MaxTags)
	case req.MaxTagOps == 0 || req.MaxTagOps > limits.MaxTagOps:
		return refusef(syscall.EINVAL, "tm_cap.max_ops %d outside 1…%d", req.MaxTagOps,
			limits.MaxTagOps)
	}
	if r := c.checkRoomForTags(req.MaxTags); r != nil {
		return r
	}
	return c.checkSlots()
}

func (c *Context) checkRoomForTags(n uint32) *rdma.Refusal {
	own := n
	for _, t := range c.tagSlots {
		own += t.maxTags
	}
	switch {
	case own > limits.MaxTagsInAll/2:
		return refusef(syscall.ENOMEM, "limit of %d tagged buffers a program", limits.MaxTagsInAll/2)
	case c.nic.counts.tags+n > limits.MaxTagsInAll:
		return refusef(syscall.ENOMEM, "limit of %d tagged buffers", limits.MaxTagsInAll)
	}
	return nil
}

// checkSlots refuses one more of what rings doorbells where the page has no bit left.
func (c *Context) checkSlots() *rdma.Refusal {
	if len(c.freeSlots) == 0 && len(c.slots) >= abi.DoorbellSlots {
		return refusef(syscall.ENOMEM, "limit of %d doorbells a program", abi.DoorbellSlots)
	}
	return nil
}

// layTags puts the ring of operations behind the receives, whose end the reply has so far.
func layTags(req *abi.CreateSRQReq, rsp *abi.CreateSRQRsp) {
	if req.Type != srqTypeTags {
		return
	}
	rsp.MaxTags, rsp.MaxTagSGE = req.MaxTags, limits.MaxTagSGE
	rsp.TagOps, rsp.TagStride = ring.RoundEntries(req.MaxTagOps), abi.TagStride(limits.MaxTagSGE)
	rsp.TagOffset = (rsp.Bytes + 63) &^ 63
	rsp.Bytes = rsp.TagOffset + rsp.TagOps*rsp.TagStride
}

// matchTags lets the queue match tags.
func (s *srq) matchTags(req *abi.CreateSRQReq, rsp *abi.CreateSRQRsp) {
	c, m := s.context, s.shared.Bytes()
	t := &tagging{
		srq: s, list: work.NewTagList(rsp.MaxTags), maxTags: rsp.MaxTags, slot: c.takeSlot(),
		ops: ring.NewConsumer(m[rsp.TagOffset:],
			ring.Geometry{Entries: rsp.TagOps, Stride: rsp.TagStride},
			ring.Word(m, abi.OffSQProducer), ring.Word(m, abi.OffSQConsumer)),
		released: ring.Word(m, abi.OffTagsReleased),
	}
	rsp.Doorbell = t.slot
	s.tags, s.cq = t, c.cqs[req.CQ]
	s.cq.users++
	if c.tagSlots == nil {
		c.tagSlots = make(map[uint32]*tagging)
	}
	c.tagSlots[t.slot] = t
	c.nic.counts.tags += t.maxTags
}

// end is the opposite of matchTags. What is in the list vanishes without completions.
func (t *tagging) end() {
	c := t.srq.context
	c.nic.counts.tags -= t.maxTags
	delete(c.tagSlots, t.slot)
	c.freeSlots = append(c.freeSlots, t.slot)
	t.srq.cq.users--
}

// serveTags lets a queue pair of such a queue match tags. Its receives complete where the queue
// says.
func (q *qp) serveTags(cfg *ibt.Config) {
	if t := q.srq.tags; t != nil {
		q.recvCQ = q.srq.cq
		cfg.Tags, cfg.RecvCQ = t, q.recvCQ
	}
}

// answerTags serves a queue whose doorbell slot rang and reports whether there is one.
func (c *Context) answerTags(slot int) bool {
	t := c.tagSlots[uint32(slot)]
	if t == nil {
		return false
	}
	t.work()
	return true
}

// Match implements work.Matcher. Buffers that were posted before the message came are seen, even
// where their doorbell was not.
func (t *tagging) Match(tag uint64) *work.Tagged {
	t.work()
	return t.list.Match(tag)
}

// NoteUnexpected implements work.Matcher.
func (t *tagging) NoteUnexpected() rdma.WCFlags { return t.list.NoteUnexpected() }

// Release implements work.Matcher.
func (t *tagging) Release(b *work.Tagged) {
	t.list.Release(b)
	t.noteReleased()
}

// noteReleased tells the application that there is room for another buffer.
func (t *tagging) noteReleased() { t.released.Store(t.released.Load() + 1) }

// work carries out the operations that were posted.
func (t *tagging) work() {
	n, ok := t.ops.Pending()
	if !ok && !t.isBroken {
		t.isBroken = true
		t.srq.context.nic.raise(t.srq.context, rdma.EventSRQErr, t.srq.handle)
	}
	if t.isBroken {
		return
	}
	for range n {
		t.execute()
	}
}

// execute carries out the oldest operation. The entry is read once, then it is the application's
// again.
func (t *tagging) execute() {
	slot, handle := t.ops.Slot(0), t.ops.Released()
	var fixed [abi.TagWQEBytes]byte
	copy(fixed[:], slot)
	var w abi.TagWQE
	abi.DecodeTagWQE(fixed[:], &w)
	if w.Flags&uint8(rdma.TagCounted) != 0 {
		t.list.Sync(w.Unexpected)
	}
	op, v := rdma.WCOpTagSync, abi.VendorNone
	switch rdma.TagOpcode(w.Opcode) {
	case rdma.TagAdd:
		op, v = rdma.WCOpTagAdd, t.add(handle, &w, slot[abi.TagWQEBytes:])
	case rdma.TagDel:
		op = rdma.WCOpTagDel
		if v = abi.VendorTagGone; t.list.Del(w.Handle) {
			t.noteReleased()
			v = abi.VendorNone
		}
	case rdma.TagSync:
	default:
		v = abi.VendorBadWQE
	}
	t.ops.Release(1)
	t.complete(&w, op, v)
}

// add posts a buffer. One that the list has no place for gives its place back at once: the library
// has counted it.
func (t *tagging) add(handle uint32, w *abi.TagWQE, list []byte) abi.Vendor {
	v := abi.VendorBadWQE
	if n := int(w.NumSGE); n <= limits.MaxTagSGE {
		if b := t.list.Spare(n); b != nil {
			b.WRID, b.Tag, b.Mask, b.Handle = w.RecvWRID, w.Tag, w.Mask, handle
			for i := range b.List {
				abi.DecodeSGE(list, i, &b.List[i])
			}
			t.list.Add(b)
			return abi.VendorNone
		}
		v = abi.VendorTagsFull
	}
	t.noteReleased()
	return v
}

// complete tells of an operation where that was asked for, or where it has failed.
func (t *tagging) complete(w *abi.TagWQE, op rdma.WCOpcode, v abi.Vendor) {
	if v == abi.VendorNone && w.Flags&uint8(rdma.TagSignaled) == 0 {
		return
	}
	t.cqe = abi.CQE{WRID: w.WRID, Opcode: uint32(op), VendorErr: uint32(v)}
	if v != abi.VendorNone {
		t.cqe.Status = uint32(rdma.WCTagErr)
	}
	if !t.list.IsSynced() {
		t.cqe.WCFlags = uint32(rdma.WCTagSyncWanted)
	}
	t.srq.cq.Push(&t.cqe, false)
}
