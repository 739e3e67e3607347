package iwarp

import (
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

// copiedMax is up to where payload is copied behind its header: a piece of its own costs more.
const copiedMax = 2 << 10

// aheadBytes bounds what is framed and not yet sent.
const aheadBytes = work.VectorBytes

// piece is bytes of the stream that are framed and not sent: in a chunk, or by reference in memory
// of the application, which is looked up again whenever they are handed out.
type piece struct {
	chunk *chunk
	off   int // in the chunk
	bytes int

	key      rdma.Key
	addr     uint64
	isRemote bool // key is an STag that the peer named, not a local key
}

// transmitter is the outgoing half of a stream.
//
//	first byte    sent              made
//	 |--- gone ----|--- in pieces ---|
//
// Positions count bytes since the stream began.
type transmitter struct {
	sent, made uint64
	pieces     work.Deque[piece]
	head       int // bytes of the first piece that are sent
	filling    *chunk
	// ends are the positions where frames end, from the one that sent is in on; boundary is where
	// the last one ended before.
	ends     work.Deque[uint64]
	boundary uint64
	// origin is the position of the first FPDU.
	origin uint64

	hasCRC, hasMarkers bool
	marks              iwarp.Marks
	// start is where in filling the FPDU under construction begins.
	start int
}

// ahead returns how many bytes are framed and not sent.
func (t *transmitter) ahead() int { return int(t.made - t.sent) }

// isInside reports that a frame is sent in part.
func (t *transmitter) isInside() bool { return t.sent > t.boundary && t.ends.Len() > 0 }

// room makes sure that n bytes fit into the chunk being filled.
func (c *Conn) room(n int) *chunk {
	t := &c.tx
	if t.filling != nil && len(t.filling.buf)-t.filling.used < n {
		c.buffers.drop(t.filling)
		t.filling = nil
	}
	if t.filling == nil {
		t.filling = c.buffers.take()
	}
	return t.filling
}

// push makes the last n bytes of the chunk being filled part of the stream.
func (t *transmitter) push(n int) {
	k := t.filling
	off := k.used - n
	t.made += uint64(n)
	if t.pieces.Len() > 0 {
		last := t.pieces.At(t.pieces.Len() - 1)
		if last.chunk == k && last.off+last.bytes == off {
			last.bytes += n
			return
		}
	}
	k.refs++
	*t.pieces.Push() = piece{chunk: k, off: off, bytes: n}
}

// pushReference makes bytes of an application part of the stream.
func (t *transmitter) pushReference(p piece) {
	t.made += uint64(p.bytes)
	*t.pieces.Push() = p
}

// pushFrame makes the last n bytes of the chunk being filled part of the stream, as a whole.
func (t *transmitter) pushFrame(n int) {
	t.push(n)
	*t.ends.Push() = t.made
}

// begin starts an FPDU with an ULPDU of header and n bytes, of which all go into the chunk, and
// returns where the header goes.
func (c *Conn) begin(header, n int) []byte {
	return c.beginIn(header, n, iwarp.FPDULen(header+n)+c.tx.markerRoom(header+n))
}

// beginReference is begin for an FPDU whose payload comes by reference.
func (c *Conn) beginReference(header, n int) []byte {
	return c.beginIn(header, n, iwarp.FPDULen(header))
}

func (c *Conn) beginIn(header, n, room int) []byte {
	t := &c.tx
	k := c.room(room)
	t.start = k.used
	b := iwarp.AppendULPDULen(k.buf[k.used:k.used], header+n)
	k.used += len(b)
	return k.buf[k.used:k.used]
}

// markerRoom returns how many bytes of markers an FPDU may need at most.
func (t *transmitter) markerRoom(n int) int {
	if !t.hasMarkers {
		return 0
	}
	return iwarp.MarkerLen * (n/(iwarp.MarkerInterval-iwarp.MarkerLen) + 3)
}

// advance counts n bytes that were written behind those of begin.
func (t *transmitter) advance(n int) { t.filling.used += n }

// copies reports that payload of n bytes goes through the engine's memory: a CRC must cover what
// is sent, while the application may change its memory at any instant; markers are put between.
func (t *transmitter) copies(n int) bool { return n <= copiedMax || t.hasCRC || t.hasMarkers }

// finish ends an FPDU whose ULPDU of n bytes is all in the chunk.
func (c *Conn) finish(n int) {
	t := &c.tx
	k := t.filling
	k.used += len(iwarp.AppendPad(k.buf[k.used:k.used], iwarp.PadLen(n)))
	if t.hasMarkers {
		c.insertMarkers()
	}
	crc := uint32(0)
	if t.hasCRC {
		crc = iwarp.UpdateCRC(0, k.buf[t.start:k.used])
	}
	k.used += len(iwarp.AppendCRC(k.buf[k.used:k.used], crc))
	if t.hasMarkers {
		t.marks.Advance(iwarp.CRCLen)
	}
	t.pushFrame(k.used - t.start)
}

// insertMarkers puts the markers into the FPDU under construction, the one in front of its CRC
// included, where there is one.
func (c *Conn) insertMarkers() {
	t := &c.tx
	k := t.filling
	plain := append(c.buffers.scratch()[:0], k.buf[t.start:k.used]...)
	t.marks.StartFPDU()
	b := t.marks.Append(k.buf[t.start:t.start], plain)
	if t.marks.Run() == 0 {
		b = t.marks.Marker().Append(b)
		t.marks.PassMarker()
	}
	k.used = t.start + len(b)
}

// finishReference ends an FPDU whose payload was pushed by reference; ulpdu is the length of header
// and payload.
func (c *Conn) finishReference(ulpdu int) {
	t := &c.tx
	k := c.room(2 * iwarp.CRCLen)
	before := k.used
	k.used += len(iwarp.AppendPad(k.buf[k.used:k.used], iwarp.PadLen(ulpdu)))
	k.used += len(iwarp.AppendCRC(k.buf[k.used:k.used], 0))
	t.pushFrame(k.used - before)
}

// view returns the bytes of a piece, without those that are sent; nil where its memory is not to
// be had any more.
func (c *Conn) view(p *piece, skip int) []byte {
	if p.chunk != nil {
		return p.chunk.buf[p.off+skip : p.off+p.bytes]
	}
	q := c.qp
	if q == nil {
		return nil
	}
	addr, n := p.addr+uint64(skip), uint64(p.bytes-skip)
	var b []byte
	var f mem.Fault
	if p.isRemote {
		b, f = q.table.ViewRemote(p.key, q.accessor(), addr, n)
	} else {
		b, f = q.table.View(p.key, q.cfg.PD, addr, n, 0)
	}
	if f != mem.FaultNone {
		return nil
	}
	if b == nil {
		return c.fetchPiece(p, skip)
	}
	return b
}

// fetchPiece copies what is left of a piece whose memory was mapped as it was framed, and is
// reached in another way since the region was registered again.
func (c *Conn) fetchPiece(p *piece, skip int) []byte {
	q, k := c.qp, c.buffers.take()
	b := k.buf[skip:p.bytes]
	addr := p.addr + uint64(skip)
	var f mem.Fault
	if p.isRemote {
		f = q.table.ReadRemote(p.key, q.accessor(), addr, b)
	} else {
		f = q.table.Read(p.key, q.cfg.PD, addr, b, 0)
	}
	if f != mem.FaultNone {
		c.buffers.drop(k)
		return nil
	}
	p.chunk, p.off = k, 0
	return b
}

// endBefore takes back what v has of an FPDU of which no byte is sent yet and the rest cannot be
// had: it need not be begun. It reports false when nothing is left.
func (t *transmitter) endBefore(v *work.Vector) bool {
	whole := t.boundary
	for i := range t.ends.Len() {
		if end := *t.ends.At(i); end <= t.sent+uint64(v.Bytes) {
			whole = end
		}
	}
	if whole >= t.sent {
		v.Cut(int(whole - t.sent))
	}
	return v.Bytes > 0
}

// list hands out what is framed. It reports false where memory that part of an FPDU was promised
// from has gone: the stream cannot go on.
func (c *Conn) list(v *work.Vector) bool {
	t := &c.tx
	skip := t.head
	for i := 0; i < t.pieces.Len() && !v.IsFull(); i++ {
		p := t.pieces.At(i)
		b := c.view(p, skip)
		if b == nil {
			return t.endBefore(v)
		}
		v.Append(b)
		skip = 0
	}
	return true
}

// take counts n bytes that the socket has taken.
func (c *Conn) take(n int) {
	t := &c.tx
	n = min(n, t.ahead())
	t.sent += uint64(n)
	for n > 0 {
		p := t.pieces.At(0)
		left := p.bytes - t.head
		if n < left {
			t.head += n
			break
		}
		n -= left
		t.head = 0
		c.popPiece()
	}
	for t.ends.Len() > 0 && *t.ends.At(0) <= t.sent {
		t.boundary = *t.ends.At(0)
		t.ends.Pop()
	}
	if t.pieces.Len() == 0 && t.filling != nil {
		c.buffers.drop(t.filling)
		t.filling = nil
	}
}

func (c *Conn) popPiece() {
	t := &c.tx
	if k := t.pieces.At(0).chunk; k != nil {
		c.buffers.drop(k)
	}
	t.pieces.Pop()
}

// cut drops the FPDUs of which no byte is sent: what they say is not to be said any more.
func (c *Conn) cut() {
	t := &c.tx
	keep := t.sent
	if t.isInside() {
		keep = *t.ends.At(0)
		t.ends.Cut(1)
	} else {
		t.ends.Cut(0)
	}
	left := int(keep-t.sent) + t.head
	n := 0
	for ; n < t.pieces.Len() && left > 0; n++ {
		p := t.pieces.At(n)
		p.bytes = min(p.bytes, left)
		left -= p.bytes
	}
	for i := n; i < t.pieces.Len(); i++ {
		if k := t.pieces.At(i).chunk; k != nil {
			c.buffers.drop(k)
		}
	}
	t.pieces.Cut(n)
	if t.filling != nil {
		c.buffers.drop(t.filling)
		t.filling = nil
	}
	t.made = keep
	t.marks = iwarp.MarksAt(t.made - t.origin)
}

// release gives all memory back.
func (c *Conn) release() {
	t := &c.tx
	for t.pieces.Len() > 0 {
		c.popPiece()
	}
	t.ends.Cut(0)
	t.head = 0
	t.sent = t.made
	if t.filling != nil {
		c.buffers.drop(t.filling)
		t.filling = nil
	}
}
