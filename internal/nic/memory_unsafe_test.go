package nic

import "unsafe"

// bytesOf views words as bytes, so that the memory is aligned as a mapping is.
func bytesOf(words []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 8*len(words))
}
