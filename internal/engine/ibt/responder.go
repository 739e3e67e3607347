package ibt

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

// responder is the receiving half: request packets change memory, consume receives, and are
// answered.
type responder struct {
	expected rdma.PSN // of the next request packet
	msn      rdma.MSN // messages completed
	// ackPSN is the last request packet executed that is no READ or atomic; plain acknowledges
	// carry it. One that carried the PSN of a READ would claim that its data have arrived.
	ackPSN rdma.PSN

	message message
	// target is where requests go: fixed, but for XRC that of the request that came last.
	target Target
	// wr is the receive in use: of a message in progress, or left over from one that was dropped.
	wr    work.RecvWR
	hasWR bool
	room  uint64 // bytes that its list takes

	// resources are the READs and atomics that the peer may ask for again, oldest first, and those
	// whose reply is in progress; active counts the latter and firstActive is at most the index
	// of the first.
	resources   work.Deque[resource]
	active      int
	firstActive int
	window      replyWindow

	isAckDue bool
	nak      pendingNak
	// isNakSent: the gap before expected was reported, and packets after it are dropped until
	// they begin anew: strayPSN is the last of them.
	isNakSent bool
	strayPSN  rdma.PSN
	// isFailing: a request was refused for good. Nothing more is taken; once the replies that are
	// due and the NAK have left, the QP is in error.
	isFailing bool
	// isGone: the process that requests are for has ended. The peer hears nothing from here again,
	// as of a host that vanished, until the NIC has noticed as well and the QP goes.
	isGone    bool
	isCommEst bool // the peer's first packet was reported

	cause work.Cause // evidence of a refusal, while a request is executed
}

// message is the SEND or WRITE whose packets are arriving.
type message struct {
	kind kind // kindNone between messages
	done uint64
	reth ib.RETH // WRITE
}

// pendingNak waits for its place in the order of replies.
type pendingNak struct {
	isDue    bool
	syndrome ib.Syndrome
	psn      rdma.PSN
}

// verdict is what becomes of a request packet.
type verdict uint8

const (
	verdictAccept      verdict = iota
	verdictDrop                // silently
	verdictNotReady            // no receive: receiver-not-ready NAK
	verdictInvalid             // NAK invalid request
	verdictAccess              // NAK remote access error
	verdictOperational         // our application's receive is at fault: NAK remote operational error
	verdictTooLong             // longer than the receive: NAK invalid request
	verdictGone                // the process has ended: silently, this and all that follow
)

func (r *responder) reset() {
	r.restartAt(0)
	r.resources = work.Deque[resource]{}
	r.hasWR = false
	r.isCommEst = false
}

// restartAt expects p next and forgets the past.
func (r *responder) restartAt(p rdma.PSN) {
	r.expected, r.ackPSN = p, p.Add(rdma.PSNMask)
	r.msn = 0
	r.message = message{}
	r.nak = pendingNak{}
	r.isNakSent, r.isFailing, r.isGone = false, false, false
	r.stop()
	r.window.reset()
}

// stop drops the replies that are due, but for a NAK that says why.
func (r *responder) stop() {
	r.resources.Cut(0)
	r.active, r.firstActive = 0, 0
	r.window.stop()
	r.isAckDue = false
	r.message = message{}
}

// handleRequest takes a request packet of RC or UC.
func (q *QP) handleRequest(p *Packet, info *ib.OpcodeInfo) {
	r := &q.recv
	if r.isFailing || r.isGone {
		q.host.Count(work.CountDroppedSilently, 1)
		return
	}
	if q.state == rdma.QPStateRTR && !r.isCommEst {
		r.isCommEst = true
		q.host.Raise(q, rdma.EventCommEst)
	}
	if !q.isReliable() {
		q.handleUnreliable(p, info)
		return
	}
	switch d := p.Headers.BTH.PSN.Sub(r.expected); {
	case d > 0:
		q.handleAhead(p)
	case d < 0:
		q.handleDuplicate(p, info)
	default:
		q.settle(p, info, q.execute(p, info))
	}
}

// handleAhead reports a gap, once, and again only when the peer has gone back and lost the missing
// packet a second time: its packets begin anew then (IBTA 9.7.5.2.3).
func (q *QP) handleAhead(p *Packet) {
	r := &q.recv
	psn := p.Headers.BTH.PSN
	q.host.Count(work.CountOutOfSequence, 1)
	isNew := !r.isNakSent || psn.LessEq(r.strayPSN)
	r.strayPSN = psn
	if isNew {
		r.isNakSent = true
		r.nak = pendingNak{isDue: true, syndrome: ib.NAK(ib.NAKSequence), psn: r.expected}
	}
}

// settle does what the verdict on the expected packet asks for.
func (q *QP) settle(p *Packet, info *ib.OpcodeInfo, v verdict) {
	r := &q.recv
	switch v {
	case verdictAccept:
		r.isNakSent, r.nak.isDue = false, false
		if info.Operation == ib.OperationSend || info.Operation == ib.OperationWrite {
			r.ackPSN = r.expected
			r.expected = r.expected.Add(1)
			if p.Headers.BTH.AckReq {
				q.deferAck()
			}
			if info.Position == ib.Last || info.Position == ib.Only {
				r.msn = r.msn.Add(1)
			}
		}
	case verdictNotReady:
		r.isNakSent, r.strayPSN = true, r.expected
		r.nak = pendingNak{
			isDue: true, syndrome: ib.RNRNAK(ib.RNRTimer(q.attr.MinRNRTimer)), psn: r.expected,
		}
	case verdictDrop:
		q.host.Count(work.CountDroppedSilently, 1)
	case verdictGone:
		q.noteRefusal(p, rdma.WCLocProtErr, 0)
		q.vanish()
	default:
		q.refuse(p, v)
	}
}

// vanish lets the QP fall silent because its process has ended. With hardware no peer sees memory
// go before the queue pair is gone, so none may see a NAK that tells of it.
func (q *QP) vanish() {
	q.recv.isGone = true
	q.recv.stop()
	q.host.Count(work.CountDroppedSilently, 1)
}

// deferAck plans an acknowledge for when replies are polled, so that a batch of packets gets one.
func (q *QP) deferAck() {
	if q.recv.isAckDue {
		q.host.Count(work.CountAckDeferred, 1)
	}
	q.recv.isAckDue = true
}

// refuse answers a request that cannot be executed: a NAK, an error in the receive where one was
// in use and an asynchronous event where not, and the error state (IBTA 9.9.3, 10.10.2.3).
func (q *QP) refuse(p *Packet, v verdict) {
	r := &q.recv
	code, status, event := ib.NAKInvalidRequest, rdma.WCRemInvReqErr, rdma.EventQPReqErr
	switch v {
	case verdictAccess:
		code, status, event = ib.NAKRemoteAccess, rdma.WCRemAccessErr, rdma.EventQPAccessErr
	case verdictOperational:
		code, status, event = ib.NAKRemoteOp, rdma.WCLocProtErr, rdma.EventQPFatal
		if r.cause.Vendor == abi.VendorBadWQE {
			status = rdma.WCLocQPOpErr
		}
	case verdictTooLong:
		status = rdma.WCLocLenErr
	default:
		// An invalid request; the others are not refused.
	}
	q.noteRefusal(p, status, ib.NAK(code))
	if !q.failReceive(status, r.cause.Vendor) {
		q.host.Raise(q, event)
	}
	if !q.isReliable() {
		q.enterError()
		return
	}
	r.isFailing = true
	r.isAckDue = false
	r.nak = pendingNak{isDue: true, syndrome: ib.NAK(code), psn: p.Headers.BTH.PSN}
}

// takeReceive makes sure that a receive is in use.
func (q *QP) takeReceive() verdict {
	r := &q.recv
	if r.hasWR {
		return verdictAccept
	}
	if r.target.RQ == nil {
		return verdictInvalid
	}
	switch r.target.RQ.Take(&r.wr) {
	case work.TakeEmpty:
		q.host.Count(work.CountResourceMissing, 1)
		return verdictNotReady
	case work.TakeMalformed:
		r.hasWR = true
		q.stats.RecvTaken++
		r.cause.Vendor = abi.VendorBadWQE
		return verdictOperational
	case work.TakeOK:
	}
	r.hasWR = true
	q.stats.RecvTaken++
	r.room = mem.ListBytes(r.wr.List)
	return verdictAccept
}
