package faulty

import (
	"time"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/netio"
)

// Streams of random choices that one profile's seed is good for.
const (
	streamSend    = 1
	streamReceive = 2
)

// flushBatch is how many held packets go to the port below at once: enough for a segmented send.
const flushBatch = 64

// retryDelay keeps a lane from spinning while the port below is full.
const retryDelay = 50 * time.Microsecond

// receiveTries bounds the batches that Receive may lose whole before it says that nothing came.
const receiveTries = 4

// Port is a port with faults. A capture decorator belongs below it, so that it shows what is on
// the wire.
type Port struct {
	netio.Port // the port below

	now      clock.Time // of the last Poll
	profile  Profile
	send     *Decider
	receive  *Decider // nil: what arrives is left alone
	sendHeld held
	recvHeld held
	out      []netio.Datagram // scratch of Send
	popped   []*slot          // scratch of flush
	lent     []*slot          // given out by Receive until the next one
	full     bool             // the port below has not taken all that was due
}

var _ netio.Port = (*Port)(nil)

// New decorates a port; it takes over the port below, counters included.
func New(below netio.Port, profile Profile) (*Port, error) {
	p := &Port{Port: below}
	return p, p.SetProfile(profile)
}

// SetProfile changes the faults from the next packet on and starts the seed afresh. Packets that
// are held back stay so.
func (p *Port) SetProfile(profile Profile) error {
	if err := profile.Validate(); err != nil {
		return err
	}
	p.profile = profile
	p.send = NewDecider(profile, streamSend, nil)
	p.receive = nil
	if profile.Receive {
		p.receive = NewDecider(profile, streamReceive, nil)
	}
	return nil
}

// Profile returns the faults in force.
func (p *Port) Profile() Profile { return p.profile }

// Name implements netio.Port.
func (p *Port) Name() string { return "faulty(" + p.Port.Name() + ")" }

// Poll implements netio.Port: it sends what is due.
func (p *Port) Poll(now clock.Time) {
	p.now = now
	p.Port.Poll(now)
	// An error of the port below shows at the next Send as well.
	_, _ = p.flush()
}

// NextDeadline implements netio.Port.
func (p *Port) NextDeadline() clock.Time {
	send := p.sendHeld.next()
	if p.full {
		send = max(send, p.now.Add(retryDelay))
	}
	return min(p.Port.NextDeadline(), send, p.recvHeld.next())
}

// Send implements netio.Port.
func (p *Port) Send(batch []netio.Datagram) (int, error) {
	if flushed, err := p.flush(); err != nil || !flushed {
		return 0, err
	}
	p.out = p.out[:0]
	for i := range batch {
		p.decideSend(&batch[i])
	}
	sent, err := p.Port.Send(p.out)
	if err != nil {
		return 0, err
	}
	// Chance has spoken about all of them, so none is given back: what the socket did not take
	// waits here, and the next Send takes nothing until it is gone.
	p.full = sent < len(p.out)
	for i := sent; i < len(p.out); i++ {
		p.hold(&p.sendHeld, &p.out[i], p.now)
	}
	return len(batch), nil
}

// decideSend appends the datagram to what goes out now, holds it back, or loses it.
func (p *Port) decideSend(d *netio.Datagram) {
	v := p.send.Decide(p.now, len(d.Buf)+netio.TrailerBytes)
	p.count(&v)
	if v.Drop {
		return
	}
	if v.Duplicate {
		p.hold(&p.sendHeld, d, v.DuplicateAt)
	}
	first := *d
	if v.Bit != NoBit {
		first.Flip = uint32(1 + v.Bit)
	}
	if v.At > p.now {
		p.hold(&p.sendHeld, &first, v.At)
		return
	}
	p.out = append(p.out, first)
}

func (p *Port) hold(h *held, d *netio.Datagram, at clock.Time) {
	if !h.hold(d, at) {
		p.Counters().Add(netio.FaultOverrun, 1)
	}
}

func (p *Port) count(v *Verdict) {
	c := p.Counters()
	switch {
	case v.Overrun:
		c.Add(netio.FaultOverrun, 1)
		return
	case v.Drop:
		c.Add(netio.FaultLost, 1)
		return
	case v.Reordered:
		c.Add(netio.FaultReordered, 1)
	case v.At > p.now:
		c.Add(netio.FaultDelayed, 1)
	}
	if v.Duplicate {
		c.Add(netio.FaultDuplicated, 1)
	}
	if v.Bit != NoBit {
		c.Add(netio.FaultCorrupted, 1)
	}
}

// flush sends the held packets that are due and reports whether the port below took them all.
func (p *Port) flush() (bool, error) {
	h := &p.sendHeld
	for h.next() <= p.now {
		p.out, p.popped = p.out[:0], p.popped[:0]
		for h.next() <= p.now && len(p.popped) < flushBatch {
			s := h.pop()
			p.popped = append(p.popped, s)
			p.out = append(p.out, s.datagram)
		}
		sent, err := p.Port.Send(p.out)
		for i, s := range p.popped {
			if i < sent {
				h.release(s)
			} else {
				h.push(s)
			}
		}
		if p.full = sent < len(p.popped); err != nil || p.full {
			return false, err
		}
	}
	return true, nil
}

// Receive implements netio.Port.
func (p *Port) Receive(batch []netio.Datagram) (int, error) {
	for _, s := range p.lent {
		p.recvHeld.release(s)
	}
	p.lent = p.lent[:0]
	n := 0
	for n < len(batch) && p.recvHeld.next() <= p.now {
		s := p.recvHeld.pop()
		p.lent = append(p.lent, s)
		batch[n] = s.datagram
		n++
	}
	if p.receive == nil && n == 0 {
		return p.Port.Receive(batch)
	}
	for range receiveTries {
		if n == len(batch) {
			break
		}
		k, err := p.Port.Receive(batch[n:])
		kept := p.decideReceive(batch[n : n+k])
		n += kept
		if err != nil || k == 0 || kept > 0 {
			return n, err
		}
	}
	return n, nil
}

// decideReceive moves the datagrams that arrive now to the front and returns their number.
func (p *Port) decideReceive(list []netio.Datagram) int {
	if p.receive == nil {
		return len(list)
	}
	n := 0
	for i := range list {
		d := &list[i]
		v := p.receive.Decide(p.now, len(d.Buf)+netio.TrailerBytes)
		p.count(&v)
		if v.Drop {
			continue
		}
		if v.Duplicate {
			p.hold(&p.recvHeld, d, v.DuplicateAt)
		}
		switch {
		case v.Bit != NoBit:
			// The ICRC, which has been checked below, would have shown the damage.
		case v.At > p.now:
			p.hold(&p.recvHeld, d, v.At)
		default:
			list[n] = *d
			n++
		}
	}
	return n
}
