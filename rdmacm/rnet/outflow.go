package rnet

import (
	"syscall"

	"github.com/softrnic/softrnic/verbs"
)

// outflow is what goes to the peer. Positions count bytes since the beginning; modulo size they
// are places in the peer's ring and in the mirror alike.
type outflow struct {
	size   int
	sent   uint64
	window int // bytes that the peer's ring has room for
	slots  int // receives that the peer has for data

	// Send queue: how many work requests were posted and are known to be complete, and up to which
	// byte the mirror is free again, modulo 2^32 as work requests carry them.
	posted, done uint32
	doneBytes    uint32
	// What was posted since the last request that will tell of its completion.
	quiet      int
	quietBytes int

	ending bool   // CloseWrite or Close was called
	ended  bool   // the end was posted
	endSeq uint32 // its place among the posted
}

const (
	// sendQueue is how many work requests may be posted and not known to be complete.
	sendQueue = 64
	// controlPlaces are kept free for control messages, finPlace for the last of them.
	controlPlaces = 16
	finPlace      = 1
	// quietMax is how many work requests may go by without a completion.
	quietMax = 16
)

func (o *outflow) free() int { return sendQueue - int(o.posted-o.done) }

// complete takes the completion of a work request, which stands for all before it.
func (o *outflow) complete(id uint64) { o.done, o.doneBytes = uint32(id>>32), uint32(id) }

// roomLocked is how many bytes can be sent at once; 0 is to wait.
func (c *Conn) roomLocked() int {
	o := &c.out
	if o.slots == 0 || o.free() < controlPlaces+2 {
		return 0
	}
	// A quarter at a time keeps the ring moving.
	return min(o.window, o.size-int(uint32(o.sent)-o.doneBytes), max(o.size/quota, 1))
}

// sendLocked sends a piece for which there is room. It gives mu up while it copies.
func (c *Conn) sendLocked(b []byte) error {
	at := int(c.out.sent % uint64(c.out.size))
	c.mu.Unlock()
	part := copy(c.mirror[at:], b)
	copy(c.mirror, b[part:])
	c.mu.Lock()
	if c.err != nil {
		return c.err
	}
	wrs := c.wrs[:0]
	c.sges[0] = c.mr.Piece(c.mirrorAt+at, part)
	wrs = append(wrs, verbs.SendWR{SGE: c.sges[:1], RemoteAddr: c.peer.addr + uint64(at)})
	if part < len(b) {
		c.sges[1] = c.mr.Piece(c.mirrorAt, len(b)-part)
		wrs = append(wrs, verbs.SendWR{SGE: c.sges[1:], RemoteAddr: c.peer.addr})
	}
	o := &c.out
	o.quietBytes += len(b)
	for i := range wrs {
		wr, isLast := &wrs[i], i == len(wrs)-1
		wr.Opcode, wr.RKey = verbs.WRWrite, c.peer.rkey
		if isLast {
			wr.Opcode, wr.Imm = verbs.WRWriteWithImm, uint32(len(b))
			o.sent += uint64(len(b))
		}
		c.numberLocked(wr, isLast && o.quietBytes >= o.size/quota)
	}
	o.window -= len(b)
	o.slots--
	return c.postLocked(wrs)
}

// numberLocked gives a work request its number, and asks for its completion if one is due.
func (c *Conn) numberLocked(wr *verbs.SendWR, signal bool) {
	o := &c.out
	o.posted++
	o.quiet++
	wr.ID = uint64(o.posted)<<32 | uint64(uint32(o.sent))
	if signal || o.quiet >= quietMax && wr.Opcode != verbs.WRWrite {
		wr.Flags = verbs.SendSignaled
		o.quiet, o.quietBytes = 0, 0
	}
}

func (c *Conn) postLocked(wrs []verbs.SendWR) error {
	_, err := c.qp.PostSend(wrs...)
	if err != nil {
		c.failLocked(err)
	}
	return err
}

func (c *Conn) postControlLocked(imm uint32, signal bool) error {
	c.wrs[0] = verbs.SendWR{Opcode: verbs.WRSendWithImm, Imm: imm}
	c.numberLocked(&c.wrs[0], signal)
	return c.postLocked(c.wrs[:1])
}

// endLocked tells the peer that no more data come.
func (c *Conn) endLocked() error {
	o := &c.out
	switch {
	case c.err != nil:
		return c.err
	case o.ended:
		return nil
	case o.free() < finPlace:
		return syscall.ENOBUFS
	}
	o.ended = true
	if err := c.postControlLocked(finMessage, true); err != nil {
		return err
	}
	o.endSeq = o.posted
	return nil
}

// isDeliveredLocked reports that the peer's memory has everything, the end as well.
func (c *Conn) isDeliveredLocked() bool {
	return c.out.ended && int32(c.out.done-c.out.endSeq) >= 0
}

// handleProbe runs when the peer has to be tried: an empty WRITE, which its NIC acknowledges and
// nobody there sees.
func (c *Conn) handleProbe() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.err != nil {
		return
	}
	if !c.heard && c.out.free() > controlPlaces {
		c.wrs[0] = verbs.SendWR{Opcode: verbs.WRWrite, RemoteAddr: c.peer.addr, RKey: c.peer.rkey}
		c.numberLocked(&c.wrs[0], true)
		if c.postLocked(c.wrs[:1]) != nil {
			return
		}
	}
	c.heard = false
	c.probe.Reset(c.probeEvery)
}
