package sim

import "math/bits"

// bitSet is a set of small numbers that is walked in their order.
type bitSet []uint64

// grow makes room for the numbers below n.
func (s *bitSet) grow(n int) {
	if words := (n + 63) / 64; words > len(*s) {
		*s = append(*s, make([]uint64, words-len(*s))...)
	}
}

func (s *bitSet) add(i int) {
	s.grow(i + 1)
	(*s)[i/64] |= 1 << (i % 64)
}

func (s bitSet) has(i int) bool { return i/64 < len(s) && s[i/64]>>(i%64)&1 != 0 }

func (s bitSet) remove(i int) {
	if i/64 < len(s) {
		s[i/64] &^= 1 << (i % 64)
	}
}

// next returns the smallest number from i on, or −1.
func (s bitSet) next(i int) int {
	for word := i / 64; word < len(s); word++ {
		if rest := s[word] >> (i % 64); rest != 0 {
			return i + bits.TrailingZeros64(rest)
		}
		i = 64 * (word + 1)
	}
	return -1
}
