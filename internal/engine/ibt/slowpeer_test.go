package ibt

import (
	"bytes"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

// TestRequester_RoundTripLongerThanTimeout_WindowGrows has a path that takes longer than the local
// ACK timeout, as one to an emulated or busy peer does.
func TestRequester_RoundTripLongerThanTimeout_WindowGrows(t *testing.T) {
	const size = 4 << 20
	w := newWorld(t, worldConfig{bytes: size, edit: func(_ string, a *Attr) { a.Timeout = 11 }})
	w.delay = 7500 * time.Microsecond // 15 ms there and back; the timeout is 8.4 ms
	begin := w.now
	pattern(w.a.mem, 1)
	w.a.post(w.now, abi.SendWQE{
		Opcode: uint8(rdma.WRWrite), Flags: signaled, RemoteAddr: testBase,
		RKey: uint32(w.b.region.Key),
	}, w.a.at(0, size))
	for len(w.a.sends.entries) == 0 && w.now.Sub(begin) < time.Minute {
		w.run(time.Millisecond)
		w.now = w.now.Add(time.Millisecond)
	}
	wantStatus(t, w.a.sends.take(), rdma.WCSuccess)
	s := w.a.q.Stats()
	took := w.now.Sub(begin)
	t.Logf("%v, window %d, %d timeouts, %d of 4096 packets sent again", took, s.Window, s.Timeouts,
		s.Retransmitted)
	if took > time.Second || s.Timeouts > 4 || s.Retransmitted > 512 {
		t.Errorf("%v, window %d, %d timeouts, %d packets sent again", took, s.Window, s.Timeouts,
			s.Retransmitted)
	}
	if !bytes.Equal(w.a.mem, w.b.mem) {
		t.Error("the data differ")
	}
}

// TestRequester_ReceiverNotReadyBehindMissingData_IsLeftAlone loses READ data in front of a SEND
// that meets no receive: the READ is asked for again at once, the SEND after the receiver's time.
func TestRequester_ReceiverNotReadyBehindMissingData_IsLeftAlone(t *testing.T) {
	for _, isRepaired := range []bool{true, false} {
		w := newWorld(t, worldConfig{edit: func(_ string, a *Attr) { a.MinRNRTimer = 20 }}) // 10.24 ms
		reads, sends, lost := 0, []time.Duration{}, 0
		w.judge = func(from *node, p *Packet) fate {
			op := p.Headers.BTH.Opcode
			switch {
			case op == ib.RCReadRequest:
				reads++
			case op == ib.RCSendOnly:
				sends = append(sends, time.Duration(w.now))
			case op.IsReadResponse() && (lost == 0 || !isRepaired && w.now < 15e6):
				lost++
				return lose
			}
			return deliver
		}
		w.a.write(abi.SendWQE{
			WRID: 1, Opcode: uint8(rdma.WRRead), Flags: signaled, RemoteAddr: testBase,
			RKey: uint32(w.b.region.Key),
		}, nil, []abi.SGE{w.a.at(0, 100)})
		w.a.write(abi.SendWQE{WRID: 2, Opcode: uint8(rdma.WRSend), Flags: signaled}, nil,
			[]abi.SGE{w.a.at(0, 10)})
		w.a.sq.Publish()
		w.a.q.HandleDoorbell(w.now)
		w.run(5 * time.Millisecond)
		w.b.receive(7, w.b.at(half, 100))
		w.settle()
		wantStatus(t, w.a.sends.take(), rdma.WCSuccess, rdma.WCSuccess)
		wantStatus(t, w.b.recvs.take(), rdma.WCSuccess)
		if len(sends) < 2 || sends[1]-sends[0] < 10240*time.Microsecond {
			t.Errorf("the SEND went %d times, and first at %v; its receiver asked for 10.24 ms",
				len(sends), sends[:min(2, len(sends))])
		}
		if reads < 2 || isRepaired && len(sends) != 2 {
			t.Errorf("%d READ requests, %d SENDs", reads, len(sends))
		}
	}
}

// TestRequester_AnswerToQuestion_ImpliesNoNAK has a peer that acknowledges a repetition with the
// newest PSN that it has executed, while the data of a READ before it are being repeated: the
// kernel's driver does.
func TestRequester_AnswerToQuestion_ImpliesNoNAK(t *testing.T) {
	w := newWorld(t, worldConfig{bytes: 2 * half})
	w.b.q.recv.window.isGreedy, w.b.q.recv.window.free = true, 2
	w.b.q.recv.window.window.size = 2
	w.b.post(w.now, abi.SendWQE{
		Opcode: uint8(rdma.WRRead), Flags: signaled, RemoteAddr: testBase,
		RKey: uint32(w.a.region.Key),
	}, w.b.at(half, 20_000))
	w.replies(w.b) // its data never come
	p := w.request(ib.RCReadRequest, 100, nil)
	p.Headers.RETH = ib.RETH{VA: testBase, RKey: w.b.region.Key, Length: half}
	w.b.q.HandlePacket(w.now, p)
	questions := 0
	for range 200 {
		w.now += 1000
		for _, p := range w.replies(w.b) {
			if p.Headers.BTH.Opcode != ib.RCWriteOnly {
				continue
			}
			questions++
			a := w.answer(ib.RCAcknowledge, 119, ib.ACK(ib.CreditsInvalid))
			a.Address = w.a.q.attr.AV
			a.Headers.BTH.DestQPN = w.b.q.QPN()
			w.b.q.HandlePacket(w.now, a)
		}
	}
	if s := w.b.q.Stats(); questions < 10 || s.Retries != 0 || s.Retransmitted != 0 {
		t.Errorf("%d questions; %d retries, %d requests again", questions, s.Retries, s.Retransmitted)
	}
	if w.b.q.State() != rdma.QPStateRTS || w.b.q.recv.window.silences != 0 {
		t.Errorf("state %v, %d silences", w.b.q.State(), w.b.q.recv.window.silences)
	}
}

// TestRequester_RepeatedReads_NeverAskForTheEndFirst plays the kernel's driver, which after a
// request for a part of a READ refuses one for what precedes that part.
func TestRequester_RepeatedReads_NeverAskForTheEndFirst(t *testing.T) {
	w := newWorld(t, worldConfig{bytes: 2 * half})
	pattern(w.b.mem[:half], 5)
	answers, requests := 0, 0
	first := map[rdma.PSN]uint64{}   // of a READ: where it began
	allowed := map[rdma.PSN]uint64{} // of a READ: where it may begin now
	w.judge = func(_ *node, p *Packet) fate {
		h := &p.Headers
		if h.BTH.Opcode.IsReadResponse() {
			answers++
			if answers <= 27 { // all that were asked for at first
				return lose
			}
			return deliver
		}
		if h.BTH.Opcode != ib.RCReadRequest {
			return deliver
		}
		requests++
		end := h.BTH.PSN.Add(packetsOf(h.RETH.Length, 1024))
		if _, isKnown := first[end]; !isKnown {
			first[end], allowed[end] = h.RETH.VA, h.RETH.VA
		}
		if h.RETH.VA < allowed[end] {
			t.Errorf("READ up to PSN %v: asked for %#x after %#x", end, h.RETH.VA, allowed[end])
			return lose
		}
		allowed[end] = h.RETH.VA
		return deliver
	}
	for i := range 3 {
		w.a.write(abi.SendWQE{
			WRID: uint64(i), Opcode: uint8(rdma.WRRead), Flags: signaled,
			RemoteAddr: testBase + uint64(i)*9000, RKey: uint32(w.b.region.Key),
		}, nil, []abi.SGE{w.a.at(i*9000, 9000)})
	}
	w.a.sq.Publish()
	w.a.q.HandleDoorbell(w.now)
	w.settle()
	ok := rdma.WCSuccess
	wantStatus(t, w.a.sends.take(), ok, ok, ok)
	if !bytes.Equal(w.a.mem[:27000], w.b.mem[:27000]) {
		t.Error("the data differ")
	}
	if s := w.a.q.Stats(); s.Probes == 0 || requests < 4 {
		t.Errorf("%d probes, %d requests", s.Probes, requests)
	}
}

// TestRequester_LossAfterLoss_WithinATimeout_Recovers loses the same packet of READ data again and
// again, as a host does that has no processor for a while. The packets behind it tell each time.
func TestRequester_LossAfterLoss_WithinATimeout_Recovers(t *testing.T) {
	w := newWorld(t, worldConfig{bytes: 2 * half})
	w.delay = time.Millisecond
	pattern(w.b.mem[:half], 6)
	var first rdma.PSN
	lost := 0
	w.judge = func(_ *node, p *Packet) fate {
		h := &p.Headers
		if h.BTH.Opcode == ib.RCReadRequest && first == 0 {
			first = h.BTH.PSN
		}
		if h.BTH.Opcode.IsReadResponse() && h.BTH.PSN == first && lost < 12 {
			lost++
			return lose
		}
		return deliver
	}
	w.a.post(w.now, abi.SendWQE{
		Opcode: uint8(rdma.WRRead), Flags: signaled, RemoteAddr: testBase,
		RKey: uint32(w.b.region.Key),
	}, w.a.at(0, half))
	w.settle()
	wantStatus(t, w.a.sends.take(), rdma.WCSuccess)
	if lost != 12 || !bytes.Equal(w.a.mem[:half], w.b.mem[:half]) {
		t.Errorf("lost %d times; the data are right: %v", lost,
			bytes.Equal(w.a.mem[:half], w.b.mem[:half]))
	}
}
