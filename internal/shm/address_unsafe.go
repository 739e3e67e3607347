package shm

import "unsafe"

// AddressOf returns where a slice lies, for comparison with the address of a fault.
func AddressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
