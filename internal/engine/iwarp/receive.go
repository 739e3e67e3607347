package iwarp

import (
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

const never = clock.Never

// part is what of an FPDU comes next.
type part uint8

const (
	partHeader part = iota
	partPayload
	partTrailer
)

// receiver is the incoming half of a stream. Without CRC and markers an FPDU is worked on as it
// comes, its payload placed without waiting for the rest. Else it is worked on when it is all
// there: nothing is placed that the CRC does not vouch for.
type receiver struct {
	hasCRC, hasMarkers bool
	marks              iwarp.Marks

	part   part
	header [iwarp.ULPDULenLen + iwarp.HeaderMax]byte
	have   int // bytes of header
	skip   int // bytes of pad and CRC to come
	// whole collects an FPDU that came in several pieces; nil between.
	whole *chunk

	segment segment
}

// segment is the DDP segment that is coming in.
type segment struct {
	header iwarp.Header
	raw    []byte // the header as it came
	ulpdu  int    // length of header and payload
	bytes  int    // of payload
	placed int
	// content is what came of a message that has a layout of its own.
	content [contentMax]byte
}

// contentMax is the longest content that has a layout.
const contentMax = iwarp.TerminateMax

// open begins behind the MPA frame.
func (r *receiver) open(hasCRC, hasMarkers bool) {
	r.hasCRC, r.hasMarkers = hasCRC, hasMarkers
}

// isInside reports that an FPDU has come in part.
func (r *receiver) isInside() bool { return r.part != partHeader || r.have > 0 || r.whole != nil }

func (r *receiver) release(b *Buffers) {
	if r.whole != nil {
		b.drop(r.whole)
		r.whole = nil
	}
}

// HandleStream takes the next bytes of the peer. b stays the caller's.
func (c *Conn) HandleStream(now clock.Time, b []byte) {
	c.enter(now)
	c.stats.BytesReceived += uint64(len(b))
	if !c.isReading() {
		b = c.handleSetup(b)
	}
	if len(b) > 0 {
		c.handleBytes(b)
	}
}

// handleBytes takes the next bytes of FPDUs.
func (c *Conn) handleBytes(b []byte) {
	switch {
	case !c.isReading():
		return
	case c.wait.isWaiting:
		c.keep(b)
		return
	case c.rx.hasCRC || c.rx.hasMarkers:
		c.handleWhole(b)
	default:
		c.handleParts(b)
	}
	c.advance()
}

// isReading reports that FPDUs are taken.
func (c *Conn) isReading() bool { return c.IsOpen() || c.phase == phaseRTR }

// handleParts works through a stream without CRC and markers.
func (c *Conn) handleParts(b []byte) {
	r := &c.rx
	for len(b) > 0 && c.isReading() {
		switch r.part {
		case partHeader:
			b = c.handleHeader(b)
			if c.wait.isWaiting {
				c.keep(b)
				return
			}
		case partPayload:
			n := min(len(b), r.segment.bytes-r.segment.placed)
			if !c.place(b[:n]) {
				return
			}
			b = b[n:]
			c.endPayload()
		case partTrailer:
			n := min(len(b), r.skip)
			r.skip -= n
			b = b[n:]
			if r.skip == 0 {
				r.part, r.have = partHeader, 0
				c.stats.FPDUsReceived++
				c.endSegment()
			}
		}
	}
}

// endPayload goes on to the trailer once all payload is placed.
func (c *Conn) endPayload() {
	r := &c.rx
	if r.segment.placed == r.segment.bytes {
		r.part = partTrailer
	}
}

// handleHeader collects the length and the header of an FPDU and returns what follows them.
func (c *Conn) handleHeader(b []byte) []byte {
	r := &c.rx
	for {
		need := r.headerNeed()
		if r.have < need {
			n := copy(r.header[r.have:need], b)
			r.have += n
			b = b[n:]
			if r.have < need {
				return b
			}
			continue
		}
		n, _ := iwarp.ParseULPDULen(r.header[:])
		if n > 0 && c.mustWait(r.header[iwarp.ULPDULenLen:need]) {
			return b
		}
		c.noteLength(n)
		r.skip = iwarp.PadLen(n) + iwarp.CRCLen
		r.part = partTrailer
		if n == 0 {
			c.beginEmpty()
			return b
		}
		if c.beginSegment(r.header[iwarp.ULPDULenLen:need], n) && r.segment.bytes > 0 {
			r.part = partPayload
		}
		return b
	}
}

// headerNeed returns how many bytes of an FPDU must be there before its header can be read, as far
// as what is there tells.
func (r *receiver) headerNeed() int {
	if r.have < iwarp.ULPDULenLen {
		return iwarp.ULPDULenLen
	}
	n, _ := iwarp.ParseULPDULen(r.header[:])
	switch {
	case n == 0:
		return iwarp.ULPDULenLen
	case r.have == iwarp.ULPDULenLen:
		return iwarp.ULPDULenLen + 1
	case r.header[iwarp.ULPDULenLen]&0x80 != 0: // tagged
		return iwarp.ULPDULenLen + min(n, iwarp.TaggedLen)
	}
	return iwarp.ULPDULenLen + min(n, iwarp.UntaggedLen)
}

// noteLength learns from the length of an FPDU that the peer takes long ones (see FPDUAuto): who
// sends what no TCP segment holds does not work by segments.
func (c *Conn) noteLength(ulpdu int) {
	if c.cfg.FPDU == FPDUAuto && ulpdu > c.mulpdu && ulpdu > max(c.cfg.MSS, segmentMin) {
		c.setMULPDU(true)
	}
}

// handleWhole works through a stream with CRC or markers.
func (c *Conn) handleWhole(b []byte) {
	r := &c.rx
	for len(b) > 0 && c.isReading() {
		if r.whole == nil {
			if n := r.wholeLen(b); n > 0 && n <= len(b) {
				c.handleFPDU(b[:n])
				b = b[n:]
				if c.wait.isWaiting {
					c.keep(b)
					return
				}
				continue
			}
			r.whole = c.buffers.take()
		}
		k := r.whole
		want := r.wholeLen(k.buf[:k.used])
		if want == 0 {
			want = k.used + 1 // one more byte, until the length is there
		}
		n := copy(k.buf[k.used:want], b)
		k.used += n
		b = b[n:]
		if r.wholeLen(k.buf[:k.used]) != k.used {
			continue
		}
		c.endWhole()
		if c.wait.isWaiting {
			c.keep(b)
			return
		}
	}
}

// endWhole takes the FPDU that was put together.
func (c *Conn) endWhole() {
	k := c.rx.whole
	c.rx.whole = nil
	c.handleFPDU(k.buf[:k.used])
	c.buffers.drop(k)
}

// wholeLen returns how many bytes of the stream an FPDU that begins with b takes; 0 while that
// cannot be told.
func (r *receiver) wholeLen(b []byte) int {
	marks := r.marks
	skip := 0
	if r.hasMarkers && marks.Run() == 0 {
		skip = iwarp.MarkerLen
	}
	if len(b) < skip {
		return 0
	}
	n, ok := iwarp.ParseULPDULen(b[skip:])
	switch {
	case !ok:
		return 0
	case !r.hasMarkers:
		return iwarp.FPDULen(n)
	}
	marks.StartFPDU()
	return marks.MarkedLen(iwarp.FPDULen(n))
}

// handleFPDU takes an FPDU that is all there, as it was in the stream.
func (c *Conn) handleFPDU(b []byte) {
	r := &c.rx
	c.stats.FPDUsReceived++
	body := b[:len(b)-iwarp.CRCLen]
	if r.hasCRC {
		crc, _ := iwarp.ParseCRC(b[len(body):])
		if crc != iwarp.UpdateCRC(0, body) {
			c.refuseFPDU(iwarp.CodeMPACRC)
			return
		}
	}
	if r.hasMarkers {
		plain, ok := r.strip(c.buffers.scratch()[:0], body)
		if !ok {
			c.refuseFPDU(iwarp.CodeMPAMarker)
			return
		}
		body = plain
	}
	n, _ := iwarp.ParseULPDULen(body)
	c.noteLength(n)
	if n == 0 {
		c.beginEmpty()
		c.endSegment()
		return
	}
	ulpdu := body[iwarp.ULPDULenLen:][:n]
	if c.mustWait(ulpdu) {
		c.wait.ulpdu = append(c.wait.ulpdu[:0], ulpdu...)
		return
	}
	c.handleULPDU(ulpdu)
}

// handleULPDU takes the segment of an FPDU that is sound. Preconditions: len(ulpdu) > 0.
func (c *Conn) handleULPDU(ulpdu []byte) {
	n := len(ulpdu)
	if !c.beginSegment(ulpdu, n) {
		return
	}
	s := &c.rx.segment
	if s.bytes == 0 || c.place(ulpdu[n-s.bytes:]) {
		c.endSegment()
	}
}

// strip takes the markers out of an FPDU without its CRC, and judges them.
func (r *receiver) strip(plain, b []byte) ([]byte, bool) {
	m := &r.marks
	m.StartFPDU()
	for len(b) > 0 {
		run := m.Run()
		if run == 0 {
			got, err := iwarp.ParseMarker(b)
			if err != nil || got != m.Marker() {
				return nil, false
			}
			m.PassMarker()
			b = b[iwarp.MarkerLen:]
			continue
		}
		n := min(run, len(b))
		plain = append(plain, b[:n]...)
		m.Advance(n)
		b = b[n:]
	}
	m.Advance(iwarp.CRCLen)
	return plain, true
}
