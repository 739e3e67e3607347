package cm

import (
	"syscall"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/mad"
)

// Disconnect sends a DREQ and repeats it until the peer answers; EventDisconnected says what came
// of it. Where a DREQ is out, and in TIMEWAIT, it is nil and does nothing. Errors: EINVAL for a
// connection that is not established, or for private data that does not fit into the message.
func (e *Engine) Disconnect(now clock.Time, id ID, private []byte) *rdma.Refusal {
	c, refusal := e.owned(id)
	switch {
	case refusal != nil:
		return refusal
	case len(private) > mad.DREQPrivateLen:
		return rdma.Refuse(syscall.EINVAL, "a DREQ has room for 220 bytes of private data")
	case c.state == StateDisconnectSent || c.state == StateTimewait:
		return nil
	case c.state != StateEstablished:
		return rdma.Refuse(syscall.EINVAL, "the connection is not established")
	}
	e.disconnect(now, c, private)
	return nil
}

func (e *Engine) disconnect(now clock.Time, c *conn, private []byte) {
	e.composeDREQ(c, private)
	e.await(now, c, StateDisconnectSent)
}

func (e *Engine) composeDREQ(c *conn, private []byte) {
	m := mad.DREQ{LocalID: mad.CommID(c.id), RemoteID: c.peerID, RemoteQPN: c.remoteQPN}
	copy(m.PrivateData[:], private)
	compose(&c.sent, c.transactionID(), mad.AttributeDREQ, &m)
}

// sendDREQ tells the peer that the connection is over and does not wait for its answer.
func (e *Engine) sendDREQ(c *conn, private []byte) {
	e.composeDREQ(c, private)
	e.transmit(c)
}

// disconnected ends an established connection; the rest of the event is the caller's.
func (e *Engine) disconnected(now clock.Time, c *conn, v *Event) {
	v.Kind = EventDisconnected
	e.linger(c, StateTimewait, now.Add(duration(c.ackTimeout)))
	e.raise(c, v)
}

// handleDREQ takes the peer's farewell, and always answers it: whoever asks wants to know that it
// is over, whatever we remember (IBTA 12.9.7.3).
func (e *Engine) handleDREQ(in *arrival) {
	var m mad.DREQ
	if m.Parse(in.data) != nil {
		return
	}
	c := e.conns[ID(m.RemoteID)]
	if c == nil || c.isQuery() || c.peerID != m.LocalID {
		e.answerDREQ(in, &m)
		return
	}
	if !e.fromPeer(in, c) {
		return
	}
	switch c.state {
	case StateEstablished, StateDisconnectSent, StateReplySent, StateReplyReceived:
		if !c.xrc && m.RemoteQPN != c.localQPN {
			e.stats.Ignored++ // an old DREQ, to the ID of another time
			return
		}
		v := Event{How: DisconnectedByPeer, PrivateLen: mad.DREQPrivateLen}
		copy(v.PrivateData[:], m.PrivateData[:])
		e.disconnected(in.now, c, &v)
	default:
		e.stats.Duplicates.add(mad.AttributeDREQ)
	}
	e.answerDREQ(in, &m)
}

func (e *Engine) answerDREQ(in *arrival, m *mad.DREQ) {
	e.answer(in, mad.AttributeDREP, &mad.DREP{LocalID: m.RemoteID, RemoteID: m.LocalID})
}

// handleDREP takes the answer to our farewell.
func (e *Engine) handleDREP(in *arrival) {
	var m mad.DREP
	if m.Parse(in.data) != nil {
		return
	}
	c := e.conns[ID(m.RemoteID)]
	switch {
	case c == nil || c.peerID != m.LocalID || !e.fromPeer(in, c):
		e.stats.Ignored++
	case c.state == StateDisconnectSent:
		v := Event{How: DisconnectedByReply, PrivateLen: mad.DREPPrivateLen}
		copy(v.PrivateData[:], m.PrivateData[:])
		e.disconnected(in.now, c, &v)
	default:
		e.stats.Duplicates.add(mad.AttributeDREP)
	}
}

// Release gives an ID back. What the state still asks for is done without the owner: a request is
// withdrawn or rejected, a connection disconnected, TIMEWAIT waited for. An unknown ID is ignored.
func (e *Engine) Release(now clock.Time, id ID) {
	c, refusal := e.owned(id)
	if refusal != nil {
		return
	}
	c.released = true
	e.unqueue(c)
	switch c.state {
	case StateRequestSent:
		e.sendTimeout(c)
		e.close(c)
	case StateRequestReceived, StateReplyReceived, StateReplySent:
		e.reject(now, c, &RejectParams{Reason: uint16(mad.ReasonConsumer)})
	case StateEstablished:
		e.disconnect(now, c, nil)
	case StateDisconnectSent: // goes on
	case StateTimewait, StateRejected, StateQueryAnswered:
		e.keepLingering(c)
	case StateQueryReceived:
		e.answerQuery(now, c, &SIDRAnswer{Status: uint8(mad.SIDRStatusRejected)})
	case StateClosed, StateQuerySent:
		e.close(c)
	}
}
