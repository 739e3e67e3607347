package ring

import (
	"sync/atomic"
	"unsafe"

	"github.com/softrnic/softrnic/internal/invariant"
)

// Word returns the 32-bit word at off of shared memory for atomic access. The memory must be
// 4-byte aligned, as every mapping is, and outlive the word.
func Word(mem []byte, off int) *atomic.Uint32 {
	invariant.Assert(off >= 0 && off%4 == 0 && off+4 <= len(mem), "ring word outside the mapping")
	return (*atomic.Uint32)(unsafe.Pointer(&mem[off]))
}

// Word64 is Word for 64 bits.
func Word64(mem []byte, off int) *atomic.Uint64 {
	invariant.Assert(off >= 0 && off%8 == 0 && off+8 <= len(mem), "ring word outside the mapping")
	return (*atomic.Uint64)(unsafe.Pointer(&mem[off]))
}
