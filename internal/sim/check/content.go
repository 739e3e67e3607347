package check

import (
	"encoding/binary"
	"math/bits"
)

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

// contentStep is how far the words of a content are apart before they are mixed.
const contentStep = 0x9e3779b97f4a7c15

// Fill writes the bytes from offset off of the content.
func Fill(dst []byte, seed uint64, off int) {
	x := seed + uint64(off)/contentWord*contentStep
	if skip := off % contentWord; skip != 0 && len(dst) > 0 {
		var b [contentWord]byte
		binary.LittleEndian.PutUint64(b[:], mix(x))
		dst = dst[copy(dst, b[skip:]):]
		x += contentStep
	}
	// Four words at a time keep the multiplier busy.
	for ; len(dst) >= 4*contentWord; dst = dst[4*contentWord:] {
		d := dst[:4*contentWord]
		x1 := x + contentStep
		x2 := x1 + contentStep
		x3 := x2 + contentStep
		binary.LittleEndian.PutUint64(d, mix(x))
		binary.LittleEndian.PutUint64(d[contentWord:], mix(x1))
		binary.LittleEndian.PutUint64(d[2*contentWord:], mix(x2))
		binary.LittleEndian.PutUint64(d[3*contentWord:], mix(x3))
		x = x3 + contentStep
	}
	for ; len(dst) >= contentWord; dst = dst[contentWord:] {
		binary.LittleEndian.PutUint64(dst, mix(x))
		x += contentStep
	}
	if len(dst) > 0 {
		var b [contentWord]byte
		binary.LittleEndian.PutUint64(b[:], mix(x))
		copy(dst, b[:])
	}
}

// Mismatch returns the index of the first byte of got that differs from the content from offset
// off on, or −1.
func Mismatch(got []byte, seed uint64, off int) int {
	head := min(-off&(contentWord-1), len(got))
	if head > 0 {
		if at := mismatchEnd(got[:head], seed, off); at >= 0 {
			return at
		}
	}
	x := seed + uint64(off+head)/contentWord*contentStep
	at := head
	for ; len(got)-at >= contentWord; at += contentWord {
		if d := binary.LittleEndian.Uint64(got[at:]) ^ mix(x); d != 0 {
			return at + bits.TrailingZeros64(d)/8
		}
		x += contentStep
	}
	if at < len(got) {
		if i := mismatchEnd(got[at:], seed, off+at); i >= 0 {
			return at + i
		}
	}
	return -1
}

// mismatchEnd is Mismatch for a part of one word.
func mismatchEnd(got []byte, seed uint64, off int) int {
	word := mix(seed + uint64(off)/contentWord*contentStep)
	word >>= 8 * (off % contentWord)
	for i, v := range got {
		if v != byte(word) {
			return i
		}
		word >>= 8
	}
	return -1
}
