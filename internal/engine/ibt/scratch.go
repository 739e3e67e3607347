package ibt

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
)

const (
	// scratchBytes is how much of a message is read ahead: a call into another process's memory
	// costs about as much as copying this.
	scratchBytes = 64 << 10
	// scratchSlots lets as many messages be read ahead side by side.
	scratchSlots = 8
)

// Scratch is memory for payload that cannot be lent by reference: process memory that is not
// mapped, and packets whose bytes come from several entries. One serves all QPs of a thread, so
// an idle QP costs nothing.
type Scratch struct {
	slots  [scratchSlots]scratchSlot
	uses   uint64
	serial uint64
}

type scratchSlot struct {
	serial uint64 // of the message; 0 is none
	off    uint64 // where in the message buf begins
	used   uint64
	buf    []byte
}

// NewScratch makes scratch memory; its bytes are allocated when first needed.
func NewScratch() *Scratch { return &Scratch{} }

// newSerial names a message.
func (s *Scratch) newSerial() uint64 {
	s.serial++
	return s.serial
}

// stretch is a piece of a message that lies in application memory: behind the entries of a list,
// or behind a remote key.
type stretch struct {
	serial   uint64
	who      mem.Accessor
	list     []abi.SGE
	isRemote bool
	key      rdma.Key // of a READ's memory
	va       uint64   // where the message begins there
	off      uint64
	n        uint64
	total    uint64 // length of the message
}

// check judges all of the message once more.
func (x *stretch) check(t *mem.Table) mem.Fault {
	if !x.isRemote {
		return t.CheckList(x.who.PD, x.list, 0)
	}
	_, _, f := t.CheckRemote(x.key, x.who, x.va, x.total, rdma.AccessRemoteRead)
	return f
}

// read fills dst from the beginning of the stretch.
func (x *stretch) read(t *mem.Table, dst []byte) mem.Fault {
	if !x.isRemote {
		return t.Gather(x.who.PD, x.list, x.off, dst)
	}
	return t.ReadRemote(x.key, x.who, x.va+x.off, dst)
}

// gather returns the bytes of a stretch, which stay valid until the next gather. It reads ahead in
// the message, and serves what it has read from memory; rights are checked each time all the same.
func (s *Scratch) gather(t *mem.Table, x *stretch) ([]byte, mem.Fault) {
	s.uses++
	slot := s.find(x.serial)
	slot.used = s.uses
	if slot.serial == x.serial && x.off >= slot.off &&
		x.off+x.n <= slot.off+uint64(len(slot.buf)) {
		if f := x.check(t); f != mem.FaultNone {
			return nil, f
		}
		at := x.off - slot.off
		return slot.buf[at : at+x.n : at+x.n], mem.FaultNone
	}
	if slot.buf == nil {
		slot.buf = make([]byte, scratchBytes)
	}
	n := max(x.n, min(scratchBytes, x.total-x.off))
	slot.serial, slot.off, slot.buf = x.serial, x.off, slot.buf[:n]
	if f := x.read(t, slot.buf); f != mem.FaultNone {
		slot.serial, slot.buf = 0, slot.buf[:0]
		return nil, f
	}
	return slot.buf[:x.n:x.n], mem.FaultNone
}

// find returns the slot of a message, or the one that was used least recently.
func (s *Scratch) find(serial uint64) *scratchSlot {
	oldest := &s.slots[0]
	for i := range s.slots {
		slot := &s.slots[i]
		if slot.serial == serial {
			return slot
		}
		if slot.used < oldest.used {
			oldest = slot
		}
	}
	return oldest
}
