package iwarp

import (
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

// spaceMin is how much payload must be due before a call more into the engine pays.
const spaceMin = 4 << 10

// ReceiveSpace returns where the next bytes of the stream belong in memory of an application, for
// the owner to receive them there without a copy; nil where they have to go through HandleStream.
// It is valid until the next call into the engine.
func (c *Conn) ReceiveSpace() [][]byte {
	s := &c.rx.segment
	left := uint64(s.bytes - s.placed)
	if c.rx.part != partPayload || left < spaceMin || !c.isReading() {
		return nil
	}
	q := c.qp
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
	if f != mem.FaultNone || len(b) < spaceMin {
		return nil // HandleStream says what is wrong
	}
	c.space[0] = b
	return c.space[:]
}

// HandleReceived says that the first n bytes of ReceiveSpace, which was called just before, are
// filled.
func (c *Conn) HandleReceived(now clock.Time, n int) {
	c.enter(now)
	s := &c.rx.segment
	if c.rx.part != partPayload || !c.isReading() {
		return
	}
	c.stats.BytesReceived += uint64(n)
	c.space[0] = nil
	s.placed = min(s.placed+n, s.bytes)
	c.endPayload()
}
