package sim

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
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
	at       clock.Time
	what     string
	args     []any
	from, to string
	head     [traceHead]byte
	length   int
}

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

func (t *trace) next(at clock.Time, what string) *traceLine {
	l := &t.lines[t.count%traceKept]
	t.count++
	*l = traceLine{at: at, what: what}
	t.hash = (t.hash ^ uint64(at)) * fnvPrime
	t.mix([]byte(what))
	return l
}

// packet notes what happens to a packet: what names it, buf runs from the BTH to the ICRC.
func (t *trace) packet(at clock.Time, what string, f *flight) {
	l := t.next(at, what)
	l.from, l.to, l.length = f.from.name, f.to.name, len(f.buf)
	copy(l.head[:], f.buf)
	t.mix(f.buf)
	t.show(l)
}

// note adds a line in words; args are formatted when somebody reads it.
func (t *trace) note(at clock.Time, format string, args ...any) {
	l := t.next(at, format)
	l.args = args
	for _, a := range args {
		switch v := a.(type) {
		case uint64:
			t.hash = (t.hash ^ v) * fnvPrime
		case int:
			t.hash = (t.hash ^ uint64(v)) * fnvPrime
		case string:
			t.mix([]byte(v))
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
	if l.length == 0 {
		return s + fmt.Sprintf(l.what, l.args...)
	}
	s += fmt.Sprintf("%-9s %s→%s ", l.what, l.from, l.to)
	// Only the head is kept, so the packet is shown as one without payload.
	bth := ib.BTHView(l.head[:])
	n := bth.Opcode().HeaderLen()
	if n == 0 {
		return s + bth.String()
	}
	head := l.head[:n:n]
	payload := l.length - n - int(bth.PadCount()) - 4
	head[1] &^= 0x30 // the pad went with the payload
	return s + ib.Packet(head).String() + fmt.Sprintf(" (%d bytes)", payload)
}
