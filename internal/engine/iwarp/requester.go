package iwarp

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
)

// sendWR is one send work request, and how far it has come.
type sendWR struct {
	work.SendWR
	op *operation
	// off is how many bytes of the message are framed.
	off uint32
	// isBegun says that a byte of it is framed, or for those without bytes its header; isFramed,
	// that all is, up to position end of the stream.
	isBegun, isFramed bool
	// isWritten says that all segments of a WRITE are framed, and isImmDone that the Immediate Data
	// message of a SEND or WRITE is.
	isWritten, isImmDone bool
	// isDone says that it waits only for those before it to complete.
	isDone bool
	end    uint64
	// got counts the bytes of a READ that have come.
	got uint32
	// sink is the STag that the answer to a READ names, and the identifier of an atomic request.
	sink uint32
	// verdict is the status that the peer's Terminate gives this request, success where it gives none.
	verdict rdma.WCStatus
	// serial names this request in the NIC's scratch memory.
	serial uint64
}

// requester is the sending half: work requests from the send queue become messages.
type requester struct {
	queue work.SendQueue
	wrs   work.Deque[sendWR]
	first uint32 // number of the first of wrs, counted modulo 2^32
	cur   int    // the request of wrs that is framed next; wrs.Len(): one not fetched yet
	// reads are the numbers of READs and atomics on their way, in the order of their requests.
	reads work.Deque[uint32]
	ord   int

	sendMSN    uint32 // of the next message on the peer's receive queue
	requestMSN uint32 // of the next READ or atomic request
	sink       uint32 // of the last
	// hasRTRRead says that the RTR was a READ, whose answer is due before all others.
	hasRTRRead bool
	// isStalled says that nothing can be framed until something happens.
	isStalled bool
	// isLast says that only the next left entries of the send queue are begun.
	isLast bool
	left   uint32
}

func (r *requester) reset() {
	r.queue.Reset()
	r.wrs = work.Deque[sendWR]{} // with the copies, which may be large
	r.stop()
}

// stop forgets what is under way.
func (r *requester) stop() {
	r.cur = 0
	r.reads.Cut(0)
	r.isStalled, r.isLast, r.left = false, false, 0
}

// start begins on a new connection.
func (r *requester) start(ord uint16) {
	r.stop()
	r.hasRTRRead = false
	r.ord = int(min(ord, limits.MaxRDAtomic))
	r.sendMSN, r.requestMSN, r.sink = 1, 1, 0
}

// HandleDoorbell looks for posted work. Before RTS it stays in the queue; in error it is flushed.
func (q *QP) HandleDoorbell(now clock.Time) {
	q.now = now
	switch q.state {
	case rdma.QPStateRTS:
		q.loadSendRing()
		q.send.isStalled = false
		if c := q.conn; c != nil && c.wait.isWaiting {
			c.now = now
			c.lookAgain()
		}
	case rdma.QPStateError:
		q.startFlush()
	default:
		// The work waits.
	}
}

// loadSendRing counts what the application has published. An index that no library of ours writes
// is the end of the QP: what else lies in the ring means nothing.
func (q *QP) loadSendRing() {
	if q.send.queue.Load() {
		return
	}
	q.stats.CorruptRings++
	q.host.Note(q, work.Cause{Vendor: abi.VendorBadWQE})
	q.host.Raise(q, rdma.EventQPFatal)
	q.failLocally()
}

// failLocally ends the QP for a fault of this side, which the peer is told.
func (q *QP) failLocally() {
	q.enterError()
	if q.conn != nil {
		q.conn.now = q.now
		q.conn.terminateLocally()
	}
}

// canRequest reports a state in which the requester works.
func (q *QP) canRequest() bool { return q.state == rdma.QPStateRTS || q.state == rdma.QPStateSQD }

// hasRequest reports that frameRequest may have something to frame or to fetch.
func (q *QP) hasRequest() bool {
	r := &q.send
	if !q.canRequest() || r.isStalled {
		return false
	}
	return r.cur < r.wrs.Len() || r.hasUnfetched()
}

func (r *requester) hasUnfetched() bool {
	return r.queue.Unfetched() > 0 && (!r.isLast || r.left > 0)
}

// finishQueue lets the requester do what is posted now, and nothing that is posted later.
func (q *QP) finishQueue() {
	q.loadSendRing()
	q.send.isLast, q.send.left = true, q.send.queue.Unfetched()
}

// isFinished reports that nothing is left to do after finishQueue.
func (q *QP) isFinished() bool {
	return q.state == rdma.QPStateError || q.send.wrs.Len() == 0 && !q.send.hasUnfetched()
}

// nextWR returns the request that is framed next and fetches it if need be; nil where there is
// none, or where it has to wait.
func (q *QP) nextWR() *sendWR {
	r := &q.send
	for range limits.WQEsPerDoorbell {
		if r.cur == r.wrs.Len() && q.fetch() == nil {
			return nil
		}
		w := r.wrs.At(r.cur)
		switch {
		case w.Fail != rdma.WCSuccess:
			if r.cur > 0 {
				r.isStalled = true // those before it complete first
				return nil
			}
			q.failHead(w.Fail, w.Vendor)
			q.failLocally()
			return nil
		case !w.isBegun && !q.mayBegin(w):
			r.isStalled = true
			return nil
		case w.op.kind != kindLocal:
			return w
		}
		q.executeLocal(w)
	}
	return nil
}

// mayBegin asks everything that can hold a request back.
func (q *QP) mayBegin(w *sendWR) bool {
	r := &q.send
	if w.Has(rdma.SendFence) && r.reads.Len() > 0 {
		return false // RFC 5040 5.5 leaves it to the local interface: IBTA 10.8.3.3
	}
	return !w.op.isAnswered() || !r.hasRTRRead && r.reads.Len() < r.ord
}

// fetch copies the next work request out of the ring and checks the copy; nil when there is none.
func (q *QP) fetch() *sendWR {
	r := &q.send
	if !r.hasUnfetched() {
		if r.isLast {
			return nil
		}
		q.loadSendRing()
		if r.queue.Unfetched() == 0 || !q.canRequest() {
			return nil
		}
	}
	slot := r.queue.Fetch()
	if r.isLast {
		r.left--
	}
	w := r.wrs.Push()
	w.off, w.got, w.end = 0, 0, 0
	w.isBegun, w.isFramed, w.isDone = false, false, false
	w.isWritten, w.isImmDone, w.verdict = false, false, rdma.WCSuccess
	w.Reset()
	w.Copy(slot, work.SendLimits{MaxSGE: q.cfg.MaxSGE, MaxInline: q.cfg.MaxInline})
	w.op = operationOf(w.WQE.Opcode)
	w.serial = q.cfg.Scratch.NewSerial()
	q.checkWQE(w)
	q.stats.SendFetched++
	return w
}

// checkWQE judges a copied work request; what is wrong fails it in its turn.
func (q *QP) checkWQE(w *sendWR) {
	if w.Fail != rdma.WCSuccess {
		return
	}
	flags := rdma.SendFlags(w.WQE.Flags)
	isInline := flags&rdma.SendInline != 0
	switch {
	case w.op.kind == kindNone:
		w.SetFail(rdma.WCLocQPOpErr, abi.VendorOpcode)
	case isInline && !w.op.isMoving():
		w.SetFail(rdma.WCLocQPOpErr, abi.VendorInline)
	case flags&^work.SendFlagsKnown != 0,
		w.op.kind == kindLocal && w.WQE.NumSGE != 0:
		w.SetFail(rdma.WCLocQPOpErr, abi.VendorBadWQE)
	case w.op.kind == kindLocal:
	case w.op.isAnswered() && q.send.ord == 0:
		w.SetFail(rdma.WCLocQPOpErr, abi.VendorRDAtomic)
	default:
		q.checkWQEBytes(w, isInline)
	}
}

func (q *QP) checkWQEBytes(w *sendWR, isInline bool) {
	if isInline {
		return
	}
	total := mem.ListBytes(w.List())
	if total > limits.MaxMessageBytes || w.op.kind == kindAtomic && total != atomicBytes {
		w.SetFail(rdma.WCLocLenErr, abi.VendorLength)
		return
	}
	w.Length = uint32(total)
	var want rdma.Access
	if !w.op.isMoving() {
		want = rdma.AccessLocalWrite
	}
	w.CheckList(q.table, q.cfg.PD, want)
}

// atomicBytes is the operand size of atomics (RFC 7306 5).
const atomicBytes = 8

// executeLocal does a bind or a local invalidate: all requests before it are framed, and none
// after it.
func (q *QP) executeLocal(w *sendWR) {
	r := &q.send
	if f := q.applyLocal(w); f != mem.FaultNone {
		w.SetFail(rdma.WCMWBindErr, abi.VendorWindow)
		w.Fault = f
		return
	}
	w.isBegun, w.isDone = true, true
	r.cur++
	q.completeDone(q.sentPosition())
}

func (q *QP) sentPosition() uint64 {
	if q.conn == nil {
		return 0
	}
	return q.conn.tx.sent
}

func (q *QP) applyLocal(w *sendWR) mem.Fault {
	x := &w.WQE
	if w.op.wc == rdma.WCOpLocalInvalidate {
		return q.table.Invalidate(q.accessor(), rdma.Key(x.ImmOrRKey))
	}
	return q.table.Bind(q.accessor(), &mem.Binding{
		Key: rdma.Key(x.RKey), Region: rdma.Key(x.Extra), Addr: x.RemoteAddr, Length: x.CompareAdd,
		Access: rdma.Access(x.Swap),
	})
}

// readAt returns the i-th READ or atomic on its way.
func (q *QP) readAt(i int) *sendWR {
	r := &q.send
	return r.wrs.At(int(*r.reads.At(i) - r.first))
}

// answered takes the oldest READ or atomic off the list of those on their way.
func (q *QP) answered() {
	q.readAt(0).isDone = true
	q.send.reads.Pop()
	q.send.isStalled = false
	q.completeDone(q.sentPosition())
}
