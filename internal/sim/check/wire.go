package check

import (
	"slices"

	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

// Wire reads the bytes of one iWARP connection as a third party and judges that they follow the
// rules: frames of MPA, FPDUs with pads, CRCs and markers, numbers of messages and their segments,
// depths of READs, answers in the order of requests, and nothing behind a Terminate (RFC 5040,
// 5041, 5044, 6581, 7306). Direction 0 is the initiator's.
type Wire struct {
	Court *Court
	Name  string
	Mark  func(name string)
	// Private is what the program behind the initiator says as it connects; nil before.
	Private []byte
	// IsLocal says that the stream stays within a NIC: CRCs are agreed on and left out, unless there
	// are markers, and FPDUs are of any length.
	IsLocal bool
	// Damaged says of which direction bytes were changed on the way.
	Damaged [2]bool

	lanes [2]lane
}

// lane is one direction.
type lane struct {
	wire  *Wire
	index int
	// most bounds FPDUs with everything in them; 0: nothing does.
	most int

	frame    iwarp.Frame
	hasFrame bool
	frameEnd uint64
	marks    iwarp.Marks
	pending  []byte // not understood yet
	fpdu     []byte // the one that is coming, without markers
	length   int    // that it will have; 0: not known yet
	raw      []byte // the same with markers, which its CRC covers (RFC 5044 4.4)
	parsed   uint64 // bytes understood
	arrived  uint64
	fpdus    int

	msn           [iwarp.QNCount]uint32
	message       message
	asked         []asked  // without an answer on the wire
	underWay      int      // without one that has arrived
	answers       []uint64 // positions of answers that have not arrived
	hasTerminated bool
	terminate     iwarp.Code
}

// NewWire makes the judge of a connection. most bounds the FPDUs of each direction.
func NewWire(court *Court, name string, mark func(string), most [2]int) *Wire {
	w := &Wire{Court: court, Name: name, Mark: mark}
	for i := range w.lanes {
		l := &w.lanes[i]
		l.wire, l.index, l.most = w, i, most[i]
		for q := range l.msn {
			l.msn[q] = 1
		}
	}
	return w
}

func (w *Wire) mark(name string) { w.Mark(name) }

func (l *lane) peer() *lane { return &l.wire.lanes[1-l.index] }

func (l *lane) failf(format string, args ...any) {
	w := l.wire
	args = append([]any{w.Name, l.index, l.fpdus}, args...)
	w.Court.Failf("%s: direction %d, FPDU %d: "+format, args...)
}

// Sent judges the next bytes that an end hands over to TCP.
func (w *Wire) Sent(direction int, b []byte) {
	l := &w.lanes[direction]
	if l.hasTerminated && len(l.pending) == 0 && len(b) > 0 && len(l.fpdu) == 0 {
		l.failf("%d bytes behind a Terminate", len(b))
		return
	}
	l.pending = append(l.pending, b...)
	for !w.Court.HasFailed() {
		n := 0
		if l.hasFrame {
			n = l.takeFPDU()
		} else {
			n = l.takeFrame()
		}
		if n == 0 {
			return
		}
		l.pending = l.pending[n:]
	}
}

// Arrived says that so many further bytes have reached the other end.
func (w *Wire) Arrived(direction, n int) {
	l := &w.lanes[direction]
	l.arrived += uint64(n)
	for len(l.answers) > 0 && l.answers[0] <= l.arrived {
		l.answers = l.answers[1:]
		l.peer().underWay--
	}
}

// Ended judges an orderly end of a direction: it comes between FPDUs, unless the other end has
// broken off already.
func (w *Wire) Ended(direction int, hasPeerEnded bool) {
	l := &w.lanes[direction]
	if (len(l.pending) > 0 || len(l.fpdu) > 0) && !hasPeerEnded && !l.peer().hasTerminated {
		l.failf("FIN inside of an FPDU")
	}
}

// HasCRC reports that both MPA frames have passed and CRCs are in use.
func (w *Wire) HasCRC() bool {
	return w.IsSetUp() && (w.lanes[0].frame.CRC || w.lanes[1].frame.CRC)
}

// IsSetUp reports that both MPA frames have passed.
func (w *Wire) IsSetUp() bool { return w.lanes[0].hasFrame && w.lanes[1].hasFrame }

// FrameEnd returns where in a direction the FPDUs begin.
func (w *Wire) FrameEnd(direction int) uint64 { return w.lanes[direction].frameEnd }

// Terminated returns the last word of a direction.
func (w *Wire) Terminated(direction int) (iwarp.Code, bool) {
	l := &w.lanes[direction]
	return l.terminate, l.hasTerminated
}

func (l *lane) takeFrame() int {
	parse := iwarp.ParseRequest
	if l.index == 1 {
		parse = iwarp.ParseReply
	}
	if len(l.pending) == 0 {
		return 0
	}
	f, n, err := parse(l.pending)
	if err != nil {
		l.failf("the MPA frame: %v", err)
		return 0
	}
	if n == 0 {
		return 0
	}
	if l.index == 0 {
		l.wire.Private = slices.Clone(f.PrivateData)
	}
	f.PrivateData = nil
	l.frame, l.hasFrame = f, true
	l.parsed, l.frameEnd = uint64(n), uint64(n)
	if l.index == 1 && f.Revision > l.peer().frame.Revision {
		l.failf("the reply has revision %d, the request %d", f.Revision, l.peer().frame.Revision)
	}
	return n
}

// takeFPDU takes bytes up to the next marker, or the end of the FPDU.
func (l *lane) takeFPDU() int {
	hasMarkers := l.peer().frame.Markers
	run := len(l.pending)
	if len(l.fpdu) == 0 && run > 0 && len(l.raw) == 0 {
		l.begin()
	}
	if hasMarkers {
		at := l.marks.Run()
		if at == 0 {
			return l.takeMarker()
		}
		run = min(run, at)
	}
	want := iwarp.ULPDULenLen - len(l.fpdu)
	if l.length > 0 {
		want = l.length - len(l.fpdu)
	}
	run = min(run, want)
	if run == 0 {
		return 0
	}
	l.fpdu = append(l.fpdu, l.pending[:run]...)
	l.raw = append(l.raw, l.pending[:run]...)
	l.marks.Advance(run)
	l.parsed += uint64(run)
	if l.length == 0 {
		if n, ok := iwarp.ParseULPDULen(l.fpdu); ok {
			l.length = iwarp.FPDULen(n)
		}
	}
	if l.length > 0 && len(l.fpdu) == l.length {
		l.finish()
	}
	return run
}

func (l *lane) begin() {
	p := l.peer()
	if l.index == 1 && l.frame.Setup.PeerToPeer && l.frame.Enhanced && p.arrived <= p.frameEnd {
		l.failf("the responder speaks before the initiator")
	}
	l.marks.StartFPDU()
}

// takeMarker judges a marker: it points back to the start of the FPDU that it is in, and to itself
// between two.
func (l *lane) takeMarker() int {
	m, err := iwarp.ParseMarker(l.pending)
	if err != nil {
		return 0
	}
	if m != l.marks.Marker() {
		l.failf("marker %v, which has to be %v", m, l.marks.Marker())
	}
	l.wire.mark("marker")
	l.marks.PassMarker()
	l.raw = append(l.raw, l.pending[:iwarp.MarkerLen]...)
	l.parsed += iwarp.MarkerLen
	return iwarp.MarkerLen
}

func (l *lane) finish() {
	w := l.wire
	l.fpdus++
	isLeftOut := w.IsLocal && !l.frame.Markers && !l.peer().frame.Markers
	crc, _ := iwarp.ParseCRC(l.raw[len(l.raw)-iwarp.CRCLen:])
	switch {
	case isLeftOut && crc != 0:
		l.failf("a CRC within a NIC")
	case !isLeftOut && w.HasCRC() && !iwarp.IsCRCGood(l.raw):
		l.failf("a wrong CRC")
	}
	if l.most > 0 && !w.IsLocal && len(l.raw) > l.most {
		l.failf("an FPDU of %d bytes, more than %d", len(l.raw), l.most)
	}
	n, _ := iwarp.ParseULPDULen(l.fpdu)
	for _, b := range l.fpdu[iwarp.ULPDULenLen+n : len(l.fpdu)-iwarp.CRCLen] {
		if b != 0 {
			l.failf("pad bytes tell something: %#x", b)
		}
	}
	if l.hasTerminated {
		l.failf("an FPDU behind a Terminate")
	}
	l.segment(l.fpdu[iwarp.ULPDULenLen : iwarp.ULPDULenLen+n])
	l.fpdu, l.raw, l.length = l.fpdu[:0], l.raw[:0], 0
}
