package mem

import "encoding/binary"

// atomicBytes is the operand size of the atomic operations (IBTA 9.4.5).
const atomicBytes = 8

// update applies f to the 8-byte host-order value at addr and returns the value before. On mapped
// memory it is atomic towards the application's processor too; on process memory only towards
// this NIC (IBV_ATOMIC_HCA).
//
// Preconditions: contains(addr, 8), addr is 8-byte aligned.
func (r *Region) update(addr uint64, f func(old uint64) uint64) (old uint64, ok bool) {
	if v := r.view(addr, atomicBytes); len(v) == atomicBytes && isAligned(v) {
		w := word64(v)
		for {
			old = w.Load()
			if w.CompareAndSwap(old, f(old)) {
				return old, true
			}
		}
	}
	b := &r.word // a local one would be allocated at every operation
	if !r.read(addr, b[:]) {
		return 0, false
	}
	old = binary.NativeEndian.Uint64(b[:])
	binary.NativeEndian.PutUint64(b[:], f(old))
	return old, r.write(addr, b[:])
}
