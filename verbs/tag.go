package verbs

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
	"github.com/softrnic/softrnic/internal/wire/tm"
)

// TagConfig describes the matching list of a shared receive queue. Zero sizes mean 128 buffers and
// 256 operations that the NIC has not carried out yet.
type TagConfig struct {
	MaxTags, MaxOps int
}

const (
	defaultTags   = 128
	defaultTagOps = 256
)

// Headers of messages for queues that match tags. They lie at the start of ordinary SENDs:
//
//	eager       TagHeader | data
//	rendezvous  TagHeader | Rendezvous | what else the program likes
//	FIN         TagHeader | Rendezvous, as of the request
//
// The data of an eager message go into the buffer that its tag matches. Those of a rendezvous the
// receiver's NIC fetches itself by READ, and then it sends the FIN: the sender's queue pair needs a
// receive for it, and until it comes the data stay where they are.
type (
	// TagHeader begins every message.
	TagHeader = tm.Header
	// Rendezvous says where the data are.
	Rendezvous = tm.Rendezvous
	// TagMessage says what a message is: TagHeader.Opcode.
	TagMessage = tm.Opcode
)

// Messages.
const (
	// TagNone is a message that is not matched.
	TagNone       = tm.OpNoTag
	TagRendezvous = tm.OpRendezvous
	TagFin        = tm.OpFin
	TagEager      = tm.OpEager
)

// Lengths of the headers, in bytes.
const (
	TagHeaderLen  = tm.HeaderLen
	RendezvousLen = tm.RendezvousLen
)

// ParseTagHeader reads a TagHeader at the start of a message; an error says that it is cut short.
func ParseTagHeader(b []byte) (TagHeader, error) { return tm.ParseHeader(b) }

// ParseRendezvous reads the Rendezvous that follows a TagHeader.
func ParseRendezvous(b []byte) (Rendezvous, error) { return tm.ParseRendezvous(b) }

// TagOp is what operations on a matching list have in common. They complete in the queue's CQ: if
// Flags has TagSignaled, and if they fail.
type TagOp struct {
	// ID comes back in the completion.
	ID    uint64
	Flags TagFlags
	// Unexpected is how many unexpected messages the program has handled so far, modulo 2^32; with
	// TagCounted. Where that is not what the NIC has counted, the list and the program are out of
	// step, and what is added is not matched until they are in step again: a buffer might else take
	// a later message than one that the program does not know of yet.
	Unexpected uint32
}

// TagBuffer is a buffer for one message whose tag fits: its tag & Mask is Tag.
type TagBuffer struct {
	// ID comes back in the message's completions.
	ID        uint64
	Tag, Mask uint64
	SGE       []SGE
}

// TagHandle names a buffer in a matching list.
type TagHandle uint32

// AddTag appends a buffer to the queue's matching list. It returns ErrQueueFull where there are as
// many buffers as the list holds, or too many operations under way. Of the buffers that a message
// fits the oldest gets it. Small messages complete once, with WCTagMatch and WCTagDataValid; others
// twice, first with the former, as soon as they are matched, then with the latter.
func (s *SRQ) AddTag(b TagBuffer, op TagOp) (TagHandle, error) {
	return s.tags.post(&abi.TagWQE{
		WRID: op.ID, RecvWRID: b.ID, Tag: b.Tag, Mask: b.Mask, Opcode: uint8(rdma.TagAdd),
		Flags: uint8(op.Flags), Unexpected: op.Unexpected,
	}, b.SGE)
}

// DeleteTag takes a buffer out of the list. Its completion is WCTagErr where a message has matched
// the buffer before.
func (s *SRQ) DeleteTag(h TagHandle, op TagOp) error {
	_, err := s.tags.post(&abi.TagWQE{
		WRID: op.ID, Opcode: uint8(rdma.TagDel), Handle: uint32(h), Flags: uint8(op.Flags),
		Unexpected: op.Unexpected,
	}, nil)
	return err
}

// SyncTags only tells the NIC how many unexpected messages were handled.
func (s *SRQ) SyncTags(op TagOp) error {
	_, err := s.tags.post(&abi.TagWQE{
		WRID: op.ID, Opcode: uint8(rdma.TagSync), Flags: uint8(op.Flags), Unexpected: op.Unexpected,
	}, nil)
	return err
}

// tagQueue is the application's end of the operations on a matching list.
type tagQueue struct {
	ctx      *Context
	cq       *CQ
	bell     bell
	maxSGE   int
	maxTags  uint32
	refused  *refusals
	released *atomic.Uint32 // buffers that came back, modulo 2^32

	mu     sync.Mutex
	closed bool           // guarded by mu
	added  uint32         // buffers that were posted, modulo 2^32; guarded by mu
	ring   *ring.Producer // guarded by mu; its memory is gone once closed
}

// checkTags refuses a description of the ring that does not fit.
func checkTags(rsp *abi.CreateSRQRsp, asked bool) error {
	if !asked {
		return nil
	}
	if rsp.TagOps > limits.MaxTagOps || rsp.MaxTagSGE > limits.MaxTagSGE ||
		rsp.Doorbell >= abi.DoorbellSlots {
		return fmt.Errorf("the NIC describes %d operations with %d entries at doorbell %d",
			rsp.TagOps, rsp.MaxTagSGE, rsp.Doorbell)
	}
	return layout{
		offset: rsp.TagOffset, bytes: rsp.Bytes, strideMin: abi.TagStride(rsp.MaxTagSGE),
		geo: ring.Geometry{Entries: rsp.TagOps, Stride: rsp.TagStride},
	}.check()
}

// newTagQueue sets up the ring in the queue's memory m. checkTags has passed.
func (c *Context) newTagQueue(
	rsp *abi.CreateSRQRsp, m []byte, cq *CQ, r *refusals,
) *tagQueue {
	return &tagQueue{
		ctx: c, cq: cq, bell: newBell(c.bells.Bytes(), c.lane.Bytes(), rsp.Doorbell, c.kick),
		maxSGE: int(rsp.MaxTagSGE), maxTags: rsp.MaxTags, refused: r,
		released: ring.Word(m, abi.OffTagsReleased),
		ring: ring.NewProducer(m[rsp.TagOffset:],
			ring.Geometry{Entries: rsp.TagOps, Stride: rsp.TagStride},
			ring.Word(m, abi.OffSQProducer), ring.Word(m, abi.OffSQConsumer)),
	}
}

// post posts one operation. A nil queue is that of a shared receive queue without tag matching.
func (q *tagQueue) post(w *abi.TagWQE, list []SGE) (TagHandle, error) {
	if q == nil {
		return 0, badTag("the shared receive queue does not match tags: SRQConfig.Tags")
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	h, err := q.postLocked(w, list)
	if err != nil && !q.closed {
		q.refused.note(w.WRID, uint32(rdma.WCOpTagAdd), err)
	}
	return h, err
}

func (q *tagQueue) postLocked(w *abi.TagWQE, list []SGE) (TagHandle, error) {
	isAdd := w.Opcode == uint8(rdma.TagAdd)
	switch {
	case q.closed:
		return 0, ErrClosed
	case q.ctx.isDead():
		return 0, ErrDeviceFatal
	case len(list) > q.maxSGE:
		return 0, badTag("%d scatter/gather entries; a buffer has room for %d", len(list), q.maxSGE)
	case rdma.TagFlags(w.Flags)&^(rdma.TagSignaled|rdma.TagCounted) != 0:
		return 0, badTag("flags %#x", w.Flags)
	case q.ring.Free() == 0, isAdd && q.added-q.released.Load() >= q.maxTags:
		return 0, ErrQueueFull
	}
	w.NumSGE = uint16(len(list))
	handle := TagHandle(q.ring.Pushed())
	slot := q.ring.Slot()
	abi.EncodeTagWQE(slot, w)
	putSGEs(slot[abi.TagWQEBytes:], list)
	if isAdd {
		q.added++
	}
	q.ring.Push()
	q.ring.Publish()
	q.bell.ring()
	return handle, nil
}

// close ends posting; it waits for a post that is under way.
func (q *tagQueue) close() {
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.ring = nil
}

func badTag(format string, args ...any) error {
	return refuse("post to a matching list", rdma.Refuse(syscall.EINVAL, fmt.Sprintf(format, args...)))
}
