package check

import (
	"time"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

// Conversation judges the packets between one requester and its responder of the RC service as a
// third party on the wire sees them, before the network has its way with them (IBTA 9.7).
type Conversation struct {
	Court *Court
	Name  string
	MTU   uint32
	First rdma.PSN
	// RNRRetry is the requester's rnr_retry; 7 is for ever.
	RNRRetry int
	// Flushed is told when FLUSH number n, from 0 on, is answered; nil where nobody asks.
	Flushed func(n int)

	high     uint64 // packets that were sent for the first time so far; the next has number high
	packets  []wirePacket
	messages []uint64  // number of the packet after each message, in order
	isInside bool      // the message goes on
	write    bool      // the message is a WRITE
	queue    ib.XRCETH // XRC: where the message goes
	una      uint64    // number of the first packet that no answer that arrived acknowledges
	isAsked  bool      // a question was sent
	flushes  int       // sent so far

	notReadyTill   clock.Time
	notReadyPacket uint64
	// early is a NAK that came while data before its packet were missing, and until when it had the
	// requester wait; 0 once the packet was sent again.
	earlyPacket uint64
	earlyTill   clock.Time
	isRepeated  bool
	repeats     int // of that packet
}

// rnrForever is the rnr_retry without an end (IBTA 9.7.5.2.8).
const rnrForever = 7

// notReadyLate is how late a host may be that is busy with other things.
const notReadyLate = 20 * time.Millisecond

// wirePacket is what a repetition of a packet has to repeat.
type wirePacket struct {
	opcode ib.Opcode
	length uint32
	sum    uint64
	header uint64
	data   bool // an answer of its own is due, not just an acknowledge
	flush  int  // which FLUSH it is
}

// number turns a PSN into the count of packets before it. Those from the future are at least high.
func (c *Conversation) number(psn rdma.PSN) uint64 {
	return c.high + uint64(int64(psn.Sub(c.First.Add(uint32(c.high&rdma.PSNMask)))))
}

func sumOf(b []byte) uint64 {
	h := uint64(len(b)) + 1
	for ; len(b) >= 8; b = b[8:] {
		v := uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
			uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
		h = (h ^ v) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	for _, v := range b {
		h = (h ^ uint64(v)) * 0x9e3779b97f4a7c15
	}
	return h
}

// headerSum is of all in the extended headers that a repetition has to repeat: a READ that goes on
// asks for less.
func headerSum(h *ib.Headers) uint64 {
	op, sum := h.BTH.Opcode, uint64(0)
	add := func(set ib.HeaderSet, values ...uint64) {
		if !op.Has(set) {
			return
		}
		for _, v := range values {
			sum = Mix(sum, v)
		}
	}
	add(ib.HasXRCETH, uint64(h.XRC))
	if !op.IsReadRequest() {
		add(ib.HasRETH, h.RETH.VA, uint64(h.RETH.RKey), uint64(h.RETH.Length))
	}
	add(ib.HasAtomicETH, h.Atomic.VA, uint64(h.Atomic.RKey), h.Atomic.SwapAdd, h.Atomic.Compare)
	add(ib.HasFETH, uint64(h.Flush.Placement), uint64(h.Flush.Select))
	add(ib.HasImmDt, uint64(h.Imm))
	add(ib.HasIETH, uint64(h.Inv))
	return sum
}

// Request takes a packet that the requester sends.
func (c *Conversation) Request(now clock.Time, h *ib.Headers, payload []byte) {
	at := c.number(h.BTH.PSN)
	if IsQuestion(h, payload) && int64(at) < int64(c.una) {
		c.isAsked = true
		return
	}
	if now < c.notReadyTill && at >= c.notReadyPacket {
		c.Court.Failf("%s: sends PSN %v %v before the receiver is ready", c.Name, h.BTH.PSN,
			c.notReadyTill.Sub(now))
	}
	if at == c.notReadyPacket && !c.isRepeated && c.notReadyTill != 0 {
		c.isRepeated = true
		c.repeats++
		if c.repeats > c.RNRRetry && c.RNRRetry < rnrForever {
			c.Court.Failf("%s: repeats PSN %v %d times; rnr_retry is %d",
				c.Name, h.BTH.PSN, c.repeats, c.RNRRetry)
		}
		if late := now.Sub(c.notReadyTill); late > notReadyLate {
			c.Court.Failf("%s: repeats PSN %v %v after the receiver's time", c.Name, h.BTH.PSN, late)
		}
	}
	if at == c.earlyPacket {
		c.earlyTill = 0
	}
	switch {
	case at > c.high:
		c.Court.Failf("%s: PSN %v leaves out %d packets", c.Name, h.BTH.PSN, int64(at-c.high))
	case at == c.high:
		c.begin(h, payload)
	default:
		c.repeat(at, h, payload)
	}
}

// IsQuestion reports an empty WRITE that can only be meant to be acknowledged (ADR 0017). It has to
// repeat a PSN that is acknowledged, or the one before the first.
func IsQuestion(h *ib.Headers, payload []byte) bool {
	isWrite := h.BTH.Opcode == ib.RCWriteOnly || h.BTH.Opcode == ib.XRCWriteOnly
	return isWrite && len(payload) == 0 && h.BTH.AckReq && h.RETH == ib.RETH{}
}

// isPlacement reports an ATOMIC WRITE or a FLUSH, which READ data of no bytes answer
// (IBTA A19.4.2).
func isPlacement(op ib.Opcode) bool {
	o := op.Info().Operation
	return o == ib.OperationAtomicWrite || o == ib.OperationFlush
}

func isAcknowledge(op ib.Opcode) bool { return op.Info().Operation == ib.OperationAcknowledge }

// begin takes a packet that is sent for the first time: messages are whole and cut at the MTU.
func (c *Conversation) begin(h *ib.Headers, payload []byte) {
	op := h.BTH.Opcode
	info := op.Info()
	isStart := info.Position == ib.First || info.Position == ib.Only
	switch {
	case isStart == c.isInside:
		c.Court.Failf("%s: %v follows what it cannot follow", c.Name, op)
	case !isStart && info.Operation == ib.OperationWrite != c.write:
		c.Court.Failf("%s: %v goes on with another operation", c.Name, op)
	case !isStart && h.XRC != c.queue && op.Has(ib.HasXRCETH):
		c.Court.Failf("%s: %v goes to SRQ %v, its message to %v", c.Name, op, h.XRC, c.queue)
	case !info.Payload.Allows(len(payload), int(c.MTU)):
		c.Court.Failf("%s: %v with %d bytes at MTU %d", c.Name, op, len(payload), c.MTU)
	}
	c.queue = h.XRC
	c.isInside = info.Position == ib.First || info.Position == ib.Middle
	c.write = info.Operation == ib.OperationWrite
	x := wirePacket{
		opcode: op, length: uint32(len(payload)), sum: sumOf(payload), header: headerSum(h),
		data: op.IsReadRequest() || op.IsAtomic() || isPlacement(op), flush: c.flushes,
	}
	if info.Operation == ib.OperationFlush {
		c.flushes++
	}
	n := uint32(1)
	if op.IsReadRequest() {
		n = max(1, (h.RETH.Length+c.MTU-1)/c.MTU)
	}
	for range n {
		c.packets = append(c.packets, x)
	}
	c.high += uint64(n)
	if !c.isInside {
		c.messages = append(c.messages, c.high)
	}
}

// repeat takes a packet that was sent before: it is the same, but that a READ may ask for the rest.
func (c *Conversation) repeat(at uint64, h *ib.Headers, payload []byte) {
	if int64(at) < 0 {
		c.Court.Failf("%s: PSN %v is before the first", c.Name, h.BTH.PSN)
		return
	}
	x := &c.packets[at]
	if x.opcode != h.BTH.Opcode || x.length != uint32(len(payload)) || x.sum != sumOf(payload) ||
		x.header != headerSum(h) {
		c.Court.Failf("%s: PSN %v is repeated with another content: %v of %d bytes, first %v of %d",
			c.Name, h.BTH.PSN, h.BTH.Opcode, len(payload), x.opcode, x.length)
	}
}

// Answer takes a packet that the responder sends.
func (c *Conversation) Answer(h *ib.Headers, payload []byte) {
	at := c.number(h.BTH.PSN)
	op := h.BTH.Opcode
	if c.isAsked && int64(at) == -1 && isAcknowledge(op) {
		return // to a question before there was any request
	}
	if at >= c.high || int64(at) < 0 {
		c.Court.Failf("%s: %v answers PSN %v, which was not sent", c.Name, op, h.BTH.PSN)
		return
	}
	x := &c.packets[at]
	switch {
	case isAcknowledge(op) && h.AETH.Syndrome.Kind() == ib.SyndromeACK && x.data:
		c.Court.Failf("%s: an ACK carries PSN %v of a %v (case T05)", c.Name, h.BTH.PSN, x.opcode)
	case op.Info().Operation == ib.OperationAtomicAcknowledge && !x.opcode.IsAtomic(),
		op.IsReadResponse() && !x.opcode.IsReadRequest() && !isPlacement(x.opcode),
		isPlacement(x.opcode) && !isAcknowledge(op) &&
			(!op.IsReadResponse() || op.Info().Position != ib.Only || len(payload) > 0):
		c.Court.Failf("%s: %v answers PSN %v, a %v", c.Name, op, h.BTH.PSN, x.opcode)
	case op.Class() != x.opcode.Class():
		c.Court.Failf("%s: %v answers a %v, of another service", c.Name, op, x.opcode)
	case !op.Info().Payload.Allows(len(payload), int(c.MTU)):
		c.Court.Failf("%s: %v with %d bytes at MTU %d", c.Name, op, len(payload), c.MTU)
	}
	if op.HasAETH() {
		c.judgeMSN(h, at)
		_, hasCredits := h.AETH.Syndrome.Credits().Decode()
		if op.Class() == ib.ClassXRC && h.AETH.Syndrome.Kind() == ib.SyndromeACK && hasCredits {
			c.Court.Failf("%s: %v gives credits; shared queues have none", c.Name, op)
		}
	}
	if op.IsReadResponse() && x.opcode.Info().Operation == ib.OperationFlush && c.Flushed != nil {
		c.Flushed(x.flush)
	}
}

// judgeMSN compares the count of completed messages with what was sent: at least those that the
// answer acknowledges, at most all that are whole (IBTA 9.7.7.1).
func (c *Conversation) judgeMSN(h *ib.Headers, at uint64) {
	end := at + 1
	if h.AETH.Syndrome.Kind() != ib.SyndromeACK || h.BTH.Opcode.IsReadResponse() {
		end = at // the message at is not complete
	}
	least := uint32(c.completeBefore(end))
	most := uint32(len(c.messages))
	got := uint32(h.AETH.MSN)
	if (got-least)&rdma.PSNMask > (most-least)&rdma.PSNMask {
		c.Court.Failf("%s: %v of PSN %v has MSN %d; %d…%d messages are complete",
			c.Name, h.BTH.Opcode, h.BTH.PSN, got, least, most)
	}
}

// completeBefore counts the messages that end at or before packet number end.
func (c *Conversation) completeBefore(end uint64) int {
	lo, hi := 0, len(c.messages)
	for lo < hi {
		mid := (lo + hi) / 2
		if c.messages[mid] <= end {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// Arrived takes an answer that the requester gets. A receiver-not-ready NAK for the oldest open
// packet keeps the requester silent for its time, unless it is a repetition (case T13). Where data
// before it are missing, the NAK need say no more than that they are (IBTA 9.7.5.1.5); a requester
// may take it for more, and the next one for a repetition.
func (c *Conversation) Arrived(now clock.Time, h *ib.Headers) {
	at := c.number(h.BTH.PSN)
	if at >= c.high || at < c.una {
		return
	}
	s := h.AETH.Syndrome
	isAck := isAcknowledge(h.BTH.Opcode)
	isAnswer := !isAck || s.Kind() == ib.SyndromeACK
	c.advance(at)
	if isAnswer && c.una == at && (!isAck || !c.packets[at].data) {
		c.una = at + 1
	}
	if c.una > c.notReadyPacket {
		c.repeats = 0
		c.notReadyTill = 0 // it was ready for a copy that came another way
	}
	if isAnswer || s.Kind() != ib.SyndromeRNRNAK {
		return
	}
	till := now.Add(max(s.RNRTimer().Duration(), time.Microsecond))
	if c.una != at {
		c.earlyPacket, c.earlyTill = at, till
		return
	}
	if at == c.notReadyPacket && !c.isRepeated && c.notReadyTill != 0 {
		return
	}
	if at != c.notReadyPacket {
		c.repeats = 0
	}
	c.notReadyPacket, c.isRepeated, c.notReadyTill = at, false, till
	if c.earlyPacket == at && c.earlyTill != 0 {
		c.notReadyTill = c.earlyTill // this one repeats it, as two copies of the packet were under way
	}
}

// advance moves una up to a packet, but not over one whose data are missing.
func (c *Conversation) advance(to uint64) {
	for c.una < to && !c.packets[c.una].data {
		c.una++
	}
}
