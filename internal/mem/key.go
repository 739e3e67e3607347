package mem

// scramble is a keyed permutation of the 24-bit key indices: two halves of 12 bits, four Feistel
// rounds. It makes keys unguessable in sequence (the table stays dense) without a map on the data
// path. It is no cipher: a peer that holds one rkey learns nothing usable about the next, and
// that is all it is for.
type scramble struct {
	rounds [4]uint32
	// opened are answers of before: packets of a message name one key, and finding an index takes
	// 12 ns.
	opened [openedMax]struct{ sealed, index uint32 }
}

// openedMax is a power of two.
const openedMax = 16

func newScramble(secret uint64) scramble {
	var s scramble
	for i := range s.rounds {
		secret = splitmix(secret)
		s.rounds[i] = uint32(secret) | 1
	}
	for i := range s.opened {
		s.opened[i].sealed = ^uint32(0) // no index of 24 bits
	}
	return s
}

func splitmix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func round(half, key uint32) uint32 {
	x := (half + key) * 0x9e3779b1
	x ^= x >> 15
	x *= key
	return (x >> 11) & 0xfff
}

func (s *scramble) seal(index uint32) uint32 {
	l, r := index>>12, index&0xfff
	for _, k := range s.rounds {
		l, r = r, l^round(r, k)
	}
	return l<<12 | r
}

func (s *scramble) open(sealed uint32) uint32 {
	memo := &s.opened[sealed%openedMax]
	if memo.sealed != sealed {
		memo.sealed, memo.index = sealed, s.openAnew(sealed)
	}
	return memo.index
}

func (s *scramble) openAnew(sealed uint32) uint32 {
	l, r := sealed>>12, sealed&0xfff
	for i := len(s.rounds) - 1; i >= 0; i-- {
		l, r = r^round(l, s.rounds[i]), l
	}
	return l<<12 | r
}
