package iwarp

import (
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

const (
	// spaceMin is how long an FPDU must be before calls of its own pay: a copy of less costs no
	// more than a call into the kernel.
	spaceMin = 16 << 10
	// tailMax is the most that lies between two payloads: pad and CRC of one FPDU, length and
	// header of the next.
	tailMax = 3 + iwarp.CRCLen + iwarp.ULPDULenLen + iwarp.HeaderMax
)

// offer is what ReceiveSpace has returned.
type offer struct {
	pieces [2][]byte
	// body is how many bytes of it belong to the FPDU that is coming in; a tail follows.
	body int
	tail [tailMax]byte
}

// ReceiveSpace returns where the next bytes of the stream belong, for the owner to receive them
// there: the payload of a long FPDU in memory of an application or, with CRC or markers, all of it
// where it is put together, and behind it the few bytes up to the next payload. So a stream of long
// FPDUs is received with one call for each of them, and without a copy on the way. nil where bytes
// have to go through HandleStream. It is valid until the next call into the engine.
func (c *Conn) ReceiveSpace() [][]byte {
	r, x := &c.rx, &c.offer
	x.body = 0
	if !c.isReading() || c.wait.isWaiting {
		return nil
	}
	var body []byte
	tail := 0
	switch {
	case r.hasCRC || r.hasMarkers:
		if body = r.wholeSpace(); body != nil {
			tail = iwarp.ULPDULenLen
		}
	case r.segment.bytes < spaceMin:
	case r.part == partPayload:
		body = c.payloadSpace()
		if r.segment.placed+len(body) == r.segment.bytes {
			tail = r.tailLen()
		}
	default:
		tail = r.tailLen() // without its payload: what comes next may be as long again
	}
	x.body = len(body)
	switch {
	case tail == 0 && body == nil:
		return nil
	case body == nil:
		x.pieces[0] = x.tail[:tail]
		return x.pieces[:1]
	}
	x.pieces[0], x.pieces[1] = body, x.tail[:tail]
	return x.pieces[:]
}

// payloadSpace returns where the next payload of the segment belongs; nil where it has to be
// copied, or HandleStream has to say what is wrong.
func (c *Conn) payloadSpace() []byte {
	q, s := c.qp, &c.rx.segment
	left := uint64(s.bytes - s.placed)
	var b []byte
	var f mem.Fault
	switch s.header.Opcode.Info().Kind {
	case iwarp.KindWrite:
		to := s.header.TO + uint64(s.placed)
		b, f = q.table.ViewForRemote(s.header.STag, q.accessor(), to, left)
	case iwarp.KindReadResponse:
		w := q.readAt(0)
		b, f = q.table.ViewScatter(q.cfg.PD, w.List(), uint64(w.got)+uint64(s.placed), left)
	case iwarp.KindSend:
		off := uint64(q.recv.mo) + uint64(s.placed)
		b, f = q.table.ViewScatter(q.cfg.ReceivePD, q.recv.wr.List, off, left)
	default:
		return nil
	}
	if f != mem.FaultNone || len(b) < min(spaceMin, int(left)) {
		return nil
	}
	return b
}

// tailLen returns how many bytes come before the next payload, if its header is as long as that of
// the segment before.
func (r *receiver) tailLen() int {
	n := iwarp.ULPDULenLen + len(r.segment.raw)
	if r.part == partHeader {
		return max(n, r.headerNeed()) - r.have
	}
	return n + r.skip
}

// wholeSpace returns where the rest of a long FPDU is put together.
func (r *receiver) wholeSpace() []byte {
	k := r.whole
	if k == nil {
		return nil
	}
	if want := r.wholeLen(k.buf[:k.used]); want >= spaceMin {
		return k.buf[k.used:want]
	}
	return nil
}

// HandleReceived says that the first n bytes of ReceiveSpace, which was called just before, are
// filled.
func (c *Conn) HandleReceived(now clock.Time, n int) {
	c.enter(now)
	r, x := &c.rx, &c.offer
	body := min(n, x.body)
	tail := x.tail[:min(n-body, tailMax)]
	x.body = 0
	clear(x.pieces[:]) // memory of an application may be unmapped next
	c.stats.BytesReceived += uint64(n)
	switch {
	case !c.isReading():
		return
	case r.hasCRC || r.hasMarkers:
		if body > 0 {
			c.advanceWhole(body)
		}
	case r.part == partPayload:
		s := &r.segment
		s.placed = min(s.placed+body, s.bytes)
		c.endPayload()
	}
	c.handleBytes(tail)
}

// advanceWhole counts n bytes of the FPDU that is put together.
func (c *Conn) advanceWhole(n int) {
	r := &c.rx
	k := r.whole
	k.used = min(k.used+n, len(k.buf))
	if r.wholeLen(k.buf[:k.used]) == k.used {
		c.endWhole()
	}
}
