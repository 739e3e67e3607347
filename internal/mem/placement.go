package mem

import (
	"encoding/binary"

	"github.com/softrnic/softrnic/internal/rdma"
)

// Store writes the 8 bytes at addr at once, as ATOMIC WRITE asks for (IBTA A19.4.4). On mapped
// memory no reader sees half of them; process memory is written by one call of the kernel.
//
// Preconditions: addr is 8-byte aligned.
func (t *Table) Store(key rdma.Key, who Accessor, addr, value uint64) Fault {
	r, at, f := t.CheckRemote(key, who, addr, atomicBytes, rdma.AccessRemoteWrite)
	if f != FaultNone {
		return f
	}
	if v := r.view(at, atomicBytes); len(v) == atomicBytes && isAligned(v) {
		word64(v).Store(value)
		return FaultNone
	}
	b := &r.word // a local one would be allocated at every operation
	binary.NativeEndian.PutUint64(b[:], value)
	if !r.write(at, b[:]) {
		return r.unreachable()
	}
	return FaultNone
}

// CheckFlush checks who asks and rights of a remote key as a whole, without bounds: what a FLUSH of
// a memory region needs (IBTA A19.4.3.2).
func (t *Table) CheckFlush(key rdma.Key, who Accessor, want rdma.Access) Fault {
	var base uint64
	switch s := t.slotOf(key); {
	case s == nil:
		return FaultKey
	case s.window != nil:
		base = s.window.Base
	case s.region != nil:
		base = s.region.Base
	}
	_, _, f := t.CheckRemote(key, who, base, 0, want)
	return f
}
