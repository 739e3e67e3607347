package iwarp

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
)

// QP is one queue pair. It has no lock: one thread owns it.
type QP struct {
	cfg   Config
	host  Host
	table *mem.Table
	// now is the instant of the call in progress.
	now clock.Time

	state rdma.QPState
	attr  Attr
	// conn is the connection that the queue pair is attached to, until that is over.
	conn *Conn

	send  requester
	recv  responder
	flush flusher

	// Under construction; fields, so that handing them out allocates nothing.
	cqe   abi.CQE
	word  [atomicBytes]byte
	stats Stats
}

// New makes a queue pair in state RESET.
func New(cfg Config) *QP {
	if cfg.Scratch == nil {
		cfg.Scratch = work.NewScratch()
	}
	if cfg.ReceivePD == 0 {
		cfg.ReceivePD = cfg.PD
	}
	q := &QP{cfg: cfg, host: cfg.Host, table: cfg.Host.Memory()}
	q.send.queue = work.NewSendQueue(cfg.SQ)
	q.reset()
	return q
}

// QPN returns the queue pair number.
func (q *QP) QPN() rdma.QPN { return q.cfg.QPN }

// Type returns the transport service.
func (q *QP) Type() rdma.QPType { return rdma.QPTypeRC }

// PD returns the protection domain.
func (q *QP) PD() mem.PD { return q.cfg.PD }

// Conn returns the connection that the queue pair is attached to, or nil.
func (q *QP) Conn() *Conn { return q.conn }

// accessor is this QP as the protection table knows users of STags.
func (q *QP) accessor() mem.Accessor { return mem.Accessor{PD: q.cfg.PD, QP: q.cfg.QPN} }

// State returns the state; it is always one of the seven.
func (q *QP) State() rdma.QPState { return q.state }

// IsDraining reports a QP in SQD whose started requests are not yet complete.
func (q *QP) IsDraining() bool { return q.state == rdma.QPStateSQD && q.send.wrs.Len() > 0 }

// Attr returns the attributes for a query, once connected with the depths that both ends agreed
// on. It belongs to the QP.
func (q *QP) Attr() *Attr { return &q.attr }

// SendDone returns the index in the send queue below which everything is complete, with its
// completion shown. The bytes of these requests are the peer's TCP's, or its engine's.
func (q *QP) SendDone() uint32 { return q.send.queue.DoneIndex() }

// BeginsReads reports whether READs and atomics can be sent on the connection (ORD is not 0), and
// ServesReads whether the peer's are answered (IRD is not 0).
func (q *QP) BeginsReads() bool { return q.send.ord > 0 }

// ServesReads is described with BeginsReads.
func (q *QP) ServesReads() bool { return q.recv.ird > 0 }

// HasWork reports that flushing has more to do than one call did.
func (q *QP) HasWork() bool { return q.flush.isActive }

// Work goes on with it.
func (q *QP) Work(now clock.Time) {
	q.now = now
	q.flushSome()
}
