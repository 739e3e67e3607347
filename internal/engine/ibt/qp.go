package ibt

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
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
	view  Attr // what Attr returned last
	mtu   uint32
	// base is the service in the opcodes that this QP sends.
	base ib.Opcode

	send  requester
	recv  responder
	flush flusher
	cnp   notifier
	// handed is the batch that is being handed over.
	handed handedOver
	// tagging is nil but where receives come from a queue that matches tags.
	tagging *tagging
	// isRequestTurn alternates between requests and READ responses, so that neither starves.
	isRequestTurn bool

	// Under construction; fields, so that handing them out allocates nothing.
	grh   [GRHBytes]byte
	word  [8]byte
	cqe   abi.CQE
	stats Stats
}

// New makes a queue pair in state RESET.
func New(cfg Config) *QP {
	if cfg.Scratch == nil {
		cfg.Scratch = work.NewScratch()
	}
	q := &QP{cfg: cfg, host: cfg.Host, table: cfg.Host.Memory(), base: serviceBase(cfg.Type)}
	q.tagging = newTagging(cfg.Tags)
	q.send.ring = cfg.SQ
	if cfg.ReceivePD == 0 {
		cfg.ReceivePD = cfg.PD
	}
	q.recv.target = Target{
		PD: cfg.PD, ReceivePD: cfg.ReceivePD, RQ: cfg.RQ, RecvCQ: cfg.RecvCQ,
	}
	q.reset()
	return q
}

// QPN returns the queue pair number.
func (q *QP) QPN() rdma.QPN { return q.cfg.QPN }

// Type returns the transport service.
func (q *QP) Type() rdma.QPType { return q.cfg.Type }

// PD returns the protection domain.
func (q *QP) PD() mem.PD { return q.cfg.PD }

// accessor is this QP, with the protection domain it has itself, as the protection table knows
// users of keys.
func (q *QP) accessor() mem.Accessor { return mem.Accessor{PD: q.cfg.PD, QP: q.cfg.QPN} }

// listPD is the protection domain that the list of a request is judged by. The data of a
// rendezvous go into a buffer that was posted to the shared receive queue.
func (q *QP) listPD(w *sendWR) mem.PD {
	if w.owner == ownerRead {
		return q.recv.target.ReceivePD
	}
	return q.cfg.PD
}

// State returns the state; it is always one of the seven.
func (q *QP) State() rdma.QPState { return q.state }

// IsDraining reports a QP in SQD whose started requests are not yet complete.
func (q *QP) IsDraining() bool { return q.state == rdma.QPStateSQD && !q.isDrained() }

// Attr returns the attributes for a query: SQPSN and RQPSN are the next PSNs to be sent and
// expected. It is valid until the next call and belongs to the QP.
func (q *QP) Attr() *Attr {
	q.view = q.attr
	if q.state >= rdma.QPStateRTS {
		q.view.SQPSN = q.send.high
	}
	if q.state >= rdma.QPStateRTR {
		q.view.RQPSN = q.recv.expected
	}
	return &q.view
}

func (q *QP) isUD() bool { return q.cfg.Type == rdma.QPTypeUD }

// isReliable reports a service with acknowledges: RC, or either half of an XRC connection.
func (q *QP) isReliable() bool {
	return q.cfg.Type != rdma.QPTypeUC && q.cfg.Type != rdma.QPTypeUD
}

func (q *QP) isXRCRecv() bool { return q.cfg.Type == rdma.QPTypeXRCRecv }

// canReceive reports a state in which the responder works (IBTA 10.3.1).
func (q *QP) canReceive() bool {
	switch q.state {
	case rdma.QPStateRTR, rdma.QPStateRTS, rdma.QPStateSQD, rdma.QPStateSQE:
		return true
	default:
		return false
	}
}

// canRequest reports a state in which the requester works.
func (q *QP) canRequest() bool {
	return q.state == rdma.QPStateRTS || q.state == rdma.QPStateSQD
}
