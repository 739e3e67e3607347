package verbs

import (
	"runtime"
	"unsafe"
)

// pinBytes keeps the array behind b where it is, and returns its address. Memory that is not of
// the Go heap stays by itself; the pinner ignores it.
func pinBytes(p *runtime.Pinner, b []byte) uint64 {
	p.Pin(&b[0])
	return addressOf(b)
}

func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
