package ibt

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

func (w *world) writeWR(id uint64) abi.SendWQE {
	return abi.SendWQE{
		WRID: id, Opcode: uint8(rdma.WRWrite), Flags: signaled, RemoteAddr: testBase,
		RKey: uint32(w.b.region.Key),
	}
}

func (w *world) sendWR(id uint64) abi.SendWQE {
	return abi.SendWQE{WRID: id, Opcode: uint8(rdma.WRSend), Flags: signaled}
}

func (w *world) readWR(id uint64) abi.SendWQE {
	x := w.writeWR(id)
	x.Opcode = uint8(rdma.WRRead)
	return x
}

// opcodes lists opcodes and PSNs of packets.
func opcodes(packets []Packet) (ops []ib.Opcode, psns []rdma.PSN) {
	for i := range packets {
		ops = append(ops, packets[i].Headers.BTH.Opcode)
		psns = append(psns, packets[i].Headers.BTH.PSN)
	}
	return ops, psns
}

func TestRequester_Segments_FirstMiddleLast(t *testing.T) {
	w := newWorld(t, worldConfig{})
	x := w.writeWR(1)
	x.Opcode, x.ImmOrRKey = uint8(rdma.WRWriteWithImm), 0x01020304
	x.Flags |= uint8(rdma.SendSolicited)
	w.a.post(0, x, w.a.at(0, 2049))
	got := w.replies(w.a)
	ops, psns := opcodes(got)
	if !slices.Equal(ops, []ib.Opcode{ib.RCWriteFirst, ib.RCWriteMiddle, ib.RCWriteLastImm}) ||
		!slices.Equal(psns, []rdma.PSN{100, 101, 102}) {
		t.Fatalf("%v %v", ops, psns)
	}
	h := got[0].Headers
	if h.RETH != (ib.RETH{VA: testBase, RKey: w.b.region.Key, Length: 2049}) || !h.BTH.MigReq ||
		h.BTH.AckReq || h.BTH.Solicited || h.BTH.PKey != 0xffff || h.BTH.DestQPN != 0x22 {
		t.Fatalf("first packet %v", &h)
	}
	h = got[2].Headers
	if !h.BTH.AckReq || !h.BTH.Solicited || h.BTH.PadCount != 3 || h.Imm != 0x01020304 {
		t.Fatalf("last packet %v", &h)
	}
	if w.a.q.HasWork() {
		t.Fatal("work is left with nothing to send")
	}
}

// TestRequester_BadRequests posts one wrong work request between good ones: those before it
// complete, it fails with its own id, and those behind are flushed.
func TestRequester_BadRequests_E08_KeepTheirID(t *testing.T) {
	cases := []struct {
		name   string
		edit   func(w *world, x *abi.SendWQE, list []abi.SGE) []abi.SGE
		want   rdma.WCStatus
		vendor abi.Vendor
	}{
		{"unknown opcode", func(_ *world, x *abi.SendWQE, l []abi.SGE) []abi.SGE {
			x.Opcode = 200
			return l
		}, rdma.WCLocQPOpErr, abi.VendorOpcode},
		{"opcode of no QP", func(_ *world, x *abi.SendWQE, l []abi.SGE) []abi.SGE {
			x.Opcode = uint8(rdma.WRDriver1)
			return l
		}, rdma.WCLocQPOpErr, abi.VendorOpcode},
		{"unknown flag", func(_ *world, x *abi.SendWQE, l []abi.SGE) []abi.SGE {
			x.Flags |= 0x80
			return l
		}, rdma.WCLocQPOpErr, abi.VendorBadWQE},
		{"inline read", func(_ *world, x *abi.SendWQE, _ []abi.SGE) []abi.SGE {
			x.Opcode, x.Flags, x.InlineLen = uint8(rdma.WRRead), x.Flags|uint8(rdma.SendInline), 8
			return nil
		}, rdma.WCLocQPOpErr, abi.VendorInline},
		{"inline too long", func(_ *world, x *abi.SendWQE, _ []abi.SGE) []abi.SGE {
			x.Flags, x.InlineLen = x.Flags|uint8(rdma.SendInline), inlineMx+1
			return nil
		}, rdma.WCLocQPOpErr, abi.VendorBadWQE},
		{"unknown lkey", func(_ *world, _ *abi.SendWQE, l []abi.SGE) []abi.SGE {
			l[0].LKey ^= 0x500
			return l
		}, rdma.WCLocProtErr, abi.VendorLocalKey},
		{"out of bounds", func(w *world, _ *abi.SendWQE, l []abi.SGE) []abi.SGE {
			l[0].Addr = testBase + uint64(len(w.a.mem)) - 7
			return l
		}, rdma.WCLocProtErr, abi.VendorLocalBounds},
		{"message over 2 GiB", func(_ *world, _ *abi.SendWQE, l []abi.SGE) []abi.SGE {
			l[0].Length = 1<<31 + 1
			return l
		}, rdma.WCLocLenErr, abi.VendorLength},
		{"atomic of 4 bytes", func(_ *world, x *abi.SendWQE, l []abi.SGE) []abi.SGE {
			x.Opcode, l[0].Length = uint8(rdma.WRFetchAdd), 4
			return l
		}, rdma.WCLocLenErr, abi.VendorLength},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, worldConfig{})
			bad := w.writeWR(2)
			list := c.edit(w, &bad, []abi.SGE{w.a.at(0, 8)})
			bad.Flags &^= signaled // an error completes in any case
			w.a.post(0, w.writeWR(1), w.a.at(0, 5000))
			w.a.post(0, bad, list...)
			w.a.post(0, w.writeWR(3), w.a.at(0, 8))
			w.settle()
			got := w.a.sends.take()
			wantStatus(t, got, rdma.WCSuccess, c.want, rdma.WCWRFlushErr)
			if got[1].WRID != 2 || got[1].VendorErr != uint32(c.vendor) || got[2].WRID != 3 {
				t.Fatalf("completions %+v", got)
			}
			if w.a.q.State() != rdma.QPStateError || len(w.a.causes) != 1 ||
				w.a.causes[0].WRID != 2 || w.a.causes[0].Vendor != c.vendor {
				t.Fatalf("state %v, evidence %+v", w.a.q.State(), w.a.causes)
			}
		})
	}
}

func TestRequester_TooManyEntries_Refused(t *testing.T) {
	w := newWorld(t, worldConfig{})
	x := w.sendWR(1)
	slot := w.a.sq.Slot()
	x.NumSGE = 0xffff
	abi.EncodeSendWQE(slot, &x)
	w.a.sq.Push()
	w.a.sq.Publish()
	w.a.q.HandleDoorbell(0)
	w.settle()
	wantStatus(t, w.a.sends.take(), rdma.WCLocQPOpErr)
}

func TestRequester_ReadWithoutLocalWrite_Refused(t *testing.T) {
	w := newWorld(t, worldConfig{})
	w.a.region.Access = 0
	w.a.post(0, w.readWR(1), w.a.at(0, 8))
	w.settle()
	wantStatus(t, w.a.sends.take(), rdma.WCLocProtErr)
}

// TestRequester_PostBeforeRTS_Waits: a doorbell in RESET, INIT or RTR fetches nothing.
func TestRequester_PostBeforeRTS_Waits(t *testing.T) {
	w := newWorld(t, worldConfig{})
	a := testAttr("a", "b", 0x22)
	w.a.q.Modify(0, &a, 0, rdma.QPStateReset)
	for _, s := range []rdma.QPState{rdma.QPStateInit, rdma.QPStateRTR} {
		w.a.q.Modify(0, &a, rdma.QPAttrAll, s)
		w.a.post(0, w.writeWR(uint64(s)), w.a.at(0, 8))
		if w.a.q.HasWork() || len(w.replies(w.a)) != 0 {
			t.Fatalf("work in %v", s)
		}
	}
	w.a.q.Modify(0, &a, rdma.QPAttrAll, rdma.QPStateRTS)
	w.settle()
	wantStatus(t, w.a.sends.take(), rdma.WCSuccess, rdma.WCSuccess)
}

func TestRequester_NakCodes_BecomeStatuses(t *testing.T) {
	for s, want := range map[ib.Syndrome]rdma.WCStatus{
		nakInvalid: rdma.WCRemInvReqErr, nakAccess: rdma.WCRemAccessErr, nakOp: rdma.WCRemOpErr,
	} {
		w := newWorld(t, worldConfig{})
		for id := range uint64(3) {
			w.a.post(0, w.writeWR(id), w.a.at(0, 8))
		}
		w.replies(w.a)
		w.a.q.HandlePacket(0, w.answer(ib.RCAcknowledge, 101, s))
		got := w.a.sends.take()
		wantStatus(t, got, rdma.WCSuccess, want, rdma.WCWRFlushErr)
		if got[1].VendorErr != uint32(abi.VendorNak)|uint32(s)<<8 || got[1].WRID != 1 {
			t.Fatalf("completion %+v", got[1])
		}
		if c := w.a.causes[0]; c.Syndrome != uint8(s) || c.PSN != 101 {
			t.Fatalf("evidence %+v", c)
		}
	}
}

func TestRequester_NoAnswer_FailsAfterRetries(t *testing.T) {
	for _, retries := range []uint8{0, 1, 7} {
		w := newWorld(t, worldConfig{edit: func(_ string, a *Attr) { a.RetryCnt = retries }})
		sent := 0
		w.judge = func(_ *node, p *Packet) fate {
			if p.Headers.BTH.PSN == 100 {
				sent++
			}
			return lose
		}
		w.a.post(0, w.writeWR(1), w.a.at(0, 2000))
		w.a.post(0, w.writeWR(2), w.a.at(0, 8))
		w.settle()
		got := w.a.sends.take()
		wantStatus(t, got, rdma.WCRetryExcErr, rdma.WCWRFlushErr)
		if got[0].VendorErr != uint32(abi.VendorAckTimeout) || sent != int(retries)+1 {
			t.Fatalf("retry_cnt %d: vendor %d, sent %d times", retries, got[0].VendorErr, sent)
		}
		least := time.Duration(retries+1) * 67 * time.Millisecond
		if d := time.Duration(w.now); d < least || d > least+50*time.Millisecond {
			t.Fatalf("retry_cnt %d: failed after %v", retries, d)
		}
		if w.a.counters[work.CountRetryExceeded] != 1 || w.a.q.PollTimeout() != clock.Never {
			t.Fatal("not counted, or a timer runs in error")
		}
	}
}

func TestRequester_NoReceive_T14_FailsAfterRNRRetries(t *testing.T) {
	for _, retries := range []uint8{0, 3} {
		w := newWorld(t, worldConfig{edit: func(_ string, a *Attr) { a.RNRRetry = retries }})
		w.a.post(0, w.sendWR(1), w.a.at(0, 8))
		w.settle()
		got := w.a.sends.take()
		wantStatus(t, got, rdma.WCRNRRetryExcErr)
		if got[0].VendorErr != uint32(abi.VendorRNR) ||
			w.a.counters[work.CountRcvdRNR] != uint64(retries)+1 {
			t.Fatalf("vendor %d, %d NAKs", got[0].VendorErr, w.a.counters[work.CountRcvdRNR])
		}
		if d := time.Duration(w.now); d < time.Duration(retries)*640*time.Microsecond {
			t.Fatalf("failed after %v: the timer was not honoured", d)
		}
	}
}

func TestRequester_RNRRetry7_T14_WaitsForEver(t *testing.T) {
	w := newWorld(t, worldConfig{})
	for id := range uint64(4) {
		w.a.post(0, w.sendWR(id), w.a.at(0, 3000))
	}
	w.run(time.Second)
	wantStatus(t, w.a.sends.take())
	if n := w.a.counters[work.CountRcvdRNR]; n < 1000 || n > 1600 {
		t.Fatalf("%d NAKs in a second of 0.64 ms waits", n)
	}
	if w.sent > 4*int(w.a.counters[work.CountRcvdRNR]) {
		t.Fatalf("%d packets for %d NAKs", w.sent, w.a.counters[work.CountRcvdRNR])
	}
	for id := range uint64(4) {
		w.b.receive(id, w.b.at(0, 3000))
	}
	w.settle()
	wantStatus(t, w.a.sends.take(), 0, 0, 0, 0)
	wantStatus(t, w.b.recvs.take(), 0, 0, 0, 0)
}

// TestRequester_SequenceNakDuringRNRWait_Ignored: some kernels send one right behind.
func TestRequester_SequenceNakDuringRNRWait_Ignored(t *testing.T) {
	w := newWorld(t, worldConfig{})
	w.a.post(0, w.sendWR(1), w.a.at(0, 3000))
	w.replies(w.a)
	w.a.q.HandlePacket(0, w.answer(ib.RCAcknowledge, 100, ib.RNRNAK(12)))
	w.a.q.HandlePacket(0, w.answer(ib.RCAcknowledge, 100, nakSeq))
	if got := w.replies(w.a); len(got) != 0 || w.a.q.PollTimeout() != 640_000 {
		t.Fatalf("%d packets during the wait, timer %v", len(got), w.a.q.PollTimeout())
	}
	if n := w.a.q.Stats().Retries; n != 0 {
		t.Fatalf("%d retries counted for it", n)
	}
}

// TestRequester_BusyPeer_T11_TimerRestartsOnProgress: acknowledges trickle in, each in time, all
// together much later than the timeout.
func TestRequester_BusyPeer_T11_TimerRestartsOnProgress(t *testing.T) {
	w := newWorld(t, worldConfig{edit: func(_ string, a *Attr) { a.RetryCnt = 0 }})
	const n = 30
	for id := range uint64(n) {
		w.a.post(0, w.writeWR(id), w.a.at(0, 8))
	}
	w.replies(w.a)
	for i := range n {
		w.now = w.now.Add(60 * time.Millisecond)
		if w.a.q.PollTimeout() <= w.now {
			w.a.q.HandleTimeout(w.now)
		}
		w.replies(w.a)
		w.a.q.HandlePacket(w.now, w.answer(ib.RCAcknowledge, 100+rdma.PSN(i), ib.ACK(ib.CreditsInvalid)))
	}
	got := w.a.sends.take()
	if len(got) != n || w.a.counters[work.CountAckTimeout] != 0 {
		t.Fatalf("%d completions, %d timeouts", len(got), w.a.counters[work.CountAckTimeout])
	}
	for i := range got {
		if got[i].Status != 0 {
			t.Fatalf("completion %d: %v", i, rdma.WCStatus(got[i].Status))
		}
	}
}

func TestRequester_CoalescedAck_T11_CompletesAllBefore(t *testing.T) {
	w := newWorld(t, worldConfig{})
	for id := range uint64(5) {
		w.a.post(0, w.writeWR(id), w.a.at(0, 8))
	}
	w.replies(w.a)
	w.a.q.HandlePacket(0, w.answer(ib.RCAcknowledge, 103, ack))
	wantStatus(t, w.a.sends.take(), 0, 0, 0, 0)
	for _, psn := range []rdma.PSN{103, 100, 99, 105, 5000, 0xffffff} { // stale and ghosts
		w.a.q.HandlePacket(0, w.answer(ib.RCAcknowledge, psn, ack))
		w.a.q.HandlePacket(0, w.answer(ib.RCAcknowledge, psn, nakAccess))
	}
	wantStatus(t, w.a.sends.take())
	w.a.q.HandlePacket(0, w.answer(ib.RCAcknowledge, 104, ack))
	wantStatus(t, w.a.sends.take(), 0)
	if w.a.q.PollTimeout() != clock.Never {
		t.Fatal("a timer runs with nothing on the wire")
	}
}

func TestRequester_SequenceNak_GoesBack(t *testing.T) {
	w := newWorld(t, worldConfig{})
	w.a.post(0, w.writeWR(1), w.a.at(0, 5000))
	w.replies(w.a)
	w.a.q.HandlePacket(1000, w.answer(ib.RCAcknowledge, 102, nakSeq))
	ops, psns := opcodes(w.replies(w.a))
	if !slices.Equal(psns, []rdma.PSN{102, 103, 104}) || ops[0] != ib.RCWriteMiddle {
		t.Fatalf("%v %v", ops, psns)
	}
	if s := w.a.q.Stats(); s.Window != 16 || s.LastNak != uint8(nakSeq) || s.Retries != 1 {
		t.Fatalf("stats %+v", s)
	}
}

// TestRequester_TimeoutZero_LivesOnNaks: without a timer only NAKs repair.
func TestRequester_TimeoutZero_LivesOnNaks(t *testing.T) {
	w := newWorld(t, worldConfig{edit: func(_ string, a *Attr) { a.Timeout = 0 }})
	lost := false
	w.judge = func(_ *node, p *Packet) fate {
		if p.Headers.BTH.PSN == 101 && !lost {
			lost = true
			return lose
		}
		return deliver
	}
	w.a.post(0, w.writeWR(1), w.a.at(0, 5000))
	if w.a.q.PollTimeout() != clock.Never {
		t.Fatal("a timer runs")
	}
	w.settle()
	wantStatus(t, w.a.sends.take(), rdma.WCSuccess)
	if !lost {
		t.Fatal("nothing was lost")
	}
}

// TestRequester_LostTail_ProbeRepairs: a loss that no later packet shows costs milliseconds, not
// the timeout of two seconds that connection managers set.
func TestRequester_LostTail_ProbeRepairs(t *testing.T) {
	for _, op := range []rdma.WROpcode{rdma.WRWrite, rdma.WRSend, rdma.WRRead, rdma.WRFetchAdd} {
		w := newWorld(t, worldConfig{edit: func(_ string, a *Attr) { a.Timeout = 19 }})
		first := true
		w.judge = func(from *node, _ *Packet) fate {
			if from == w.a && first {
				first = false
				return lose
			}
			return deliver
		}
		w.b.receive(1, w.b.at(0, 8))
		x := w.writeWR(1)
		x.Opcode = uint8(op)
		w.a.post(0, x, w.a.at(0, 8))
		w.settle()
		wantStatus(t, w.a.sends.take(), rdma.WCSuccess)
		if d := time.Duration(w.now); d > 20*time.Millisecond {
			t.Errorf("%v took %v", op, d)
		}
		if s := w.a.q.Stats(); s.Retries != 0 || s.Probes == 0 {
			t.Errorf("%v: %d retries, %d probes", op, s.Retries, s.Probes)
		}
	}
}

func TestRequester_PartialRead_AsksForTheRest(t *testing.T) {
	w := newWorld(t, worldConfig{})
	pattern(w.b.mem[:5000], 2)
	lost := false
	w.judge = func(from *node, p *Packet) fate {
		if from == w.b && p.Headers.BTH.PSN == 102 && !lost {
			lost = true
			return lose
		}
		return deliver
	}
	w.traceOnFailure()
	var asked []ib.RETH
	w.mark = func(p *Packet) {
		if p.Headers.BTH.Opcode == ib.RCReadRequest {
			asked = append(asked, p.Headers.RETH)
		}
	}
	w.a.post(0, w.readWR(1), w.a.at(0, 5000))
	w.settle()
	wantStatus(t, w.a.sends.take(), rdma.WCSuccess)
	if !bytes.Equal(w.a.mem[:5000], w.b.mem[:5000]) {
		t.Fatal("bytes differ")
	}
	if len(asked) != 2 || asked[1].VA != testBase+2048 || asked[1].Length != 5000-2048 {
		t.Fatalf("requests %v", asked)
	}
	if w.a.counters[work.CountCompleterSched] != 1 {
		t.Fatal("no implied NAK counted")
	}
}

// TestRequester_AckBehindRead_ImpliesNak: an acknowledge for a later request does not complete a
// READ whose data are missing.
func TestRequester_AckBehindRead_ImpliesNak(t *testing.T) {
	w := newWorld(t, worldConfig{})
	w.a.post(0, w.writeWR(1), w.a.at(0, 8))
	w.a.post(0, w.readWR(2), w.a.at(0, 2000))
	w.a.post(0, w.writeWR(3), w.a.at(0, 8))
	w.replies(w.a)
	w.a.q.HandlePacket(0, w.answer(ib.RCAcknowledge, 103, ack))
	got := w.a.sends.take()
	wantStatus(t, got, rdma.WCSuccess)
	_, psns := opcodes(w.replies(w.a))
	if !slices.Equal(psns, []rdma.PSN{101, 103}) {
		t.Fatalf("sent again: %v", psns)
	}
}

func TestRequester_BadResponses_Fail(t *testing.T) {
	for name, p := range map[string]func(w *world) *Packet{
		"data too short": func(w *world) *Packet {
			p := w.answer(ib.RCReadResponseFirst, 100, ack)
			p.Payload = mtuBytes(1000)
			return p
		},
		"atomic answer to a read": func(w *world) *Packet {
			return w.answer(ib.RCAtomicAcknowledge, 100, ack)
		},
		"data for a write": func(w *world) *Packet {
			p := w.answer(ib.RCReadResponseOnly, 102, ack)
			p.Payload = mtuBytes(8)
			return p
		},
	} {
		w := newWorld(t, worldConfig{})
		w.a.post(0, w.readWR(1), w.a.at(0, 2000))
		w.a.post(0, w.writeWR(2), w.a.at(0, 8))
		w.replies(w.a)
		w.a.q.HandlePacket(0, p(w))
		got := w.a.sends.take()
		if len(got) != 2 || got[0].Status != uint32(rdma.WCBadRespErr) ||
			got[0].VendorErr != uint32(abi.VendorBadResponse) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestRequester_ReadTarget_RegionGone(t *testing.T) {
	w := newWorld(t, worldConfig{})
	w.a.post(0, w.readWR(1), w.a.at(0, 2000))
	w.transmit(w.a)
	w.a.table.Deregister(w.a.region)
	w.settle()
	wantStatus(t, w.a.sends.take(), rdma.WCLocProtErr)
}

func TestRequester_MaxRdAtomic_Stalls(t *testing.T) {
	w := newWorld(t, worldConfig{edit: func(_ string, a *Attr) { a.MaxRdAtomic = 2 }})
	for id := range uint64(4) {
		w.a.post(0, w.readWR(id), w.a.at(0, 8))
	}
	if got := w.replies(w.a); len(got) != 2 || w.a.q.HasWork() {
		t.Fatalf("%d requests on the wire", len(got))
	}
	p := w.answer(ib.RCReadResponseOnly, 100, ack)
	p.Payload = mtuBytes(8)
	w.a.q.HandlePacket(0, p)
	if got := w.replies(w.a); len(got) != 1 {
		t.Fatalf("%d more after one answer", len(got))
	}
}

func TestRequester_MaxRdAtomicZero_Refuses(t *testing.T) {
	w := newWorld(t, worldConfig{edit: func(_ string, a *Attr) { a.MaxRdAtomic = 0 }})
	w.a.post(0, w.readWR(1), w.a.at(0, 8))
	w.settle()
	got := w.a.sends.take()
	wantStatus(t, got, rdma.WCLocQPOpErr)
	if got[0].VendorErr != uint32(abi.VendorRDAtomic) {
		t.Fatalf("vendor %d", got[0].VendorErr)
	}
}

func TestRequester_Fence_WaitsForReads(t *testing.T) {
	w := newWorld(t, worldConfig{})
	w.a.post(0, w.readWR(1), w.a.at(0, 8))
	fenced := w.writeWR(2)
	fenced.Flags |= uint8(rdma.SendFence)
	w.a.post(0, fenced, w.a.at(0, 8))
	if got := w.replies(w.a); len(got) != 1 || w.a.q.HasWork() {
		t.Fatalf("%d packets", len(got))
	}
	p := w.answer(ib.RCReadResponseOnly, 100, ack)
	p.Payload = mtuBytes(8)
	w.a.q.HandlePacket(0, p)
	if got := w.replies(w.a); len(got) != 1 || got[0].Headers.BTH.Opcode != ib.RCWriteOnly {
		t.Fatalf("after the answer: %v", got)
	}
}

// TestRequester_NoCredit_SendsOnePacket follows the limited send of IBTA 9.7.7.2.5.
func TestRequester_NoCredit_SendsOnePacket(t *testing.T) {
	w := newWorld(t, worldConfig{})
	w.a.post(0, w.sendWR(1), w.a.at(0, 8))
	w.replies(w.a)
	w.a.q.HandlePacket(0, w.answer(ib.RCAcknowledge, 100, ib.ACK(0)))
	w.a.post(0, w.sendWR(2), w.a.at(0, 3000))
	w.a.post(0, w.sendWR(3), w.a.at(0, 8))
	got := w.replies(w.a)
	if len(got) != 1 || got[0].Headers.BTH.Opcode != ib.RCSendFirst || !got[0].Headers.BTH.AckReq {
		t.Fatalf("without credit: %v", got)
	}
	w.a.q.HandlePacket(0, w.answer(ib.RCAcknowledge, 101, ib.ACK(0)))
	if got = w.replies(w.a); len(got) != 2 {
		t.Fatalf("a message with its receive: %d packets", len(got))
	}
	w.a.q.HandlePacket(0, w.answer(ib.RCAcknowledge, 103, ib.ACK(5)))
	if got = w.replies(w.a); len(got) != 1 {
		t.Fatalf("with credits: %d packets", len(got))
	}
}

func TestRequester_WritesNeedNoCredit(t *testing.T) {
	w := newWorld(t, worldConfig{})
	w.a.post(0, w.sendWR(1), w.a.at(0, 8))
	w.replies(w.a)
	w.a.q.HandlePacket(0, w.answer(ib.RCAcknowledge, 100, ib.ACK(0)))
	w.a.post(0, w.writeWR(2), w.a.at(0, 8))
	w.a.post(0, w.writeWR(3), w.a.at(0, 8))
	if got := w.replies(w.a); len(got) != 2 {
		t.Fatalf("%d packets", len(got))
	}
}

func TestRequester_Unreachable_FailsFast(t *testing.T) {
	w := newWorld(t, worldConfig{edit: func(_ string, a *Attr) { a.Timeout = 19 }})
	w.judge = func(*node, *Packet) fate { return lose }
	w.a.post(0, w.writeWR(1), w.a.at(0, 8))
	for w.a.q.State() == rdma.QPStateRTS {
		w.transmit(w.a)
		w.a.q.HandleUnreachable(w.now)
		w.now = w.a.q.PollTimeout()
		w.a.q.HandleTimeout(w.now)
	}
	got := w.a.sends.take()
	wantStatus(t, got, rdma.WCRetryExcErr)
	if got[0].VendorErr != uint32(abi.VendorNoNIC) || time.Duration(w.now) > 50*time.Millisecond {
		t.Fatalf("vendor %d after %v", got[0].VendorErr, time.Duration(w.now))
	}
}

func TestRequester_Congestion_ShrinksWindowOnce(t *testing.T) {
	w := newWorld(t, worldConfig{})
	w.a.post(0, w.writeWR(1), w.a.at(0, half))
	w.replies(w.a)
	before := w.a.q.Stats().Window
	for range 3 {
		w.a.q.HandlePacket(0, w.answer(ib.CNP, 0, 0))
	}
	if got := w.a.q.Stats().Window; got != before/2 {
		t.Fatalf("window %d, was %d", got, before)
	}
}

// TestRequester_SharedQueueMemory_ChangesAfterFetch: the copy counts, not what the application
// writes later.
func TestRequester_SlotChangedAfterFetch_CopyCounts(t *testing.T) {
	w := newWorld(t, worldConfig{})
	pattern(w.a.mem[:3000], 1)
	w.a.post(0, w.writeWR(1), w.a.at(0, 3000))
	var p Packet
	w.a.q.PollTransmit(0, &p)
	w.launch(w.a, w.b, &p)
	for i := 256; i < len(w.a.sqMem); i++ {
		w.a.sqMem[i] = 0xff
	}
	w.settle()
	wantStatus(t, w.a.sends.take(), rdma.WCSuccess)
	if !bytes.Equal(w.a.mem[:3000], w.b.mem[:3000]) {
		t.Fatal("bytes differ")
	}
}

// TestRequester_Datagram covers what only UD checks.
func TestRequester_Datagram_Errors(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*abi.SendWQE) int
		want rdma.WCStatus
	}{
		"longer than the MTU": {func(*abi.SendWQE) int { return 1025 }, rdma.WCLocLenErr},
		"unknown handle":      {func(x *abi.SendWQE) int { x.AH = 9; return 8 }, rdma.WCLocQPOpErr},
		"write": {func(x *abi.SendWQE) int {
			x.Opcode = uint8(rdma.WRWrite)
			return 8
		}, rdma.WCLocQPOpErr},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, worldConfig{qpType: rdma.QPTypeUD})
			good := w.sendWR(1)
			good.AH, good.RemoteQPN, good.RemoteQKey = 1, 0x22, 0x1234
			bad := good
			bad.WRID = 2
			n := c.edit(&bad)
			w.b.receive(1, w.b.at(0, 2000))
			w.b.receive(2, w.b.at(0, 2000))
			w.a.receive(9, w.a.at(0, 100))
			w.a.post(0, good, w.a.at(0, 8))
			w.a.post(0, bad, w.a.at(0, n))
			w.a.post(0, good, w.a.at(0, 8))
			w.settle()
			wantStatus(t, w.a.sends.take(), rdma.WCSuccess, c.want, rdma.WCWRFlushErr)
			if w.a.q.State() != rdma.QPStateSQE {
				t.Fatalf("state %v", w.a.q.State())
			}
			wantStatus(t, w.a.recvs.take()) // the receive queue lives
			w.a.q.Modify(w.now, &Attr{}, rdma.QPAttrState, rdma.QPStateRTS)
			w.a.post(w.now, good, w.a.at(0, 8))
			w.settle()
			wantStatus(t, w.a.sends.take(), rdma.WCSuccess)
			wantStatus(t, w.b.recvs.take(), rdma.WCSuccess, rdma.WCSuccess)
		})
	}
}

func TestRequester_ControlledQKey_UsesTheQPs(t *testing.T) {
	w := newWorld(t, worldConfig{qpType: rdma.QPTypeUD})
	for key, want := range map[uint32]rdma.QKey{0x80010000: 0x1234, 0x7fffffff: 0x7fffffff} {
		x := w.sendWR(1)
		x.AH, x.RemoteQPN, x.RemoteQKey = 1, 0x22, key
		w.a.post(0, x, w.a.at(0, 8))
		got := w.replies(w.a)
		if len(got) != 1 || got[0].Headers.DETH.QKey != want || got[0].Headers.DETH.SrcQPN != 0x11 {
			t.Fatalf("Q_Key %#x: %v", key, got)
		}
	}
}
