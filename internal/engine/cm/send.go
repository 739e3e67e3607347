package cm

import (
	"encoding/binary"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/mad"
)

// body is the content of a message.
type body interface{ Append(b []byte) []byte }

// compose writes a message of communication management.
func compose(dst *[mad.Len]byte, tid uint64, a mad.Attribute, m body) {
	h := mad.Header{
		Class: mad.ClassCM, ClassVersion: mad.ClassVersionCM, Method: mad.MethodSend,
		TransactionID: tid, Attribute: a,
	}
	m.Append(h.Append(dst[:0]))
}

// composeOptions writes a message with options of a vendor.
func composeOptions(c *conn, a mad.Attribute, m body, options uint32) {
	const modifier = 20 // of the header
	compose(&c.sent, c.tid, a, m)
	binary.BigEndian.PutUint32(c.sent[modifier:], options)
}

// transactionID is what this side's own requests about a connection carry. The upper half tells
// them from the peer's.
func (c *conn) transactionID() uint64 { return 2<<32 | uint64(c.id) }

// transmit sends what c holds, once more or for the first time.
func (e *Engine) transmit(c *conn) {
	e.push(&Message{Path: c.path, DestQPN: c.dest, MAD: c.sent})
}

func (e *Engine) push(m *Message) {
	if !e.out.push(m) {
		e.stats.Dropped++
		return
	}
	e.stats.Sent.addMAD(m.MAD[:])
}

// sendOnce sends a message that is not kept to be repeated.
func (e *Engine) sendOnce(c *conn, tid uint64, a mad.Attribute, m body) {
	out := Message{Path: c.path, DestQPN: c.dest}
	compose(&out.MAD, tid, a, m)
	e.push(&out)
}

// PollTransmit takes the next message.
func (e *Engine) PollTransmit(_ clock.Time, m *Message) bool {
	if !e.out.pop(m) {
		e.replies = 0
		return false
	}
	return true
}

// arrival is a MAD with where it came from.
type arrival struct {
	now    clock.Time
	path   *Path
	source rdma.QPN
	header mad.Header
	data   []byte
}

// answer sends an answer to somebody we keep nothing about. There may be many of them.
func (e *Engine) answer(in *arrival, a mad.Attribute, m body) {
	if !e.hasRoomToReply() {
		return
	}
	out := Message{Path: *in.path, DestQPN: in.source}
	compose(&out.MAD, in.header.TransactionID, a, m)
	e.push(&out)
}

// hasRoomToReply takes one of the places for answers to strangers, or counts a loss.
func (e *Engine) hasRoomToReply() bool {
	if e.replies >= limits.MaxCMReplies {
		e.stats.Dropped++
		return false
	}
	e.replies++
	return true
}

// refuse answers a message about a connection that there will not be, or is not.
func (e *Engine) refuse(in *arrival, m mad.REJ) { e.answer(in, mad.AttributeREJ, &m) }

// answerClassPortInfo answers the question what this manager can do (IBTA 16.7.3.1).
func (e *Engine) answerClassPortInfo(in *arrival) {
	info := mad.ClassPortInfo{
		BaseVersion: mad.BaseVersion, ClassVersion: mad.ClassVersionCM,
		Capabilities: mad.CapabilityRC | mad.CapabilityUC | mad.CapabilityUD,
		ResponseTime: DefaultResponseTimeout,
	}
	if !e.hasRoomToReply() {
		return
	}
	h := in.header
	h.Method = mad.MethodGetResponse
	out := Message{Path: *in.path, DestQPN: in.source}
	info.Append(h.Append(out.MAD[:0]))
	e.push(&out)
}

// sendTimeout tells the peer that we give up. A peer that we do not know the name of finds the
// connection by ours and our GUID (IBTA 12.6.7.2, reason 4).
func (e *Engine) sendTimeout(c *conn) {
	m := mad.REJ{
		LocalID: mad.CommID(c.id), RemoteID: c.peerID, Answered: mad.AnsweredOther,
		Reason: mad.ReasonTimeout, InfoLen: 8,
	}
	binary.BigEndian.PutUint64(m.Info[:], uint64(e.cfg.NodeGUID))
	e.sendOnce(c, c.tid, mad.AttributeREJ, &m)
}
