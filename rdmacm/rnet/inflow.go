package rnet

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/softrnic/softrnic/rdmacm"
	"github.com/softrnic/softrnic/verbs"
)

// inflow is what came from the peer. The bytes of the ring are, from at on: avail that are there to
// be read, and then room; owed of the room the peer does not know of yet.
type inflow struct {
	at        int
	avail     int
	owed      int
	owedSlots int  // receives that data took and that are posted again, not yet given back
	ended     bool // the peer has ended its direction
	repost    int  // receives to post again
}

// takeLocked copies what is there out of the ring. It gives mu up meanwhile.
func (c *Conn) takeLocked(b []byte) int {
	n := min(len(b), c.in.avail)
	at := c.in.at
	c.mu.Unlock()
	part := copy(b[:n], c.ring[at:])
	copy(b[part:n], c.ring)
	c.mu.Lock()
	c.in.at = (at + n) % len(c.ring)
	c.in.avail -= n
	c.in.owed += n
	c.giveBackLocked()
	return n
}

// drainLocked looks at all completions and reports whether there were any.
func (c *Conn) drainLocked() (isNews bool) {
	for {
		n, err := c.cq.Poll(c.wcs[:])
		if err != nil {
			c.failLocked(err)
			return isNews
		}
		for i := range n {
			c.handleLocked(&c.wcs[i])
		}
		if n > 0 {
			isNews = true
			c.repostLocked()
			c.giveBackLocked()
		}
		if n < len(c.wcs) {
			return isNews
		}
	}
}

// handleLocked takes one completion. The peer's numbers are checked: it may be anybody.
func (c *Conn) handleLocked(wc *verbs.WC) {
	if wc.Status != verbs.WCSuccess {
		if c.err == nil {
			c.failLocked(wc.Err())
		}
		return
	}
	switch wc.Opcode {
	case verbs.WCOpRecvWriteImm:
		c.in.repost++
		c.heard = true
		c.arriveLocked(int(wc.Imm))
	case verbs.WCOpRecv:
		c.in.repost++
		c.heard = true
		c.controlLocked(wc.Imm)
	default:
		c.out.complete(wc.ID)
		c.writes.signal()
	}
}

// arriveLocked takes note of data.
func (c *Conn) arriveLocked(n int) {
	in := &c.in
	switch {
	case in.ended:
		c.violatedLocked("data after its end")
	case n <= 0 || n > len(c.ring)-in.avail-in.owed:
		c.violatedLocked(fmt.Sprintf("%d bytes for a ring with less room", n))
	case in.owedSlots == receives-controlReserve:
		c.violatedLocked("more messages than it was granted")
	default:
		in.avail += n
		in.owedSlots++
		c.reads.signal()
	}
}

// controlLocked takes a control message.
func (c *Conn) controlLocked(imm uint32) {
	switch imm >> kindShift {
	case kindCredit:
		slots, bytes := int(imm>>slotsShift&slotsMask), int(imm&bytesMask)
		o := &c.out
		if bytes > o.size-o.window || slots > c.slotsMax-o.slots {
			c.violatedLocked("more given back than it had")
			return
		}
		o.window += bytes
		o.slots += slots
		c.writes.signal()
	case kindFIN:
		c.in.ended = true
		c.reads.signal()
	default:
		c.violatedLocked(fmt.Sprintf("control message %#x", imm))
	}
}

// repostLocked posts the receives that were used, all alike.
func (c *Conn) repostLocked() {
	if c.err != nil {
		return
	}
	for c.in.repost > 0 {
		n, err := c.qp.PostRecv(c.recvs[:min(c.in.repost, len(c.recvs))]...)
		c.in.repost -= n
		if err != nil {
			c.failLocked(err)
			return
		}
	}
}

// giveBackLocked tells the peer about room, once there is enough of it to be worth a message.
// Where the send queue has no place left now, a later completion leads here again.
func (c *Conn) giveBackLocked() {
	in := &c.in
	if in.ended || c.err != nil || c.out.free() <= finPlace ||
		in.owed < len(c.ring)/quota && in.owedSlots < (receives-controlReserve)/quota {
		return
	}
	if err := c.postControlLocked(creditMessage(in.owedSlots, in.owed), false); err != nil {
		c.failLocked(err)
		return
	}
	in.owed, in.owedSlots = 0, 0
}

// failLocked ends the use of the connection. What has arrived can still be read.
func (c *Conn) failLocked(err error) {
	if c.err != nil {
		return
	}
	if errors.Is(err, verbs.ErrFlushed) {
		// The completion says only that it is over.
		switch why := c.rc.Err(); {
		case why == nil, errors.Is(why, rdmacm.ErrDisconnected):
			err = syscall.ECONNRESET
		default:
			err = why
		}
	}
	c.err = err
	c.reads.signal()
	c.writes.signal()
}

// violatedLocked ends a connection whose peer breaks the rules.
func (c *Conn) violatedLocked(what string) {
	c.failLocked(fmt.Errorf("rnet: the peer sent %s: %w", what, syscall.EPROTO))
}
