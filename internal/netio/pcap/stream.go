package pcap

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/softrnic/softrnic/internal/netio/tcp"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

// Streams is the half of Taps that listens to TCP. A socket shows bytes, not segments: their
// headers are made up, with sequence numbers that count from the handshake.
//
// A capture that begins in the middle of a connection makes up what was before: the handshake of
// TCP, and the MPA frames without their private data, by which readers of the file know iWARP. Then
// it waits in each direction for the beginning of an FPDU.
type Streams struct {
	taps *Taps
}

var _ tcp.Tap = Streams{}

// Streams returns the taps for TCP.
func (t *Taps) Streams() Streams { return Streams{t} }

// IsOn implements tcp.Tap.
func (s Streams) IsOn() bool { return s.taps.IsOn() }

// StreamOpened implements tcp.Tap.
func (s Streams) StreamOpened(f *tcp.Flow) {
	s.each(f, func(c *Capture) { c.flowOf(f) })
}

// StreamSent implements tcp.Tap.
func (s Streams) StreamSent(f *tcp.Flow, pieces [][]byte, n int) {
	s.each(f, func(c *Capture) { c.offerBytes(f, true, pieces, n) })
}

// StreamReceived implements tcp.Tap. Of a connection between two sockets of this NIC, the bytes
// were shown when they were sent.
func (s Streams) StreamReceived(f *tcp.Flow, pieces [][]byte, n int) {
	if !f.Twin {
		s.each(f, func(c *Capture) { c.offerBytes(f, false, pieces, n) })
	}
}

// StreamEnded implements tcp.Tap.
func (s Streams) StreamEnded(f *tcp.Flow, how tcp.End) {
	if f.Twin && (how == tcp.EndReceived || how == tcp.ResetReceived) {
		return
	}
	s.each(f, func(c *Capture) { c.offerEnd(f, how) })
}

// StreamFailed implements tcp.Tap.
func (s Streams) StreamFailed(f *tcp.Flow, isRefused bool) {
	s.each(f, func(c *Capture) {
		x := newFlow(f)
		c.offerSegment(f, x, 0, flagSYN, nil)
		if isRefused {
			c.offerSegment(f, x, 1, flagRST|flagACK, nil)
		}
	})
}

// each calls show for the captures that want a flow, and drops those that have ended.
func (s Streams) each(f *tcp.Flow, show func(c *Capture)) {
	t := s.taps
	for i := 0; i < len(t.captures); {
		c := t.captures[i]
		if c.config.Stream == nil || c.config.Stream(f) {
			show(c)
		}
		if c.hasEnded() {
			t.Remove(c)
			continue
		}
		i++
	}
}

// tuple names a connection whichever of its ends shows it.
type tuple struct{ low, high netip.AddrPort }

func tupleOf(f *tcp.Flow) tuple {
	if f.Local.Compare(f.Remote) < 0 {
		return tuple{f.Local, f.Remote}
	}
	return tuple{f.Remote, f.Local}
}

// flow is what a capture knows of a connection. Its directions are 0, that of the end that has
// connected, and 1.
type flow struct {
	src  [2]netip.AddrPort
	next [2]uint32 // sequence numbers
	// origin is the place in the stream that has sequence number 0, which may be before its
	// beginning; it counts once the direction is inStep.
	origin [2]uint64
	inStep [2]bool
	ended  [2]bool
	// held is the beginning of a direction as long as it is not a whole MPA frame: readers of the
	// file know one by its segment.
	held   [2][]byte
	isHeld [2]bool
	seals  [2]sealer
}

// direction of what a socket sends, or receives.
func direction(f *tcp.Flow, sent bool) int {
	if f.Active == sent {
		return 0
	}
	return 1
}

func wayOf(sent bool) Way {
	if sent {
		return Outbound
	}
	return Inbound
}

// flowOf finds what the capture knows of a flow, and introduces one that is new.
func (c *Capture) flowOf(f *tcp.Flow) *flow {
	key := tupleOf(f)
	if known := c.flows[key]; known != nil {
		return known
	}
	if c.flows == nil {
		c.flows = map[tuple]*flow{}
	}
	x := newFlow(f)
	c.flows[key] = x
	c.offerSegment(f, x, 0, flagSYN, nil)
	c.offerSegment(f, x, 1, flagSYN|flagACK, nil)
	c.offerSegment(f, x, 0, flagACK, nil)
	// The request comes before the reply.
	c.introduce(f, x, 0)
	c.introduce(f, x, 1)
	return x
}

func newFlow(f *tcp.Flow) *flow {
	own := direction(f, true)
	x := &flow{}
	x.src[own], x.src[1-own] = f.Local, f.Remote
	return x
}

// introduce shows how a direction began.
func (c *Capture) introduce(f *tcp.Flow, x *flow, dir int) {
	done, first := f.Received, f.FirstReceived
	if dir == direction(f, true) {
		done, first = f.Sent, f.FirstSent
	}
	if done == 0 {
		x.inStep[dir], x.origin[dir] = true, ^uint64(0) // −1: the first byte has number 1
		x.isHeld[dir] = true
		return
	}
	if done < tcp.FirstBytes {
		return
	}
	binary.BigEndian.PutUint16(first[tcp.FirstBytes-2:], 0) // length of private data
	first[frameFlagsAt] &^= frameEnhanced                   // there is no room for its word
	c.offerSegment(f, x, dir, flagPSH|flagACK, first[:])
}

// frameFlagsAt is where an MPA frame has its flags (RFC 5044 §7.1.1). frameEnhanced announces a
// word in front of the private data (RFC 6581 §6).
const (
	frameFlagsAt  = 16
	frameMarkers  = 0x80
	frameCRC      = 0x40
	frameEnhanced = 0x10
)

// offerBytes shows n bytes of pieces.
func (c *Capture) offerBytes(f *tcp.Flow, sent bool, pieces [][]byte, n int) {
	x := c.flowOf(f)
	dir := direction(f, sent)
	place := f.Received
	if sent {
		place = f.Sent
	}
	bytes := c.gather(pieces, n)
	if x.isHeld[dir] {
		bytes = c.hold(f, x, dir, bytes)
		place = x.origin[dir] + uint64(x.next[dir])
	}
	if !x.inStep[dir] {
		bytes, place = x.fallIn(dir, bytes, place)
		if len(bytes) == 0 {
			return
		}
	}
	if mustSeal(f) {
		c.sealed = append(c.sealed[:0], bytes...) // they are an application's
		bytes = c.sealed
		x.seals[dir].seal(bytes)
	}
	x.next[dir] = uint32(place - x.origin[dir])
	for len(bytes) > 0 {
		part := bytes[:min(len(bytes), segmentBytesMax)]
		bytes = bytes[len(part):]
		if !c.offerSegment(f, x, dir, flagPSH|flagACK, part) {
			x.inStep[dir] = false // the file has a hole: go on where readers understand it
			return
		}
	}
}

// fallIn looks for the beginning of an FPDU in bytes and those before that left it open. It returns
// what is to be shown, which is nothing as long as there is no beginning, and its place.
func (x *flow) fallIn(dir int, bytes []byte, place uint64) ([]byte, uint64) {
	all := append(x.held[dir], bytes...)
	place -= uint64(len(x.held[dir]))
	at, found := firstFPDU(all)
	all = all[at:]
	place += uint64(at)
	if !found {
		x.held[dir] = slices.Clone(all)
		return nil, place
	}
	x.held[dir], x.inStep[dir], x.seals[dir] = nil, true, sealer{}
	if x.origin[dir] == 0 {
		x.origin[dir] = place - uint64(x.next[dir])
	}
	return all, place
}

// hold keeps the beginning of a direction back until it is an MPA frame, or cannot become one. It
// returns the bytes behind the frame.
func (c *Capture) hold(f *tcp.Flow, x *flow, dir int, bytes []byte) (rest []byte) {
	all := append(x.held[dir], bytes...)
	parse := iwarp.ParseRequest
	if dir == 1 {
		parse = iwarp.ParseReply
	}
	_, n, err := parse(all)
	switch {
	case err != nil:
		n = 0
	case n == 0:
		x.held[dir] = all
		return nil
	}
	x.isHeld[dir], x.held[dir] = false, nil
	if n > 0 {
		c.offerSegment(f, x, dir, flagPSH|flagACK, all[:n])
	}
	return all[n:]
}

// gather puts the first n bytes of pieces in a row.
func (c *Capture) gather(pieces [][]byte, n int) []byte {
	if len(pieces) == 1 {
		return pieces[0][:n]
	}
	c.scratch = c.scratch[:0]
	for _, piece := range pieces {
		c.scratch = append(c.scratch, piece[:min(len(piece), n-len(c.scratch))]...)
	}
	return c.scratch
}

// offerEnd shows how a direction ended, or both.
func (c *Capture) offerEnd(f *tcp.Flow, how tcp.End) {
	x := c.flows[tupleOf(f)]
	if x == nil {
		return // nothing of it was shown
	}
	for dir := range x.held { // what never became a frame
		if x.isHeld[dir] && len(x.held[dir]) > 0 {
			c.offerSegment(f, x, dir, flagPSH|flagACK, x.held[dir])
			x.held[dir] = nil
		}
	}
	switch how {
	case tcp.EndSent, tcp.EndReceived:
		dir := direction(f, how == tcp.EndSent)
		c.offerSegment(f, x, dir, flagFIN|flagACK, nil)
		x.ended[dir] = true
	case tcp.ResetSent, tcp.ResetReceived:
		c.offerSegment(f, x, direction(f, how == tcp.ResetSent), flagRST|flagACK, nil)
		x.ended = [2]bool{true, true}
	case tcp.Forgotten:
		x.ended = [2]bool{true, true}
	}
	if x.ended[0] && x.ended[1] {
		delete(c.flows, tupleOf(f))
	}
}

// offerSegment takes one segment, and reports whether there was room.
func (c *Capture) offerSegment(
	f *tcp.Flow, x *flow, dir int, flags segmentFlags, payload []byte,
) bool {
	p := packet{rest: payload, segment: &segment{
		src: x.src[dir], dst: x.src[1-dir], seq: x.next[dir], flags: flags,
	}}
	if flags&flagACK != 0 {
		p.segment.ack = x.next[1-dir]
	}
	p.way = wayOf(dir == direction(f, true))
	x.next[dir] += uint32(len(payload))
	if flags&(flagSYN|flagFIN) != 0 {
		x.next[dir]++
	}
	return c.take(&p)
}

// firstFPDU finds where readers can begin in the middle of a stream (RFC 5044 §4.1). One header may
// be there by chance, so two in a row have to make sense, unless a single FPDU fills the bytes
// exactly. Where none is found, what is before the place cannot become one, whatever follows.
func firstFPDU(b []byte) (at int, found bool) {
	if n := fpduAt(b); n == len(b) && n > 0 {
		return 0, true
	}
	open := len(b)
	for i := range b {
		n := fpduAt(b[i:])
		if n > 0 && i+n < len(b) {
			if n = fpduAt(b[i+n:]); n > 0 {
				return i, true
			}
		}
		if n != 0 && open == len(b) { // too little of the first or of the second is there
			open = i
		}
	}
	return open, false
}

// fpduAt returns the length of the FPDU that begins here, 0 where none can, or −1 where the bytes
// are too few to tell.
func fpduAt(b []byte) int {
	n, ok := iwarp.ParseULPDULen(b)
	if !ok || len(b) < iwarp.ULPDULenLen+iwarp.HeaderMax {
		return -1
	}
	var h iwarp.Header
	ulpdu := b[iwarp.ULPDULenLen:]
	const reserved0, reserved1 = 0x3c, 0x30 // of the two control fields (RFC 5041 §4.1, RFC 5040 §4.1)
	if ulpdu[0]&reserved0 != 0 || ulpdu[1]&reserved1 != 0 {
		return 0
	}
	if _, err := h.Parse(ulpdu[:min(n, len(ulpdu))]); err != nil || n < h.Len() {
		return 0
	}
	return iwarp.FPDULen(n)
}
