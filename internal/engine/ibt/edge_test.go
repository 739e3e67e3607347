package ibt

import (
	"bytes"
	"slices"
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

// TestEdge_Unmapped_FailsTheRequest: the memory that a request names has been unmapped.
func TestEdge_Unmapped_FailsTheRequest(t *testing.T) {
	s := &space{}
	w := newWorld(t, worldConfig{spaceA: s})
	s.gone = true
	w.a.post(0, w.writeWR(1), w.a.at(0, 5000))
	w.settle()
	got := w.a.sends.take()
	wantStatus(t, got, rdma.WCLocProtErr)
	if got[0].VendorErr != uint32(abi.VendorLocalFault) || w.a.causes[0].Fault != mem.FaultMemory ||
		w.a.causes[0].Key != w.a.region.Key {
		t.Fatalf("%+v, evidence %+v", got[0], w.a.causes)
	}
}

// TestEdge_KeyGoneAfterReadAhead: bytes that were read ahead do not outlive their key, whether a
// packet takes them from one entry or from two.
func TestEdge_KeyGoneAfterReadAhead_StopsTheMessage(t *testing.T) {
	for _, cut := range []int{5000, 1500} {
		w := newWorld(t, worldConfig{spaceA: &space{}})
		w.a.post(0, w.writeWR(1), w.a.at(0, cut), w.a.at(cut, 5000-cut))
		var p Packet
		if !w.a.q.PollTransmit(0, &p) {
			t.Fatal("nothing to send")
		}
		w.a.table.Deregister(w.a.region)
		if w.a.q.PollTransmit(0, &p) {
			t.Fatalf("sent %v with a dead key", &p.Headers)
		}
		wantStatus(t, w.a.sends.take(), rdma.WCLocProtErr)
	}
}

// eager is an application that posts as soon as it sees a completion.
type eager struct {
	ring func() uint32 // entries in use
	seen []uint32
}

func (e *eager) Push(*abi.CQE, bool) { e.seen = append(e.seen, e.ring()) }

// TestEdge_SlotIsFree_BeforeItsCompletion: an application whose queue is as deep as what it has
// under way posts the next request when it sees a completion, and must find room.
func TestEdge_SlotIsFree_BeforeItsCompletion(t *testing.T) {
	w := newWorld(t, worldConfig{})
	e := &eager{ring: func() uint32 { return w.a.posted()[0] }}
	w.a.q.cfg.SendCQ = e
	for id := range uint64(3) {
		w.a.post(0, w.writeWR(id), w.a.at(0, 8))
	}
	w.replies(w.a)
	w.a.q.HandlePacket(0, w.answer(ib.RCAcknowledge, 101, ack))
	w.a.modify(0, rdma.QPStateError)
	if !slices.Equal(e.seen, []uint32{2, 1, 0}) {
		t.Fatalf("entries in use at the completions: %v", e.seen)
	}
}

func TestEdge_AtomicAnswer_RegionGone(t *testing.T) {
	w := newWorld(t, worldConfig{})
	x := w.writeWR(1)
	x.Opcode = uint8(rdma.WRFetchAdd)
	w.a.post(0, x, w.a.at(0, 8))
	w.transmit(w.a)
	w.a.table.Deregister(w.a.region)
	w.settle()
	wantStatus(t, w.a.sends.take(), rdma.WCLocProtErr)
}

func TestEdge_AtomicTarget_Unmapped(t *testing.T) {
	s := &space{}
	w := newWorld(t, worldConfig{spaceB: s})
	s.gone = true
	wantAck(t, w.give(w.atomicPacket(100, testBase, 1)), 100, nakOp)
	if !slices.Equal(w.b.events, []rdma.EventType{rdma.EventQPFatal}) {
		t.Fatalf("events %v", w.b.events)
	}
}

// TestEdge_CreditsEnd: a peer that stops giving credits has no flow control, so nothing is held.
func TestEdge_CreditsEnd_FreesTheSender(t *testing.T) {
	w := newWorld(t, worldConfig{})
	w.a.post(0, w.sendWR(1), w.a.at(0, 8))
	w.replies(w.a)
	w.a.q.HandlePacket(0, w.answer(ib.RCAcknowledge, 100, ib.ACK(0)))
	for id := range uint64(3) {
		w.a.post(0, w.sendWR(id), w.a.at(0, 8))
	}
	if got := w.replies(w.a); len(got) != 1 {
		t.Fatalf("%d packets without credit", len(got))
	}
	w.a.q.HandlePacket(0, w.answer(ib.RCAcknowledge, 101, ib.ACK(ib.CreditsInvalid)))
	if got := w.replies(w.a); len(got) != 2 {
		t.Fatalf("%d packets without flow control", len(got))
	}
}

// TestEdge_RepeatedAckBringsCredits: receives posted later reach the sender by a repetition.
func TestEdge_RepeatedAckBringsCredits(t *testing.T) {
	w := newWorld(t, worldConfig{})
	w.a.post(0, w.sendWR(1), w.a.at(0, 8))
	w.replies(w.a)
	w.a.q.HandlePacket(0, w.answer(ib.RCAcknowledge, 100, ib.ACK(0)))
	w.a.q.HandlePacket(0, w.answer(ib.RCAcknowledge, 100, ib.ACK(2)))
	for id := range uint64(3) {
		w.a.post(0, w.sendWR(id), w.a.at(0, 8))
	}
	if got := w.replies(w.a); len(got) != 2 {
		t.Fatalf("%d packets with 2 credits", len(got))
	}
}

// TestEdge_WriteWithImmWithoutCredit: only the packet with the immediate data needs the receive.
func TestEdge_WriteWithImmWithoutCredit(t *testing.T) {
	w := newWorld(t, worldConfig{})
	w.a.post(0, w.sendWR(1), w.a.at(0, 8))
	w.replies(w.a)
	w.a.q.HandlePacket(0, w.answer(ib.RCAcknowledge, 100, ib.ACK(0)))
	x := w.writeWR(2)
	x.Opcode = uint8(rdma.WRWriteWithImm)
	w.a.post(0, x, w.a.at(0, 3000))
	got := w.replies(w.a)
	if len(got) != 2 || !got[1].Headers.BTH.AckReq {
		t.Fatalf("without credit: %d packets", len(got))
	}
	w.a.q.HandlePacket(0, w.answer(ib.RCAcknowledge, 102, ib.ACK(0)))
	if got = w.replies(w.a); len(got) != 1 || got[0].Headers.BTH.Opcode != ib.RCWriteLastImm {
		t.Fatalf("the last packet: %v", got)
	}
}

// TestEdge_Refused_NothingMoreIsTaken: between the refusal and its NAK the responder is deaf.
func TestEdge_Refused_NothingMoreIsTaken(t *testing.T) {
	w := newWorld(t, worldConfig{})
	w.b.q.HandlePacket(0, w.request(ib.RCSendLast, 100, mtuBytes(8)))
	w.b.q.HandlePacket(0, w.writePacket(ib.RCWriteOnly, 100, 8, mtuBytes(8)))
	if w.b.mem[0] != 0 || w.b.q.State() != rdma.QPStateRTS {
		t.Fatalf("state %v", w.b.q.State())
	}
	wantAck(t, w.replies(w.b), 100, nakInvalid)
}

// TestEdge_ErrorBeforeNak: the application ends the QP before the NAK has left; the peer still
// learns why, once.
func TestEdge_ErrorBeforeNak_NakStillLeaves(t *testing.T) {
	w := newWorld(t, worldConfig{})
	w.b.q.HandlePacket(0, w.request(ib.RCSendLast, 100, mtuBytes(8)))
	w.b.modify(0, rdma.QPStateError)
	wantAck(t, w.replies(w.b), 100, nakInvalid)
	if w.b.q.HasWork() {
		t.Fatal("work is left")
	}
	// A gap, in contrast, is nobody's business any more.
	w = newWorld(t, worldConfig{})
	w.b.q.HandlePacket(0, w.writePacket(ib.RCWriteOnly, 101, 8, mtuBytes(8)))
	w.b.modify(0, rdma.QPStateError)
	if got := w.replies(w.b); len(got) != 0 {
		t.Fatalf("replies in error: %v", got)
	}
}

func TestEdge_AnswersBeforeRTS_Dropped(t *testing.T) {
	w := newWorld(t, worldConfig{})
	a := testAttr("a", "b", 0x22)
	w.a.modify(0, rdma.QPStateReset)
	w.a.q.Modify(0, &a, rdma.QPAttrAll, rdma.QPStateInit)
	w.a.q.Modify(0, &a, rdma.QPAttrAll, rdma.QPStateRTR)
	w.a.q.HandlePacket(0, w.answer(ib.RCAcknowledge, 100, nakAccess))
	if w.a.q.State() != rdma.QPStateRTR || w.a.counters[work.CountDroppedSilently] != 1 {
		t.Fatalf("state %v", w.a.q.State())
	}
}

func TestEdge_ReservedSyndromes_Dropped(t *testing.T) {
	w := newWorld(t, worldConfig{})
	w.a.post(0, w.writeWR(1), w.a.at(0, 8))
	w.replies(w.a)
	for s := range 256 {
		if ib.Syndrome(s).Kind() == ib.SyndromeReserved {
			w.a.q.HandlePacket(0, w.answer(ib.RCAcknowledge, 100, ib.Syndrome(s)))
		}
	}
	if w.a.q.State() != rdma.QPStateRTS || w.a.sends.seen != 0 {
		t.Fatal("a reserved syndrome had an effect")
	}
	w.a.q.HandlePacket(0, w.answer(ib.RCAcknowledge, 100, ib.NAK(9)))
	wantStatus(t, w.a.sends.take(), rdma.WCBadRespErr)
}

// TestEdge_QPConnectedToItself: requests and replies of one QP cross in it.
func TestEdge_QPConnectedToItself_Completes(t *testing.T) {
	n := newNode(t, nodeConfig{qpType: rdma.QPTypeRC, name: "a", qpn: 0x11})
	n.bring(testAttr("a", "a", 0x11))
	pattern(n.mem[:3000], 1)
	n.receive(1, n.at(10000, 3000))
	wr := abi.SendWQE{Opcode: uint8(rdma.WRSend), Flags: signaled}
	n.post(0, wr, n.at(0, 3000))
	wr.Opcode, wr.RemoteAddr, wr.RKey = uint8(rdma.WRRead), testBase, uint32(n.region.Key)
	n.post(0, wr, n.at(20000, 3000))
	var p Packet
	for i := 0; n.q.PollTransmit(0, &p); i++ {
		n.q.HandlePacket(0, &p)
		if i > 100 {
			t.Fatal("no end")
		}
	}
	wantStatus(t, n.sends.take(), rdma.WCSuccess, rdma.WCSuccess)
	wantStatus(t, n.recvs.take(), rdma.WCSuccess)
	sent := n.mem[:3000]
	if !bytes.Equal(sent, n.mem[10000:13000]) || !bytes.Equal(sent, n.mem[20000:23000]) {
		t.Fatal("bytes differ")
	}
}

// TestEdge_NoQueues: a QP may lack a send queue or a receive queue.
func TestEdge_NoQueues(t *testing.T) {
	w := newWorld(t, worldConfig{})
	cfg := w.b.q.cfg
	cfg.SQ, cfg.RQ = nil, nil
	w.b.q = New(cfg)
	w.b.bring(testAttr("b", "a", 0x11))
	w.b.q.HandleDoorbell(0)
	wantAck(t, w.give(w.writePacket(ib.RCWriteOnly, 100, 8, mtuBytes(8))), 100, ack)
	wantAck(t, w.give(w.request(ib.RCSendOnly, 101, mtuBytes(8))), 101, nakInvalid)
	if w.b.q.State() != rdma.QPStateError || w.b.q.HasWork() {
		t.Fatal("not in error, or not done")
	}
	w.b.q.Release()
	if w.b.q.State() != rdma.QPStateReset || w.b.q.PD() != testPD {
		t.Fatal("not released")
	}
}

// TestEdge_OverwrittenResource: what the peer may not need any more is forgotten, and asking for
// it again is not answered with something else.
func TestEdge_OldResource_Forgotten(t *testing.T) {
	w := newWorld(t, worldConfig{})
	for psn := range rdma.PSN(5) { // one more than max_dest_rd_atomic
		if got := w.give(w.atomicPacket(100+psn, testBase, 1)); len(got) != 1 {
			t.Fatalf("atomic %v: %v", psn, got)
		}
	}
	if got := w.give(w.atomicPacket(100, testBase, 1)); len(got) != 0 || getNative(w.b.mem) != 5 {
		t.Fatalf("a forgotten atomic: %v, memory %d", got, getNative(w.b.mem))
	}
	got := w.give(w.atomicPacket(101, testBase, 1))
	if len(got) != 1 || got[0].Headers.AtomicAck != 1 {
		t.Fatalf("a remembered atomic: %v", got)
	}
}
