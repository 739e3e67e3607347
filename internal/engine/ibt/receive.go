package ibt

import (
	"time"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

// notifyInterval is the shortest time between two congestion notifications to one peer.
const notifyInterval = 50 * time.Microsecond

// notifier sends congestion notifications for marked packets (IBTA A17.9.3).
type notifier struct {
	isDue  bool
	isSent bool // once at least, at sentAt
	sentAt clock.Time
}

// HandlePacket takes a packet that is addressed to this QP. It never replies itself; what there is
// to say comes out of PollTransmit.
func (q *QP) HandlePacket(now clock.Time, p *Packet) {
	q.now = now
	info := p.Headers.BTH.Opcode.Info()
	if !q.accepts(p, info) {
		q.host.Count(work.CountDroppedSilently, 1)
		return
	}
	q.host.Count(work.CountRcvdPackets, 1)
	q.host.Count(work.CountRcvdBytes, uint64(len(p.Payload)))
	if p.IsCongested() {
		q.noteCongestion()
	}
	q.send.retry.isUnreachable = false
	switch info.Role {
	case ib.RoleRequest:
		if q.isUD() {
			q.handleDatagram(p)
		} else {
			q.handleRequest(p, info)
		}
	case ib.RoleResponse, ib.RoleAcknowledge:
		q.handleAnswer(p, info)
	case ib.RoleNotification:
		q.host.Count(work.CountCNPHandled, 1)
		q.send.window.cut(q.send.high)
		q.recv.window.window.cut(mark(q.recv.window.sent))
	case ib.RoleUnknown:
	}
}

// accepts checks what the transport checks before it looks at sequence numbers (IBTA 9.6.1): the
// state, the service, the partition, and for connections the peer's address.
func (q *QP) accepts(p *Packet, info *ib.OpcodeInfo) bool {
	if !q.canReceive() || !info.QPTypes.Has(q.cfg.Type) {
		return false
	}
	if !q.attr.PKey.Matches(p.Headers.BTH.PKey) {
		q.host.Count(work.CountBadPKey, 1)
		return false
	}
	if q.isUD() {
		return true
	}
	return p.SGID == q.attr.AV.DGID && p.DGID == q.attr.AV.SGID
}

func (q *QP) handleAnswer(p *Packet, info *ib.OpcodeInfo) {
	if !q.canRequest() {
		q.host.Count(work.CountDroppedSilently, 1)
		return
	}
	switch info.Operation {
	case ib.OperationReadResponse:
		q.handleReadResponse(p)
	case ib.OperationAtomicAcknowledge:
		q.handleAtomicAcknowledge(p)
	default:
		q.handleAcknowledge(p)
	}
}

// noteCongestion plans a notification, not more often than the interval.
func (q *QP) noteCongestion() {
	q.host.Count(work.CountECNMarked, 1)
	if q.isUD() || q.cnp.isSent && q.now.Sub(q.cnp.sentAt) < notifyInterval {
		return
	}
	q.cnp.isDue = true
}

// cnpPayload is the 16 reserved bytes of a notification.
var cnpPayload [16]byte

func (q *QP) sendNotification(p *Packet) {
	q.cnp = notifier{isSent: true, sentAt: q.now}
	q.host.Count(work.CountCNPSent, 1)
	p.Address = q.attr.AV
	p.Payload = cnpPayload[:]
	p.Headers.BTH = ib.BTH{
		Opcode: ib.CNP, DestQPN: q.attr.DestQPN, PKey: q.attr.PKey, BECN: true,
	}
}

// PollTransmit makes the next packet to send and reports whether there is one.
func (q *QP) PollTransmit(now clock.Time, p *Packet) bool {
	q.now = now
	p.More = 0
	if !q.pollPacket(p) {
		return false
	}
	q.host.Count(work.CountSentPackets, 1+uint64(p.More))
	q.host.Count(work.CountSentBytes, uint64(len(p.Payload)))
	return true
}

func (q *QP) pollPacket(p *Packet) bool {
	q.finishSent()
	q.flushSome()
	if q.cnp.isDue && q.canReceive() {
		q.sendNotification(p)
		return true
	}
	// Turns: data for the peer and requests of our own share the way out.
	q.isRequestTurn = !q.isRequestTurn
	if q.isRequestTurn {
		return q.pollRequest(p) || q.pollReplyIfAny(p)
	}
	return q.pollReplyIfAny(p) || q.pollRequest(p)
}

func (q *QP) pollReplyIfAny(p *Packet) bool { return q.hasReply() && q.pollReply(p) }

// HasWork reports that PollTransmit has something to do now.
func (q *QP) HasWork() bool {
	return q.flush.isActive || q.cnp.isDue && q.canReceive() || q.hasReply() || q.hasRequest()
}
