package check

import (
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

// asked is a READ or atomic request that was seen on the wire.
type asked struct {
	isAtomic bool
	id       uint32 // of an atomic
	sink     rdma.Key
	to       uint64
	length   uint32
	got      uint32 // bytes of the answer that were seen
}

// message is the one of a direction that has begun and not ended: others may not come between its
// segments.
type message struct {
	isOpen bool
	header iwarp.Header // of the last segment
	next   uint64       // where the next segment has to go: TO, or MO
}

// segment judges what a ULPDU says.
func (l *lane) segment(ulpdu []byte) {
	w := l.wire
	if len(ulpdu) == 0 {
		return
	}
	var h iwarp.Header
	payload, err := h.Parse(ulpdu)
	if err != nil {
		l.failf("a segment that is not understood: %v", err)
		return
	}
	w.mark("segment." + h.Opcode.String())
	n := len(payload)
	l.follow(&h, n)
	if h.Opcode.Info().ContentLen > 0 && n != h.Opcode.Info().ContentLen {
		l.failf("%v with %d bytes", h, n)
		return
	}
	switch h.Opcode.Info().Kind {
	case iwarp.KindReadRequest:
		x, _ := iwarp.ParseReadRequest(payload)
		l.ask(asked{sink: x.SinkSTag, to: x.SinkTO, length: x.Length})
	case iwarp.KindAtomicRequest:
		x, _ := iwarp.ParseAtomicRequest(payload)
		l.ask(asked{isAtomic: true, id: x.ID})
	case iwarp.KindReadResponse:
		l.answerRead(&h, uint32(n))
	case iwarp.KindAtomicResponse:
		x, _ := iwarp.ParseAtomicResponse(payload)
		l.answerAtomic(x.ID)
	case iwarp.KindTerminate:
		var t iwarp.Terminate
		if err := t.Parse(payload); err != nil {
			l.failf("a Terminate that is not understood: %v", err)
		}
		l.hasTerminated, l.terminate = true, t.Code
		isAboutBytes := t.Code == iwarp.CodeMPACRC || t.Code == iwarp.CodeMPAMarker
		if isAboutBytes && !w.Damaged[1-l.index] {
			l.failf("a Terminate (%v) about bytes that are as they were sent", t.Code)
		}
		w.mark("terminate." + t.Code.String())
	default:
	}
}

// follow judges numbers: messages of a queue count up, segments of a message follow each other.
func (l *lane) follow(h *iwarp.Header, n int) {
	m := &l.message
	info := h.Opcode.Info()
	isSame := m.header.Opcode == h.Opcode && m.header.STag == h.STag && m.header.MSN == h.MSN
	switch {
	case h.Opcode == iwarp.OpcodeTerminate && m.isOpen:
		m.isOpen = false // what is cut off stays so
	case m.isOpen && !isSame:
		l.failf("%v inside of %v", *h, m.header)
	case info.Tagged && m.isOpen && h.TO != m.next:
		l.failf("%v, which has to go on at %#x", *h, m.next)
	case info.Tagged:
	case !m.isOpen && h.MSN != l.msn[info.Queue]:
		l.failf("%v, which has to have MSN %d", *h, l.msn[info.Queue])
	case !m.isOpen && h.MO != 0:
		l.failf("%v begins a message", *h)
	case m.isOpen && uint64(h.MO) != m.next:
		l.failf("%v, which has to go on at %d", *h, m.next)
	}
	if !info.Tagged && !m.isOpen {
		l.msn[info.Queue]++
	}
	m.isOpen, m.header = !h.Last, *h
	m.next = h.TO + uint64(n)
	if !info.Tagged {
		m.next = uint64(h.MO) + uint64(n)
	}
}

// ask notes a request, and judges that no more are under way than both ends agreed on.
func (l *lane) ask(x asked) {
	l.asked = append(l.asked, x)
	l.underWay++
	if l.underWay > l.depth() {
		l.failf("%d READs and atomics are under way, agreed on were %d", l.underWay, l.depth())
	}
	if l.underWay == l.depth() {
		l.wire.mark("ord.full")
	}
}

// depth is how many requests this direction may have under way.
func (l *lane) depth() int {
	own, peer := &l.frame, &l.peer().frame
	if !own.Enhanced || !peer.Enhanced {
		return depthUnsaid
	}
	return int(max(min(own.Setup.ORD, peer.Setup.IRD), 1)) // an RTR may be a READ
}

// depthUnsaid is what ends assume of each other that cannot say it (MPA revision 1).
const depthUnsaid = 16

func (l *lane) answerRead(h *iwarp.Header, n uint32) {
	p := l.peer()
	if len(p.asked) == 0 || p.asked[0].isAtomic {
		l.failf("%v answers no READ", *h)
		return
	}
	x := &p.asked[0]
	switch {
	case h.STag != x.sink, h.TO != x.to+uint64(x.got):
		l.failf("%v answers a READ to %v+%#x", *h, x.sink, x.to+uint64(x.got))
	case x.got+n > x.length, h.Last && x.got+n < x.length:
		l.failf("%v brings %d bytes of %d", *h, x.got+n, x.length)
	}
	x.got += n
	if h.Last {
		l.answered()
	}
}

func (l *lane) answerAtomic(id uint32) {
	p := l.peer()
	if len(p.asked) == 0 || !p.asked[0].isAtomic || p.asked[0].id != id {
		l.failf("the answer to atomic %d, which is not the oldest request", id)
		return
	}
	l.answered()
}

// answered takes the oldest request off the list. It is under way for its sender until the last
// byte of the answer has arrived.
func (l *lane) answered() {
	p := l.peer()
	p.asked = p.asked[1:]
	l.answers = append(l.answers, l.parsed)
}
