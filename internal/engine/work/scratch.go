package work

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

// NewSerial names a message.
func (s *Scratch) NewSerial() uint64 {
	s.serial++
	return s.serial
}

// Stretch is a piece of a message that lies in application memory: behind the entries of a list,
// or behind a remote key.
type Stretch struct {
	Serial   uint64 // of the message, see NewSerial
	Who      mem.Accessor
	List     []abi.SGE
	IsRemote bool
	Key      rdma.Key // of a READ's memory
	VA       uint64   // where the message begins there
	Offset   uint64
	Bytes    uint64
	Total    uint64 // length of the message
}

// check judges all of the message once more.
func (x *Stretch) check(t *mem.Table) mem.Fault {
	if !x.IsRemote {
		return t.CheckList(x.Who.PD, x.List, 0)
	}
	_, _, f := t.CheckRemote(x.Key, x.Who, x.VA, x.Total, rdma.AccessRemoteRead)
	return f
}

// read fills dst from the beginning of the stretch.
func (x *Stretch) read(t *mem.Table, dst []byte) mem.Fault {
	if !x.IsRemote {
		return t.Gather(x.Who.PD, x.List, x.Offset, dst)
	}
	return t.ReadRemote(x.Key, x.Who, x.VA+x.Offset, dst)
}

// Gather returns the bytes of a stretch, which stay valid until the next Gather. It reads ahead in
// the message, and serves what it has read from memory; rights are checked each time all the same.
func (s *Scratch) Gather(t *mem.Table, x *Stretch) ([]byte, mem.Fault) {
	s.uses++
	slot := s.find(x.Serial)
	slot.used = s.uses
	if slot.serial == x.Serial && x.Offset >= slot.off &&
		x.Offset+x.Bytes <= slot.off+uint64(len(slot.buf)) {
		if f := x.check(t); f != mem.FaultNone {
			return nil, f
		}
		at := x.Offset - slot.off
		return slot.buf[at : at+x.Bytes : at+x.Bytes], mem.FaultNone
	}
	if slot.buf == nil {
		slot.buf = make([]byte, scratchBytes)
	}
	n := max(x.Bytes, min(scratchBytes, x.Total-x.Offset))
	slot.serial, slot.off, slot.buf = x.Serial, x.Offset, slot.buf[:n]
	if f := x.read(t, slot.buf); f != mem.FaultNone {
		slot.serial, slot.buf = 0, slot.buf[:0]
		return nil, f
	}
	return slot.buf[:x.Bytes:x.Bytes], mem.FaultNone
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
