package check

import (
	"bytes"
	"slices"
)

// Memory is one application's address space with a shadow: what it has to look like. The NIC may
// change only what is claimed; Verify finds every other change.
//
// Most of an address space is never used. A page in which nobody had a right to change anything yet
// holds the blank pattern, which is its shadow; what somebody changed there is found when the page
// comes into use, or in the end. So making a memory, verifying it, and using it for another run
// cost what is used of it.
type Memory struct {
	Court *Court
	Name  string
	Bytes []byte

	shadow []byte // of the pages in use; what it has for others says nothing
	inUse  []bool // by page
	claims []*Claim
	frozen bool
}

// Claim is a range that the NIC may be writing.
type Claim struct {
	Off, Len int
	at       int // among the claims of its memory; −1 when released
}

func (c *Claim) end() int { return c.Off + c.Len }

// NewMemory makes a memory of so many bytes with a content that no stray write leaves alone.
func NewMemory(court *Court, name string, size int) *Memory {
	m := blanks.take(size)
	if m == nil {
		m = &Memory{
			Bytes: make([]byte, size), shadow: make([]byte, size),
			inUse: make([]bool, (size+pageBytes-1)/pageBytes),
		}
		for i := range m.inUse {
			copy(m.page(m.Bytes, i), blank(i))
		}
	}
	m.Court, m.Name = court, name
	return m
}

// use says that a range is about to have a content of its own.
func (m *Memory) use(off, n int) {
	if n == 0 {
		return
	}
	for i := off / pageBytes; i <= (off+n-1)/pageBytes; i++ {
		if !m.inUse[i] {
			m.verify(i*pageBytes, m.pageEnd(i), "before its first use")
			m.inUse[i] = true
			copy(m.page(m.shadow, i), blank(i))
		}
	}
}

func (m *Memory) pageEnd(i int) int { return min((i+1)*pageBytes, len(m.Bytes)) }

// page returns a page of Bytes or of the shadow; the last one may be short.
func (m *Memory) page(of []byte, i int) []byte {
	return of[i*pageBytes : m.pageEnd(i)]
}

// Claim lets the NIC write a range until Release.
func (m *Memory) Claim(off, n int) *Claim {
	m.use(off, n)
	c := &Claim{off, n, len(m.claims)}
	m.claims = append(m.claims, c)
	return c
}

// Release ends a claim; what the range has to hold is said by Expect, Adopt or nothing.
func (m *Memory) Release(c *Claim) {
	if c.at < 0 || c.at >= len(m.claims) || m.claims[c.at] != c {
		return
	}
	last := len(m.claims) - 1
	m.claims[c.at] = m.claims[last]
	m.claims[c.at].at = c.at
	m.claims = m.claims[:last]
	c.at = -1
}

// Store is the application writing its own memory.
func (m *Memory) Store(off int, seed uint64, n int) {
	m.use(off, n)
	Fill(m.Bytes[off:off+n], seed, 0)
	copy(m.shadow[off:off+n], m.Bytes[off:])
}

// StorePart stores the part of a content that begins at its offset from.
func (m *Memory) StorePart(off, n int, seed uint64, from int) {
	m.use(off, n)
	Fill(m.Bytes[off:off+n], seed, from)
	copy(m.shadow[off:off+n], m.Bytes[off:])
}

// Expect says that the NIC has written a range with a piece of a content; it returns the first
// byte that differs, or −1.
func (m *Memory) Expect(off, n int, seed uint64, from int) int {
	if m.frozen {
		return -1
	}
	m.use(off, n)
	at := Mismatch(m.Bytes[off:off+n], seed, from)
	copy(m.shadow[off:off+n], m.Bytes[off:])
	return at
}

// ExpectBytes is Expect for bytes that are known.
func (m *Memory) ExpectBytes(off int, want []byte) int {
	if m.frozen {
		return -1
	}
	at := -1
	for i, b := range m.Bytes[off : off+len(want)] {
		if b != want[i] {
			at = i
			break
		}
	}
	m.Adopt(off, len(want))
	return at
}

// Adopt takes a range as it is: its content is not determined.
func (m *Memory) Adopt(off, n int) {
	if !m.frozen {
		m.use(off, n)
		copy(m.shadow[off:off+n], m.Bytes[off:off+n])
	}
}

// Untouched reports whether a range that could have been written was not.
func (m *Memory) Untouched(off, n int) bool {
	return bytes.Equal(m.Bytes[off:off+n], m.Shadow(off, n))
}

// Shadow returns what a range has to look like, as far as it is settled.
func (m *Memory) Shadow(off, n int) []byte {
	m.use(off, n)
	return m.shadow[off : off+n]
}

// Freeze says that nobody may write any more: the context of the application is gone. What was
// claimed is taken as it is now.
func (m *Memory) Freeze() {
	if m.frozen {
		return
	}
	for _, c := range m.claims {
		m.Adopt(c.Off, c.Len)
	}
	m.claims = nil
	m.frozen = true
}

// IsFrozen reports whether Freeze was called.
func (m *Memory) IsFrozen() bool { return m.frozen }

// Verify reports the first byte outside all claims that changed in the pages that are in use.
func (m *Memory) Verify(when string) {
	m.sortClaims()
	next := 0
	for i := 0; i < len(m.inUse); i++ {
		if !m.inUse[i] {
			continue
		}
		first := i
		for i+1 < len(m.inUse) && m.inUse[i+1] {
			i++
		}
		if next = m.verifyBetween(first*pageBytes, m.pageEnd(i), next, when); next < 0 {
			return
		}
	}
}

// VerifyAll is Verify for all pages.
func (m *Memory) VerifyAll(when string) {
	m.sortClaims()
	m.verifyBetween(0, len(m.Bytes), 0, when)
}

func (m *Memory) sortClaims() {
	slices.SortFunc(m.claims, func(a, b *Claim) int { return a.Off - b.Off })
	for i, c := range m.claims {
		c.at = i
	}
}

// verifyBetween looks at a range but for the claims, of which those before the given one end before
// the range. It returns where to go on, or −1 where it found something.
func (m *Memory) verifyBetween(from, to, next int, when string) int {
	for at := from; ; next++ {
		end := to
		if next < len(m.claims) {
			end = min(end, m.claims[next].Off)
		}
		if at < end && !m.verify(at, end, when) {
			return -1
		}
		if next == len(m.claims) || m.claims[next].Off >= to {
			return next
		}
		at = max(at, m.claims[next].end())
	}
}

// verify looks at a range, a page or more pages in use at a time.
func (m *Memory) verify(from, to int, when string) bool {
	for from < to {
		i := from / pageBytes
		end := (i + 1) * pageBytes
		want := blank(i)[from-i*pageBytes:]
		if m.inUse[i] {
			for i++; end < to && m.inUse[i]; i++ {
				end += pageBytes
			}
			want = m.shadow[from:]
		}
		end = min(end, to)
		if !m.equal(from, want[:end-from], when) {
			return false
		}
		from = end
	}
	return true
}

func (m *Memory) equal(off int, want []byte, when string) bool {
	if bytes.Equal(m.Bytes[off:off+len(want)], want) {
		return true
	}
	for i, b := range want {
		if got := m.Bytes[off+i]; got != b {
			m.Court.Failf("%s: byte %#x changed from %#02x to %#02x without a right (%s)",
				m.Name, off+i, b, got, when)
			break
		}
	}
	return false
}
