package sim

import (
	"slices"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/invariant"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/sim/check"
)

// request is a send work request on its way into the queue.
type request struct {
	wqe    abi.SendWQE
	pieces []piece // its buffers
	inline []byte
	// badList replaces the entries that describe the buffers, where the request is to be wrong.
	badList []abi.SGE
	entry   check.Send
	flush   flush
}

// work posts what the workload wants next, and mends a send queue in error.
func (e *endpoint) work() {
	w := e.app.world
	if e.isGone || !e.isOpen || e.isTarget() {
		return
	}
	s := e.qpState()
	switch {
	case s == rdma.QPStateSQE:
		e.recover()
		return
	case s == rdma.QPStateError && w.isCalm, s < rdma.QPStateRTS:
		return
	case s == rdma.QPStateError && !w.chance(0.02):
		return
	case s == rdma.QPStateError:
		w.mark("post.in_error")
		e.may(rdma.WCWRFlushErr)
	}
	if w.isCalm {
		e.finishTail()
		return
	}
	// Nothing slows unreliable services down, so that they would fill the run.
	idle := 0.3
	if !e.isReliable() {
		idle = 0.9
	}
	if e.pair != nil && e.peer.isGone || w.requests >= w.plan.quota || w.chance(idle) {
		return
	}
	posted := false
	for range w.between(1, w.plan.posts) {
		if !e.post() {
			break
		}
		posted = true
	}
	if posted {
		e.app.ringBell(e.slot)
	}
}

// recover takes a send queue that has flushed from SQE back to RTS.
func (e *endpoint) recover() {
	e.drainCQs()
	if e.ledger.Open() > 0 || e.qpState() != rdma.QPStateSQE {
		return
	}
	e.app.world.mark("sqe.recovered")
	if e.setState(rdma.QPStateRTS) {
		e.ledger.Recover()
	}
}

// finishTail posts an empty signaled request where only unsignaled ones are open, so that their
// fate shows.
func (e *endpoint) finishTail() {
	if !e.ledger.HasUnsignaledTail() {
		return
	}
	r := request{}
	r.entry.Signaled, r.entry.Bytes = true, -1
	if e.kind == rdma.QPTypeUD {
		if !e.addressAny(&r) {
			return
		}
		r.wqe.Opcode = uint8(rdma.WRSend)
		r.entry.Opcode = rdma.WCOpSend
		e.out.Sent(&check.Message{})
	} else {
		if e.isXRC() && !e.aim() {
			return
		}
		r.wqe.Opcode = uint8(rdma.WRWrite)
		r.entry.Opcode = rdma.WCOpWrite
	}
	if e.submit(&r) {
		e.app.ringBell(e.slot)
	}
}

// post posts one random request and reports whether there was room.
func (e *endpoint) post() bool {
	w := e.app.world
	if e.ledger.Open() >= e.maxSend || e.isXRC() && !e.aim() {
		return false
	}
	if w.plan.bad > 0 && w.chance(w.plan.bad) && e.postBad() {
		return true
	}
	if e.kind == rdma.QPTypeUD {
		return e.postDatagram()
	}
	if w.plan.doors > 0 && w.chance(w.plan.doors) && e.postDoor() {
		return true
	}
	kinds := []rdma.WROpcode{rdma.WRSend, rdma.WRSend, rdma.WRSendWithImm, rdma.WRSendWithImm}
	if e.far != nil && !e.far.area.isGone {
		kinds = append(kinds, rdma.WRWrite, rdma.WRWrite, rdma.WRWriteWithImm)
		if e.isReliable() {
			kinds = append(kinds, rdma.WRRead, rdma.WRRead)
			if w.streams == nil {
				kinds = append(kinds, rdma.WRFlush)
			}
		}
	}
	if e.kind == rdma.QPTypeRC && w.streams == nil {
		kinds = append(kinds, rdma.WRAtomicWrite)
	}
	if e.isReliable() {
		kinds = append(kinds, rdma.WRFetchAdd, rdma.WRCompareSwap)
	}
	switch k := kinds[w.between(0, len(kinds)-1)]; k {
	case rdma.WRSend, rdma.WRSendWithImm:
		return e.postSend(k == rdma.WRSendWithImm, w.length(e.pair.maxMessage))
	case rdma.WRWrite, rdma.WRWriteWithImm:
		return e.postWrite(k == rdma.WRWriteWithImm)
	case rdma.WRRead:
		if w.chance(0.1) {
			return e.postSlotRead()
		}
		return e.postRead()
	case rdma.WRAtomicWrite:
		return e.postAtomicWrite()
	case rdma.WRFlush:
		return e.postFlush()
	default:
		return e.postAtomic(k)
	}
}

// length draws a message length: edges of packets are where the bugs are (case T01).
func (w *World) length(most int) int {
	mtu := w.plan.mtu.Bytes()
	n := 0
	switch w.between(0, 5) {
	case 0:
		n = w.between(0, 16)
	case 1, 2:
		n = mtu*w.between(1, 4) + w.between(-1, 1)
	case 3:
		n = w.between(0, mtu)
	default:
		n = w.between(0, most)
	}
	return min(n, most)
}

// load gives a request n bytes of a new content to send, inline or from buffers.
func (e *endpoint) load(r *request, n int, seed uint64, from int) bool {
	w := e.app.world
	if n <= e.maxInline && n > 0 && w.chance(0.5) {
		r.inline = make([]byte, n)
		check.Fill(r.inline, seed, from)
		r.wqe.Flags |= uint8(rdma.SendInline)
		return true
	}
	r.pieces = e.app.cut(n, e.maxSGE, forSend)
	if r.pieces == nil {
		return false
	}
	for _, p := range r.pieces {
		e.app.mem.StorePart(p.off, p.n, seed, from)
		from += p.n
	}
	return true
}

func (e *endpoint) postSend(hasImm bool, n int) bool {
	w := e.app.world
	r := request{}
	m := &check.Message{Bytes: n, Seed: w.random.Uint64(), HasImm: hasImm}
	if !e.load(&r, n, m.Seed, 0) {
		return false
	}
	r.wqe.Opcode = uint8(rdma.WRSend)
	r.entry.Opcode, r.entry.Bytes = rdma.WCOpSend, -1
	if hasImm {
		m.Imm = w.random.Uint32()
		r.wqe.Opcode, r.wqe.ImmOrRKey = uint8(rdma.WRSendWithImm), m.Imm
	}
	return e.submitMessage(&r, m)
}

// submitMessage posts a request that takes a receive at the peer.
func (e *endpoint) submitMessage(r *request, m *check.Message) bool {
	w := e.app.world
	if w.chance(0.3) {
		r.wqe.Flags |= uint8(rdma.SendSolicited)
		m.Solicited = true
	}
	out, done := e.out, r.entry.Done
	r.entry.Done = func(status rdma.WCStatus) {
		if status == rdma.WCSuccess {
			out.Confirm()
		}
		if done != nil {
			done(status)
		}
	}
	e.lookAt(m)
	out.Sent(m)
	return e.submit(r)
}

func (e *endpoint) postWrite(hasImm bool) bool {
	w := e.app.world
	x := e.far
	n := w.length(x.n)
	off := w.between(0, x.n-n)
	seed, from := w.random.Uint64(), 0
	if e.kind == rdma.QPTypeUC {
		// Any packet of any write may be the last to come: all writes agree about each byte.
		seed, from = x.seed, off
	}
	r := request{}
	if !e.load(&r, n, seed, from) {
		return false
	}
	r.wqe.Opcode = uint8(rdma.WRWrite)
	r.wqe.RemoteAddr, r.wqe.RKey = x.area.address(x.area.off+off), x.area.key
	r.entry.Opcode, r.entry.Bytes = rdma.WCOpWrite, -1
	if x.isRead(off, n) {
		r.wqe.Flags |= uint8(rdma.SendFence)
	}
	record := x.model.Post(off, n, seed, from)
	leave := e.through(&r, off, n)
	r.entry.Done = func(status rdma.WCStatus) {
		if status == rdma.WCSuccess && e.isReliable() {
			e.wrote(x, record, leave)
		} else {
			leave()
			x.model.Doubt(record)
		}
	}
	if !hasImm {
		return e.submit(&r)
	}
	m := &check.Message{Bytes: n, HasImm: true, Imm: w.random.Uint32(), IsWrite: true}
	if e.kind == rdma.QPTypeUC {
		m.Landed = func() { x.judgeLanded(off, n) }
	}
	r.wqe.Opcode, r.wqe.ImmOrRKey = uint8(rdma.WRWriteWithImm), m.Imm
	return e.submitMessage(&r, m)
}

// judgeLanded finds a WRITE with immediate of UC whose immediate came without all bytes.
func (x *window) judgeLanded(off, n int) {
	a := x.area.app
	if x.area.isGone || a.isGone {
		return
	}
	at := check.Mismatch(a.mem.Bytes[x.area.off+off:x.area.off+off+n], x.seed, off)
	if at >= 0 {
		a.world.court.Failf("%s: byte %d of a write with immediate is not there", x.model.Name, at)
	}
}

func (e *endpoint) postRead() bool {
	w := e.app.world
	x := e.far
	n := w.length(x.n)
	off := w.between(0, x.n-n)
	r := request{pieces: e.app.cut(n, e.maxSGE, forResult)}
	if r.pieces == nil || x.model.HasDoubts() {
		e.app.uncut(r.pieces)
		return false
	}
	r.wqe.Opcode = uint8(rdma.WRRead)
	r.wqe.RemoteAddr, r.wqe.RKey = x.area.address(x.area.off+off), x.area.key
	r.entry.Opcode, r.entry.Bytes = rdma.WCOpRead, int64(n)
	want := x.model.Predict(off, n)
	s := span{off, n}
	x.reads = append(x.reads, s)
	finish, leave := e.claim(&r), e.through(&r, off, n)
	r.entry.Done = func(status rdma.WCStatus) {
		leave()
		x.endRead(s)
		if status == rdma.WCSuccess {
			e.see()
		}
		if status == rdma.WCSuccess && !x.area.isGone && !e.app.isGone {
			e.judgeRead(r.pieces, want)
		}
		finish()
	}
	return e.submit(&r)
}

// judgeRead compares what a READ brought.
func (e *endpoint) judgeRead(list []piece, want []byte) {
	at := 0
	for _, p := range list {
		if i := e.app.mem.ExpectBytes(p.off, want[at:at+p.n]); i >= 0 {
			e.app.world.court.Failf("%s: byte %d of %d of a READ is wrong", e.name, at+i, len(want))
			return
		}
		at += p.n
	}
}

// claim lets the NIC write the buffers of a request; the function that it returns ends that.
func (e *endpoint) claim(r *request) (finish func()) {
	m := e.app.mem
	list := slices.Clone(r.pieces)
	claims := make([]*check.Claim, 0, len(list))
	for _, p := range list {
		claims = append(claims, m.Claim(p.off, p.n))
	}
	return func() {
		for i, p := range list {
			m.Adopt(p.off, p.n)
			m.Release(claims[i])
		}
	}
}

func (e *endpoint) postAtomic(code rdma.WROpcode) bool {
	w := e.app.world
	target := e.remote()
	r := request{pieces: e.app.cut(8, 1, forResult)}
	if r.pieces == nil {
		return false
	}
	i := w.between(0, cellCount/2-1)
	r.wqe.Opcode, r.wqe.RKey = uint8(code), target.cells.key
	r.entry.Bytes = 8
	finish := e.claim(&r)
	at := r.pieces[0].off
	if code == rdma.WRFetchAdd {
		c := target.counters[i]
		c.Post()
		r.wqe.RemoteAddr, r.wqe.CompareAdd = target.cells.address(target.cells.off+8*i), 1
		r.entry.Opcode = rdma.WCOpFetchAdd
		r.entry.Done = func(status rdma.WCStatus) {
			if status == rdma.WCSuccess {
				c.Succeed(place(e.app.host, e.qpn), get64(e.app.mem.Bytes[at:]))
			}
			finish()
		}
		return e.submit(&r)
	}
	c := target.chains[i]
	cell := target.cells.off + 8*(cellCount/2+i)
	value := w.newID()<<8 | 0xca
	compare := get64(target.mem.Bytes[cell:])
	if w.chance(0.2) {
		compare ^= 1
	}
	c.Post(compare, value)
	r.wqe.RemoteAddr = target.cells.address(cell)
	r.wqe.CompareAdd, r.wqe.Swap = compare, value
	r.entry.Opcode = rdma.WCOpCompareSwap
	r.entry.Done = func(status rdma.WCStatus) {
		if status == rdma.WCSuccess {
			c.Succeed(compare, value, get64(e.app.mem.Bytes[at:]))
		}
		finish()
	}
	return e.submit(&r)
}

// submit numbers the request, tells the ledger, and puts it into the queue. The doorbell is the
// caller's.
func (e *endpoint) submit(r *request) bool {
	a, w := e.app, e.app.world
	if e.sq.Free() == 0 {
		w.court.Failf("%s: %d of %d requests are open, yet the send queue is full",
			e.name, e.ledger.Open(), e.maxSend)
		return false
	}
	id := w.newID()
	r.wqe.WRID, r.entry.ID = id, id
	if e.aimed != nil && r.wqe.Extra == 0 {
		r.wqe.Extra = e.aimed.queue.number
	}
	if w.chance(0.1) && e.isReliable() {
		r.wqe.Flags |= uint8(rdma.SendFence)
	}
	isLast := e.ledger.Open() >= e.maxSend-1
	r.entry.Signaled = r.entry.Signaled || e.signalAll || isLast || w.chance(0.7)
	if r.entry.Signaled && !(e.signalAll && w.chance(0.5)) {
		r.wqe.Flags |= uint8(rdma.SendSignaled)
	}
	done, pieces := r.entry.Done, r.pieces
	r.entry.Done = func(status rdma.WCStatus) {
		delete(a.sends, id)
		e.judgeParting(id, status)
		if done != nil {
			done(status)
		}
		a.uncut(pieces)
	}
	if rdma.WROpcode(r.wqe.Opcode) == rdma.WRFlush {
		e.flushes = append(e.flushes, r.flush)
	}
	e.encode(r)
	a.sends[id] = e
	e.ledger.Post(r.entry)
	w.requests++
	e.postedAt = w.now
	w.trace.counts(w.now, "%s: post wr_id=%d opcode=%d flags=%d len=%d", e.name, id,
		uint64(r.wqe.Opcode), uint64(r.wqe.Flags), uint64(len(r.inline)+total(r.pieces)))
	return true
}

func total(list []piece) int {
	n := 0
	for _, p := range list {
		n += p.n
	}
	return n
}

func (e *endpoint) encode(r *request) {
	slot := e.sq.Slot()
	tail := slot[abi.SendWQEBytes:]
	list := e.app.sges(r.pieces)
	if r.badList != nil {
		list = r.badList
	}
	if r.wqe.Flags&uint8(rdma.SendInline) != 0 {
		r.wqe.InlineLen = uint32(len(r.inline))
		copy(tail, r.inline)
		list = nil
	}
	if r.wqe.NumSGE == 0 {
		r.wqe.NumSGE = uint16(len(list))
	}
	abi.EncodeSendWQE(slot, &r.wqe)
	invariant.Assert(len(list)*abi.SGEBytes <= len(tail), "simulated request is too long")
	for i := range list {
		abi.EncodeSGE(tail, i, &list[i])
	}
	e.sq.Push()
	e.sq.Publish()
}
