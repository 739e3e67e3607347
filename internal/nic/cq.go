package nic

import (
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
)

// cq is a completion queue. It implements work.CompletionQueue.
type cq struct {
	nic     *NIC
	context *Context
	handle  uint32
	channel uint32
	shared  Shared
	slots   Shared // nil while those that shared has are in use
	ring    *ring.Producer
	arm     *atomic.Uint32
	state   *atomic.Uint32
	failed  bool
	lossy   bool // the application has asked not to be told of overruns
	users   int  // queue pairs
	pushed  uint64

	// The library's own list; listHead is what was last seen of its word.
	listTail, listHeadWord *atomic.Uint32
	listHead               uint32
	listCount              *atomic.Uint64

	moderation moderation
	hold       hold
	gathering  gathering
}

// cqIgnoreOverrun is IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN; the other known flag, that one thread
// polls, is between the application and its library.
const cqIgnoreOverrun = 1 << 1

// CreateCQ makes a completion queue; its memory goes to the application.
func (c *Context) CreateCQ(req *abi.CreateCQReq) (abi.CreateCQRsp, Shared, *rdma.Refusal) {
	var rsp abi.CreateCQRsp
	switch {
	case req.Entries == 0 || req.Entries > limits.MaxCQE:
		return rsp, nil, refusef(syscall.EINVAL, "cqe %d outside 1…%d", req.Entries, limits.MaxCQE)
	case req.Channel != 0 && !c.channels[req.Channel]:
		return rsp, nil, refusef(syscall.EINVAL, "completion channel %d is unknown", req.Channel)
	case c.nic.counts.cqs >= limits.MaxCQ:
		return rsp, nil, refusef(syscall.ENOMEM, "limit of %d completion queues", limits.MaxCQ)
	}
	if r := mayHave("completion queues", len(c.cqs), c.most().CQs); r != nil {
		return rsp, nil, r
	}
	geo := ring.Geometry{Entries: ring.RoundEntries(req.Entries), Stride: abi.CQEBytes}
	shared, err := c.nic.cfg.Memory.Alloc(abi.QueueHeaderBytes + geo.Bytes())
	if err != nil {
		return rsp, nil, refusef(syscall.ENOMEM, "queue memory: %v", err)
	}
	m := shared.Bytes()
	q := &cq{
		nic: c.nic, context: c, handle: c.nic.id(), channel: req.Channel, shared: shared,
		ring: ring.NewProducer(m[abi.QueueHeaderBytes:], geo,
			ring.Word(m, abi.OffCQProducer), ring.Word(m, abi.OffCQConsumer)),
		arm: ring.Word(m, abi.OffCQArm), state: ring.Word(m, abi.OffCQState),
		lossy:    req.Flags&cqIgnoreOverrun != 0,
		listTail: ring.Word(m, abi.OffCQListTail), listHeadWord: ring.Word(m, abi.OffCQListHead),
		listCount: ring.Word64(m, abi.OffCQListCount),
	}
	c.cqs[q.handle] = q
	c.nic.counts.cqs++
	return abi.CreateCQRsp{Handle: q.handle, Entries: geo.Entries}, shared, nil
}

// DestroyCQ removes a completion queue that no QP uses.
func (c *Context) DestroyCQ(handle uint32) *rdma.Refusal {
	q := c.cqs[handle]
	if q == nil {
		return refusef(syscall.EINVAL, "completion queue %d is unknown", handle)
	}
	if q.users > 0 {
		return refusef(syscall.EBUSY, "completion queue %d still serves %d queues", handle, q.users)
	}
	delete(c.cqs, handle)
	c.nic.counts.cqs--
	q.release()
	return nil
}

// release gives the memory back.
func (q *cq) release() {
	q.nic.moderated.remove(q)
	q.nic.held.remove(q)
	if q.slots != nil {
		q.slots.Release()
	}
	q.shared.Release()
}

// Push writes a completion and shows it.
func (q *cq) Push(e *abi.CQE, solicited bool) {
	if q.failed {
		return
	}
	if !q.hasRoom() {
		q.overrun()
		return
	}
	e.Timestamp = uint64(q.nic.now)
	abi.EncodeCQE(q.ring.Slot(), e)
	q.ring.Push()
	q.pushed++
	isError := e.Status != uint32(rdma.WCSuccess)
	if q.nic.cfg.HoldCompletions > 0 {
		q.holdBack(solicited, isError)
		return
	}
	if q.gathering.isOn {
		q.addGathered(solicited, isError)
		return
	}
	q.show(solicited, isError)
}

// hasRoom reports that one more completion is no more than the queue was made for. Those that the
// application's library keeps in a list of its own count (ADR 0026).
func (q *cq) hasRoom() bool {
	free := q.ring.Free()
	tail := q.listTail.Load()
	if free == 0 || tail-q.listHead < free {
		return free > 0
	}
	// What was known of the other side is old.
	q.listHead = q.listHeadWord.Load()
	free = q.ring.Entries() - q.ring.Unreleased()
	listed := tail - q.listHead
	return free > 0 && (listed < free || listed > q.ring.Entries())
}

// show lets the application see what was pushed, and wakes it if it asked for that.
func (q *cq) show(solicited, isError bool) {
	q.ring.Publish()
	// The publish above and this load are sequentially consistent against the application's store
	// of the arm word and its last poll: one of both sees the other (case E11).
	armed := q.arm.Load()
	if armed == abi.ArmNone {
		return
	}
	if armed != abi.ArmNext && !solicited && !isError {
		return
	}
	if q.moderation.isOn() && !isError && q.moderate() {
		return
	}
	q.notify()
}

// notify sends the event that the application asked for, if it still wants it.
func (q *cq) notify() {
	q.moderation.held = 0
	if q.arm.Swap(abi.ArmNone) != abi.ArmNone && q.channel != 0 {
		q.nic.events.push(Event{Context: q.context, Channel: q.channel, Handle: q.handle})
	}
}

// overrun puts the queue into its error state: the application lost a completion.
func (q *cq) overrun() {
	if q.lossy {
		q.nic.counters.CQOverruns++
		return
	}
	q.failed = true
	q.state.Store(1)
	q.nic.counters.CQOverruns++
	q.nic.raise(q.context, rdma.EventCQErr, q.handle)
	q.nic.doomed = append(q.nic.doomed, q)
}

func refusef(errno syscall.Errno, format string, args ...any) *rdma.Refusal {
	return rdma.Refuse(errno, fmt.Sprintf(format, args...))
}
