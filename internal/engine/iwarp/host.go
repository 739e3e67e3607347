package iwarp

import (
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
)

// Host is what a QP needs of the NIC around it.
type Host interface {
	// Memory is the protection table for local keys and STags.
	Memory() *mem.Table
	// Raise queues an asynchronous event about q.
	Raise(q *QP, e rdma.EventType)
	// Note records evidence for people: one of q's errors and what the NIC saw.
	Note(q *QP, c work.Cause)
	// Count adds to one of the NIC's counters.
	Count(c work.Counter, n uint64)
}

// Config makes a QP. Its service is a reliable connection (RC).
type Config struct {
	Host      Host
	QPN       rdma.QPN
	PD        mem.PD
	SQ        *ring.Consumer
	RQ        work.ReceiveQueue
	ReceivePD mem.PD // that of RQ where it is a shared one; else 0, for PD
	SendCQ    work.CompletionQueue
	RecvCQ    work.CompletionQueue
	MaxSGE    uint32 // of the send queue
	MaxInline uint32
	SignalAll bool
	// Scratch is shared by the QPs of a lane.
	Scratch *work.Scratch
}

// Attr are the attributes that modify sets. The NIC has validated them. The depths are those that
// the application asked for; MPA may agree on less.
type Attr struct {
	Access          rdma.Access
	MaxRdAtomic     uint8 // READs and atomics as initiator: ORD
	MaxDestRdAtomic uint8 // as target: IRD
}
