package check

import "encoding/binary"

// A content is an endless sequence of bytes named by a seed: what sender and receiver can both
// compute without talking. Fill and Mismatch look at a piece of it.

const contentWord = 8

// mix is the finaliser of SplitMix64: neighbouring inputs give unrelated words.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Mix derives one seed from two.
func Mix(a, b uint64) uint64 { return mix(a*0x9e3779b97f4a7c15 + b + 1) }

func wordOf(seed, index uint64) uint64 { return mix(seed + index*0x9e3779b97f4a7c15) }

// Fill writes the bytes from offset off of the content.
func Fill(dst []byte, seed uint64, off int) {
	i := uint64(off) / contentWord
	if skip := off % contentWord; skip != 0 && len(dst) > 0 {
		var b [contentWord]byte
		binary.LittleEndian.PutUint64(b[:], wordOf(seed, i))
		dst = dst[copy(dst, b[skip:]):]
		i++
	}
	for ; len(dst) >= contentWord; dst = dst[contentWord:] {
		binary.LittleEndian.PutUint64(dst, wordOf(seed, i))
		i++
	}
	if len(dst) > 0 {
		var b [contentWord]byte
		binary.LittleEndian.PutUint64(b[:], wordOf(seed, i))
		copy(dst, b[:])
	}
}

// Mismatch returns the index of the first byte of got that differs from the content from offset
// off on, or −1.
func Mismatch(got []byte, seed uint64, off int) int {
	var b [512]byte
	for at := 0; at < len(got); at += len(b) {
		n := min(len(b), len(got)-at)
		Fill(b[:n], seed, off+at)
		for i, v := range b[:n] {
			if got[at+i] != v {
				return at + i
			}
		}
	}
	return -1
}
