package ibt

import (
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
)

// GRHBytes is the size of the area in front of a UD message (IBTA 11.4.1.2).
const GRHBytes = 40

// Host is what a QP needs of the NIC around it.
type Host interface {
	// Memory is the protection table for local and remote keys.
	Memory() *mem.Table
	// AddressHandle finds a UD destination by handle, or nil when it is unknown or of another PD.
	AddressHandle(handle uint32, pd mem.PD) *Address
	// NetworkHeader writes what the link puts into the GRH area of a UD receive: a GRH, or on RoCE
	// v2 over IPv4 twenty unused bytes and the IPv4 header (annex A17.4.5.2).
	NetworkHeader(p *Packet, dst *[GRHBytes]byte)
	// ServiceLevel is what the completion of a UD receive tells as such.
	ServiceLevel(p *Packet) uint8
	// Raise queues an asynchronous event about q.
	Raise(q *QP, e rdma.EventType)
	// Note records evidence for people: one of q's errors and what the NIC saw.
	Note(q *QP, c work.Cause)
	// Count adds to one of the NIC's counters.
	Count(c work.Counter, n uint64)
}

// Target is where the requests of a peer go: whose memory they may touch, which receives they take,
// and where those complete.
type Target struct {
	PD mem.PD // what remote keys are judged by
	// ReceivePD is what the lists of receives are judged by: that of a shared receive queue (IBTA
	// 10.2.9.1), which need not be the queue pair's.
	ReceivePD mem.PD
	RQ        work.ReceiveQueue
	RecvCQ    work.CompletionQueue
}

// Domain is an XRC domain. Its receiving queue pairs have no protection domain, receives or
// completion queue of their own: each request names a shared receive queue that has (IBTA A14.2).
type Domain interface {
	// Target returns what an XRC SRQ of the domain stands for; nil where there is none of that
	// number in the domain. It stays valid until DropTarget was called for its receive queue.
	Target(srqn uint32) *Target
}

// Config makes a QP.
type Config struct {
	Host Host
	Type rdma.QPType
	QPN  rdma.QPN
	PD   mem.PD
	SQ   *ring.Consumer    // nil without a send queue
	RQ   work.ReceiveQueue // nil for XRC
	// ReceivePD is the protection domain of RQ where that is a shared one; else 0, for PD.
	ReceivePD mem.PD
	SendCQ    work.CompletionQueue
	RecvCQ    work.CompletionQueue
	Domain    Domain // XRC_RECV only
	// Tags is what RQ matches tags with; nil for most. RC only, with a send queue.
	Tags      work.Matcher
	MaxSGE    uint32 // of the send queue
	MaxInline uint32
	SignalAll bool
	// Scratch is shared by the QPs of a lane.
	Scratch *work.Scratch
}

// Attr are the attributes that modify sets. The NIC has validated them.
type Attr struct {
	AV      Address  // RC and UC: the path
	PathMTU rdma.MTU // UD: the port's
	// Segment is the payload of a full packet in bytes where PathMTU does not say it: between QPs
	// of one NIC no link limits it. 0 stands for PathMTU. Set with the AV; never for UD.
	Segment         uint32
	PKey            rdma.PKey
	PKeyIndex       uint16
	QKey            rdma.QKey
	DestQPN         rdma.QPN
	RQPSN           rdma.PSN // first PSN expected
	SQPSN           rdma.PSN // first PSN sent
	Access          rdma.Access
	Timeout         uint8 // local ACK timeout: 4.096 µs × 2^Timeout; 0 = none (IBTA 9.7.6.1.3)
	RetryCnt        uint8 // 0…7
	RNRRetry        uint8 // 0…7; 7 = for ever
	MinRNRTimer     uint8 // code that our RNR NAKs carry
	MaxRdAtomic     uint8 // as initiator
	MaxDestRdAtomic uint8 // as target
	SQDAsyncNotify  bool
}
