package mem

import (
	"sync/atomic"
	"unsafe"
)

// move copies between application memory and ours. The application may write its memory at the
// same instant, as it may with hardware; the race detector is told not to look here, because what
// it would report is the application's contract, not our bug.
//
//go:norace
func move(dst, src []byte) { copy(dst, src) }

func isAligned(b []byte) bool { return uintptr(unsafe.Pointer(&b[0]))%8 == 0 }

func word64(b []byte) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&b[0])) }
