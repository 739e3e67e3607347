package ibt

import (
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

// Between two queue pairs of one NIC nothing is lost, and a short message that is alone on its way
// ends as its packet and the acknowledge would: in the receive and both completions, with both
// sequence numbers one on. So it is handed over without them, as long as both sides are in their
// plain state. Whatever is not plain goes by packets: this changes nothing of what they would find.

// handOverMax bounds what is handed over: of longer messages the copy is what takes the time.
const handOverMax = 4096

// handedOver counts a batch.
type handedOver struct{ messages, bytes uint64 }

// Destination returns where a connected queue pair sends: the peer's port and its number.
func (q *QP) Destination() (rdma.GID, rdma.QPN) { return q.attr.AV.DGID, q.attr.DestQPN }

// MayHandOver reports a requester that has work and nothing under way. It is quick.
func (q *QP) MayHandOver() bool {
	r := &q.send
	return q.cfg.Type == rdma.QPTypeRC && q.state == rdma.QPStateRTS && q.tagging == nil &&
		r.unfetched > 0 && r.wrs.Len() == 0 && r.una == r.high && !r.isStalled &&
		!q.flush.isActive && r.retry.isCalm()
}

// isCalm reports that nothing is to be repeated, waited for or asked.
func (s *retryState) isCalm() bool {
	return !s.isWaiting() && !s.isProbing && !s.isQuestioned && s.rnrTries == 0 && s.heldTill == 0
}

// TakesFrom reports that the next request of a peer on this NIC would be accepted as it comes. The
// addresses and the partition are those of every packet (IBTA 9.6.1).
func (q *QP) TakesFrom(from *QP) bool {
	r := &q.recv
	return q != from && q.cfg.Type == rdma.QPTypeRC && q.tagging == nil && q.canReceive() &&
		(r.isCommEst || q.state != rdma.QPStateRTR) &&
		r.expected == from.send.psn && r.message.kind == kindNone && !r.hasWR && r.active == 0 &&
		!r.isAckDue && !r.nak.isDue && !r.isNakSent && !r.isFailing && !r.isGone &&
		q.attr.DestQPN == from.cfg.QPN && q.attr.PKey.Matches(from.attr.PKey) &&
		q.attr.AV.DGID == from.attr.AV.SGID && q.attr.AV.SGID == from.attr.AV.DGID
}

// HandOver carries the next request out at the peer and completes it; p is scratch. It reports
// false when there is none, or one that has to go by packets, which is first in its queue then.
//
// Preconditions: MayHandOver and TakesFrom held, and nothing but HandOver was called since.
func (q *QP) HandOver(now clock.Time, peer *QP, p *Packet) bool {
	q.now, peer.now = now, now
	w := q.fetch()
	if w == nil || !peer.hasPlaceFor(w) {
		return false
	}
	payload, f := q.payload(w, 0, w.Length)
	if f != mem.FaultNone {
		w.SetFault(f)
		return false
	}
	p.Payload = payload
	q.startHandOver(p, w)
	if peer.execute(p, w.op.only.Info()) != verdictAccept {
		// Refused. The packet will be as well, and it says so; a receive that was taken waits for it.
		peer.recv.message = message{}
		return false
	}
	r := &peer.recv
	r.ackPSN = r.expected
	r.expected, r.msn = r.expected.Add(1), r.msn.Add(1)
	s := &q.send
	s.psn = s.next
	s.una, s.high = s.psn, s.psn
	q.handed.messages++
	q.handed.bytes += uint64(w.Length)
	q.completeHead()
	return true
}

// hasPlaceFor reports a request that can be handed over: one packet with data, for which there is
// a receive if it takes one.
func (q *QP) hasPlaceFor(w *sendWR) bool {
	if w.Fail != rdma.WCSuccess || w.packets != 1 || w.Length > min(handOverMax, q.mtu) ||
		w.op.kind != kindSend && w.op.kind != kindWrite ||
		rdma.WROpcode(w.WQE.Opcode) == rdma.WRSendWithInv {
		return false
	}
	if !w.op.takesReceive {
		return true
	}
	s, ok := q.recv.target.RQ.(work.CreditSource)
	return ok && s.Available() > 0
}

// startHandOver fills what execute reads of a request's only packet.
func (q *QP) startHandOver(p *Packet, w *sendWR) {
	h := &p.Headers
	h.BTH.Opcode, h.BTH.PSN = w.op.only, q.send.psn
	h.BTH.Solicited = w.Has(rdma.SendSolicited) && w.op.takesReceive
	h.Imm = ib.ImmDt(w.WQE.ImmOrRKey)
	if w.op.kind == kindWrite {
		h.RETH = ib.RETH{
			VA: w.WQE.RemoteAddr, RKey: rdma.Key(w.WQE.RKey), Length: w.Length,
		}
	}
}

// EndHandOver does after a batch what its acknowledge would, and keeps the books: the packets that
// it stands for are counted as if there had been any. It returns how many messages there were.
func (q *QP) EndHandOver(peer *QP) int {
	x := q.handed
	q.handed = handedOver{}
	if x.messages == 0 {
		return 0
	}
	q.host.Count(work.CountSentPackets, x.messages)
	q.host.Count(work.CountSentBytes, x.bytes)
	peer.host.Count(work.CountRcvdPackets, x.messages)
	peer.host.Count(work.CountRcvdBytes, x.bytes)
	peer.host.Count(work.CountSentPackets, 1)
	q.host.Count(work.CountRcvdPackets, 1)
	q.releaseSlots()
	q.noteProgress()
	q.learnCredit(peer.ackHeader())
	return int(x.messages)
}
