package roce

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
)

// This file is arithmetic on the register of the reflected CRC-32 of IEEE 802.3, without the
// inversions at its start and end. The register is a polynomial over GF(2) modulo the CRC's
// polynomial, its bit 31 the coefficient of x^0; a zero byte of input multiplies it by x^8.

// crcTables advance the register over eight bytes at once: table k maps the byte that has k more
// after it.
var crcTables = makeCRCTables()

func makeCRCTables() *[8][256]uint32 {
	var t [8][256]uint32
	t[0] = *crc32.IEEETable
	for k := 1; k < len(t); k++ {
		for i := range t[k] {
			prev := t[k-1][i]
			t[k][i] = t[0][prev&0xff] ^ prev>>8
		}
	}
	return &t
}

// crcWord advances the register over the eight bytes of w, the lowest first. The hash/crc32
// package wants its input in memory, and what is passed to it escapes to the heap; this is for
// headers that are computed.
func crcWord(crc uint32, w uint64) uint32 {
	t := crcTables
	w ^= uint64(crc)
	return t[7][w&0xff] ^ t[6][w>>8&0xff] ^ t[5][w>>16&0xff] ^ t[4][w>>24&0xff] ^
		t[3][w>>32&0xff] ^ t[2][w>>40&0xff] ^ t[1][w>>48&0xff] ^ t[0][w>>56]
}

// wire64 turns a number into the word whose lowest byte is the first on the wire.
func wire64(n uint64) uint64 { return bits.ReverseBytes64(n) }

// crcMultiply multiplies two registers as polynomials. It has no branch and no table: a product
// takes as long for hostile operands as for others.
func crcMultiply(a, b uint32) uint32 {
	var product uint32
	for i := 31; i >= 0; i-- {
		product ^= b & -(a >> i & 1)
		b = b>>1 ^ crc32.IEEE&-(b&1)
	}
	return product
}

// crcRewindMax is the largest distance in crcRewindTable: the longest header, 4096 bytes of
// payload, and hiddenDistance fit in.
const crcRewindMax = 4096 + 128

// crcRewindTable has x^(−8·4·i) at i: packets are multiples of four bytes long.
var crcRewindTable = makeCRCRewindTable()

// crcRewindPowers has x^(−8·2^k) at k, for distances that are not in crcRewindTable.
var crcRewindPowers = makeCRCRewindPowers()

const crcOne = 1 << 31

func makeCRCRewindTable() *[crcRewindMax/4 + 1]uint32 {
	var t [crcRewindMax/4 + 1]uint32
	back := crcBackTable()
	r := uint32(crcOne)
	for i := range t {
		t[i] = r
		for range 4 {
			r = crcBack(back, r)
		}
	}
	return &t
}

func makeCRCRewindPowers() *[17]uint32 {
	var t [17]uint32
	t[0] = crcBack(crcBackTable(), crcOne)
	for k := 1; k < len(t); k++ {
		t[k] = crcMultiply(t[k-1], t[k-1])
	}
	return &t
}

// crcBackTable maps the top byte of a table entry to the entry's index; the polynomial makes it
// one to one.
func crcBackTable() *[256]uint8 {
	var t [256]uint8
	for i, entry := range crc32.IEEETable {
		t[entry>>24] = uint8(i)
	}
	return &t
}

// crcBack undoes one zero byte of input.
func crcBack(back *[256]uint8, crc uint32) uint32 {
	i := back[crc>>24]
	return (crc^crc32.IEEETable[i])<<8 | uint32(i)
}

// crcRewind undoes n zero bytes of input. Preconditions: 0 <= n < 2^17.
func crcRewind(crc uint32, n int) uint32 {
	if n%4 == 0 && n <= crcRewindMax {
		return crcMultiply(crcRewindTable[n/4], crc)
	}
	for k := range crcRewindPowers {
		if n>>k&1 != 0 {
			crc = crcMultiply(crcRewindPowers[k], crc)
		}
	}
	return crc
}

// le64 reads eight bytes as crcWord wants them.
func le64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }
