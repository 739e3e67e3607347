package cm

import (
	"encoding/binary"
	"syscall"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/mad"
)

// Reject refuses a request or a reply. It ends the connection without an event; a peer that asks
// again is told again. Errors: EINVAL where there is nothing to refuse, or for data that does not
// fit into the message.
func (e *Engine) Reject(now clock.Time, id ID, p *RejectParams) *rdma.Refusal {
	c, refusal := e.owned(id)
	switch {
	case refusal != nil:
		return refusal
	case c.state != StateRequestReceived && c.state != StateReplyReceived &&
		c.state != StateReplySent:
		return rdma.Refuse(syscall.EINVAL, "there is nothing to reject")
	case len(p.AdditionalInfo) > mad.REJInfoLen:
		return rdma.Refuse(syscall.EINVAL, "a REJ has room for 72 bytes of information")
	case len(p.PrivateData) > mad.REJPrivateLen:
		return rdma.Refuse(syscall.EINVAL, "a REJ has room for 148 bytes of private data")
	}
	e.reject(now, c, p)
	return nil
}

func (e *Engine) reject(now clock.Time, c *conn, p *RejectParams) {
	m := mad.REJ{
		LocalID: mad.CommID(c.id), RemoteID: c.peerID, Reason: mad.Reason(p.Reason),
		InfoLen: uint8(len(p.AdditionalInfo)),
	}
	c.triesLeft = 0
	switch c.state {
	case StateRequestReceived:
		m.Answered = mad.AnsweredREQ
	case StateReplyReceived:
		m.Answered = mad.AnsweredREP
	default:
		// The peer may believe in a connection, if its RTU was lost. Nobody else asks again then,
		// and so this REJ may not get lost.
		m.Answered = mad.AnsweredOther
		c.triesLeft = limits.CMRejectRepeats
	}
	copy(m.Info[:], p.AdditionalInfo)
	copy(m.PrivateData[:], p.PrivateData)
	compose(&c.sent, c.tid, mad.AttributeREJ, &m)
	e.transmit(c)
	c.step, c.patience = limits.CMRepeatFirst, now.Add(2*duration(c.peerTimeout))
	e.linger(c, StateRejected, now.Add(c.interval(now)))
}

// handleREJ takes a refusal.
func (e *Engine) handleREJ(in *arrival) {
	var m mad.REJ
	if m.Parse(in.data) != nil {
		return
	}
	c := e.rejected(in, &m)
	if c == nil {
		e.stats.Ignored++
		return
	}
	v := Event{
		Kind: EventRejected, Reason: uint16(m.Reason), PrivateLen: mad.REJPrivateLen,
		AdditionalLen: int(m.InfoLen),
	}
	copy(v.PrivateData[:], m.PrivateData[:])
	copy(v.AdditionalInfo[:], m.Info[:])
	switch c.state {
	case StateRequestSent, StateReplyReceived, StateRequestReceived, StateReplySent:
		e.close(c)
		e.raise(c, &v)
	case StateEstablished, StateDisconnectSent:
		// The peer does not know the connection any more.
		v.How = DisconnectedByReject
		e.disconnected(in.now, c, &v)
	default:
		c.triesLeft = 0 // it needs no rejection of ours any more
		e.stats.Duplicates.add(mad.AttributeREJ)
	}
}

// rejected finds the connection that a REJ is about.
func (e *Engine) rejected(in *arrival, m *mad.REJ) *conn {
	c := e.conns[ID(m.RemoteID)]
	if m.RemoteID == 0 && m.Reason == mad.ReasonTimeout {
		// The sender has never heard from us; it says who it is instead.
		guid := rdma.GUID(binary.BigEndian.Uint64(m.Info[:]))
		c = e.peers[peerKey{in.path.DGID, guid, m.LocalID}]
	}
	switch {
	case c == nil || c.isQuery() || !e.fromPeer(in, c):
		return nil
	case c.peerID != 0 && m.LocalID != 0 && c.peerID != m.LocalID:
		return nil
	case m.LocalID == 0 && c.state != StateRequestSent:
		return nil // only a request can be refused without having been given a name
	}
	return c
}

// Delay sends an MRA: the answer to a request or a reply will take up to the time that n means,
// 4.096 µs × 2^n, and the peer shall not give up before. A peer that asks again is told without
// this, see excuse. Errors: EINVAL where there is nothing to answer.
func (e *Engine) Delay(now clock.Time, id ID, n uint8) *rdma.Refusal {
	c, refusal := e.owned(id)
	if refusal != nil {
		return refusal
	}
	if c.state != StateRequestReceived && c.state != StateReplyReceived {
		return rdma.Refuse(syscall.EINVAL, "there is nothing to answer late")
	}
	c.undecided = now.Add(-limits.CMDecisionTime)
	e.composeMRA(c, n)
	e.transmit(c)
	return nil
}

// letDecide has the owner decide about a request or a reply.
func (e *Engine) letDecide(now clock.Time, c *conn, v *Event) {
	c.undecided = now
	e.composeMRA(c, limits.CMServiceTimeout)
	e.raise(c, v)
}

// excuse answers a peer that repeats what the owner has not decided about: with an MRA, so that it
// does not take a slow program for a dead host (IBTA 12.9.8). One that repeats itself at once shall
// go on doing so: what will be decided soon may be lost as well.
func (e *Engine) excuse(now clock.Time, c *conn) {
	if now.Sub(c.undecided) >= limits.CMDecisionTime {
		e.transmit(c)
	}
}

func (e *Engine) composeMRA(c *conn, n uint8) {
	m := mad.MRA{
		LocalID: mad.CommID(c.id), RemoteID: c.peerID, Answered: mad.AnsweredREQ,
		ServiceTimeout: min(n, 31),
	}
	if c.state == StateReplyReceived {
		m.Answered = mad.AnsweredREP
	}
	compose(&c.sent, c.tid, mad.AttributeMRA, &m)
}

// handleMRA takes the news that an answer takes longer. It costs no retry: the peer is alive.
func (e *Engine) handleMRA(in *arrival) {
	var m mad.MRA
	if m.Parse(in.data) != nil {
		return
	}
	c := e.conns[ID(m.RemoteID)]
	if c == nil || !e.fromPeer(in, c) {
		e.stats.Ignored++
		return
	}
	switch {
	case c.state == StateRequestSent && m.Answered == mad.AnsweredREQ,
		c.state == StateReplySent && m.Answered == mad.AnsweredREP && m.LocalID == c.peerID:
		e.waitFor(in.now, c, duration(m.ServiceTimeout))
	default:
		e.stats.Duplicates.add(mad.AttributeMRA)
	}
}
