package probe

import (
	"sync/atomic"
	"unsafe"
)

// word is the eight bytes at an offset of memory that another process or a NIC writes.
//
// Preconditions: the offset is a multiple of 8 inside the memory, which stays mapped.
func word(memory []byte, offset int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&memory[offset]))
}
