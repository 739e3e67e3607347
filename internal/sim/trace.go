package sim

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"time"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

// traceKept is how many lines a report ends with. Making text is slow, so that a line is kept as
// what it is made from.
const traceKept = 400

// traceHead is how much of a packet a line needs: all headers.
const traceHead = ib.HeadersLenMax

type traceLine struct {
	at   clock.Time
	what string
	kind traceKind
	name string
	args []any
	// numbers are what a line of numbers tells of name.
	numbers [traceNumbers]uint64
	count   int
	// Of a packet: where it goes to from name, its headers, and its length.
	to     string
	head   [traceHead]byte
	length int
	bth    ib.BTH // of one that loops
}

// traceNumbers is how many numbers a line has at most.
const traceNumbers = 6

// traceKind is what a line is made from.
type traceKind uint8

const (
	traceWords traceKind = iota
	traceCounts
	traceFlight
	traceLoop
)

// trace keeps the last lines, hashes all of them, and copies them to a writer if there is one.
type trace struct {
	lines [traceKept]traceLine
	count uint64
	hash  uint64
	out   io.Writer
}

func newTrace(out io.Writer) *trace {
	return &trace{hash: fnv.New64a().Sum64(), out: out}
}

const fnvPrime = 0x100000001b3

func (t *trace) mix(b []byte) {
	h := t.hash
	for len(b) >= 8 {
		h = (h ^ binary.LittleEndian.Uint64(b)) * fnvPrime
		b = b[8:]
	}
	for _, v := range b {
		h = (h ^ uint64(v)) * fnvPrime
	}
	t.hash = h
}

// mixString is mix for text, without a copy of it.
func (t *trace) mixString(s string) {
	h := t.hash
	for len(s) >= 8 {
		v := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
		h = (h ^ v) * fnvPrime
		s = s[8:]
	}
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * fnvPrime
	}
	t.hash = h
}

// next returns the next line. What its kind does not use of it is left from an older one.
func (t *trace) next(at clock.Time, what string, kind traceKind) *traceLine {
	l := &t.lines[t.count%traceKept]
	t.count++
	l.at, l.what, l.kind = at, what, kind
	t.hash = (t.hash ^ uint64(at)) * fnvPrime
	t.mixString(what)
	return l
}

// packet notes what happens to a packet: what names it, buf runs from the BTH to the ICRC.
func (t *trace) packet(at clock.Time, what string, f *flight) {
	l := t.next(at, what, traceFlight)
	l.name, l.to, l.length = f.from.name, f.to.name, len(f.buf)
	copy(l.head[:], f.buf)
	t.mix(f.buf)
	t.show(l)
}

// loops notes a packet from a queue pair to another of the same NIC.
func (t *trace) loops(at clock.Time, name string, h *ib.BTH) {
	l := t.next(at, "%s: loops %v", traceLoop)
	l.name, l.bth = name, *h
	t.mixString(name)
	t.show(l)
}

// counts adds a line that tells numbers of name, which the format begins with. It is what happens
// most often, and takes nothing from the heap.
func (t *trace) counts(at clock.Time, format, name string, numbers ...uint64) {
	l := t.next(at, format, traceCounts)
	l.name, l.count = name, copy(l.numbers[:], numbers)
	t.mixString(name)
	for _, n := range numbers {
		t.hash = (t.hash ^ n) * fnvPrime
	}
	t.show(l)
}

// note adds a line in words; args are formatted when somebody reads it.
func (t *trace) note(at clock.Time, format string, args ...any) {
	l := t.next(at, format, traceWords)
	l.args = args
	for _, a := range args {
		switch v := a.(type) {
		case uint64:
			t.hash = (t.hash ^ v) * fnvPrime
		case int:
			t.hash = (t.hash ^ uint64(v)) * fnvPrime
		case string:
			t.mixString(v)
		}
	}
	t.show(l)
}

func (t *trace) show(l *traceLine) {
	if t.out != nil {
		fmt.Fprintln(t.out, l.text())
	}
}

// tail returns the lines that are kept, oldest first.
func (t *trace) tail() []string {
	var out []string
	first := uint64(0)
	if t.count > traceKept {
		first = t.count - traceKept
	}
	for i := first; i < t.count; i++ {
		out = append(out, t.lines[i%traceKept].text())
	}
	return out
}

func (l *traceLine) text() string {
	s := fmt.Sprintf("%14v ", time.Duration(l.at))
	switch l.kind {
	case traceWords:
		return s + fmt.Sprintf(l.what, l.args...)
	case traceCounts:
		args := []any{l.name}
		for _, n := range l.numbers[:l.count] {
			args = append(args, n)
		}
		return s + fmt.Sprintf(l.what, args...)
	case traceLoop:
		return s + fmt.Sprintf(l.what, l.name, l.bth)
	case traceFlight:
	}
	s += fmt.Sprintf("%-9s %s→%s ", l.what, l.name, l.to)
	// Only the head is kept, so the packet is shown as one without payload.
	bth := ib.BTHView(l.head[:])
	n := bth.Opcode().HeaderLen()
	if n == 0 {
		return s + bth.String()
	}
	head := slices.Clone(l.head[:n])
	payload := l.length - n - int(bth.PadCount()) - 4
	head[1] &^= 0x30 // the pad went with the payload
	return s + ib.Packet(head).String() + fmt.Sprintf(" (%d bytes)", payload)
}
