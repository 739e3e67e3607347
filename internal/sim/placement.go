package sim

import (
	"fmt"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/sim/check"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

// slotCount is how many words an application has that peers overwrite by ATOMIC WRITE.
const slotCount = 4

// layOutSlots registers the words, with what is read around them.
func (a *app) layOutSlots(at int) {
	a.slots = a.register(span{at, 8 * slotCount}, rdma.AccessLocalWrite|rdma.AccessRemoteWrite|
		rdma.AccessRemoteRead|a.world.flushable())
	a.mem.Claim(at, 8*slotCount)
	for i := range a.words {
		a.words[i] = check.NewSlot(&a.world.court, fmt.Sprintf("%s slot %d", a.name, i), a.word(i))
	}
}

func (a *app) word(i int) uint64 { return get64(a.mem.Bytes[a.slots.off+8*i:]) }

// judgeSlots looks at the words as a program does that polls them.
func (a *app) judgeSlots() {
	for i, s := range a.words {
		s.See(a.word(i))
	}
}

// judgeStore finds a store by the kernel's hand that changes part of a word only.
func (a *app) judgeStore(off uint64, n int) {
	s := a.slots
	if s == nil || off+uint64(n) <= uint64(s.off) || off >= uint64(s.end()) {
		return
	}
	if n != 8 || (off-uint64(s.off))%8 != 0 {
		a.world.court.Failf("%s: %d bytes at %#x of the slots are written at once", a.name, n,
			off-uint64(s.off))
	}
}

// postAtomicWrite overwrites a word of the peer, or an aligned place in its window.
func (e *endpoint) postAtomicWrite() bool {
	w := e.app.world
	r := request{wqe: abi.SendWQE{Opcode: uint8(rdma.WRAtomicWrite)}}
	r.entry.Opcode, r.entry.Bytes = rdma.WCOpAtomicWrite, -1
	if e.far != nil && !e.far.area.isGone && w.chance(0.3) {
		return e.postAtomicWriteToWindow(&r)
	}
	a := e.remote()
	seed := w.random.Uint64()
	if !e.load(&r, 8, seed, 0) {
		return false
	}
	var b [8]byte
	check.Fill(b[:], seed, 0)
	i, value := w.between(0, slotCount-1), get64(b[:])
	s := a.words[i]
	s.Post(place(e.app.host, e.qpn), value)
	r.wqe.RemoteAddr, r.wqe.RKey = a.slots.address(a.slots.off+8*i), a.slots.key
	r.entry.Done = func(status rdma.WCStatus) {
		if status == rdma.WCSuccess {
			s.Succeed(value)
			s.See(a.word(i))
		}
	}
	w.mark("placement.slot")
	return e.submit(&r)
}

// postAtomicWriteToWindow writes a piece of a content that is aligned where the peer counts.
func (e *endpoint) postAtomicWriteToWindow(r *request) bool {
	w := e.app.world
	x := e.far
	skip := int(-x.area.address(x.area.off) & 7)
	if x.n < skip+8 {
		return false
	}
	off := skip + 8*w.between(0, (x.n-skip)/8-1)
	seed := w.random.Uint64()
	if !e.load(r, 8, seed, 0) {
		return false
	}
	r.wqe.RemoteAddr, r.wqe.RKey = x.area.address(x.area.off+off), x.area.key
	if x.isRead(off, 8) {
		r.wqe.Flags |= uint8(rdma.SendFence)
	}
	record := x.model.Post(off, 8, seed, 0)
	leave := func() {}
	if d := e.peer.door; d == nil || !d.isZero || (off-d.at.off)%8 == 0 {
		leave = e.through(r, off, 8)
	}
	r.entry.Done = func(status rdma.WCStatus) {
		leave()
		if status == rdma.WCSuccess {
			x.model.Confirm(record)
		} else {
			x.model.Doubt(record)
		}
	}
	w.mark("placement.window")
	return e.submit(r)
}

// postSlotRead reads a word of the peer, which has to be whole there.
func (e *endpoint) postSlotRead() bool {
	w := e.app.world
	a := e.remote()
	r := request{pieces: e.app.cut(8, 1, forResult)}
	if r.pieces == nil {
		return false
	}
	i := w.between(0, slotCount-1)
	s, at := a.words[i], r.pieces[0].off
	since := s.Now()
	r.wqe.Opcode = uint8(rdma.WRRead)
	r.wqe.RemoteAddr, r.wqe.RKey = a.slots.address(a.slots.off+8*i), a.slots.key
	r.entry.Opcode, r.entry.Bytes = rdma.WCOpRead, 8
	finish := e.claim(&r)
	r.entry.Done = func(status rdma.WCStatus) {
		if status == rdma.WCSuccess && !e.app.isGone {
			s.SawSince(since, get64(e.app.mem.Bytes[at:]))
		}
		finish()
	}
	w.mark("placement.read")
	return e.submit(&r)
}

// flush is a FLUSH request with what has to be in the peer's memory when it is answered.
type flush struct {
	window *window
	writes []*check.Write
}

// postFlush asks for all that was written to the peer's window, or to a part of it, to be visible.
// Its answer may leave after earlier writes only, wherever they are in the window.
func (e *endpoint) postFlush() bool {
	w := e.app.world
	x := e.far
	r := request{wqe: abi.SendWQE{Opcode: uint8(rdma.WRFlush), RKey: x.area.key}}
	r.entry.Opcode, r.entry.Bytes = rdma.WCOpFlush, -1
	level := ib.FlushMemoryRegion
	if w.chance(0.7) {
		level = ib.FlushRange
		off := w.between(0, x.n)
		r.wqe.RemoteAddr = x.area.address(x.area.off + off)
		r.wqe.Swap = uint64(w.between(0, x.n-off))
	}
	r.wqe.CompareAdd = uint64(ib.FlushGlobal) | uint64(level)<<4
	w.mark("placement.flush")
	r.flush = flush{x, x.model.Pending()}
	return e.submit(&r)
}

// flushed hears that FLUSH number n of this queue pair is answered.
func (e *endpoint) flushed(n int) {
	if n >= len(e.flushes) {
		e.app.world.court.Failf("%s: the answer to FLUSH %d of %d", e.name, n, len(e.flushes))
		return
	}
	if f := e.flushes[n]; f.window != nil {
		e.app.world.mark("flush.answered")
		if e.isXRC() {
			e.app.world.mark("flush.answered.XRC")
		}
		f.window.model.Flushed(f.writes)
	}
}
