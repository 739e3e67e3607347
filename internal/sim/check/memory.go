package check

import (
	"bytes"
	"slices"
)

// Memory is one application's address space with a shadow: what it has to look like. The NIC may
// change only what is claimed; Verify finds every other change.
type Memory struct {
	Court *Court
	Name  string
	Bytes []byte

	shadow []byte
	claims []*Claim
	frozen bool
}

// Claim is a range that the NIC may be writing.
type Claim struct {
	Off, Len int
}

func (c *Claim) end() int { return c.Off + c.Len }

// NewMemory makes a memory of so many bytes with a content that no stray write leaves alone.
func NewMemory(court *Court, name string, size int, seed uint64) *Memory {
	m := &Memory{Court: court, Name: name, Bytes: make([]byte, size), shadow: make([]byte, size)}
	Fill(m.Bytes, seed, 0)
	copy(m.shadow, m.Bytes)
	return m
}

// Claim lets the NIC write a range until Release.
func (m *Memory) Claim(off, n int) *Claim {
	c := &Claim{off, n}
	m.claims = append(m.claims, c)
	return c
}

// Release ends a claim; what the range has to hold is said by Expect, Adopt or nothing.
func (m *Memory) Release(c *Claim) {
	if i := slices.Index(m.claims, c); i >= 0 {
		last := len(m.claims) - 1
		m.claims[i] = m.claims[last]
		m.claims = m.claims[:last]
	}
}

// Store is the application writing its own memory.
func (m *Memory) Store(off int, seed uint64, n int) {
	Fill(m.Bytes[off:off+n], seed, 0)
	copy(m.shadow[off:off+n], m.Bytes[off:])
}

// StorePart stores the part of a content that begins at its offset from.
func (m *Memory) StorePart(off, n int, seed uint64, from int) {
	Fill(m.Bytes[off:off+n], seed, from)
	copy(m.shadow[off:off+n], m.Bytes[off:])
}

// Expect says that the NIC has written a range with a piece of a content; it returns the first
// byte that differs, or −1.
func (m *Memory) Expect(off, n int, seed uint64, from int) int {
	if m.frozen {
		return -1
	}
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
		copy(m.shadow[off:off+n], m.Bytes[off:off+n])
	}
}

// Untouched reports whether a range that could have been written was not.
func (m *Memory) Untouched(off, n int) bool {
	return bytes.Equal(m.Bytes[off:off+n], m.shadow[off:off+n])
}

// Shadow returns what a range has to look like, as far as it is settled.
func (m *Memory) Shadow(off, n int) []byte { return m.shadow[off : off+n] }

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

// Verify reports the first byte outside all claims that changed.
func (m *Memory) Verify(when string) {
	slices.SortFunc(m.claims, func(a, b *Claim) int { return a.Off - b.Off })
	at := 0
	for _, c := range m.claims {
		if c.Off > at && !m.verify(at, c.Off, when) {
			return
		}
		at = max(at, c.end())
	}
	m.verify(at, len(m.Bytes), when)
}

func (m *Memory) verify(from, to int, when string) bool {
	if from >= to || bytes.Equal(m.Bytes[from:to], m.shadow[from:to]) {
		return true
	}
	for i := from; i < to; i++ {
		if m.Bytes[i] != m.shadow[i] {
			m.Court.Failf("%s: byte %#x changed from %#02x to %#02x without a right (%s)",
				m.Name, i, m.shadow[i], m.Bytes[i], when)
			break
		}
	}
	return false
}
