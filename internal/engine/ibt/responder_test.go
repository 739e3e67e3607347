package ibt

import (
	"bytes"
	"slices"
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

// readRequestPacket is a READ of b's memory at off.
func (w *world) readRequestPacket(psn rdma.PSN, off, length int) *Packet {
	p := w.request(ib.RCReadRequest, psn, nil)
	p.Headers.RETH = ib.RETH{
		VA: testBase + uint64(off), RKey: w.b.region.Key, Length: uint32(length),
	}
	return p
}

// writePacket is a packet of a WRITE; total is the length in its RETH.
func (w *world) writePacket(op ib.Opcode, psn rdma.PSN, total int, payload []byte) *Packet {
	p := w.request(op, psn, payload)
	p.Headers.RETH = ib.RETH{VA: testBase, RKey: w.b.region.Key, Length: uint32(total)}
	return p
}

func (w *world) atomicPacket(psn rdma.PSN, va, add uint64) *Packet {
	p := w.request(ib.RCFetchAdd, psn, nil)
	p.Headers.Atomic = ib.AtomicETH{VA: va, RKey: w.b.region.Key, SwapAdd: add}
	return p
}

// give delivers packets to b's responder and returns what it says.
func (w *world) give(packets ...*Packet) []Packet {
	for _, p := range packets {
		w.b.q.HandlePacket(w.now, p)
	}
	return w.replies(w.b)
}

// wantAck checks that the replies are one acknowledge.
func wantAck(t *testing.T, got []Packet, psn rdma.PSN, s ib.Syndrome) {
	t.Helper()
	if len(got) != 1 {
		t.Fatalf("%d replies, want one acknowledge", len(got))
	}
	h := &got[0].Headers
	if h.BTH.Opcode != ib.RCAcknowledge || h.BTH.PSN != psn || h.AETH.Syndrome.Kind() != s.Kind() ||
		s.Kind() != ib.SyndromeACK && h.AETH.Syndrome != s {
		t.Fatalf("reply %v, want psn %v %v", h, psn, s)
	}
}

var (
	ack        = ib.ACK(0)
	nakSeq     = ib.NAK(ib.NAKSequence)
	nakInvalid = ib.NAK(ib.NAKInvalidRequest)
	nakAccess  = ib.NAK(ib.NAKRemoteAccess)
	nakOp      = ib.NAK(ib.NAKRemoteOp)
)

func mtuBytes(n int) []byte { return bytes.Repeat([]byte{0x5a}, n) }

func TestResponder_DuplicateRead_T04_LeavesMessageInProgressAlone(t *testing.T) {
	w := newWorld(t, worldConfig{})
	pattern(w.b.mem[5000:8000], 1)
	first := w.give(w.readRequestPacket(100, 5000, 3000))
	if len(first) != 3 {
		t.Fatalf("%d responses to the READ", len(first))
	}
	w.give(w.writePacket(ib.RCWriteFirst, 103, 3000, mtuBytes(1024)))
	again := w.give(w.readRequestPacket(100, 5000, 3000))
	if !slices.EqualFunc(first, again, sameData) {
		t.Fatalf("the repeated READ got %d replies or other data", len(again))
	}
	got := w.give(
		w.writePacket(ib.RCWriteMiddle, 104, 0, mtuBytes(1024)),
		w.writePacket(ib.RCWriteLast, 105, 0, mtuBytes(952)))
	wantAck(t, got, 105, ack)
	if !bytes.Equal(w.b.mem[:3000], mtuBytes(3000)) {
		t.Fatal("the WRITE was not carried out")
	}
}

func sameData(x, y Packet) bool {
	return x.Headers.BTH.PSN == y.Headers.BTH.PSN && x.Headers.BTH.Opcode == y.Headers.BTH.Opcode &&
		bytes.Equal(x.Payload, y.Payload)
}

func TestResponder_DuplicateWrite_T05_AcksLastRequestThatIsNoRead(t *testing.T) {
	w := newWorld(t, worldConfig{})
	wantAck(t, w.give(w.writePacket(ib.RCWriteOnly, 100, 4, mtuBytes(4))), 100, ack)
	if got := w.give(w.readRequestPacket(101, 0, 3000)); len(got) != 3 {
		t.Fatalf("%d responses", len(got))
	}
	w.b.mem[0] = 9
	wantAck(t, w.give(w.writePacket(ib.RCWriteOnly, 100, 4, mtuBytes(4))), 100, ack)
	if w.b.mem[0] != 9 {
		t.Fatal("a repeated WRITE was carried out again")
	}
	if w.b.counters[work.CountDuplicateRequest] != 1 {
		t.Fatal("not counted")
	}
}

func TestResponder_DuplicateSend_TakesNoSecondReceive(t *testing.T) {
	w := newWorld(t, worldConfig{})
	w.b.receive(1, w.b.at(0, 100))
	w.b.receive(2, w.b.at(100, 100))
	w.give(w.request(ib.RCSendOnly, 100, mtuBytes(10)))
	wantAck(t, w.give(w.request(ib.RCSendOnly, 100, mtuBytes(10))), 100, ack)
	wantStatus(t, w.b.recvs.take(), rdma.WCSuccess)
}

func TestResponder_DuplicateRead_RepliesFromResources(t *testing.T) {
	w := newWorld(t, worldConfig{})
	pattern(w.b.mem[:4096], 3)
	whole := w.give(w.readRequestPacket(100, 0, 4096))
	part := w.give(w.readRequestPacket(102, 2048, 2048))
	if len(part) != 2 || part[0].Headers.BTH.Opcode != ib.RCReadResponseFirst ||
		part[0].Headers.BTH.PSN != 102 || !bytes.Equal(part[0].Payload, whole[2].Payload) ||
		part[1].Headers.BTH.Opcode != ib.RCReadResponseLast {
		t.Fatalf("partial repetition: %v", part)
	}
	one := w.give(w.readRequestPacket(103, 3072, 1024))
	if len(one) != 1 || one[0].Headers.BTH.Opcode != ib.RCReadResponseOnly {
		t.Fatalf("repetition of the last packet: %v", one)
	}
	for _, p := range []*Packet{
		w.readRequestPacket(102, 0, 2048),    // other address
		w.readRequestPacket(102, 2048, 4096), // longer than it was
		w.readRequestPacket(99, 0, 10),       // never asked
	} {
		if got := w.give(p); len(got) != 0 {
			t.Errorf("%v was answered: %v", &p.Headers, got)
		}
	}
}

func TestResponder_DuplicateRead_WhileReplying_StartsOver(t *testing.T) {
	w := newWorld(t, worldConfig{})
	w.b.q.HandlePacket(0, w.readRequestPacket(100, 0, 10*1024))
	var p Packet
	for range 4 {
		w.b.q.PollTransmit(0, &p)
	}
	// What the reply has not reached needs no new start.
	w.b.q.HandlePacket(0, w.readRequestPacket(106, 6*1024, 4*1024))
	w.b.q.PollTransmit(0, &p)
	if p.Headers.BTH.PSN != 104 {
		t.Fatalf("PSN %v after an early repetition", p.Headers.BTH.PSN)
	}
	w.b.q.HandlePacket(0, w.readRequestPacket(102, 2*1024, 8*1024))
	got := w.replies(w.b)
	if len(got) != 8 || got[0].Headers.BTH.PSN != 102 {
		t.Fatalf("%d replies, first %v", len(got), &got[0].Headers)
	}
}

func TestResponder_DuplicateAtomic_RepliesFromStore(t *testing.T) {
	w := newWorld(t, worldConfig{})
	putNative(w.b.mem, 10)
	for psn := range rdma.PSN(3) {
		w.give(w.atomicPacket(100+psn, testBase, 5))
	}
	got := w.give(w.atomicPacket(101, testBase, 5))
	if len(got) != 1 || got[0].Headers.BTH.Opcode != ib.RCAtomicAcknowledge ||
		got[0].Headers.AtomicAck != 15 || got[0].Headers.BTH.PSN != 101 {
		t.Fatalf("reply %v", got)
	}
	if v := getNative(w.b.mem); v != 25 {
		t.Fatalf("memory %d: a repeated atomic was carried out again", v)
	}
}

func TestResponder_Gap_OneSequenceNakUntilFilled(t *testing.T) {
	w := newWorld(t, worldConfig{})
	for range 5 {
		w.b.receive(1, w.b.at(0, 100))
	}
	send := func(psn rdma.PSN) *Packet { return w.request(ib.RCSendOnly, psn, mtuBytes(1)) }
	wantAck(t, w.give(send(101), send(102), send(103)), 100, nakSeq)
	if got := w.give(send(104)); len(got) != 0 {
		t.Fatalf("a second NAK for the same gap: %v", got)
	}
	// The peer goes back, and 100 is lost again.
	wantAck(t, w.give(send(101), send(102)), 100, nakSeq)
	wantAck(t, w.give(send(100), send(101)), 101, ack)
	wantAck(t, w.give(send(103)), 102, nakSeq)
}

func TestResponder_NoReceive_T13_OneRNRNakWithOurTimer(t *testing.T) {
	w := newWorld(t, worldConfig{})
	send := func(psn rdma.PSN) *Packet { return w.request(ib.RCSendOnly, psn, mtuBytes(1)) }
	wantAck(t, w.give(send(100), send(101), send(102)), 100, ib.RNRNAK(12))
	if w.b.counters[work.CountSentRNR] != 1 {
		t.Fatal("not counted")
	}
	w.b.receive(7, w.b.at(0, 10))
	wantAck(t, w.give(send(100)), 100, ack)
	wantAck(t, w.give(send(101)), 101, ib.RNRNAK(12))
}

// refusal is wrong packets and what becomes of the last.
type refusal struct {
	name    string
	make    func(w *world) []*Packet
	want    ib.Syndrome
	psn     rdma.PSN
	recv    rdma.WCStatus // of the receive; WCSuccess: none completes with an error
	event   rdma.EventType
	attr    func(*Attr)
	noEvent bool
}

func withRETH(p *Packet, edit func(*ib.RETH)) *Packet {
	edit(&p.Headers.RETH)
	return p
}

// refusals is one case of each wrong that a responder refuses.
//
//tidy:table
var refusals = []refusal{
	{
		name: "middle without first", want: nakInvalid, psn: 100, event: rdma.EventQPReqErr,
		make: func(w *world) []*Packet {
			return []*Packet{w.request(ib.RCSendMiddle, 100, mtuBytes(1024))}
		},
	},
	{
		name: "write inside send", want: nakInvalid, psn: 101, recv: rdma.WCRemInvReqErr,
		noEvent: true, make: func(w *world) []*Packet {
			return []*Packet{
				w.request(ib.RCSendFirst, 100, mtuBytes(1024)),
				w.writePacket(ib.RCWriteOnly, 101, 1, mtuBytes(1)),
			}
		},
	},
	{
		name: "short first", want: nakInvalid, psn: 100, event: rdma.EventQPReqErr,
		make: func(w *world) []*Packet {
			return []*Packet{w.request(ib.RCSendFirst, 100, mtuBytes(1000))}
		},
	},
	{
		name: "long only", want: nakInvalid, psn: 100, event: rdma.EventQPReqErr,
		make: func(w *world) []*Packet {
			return []*Packet{w.request(ib.RCSendOnly, 100, mtuBytes(1028))}
		},
	},
	{
		name: "empty last", want: nakInvalid, psn: 101, recv: rdma.WCRemInvReqErr, noEvent: true,
		make: func(w *world) []*Packet {
			return []*Packet{
				w.request(ib.RCSendFirst, 100, mtuBytes(1024)), w.request(ib.RCSendLast, 101, nil),
			}
		},
	},
	{
		name: "write longer than its length", want: nakInvalid, psn: 101, event: rdma.EventQPReqErr,
		make: func(w *world) []*Packet {
			return []*Packet{
				w.writePacket(ib.RCWriteFirst, 100, 1025, mtuBytes(1024)),
				w.writePacket(ib.RCWriteLast, 101, 0, mtuBytes(2)),
			}
		},
	},
	{
		name: "write that ends before its last packet", want: nakInvalid, psn: 100,
		event: rdma.EventQPReqErr, make: func(w *world) []*Packet {
			return []*Packet{w.writePacket(ib.RCWriteFirst, 100, 1024, mtuBytes(1024))}
		},
	},
	{
		name: "write shorter than its length", want: nakInvalid, psn: 100, event: rdma.EventQPReqErr,
		make: func(w *world) []*Packet {
			return []*Packet{w.writePacket(ib.RCWriteOnly, 100, 9, mtuBytes(8))}
		},
	},
	{
		name: "message over 2 GiB", want: nakInvalid, psn: 100, event: rdma.EventQPReqErr,
		make: func(w *world) []*Packet {
			return []*Packet{w.writePacket(ib.RCWriteFirst, 100, 1<<31+1, mtuBytes(1024))}
		},
	},
	{
		name: "receive too short", want: nakInvalid, psn: 101, recv: rdma.WCLocLenErr, noEvent: true,
		make: func(w *world) []*Packet {
			return []*Packet{
				w.request(ib.RCSendFirst, 100, mtuBytes(1024)),
				w.request(ib.RCSendLast, 101, mtuBytes(1000)),
			}
		},
	},
	{
		name: "unknown rkey", want: nakAccess, psn: 100, event: rdma.EventQPAccessErr,
		make: func(w *world) []*Packet {
			return []*Packet{withRETH(w.readRequestPacket(100, 0, 8), func(h *ib.RETH) { h.RKey++ })}
		},
	},
	{
		name: "out of bounds", want: nakAccess, psn: 100, event: rdma.EventQPAccessErr,
		make: func(w *world) []*Packet {
			return []*Packet{w.readRequestPacket(100, len(w.b.mem)-7, 8)}
		},
	},
	{
		name: "write out of bounds", want: nakAccess, psn: 100, event: rdma.EventQPAccessErr,
		make: func(w *world) []*Packet {
			p := w.writePacket(ib.RCWriteOnly, 100, 8, mtuBytes(8))
			return []*Packet{withRETH(p, func(h *ib.RETH) { h.VA = testBase - 1 })}
		},
	},
	{
		name: "QP without the right", want: nakInvalid, psn: 100, event: rdma.EventQPReqErr,
		attr: func(a *Attr) { a.Access = rdma.AccessLocalWrite | rdma.AccessRemoteRead },
		make: func(w *world) []*Packet {
			return []*Packet{w.writePacket(ib.RCWriteOnly, 100, 8, mtuBytes(8))}
		},
	},
	{
		name: "unaligned atomic", want: nakInvalid, psn: 100, event: rdma.EventQPReqErr,
		make: func(w *world) []*Packet { return []*Packet{w.atomicPacket(100, testBase+4, 1)} },
	},
	{
		name: "too many reads", want: nakInvalid, psn: 104, event: rdma.EventQPReqErr,
		make: func(w *world) []*Packet {
			var out []*Packet
			for psn := range rdma.PSN(5) {
				out = append(out, w.readRequestPacket(100+psn, 0, 8))
			}
			return out
		},
	},
	{
		name: "reads not allowed", want: nakInvalid, psn: 100, event: rdma.EventQPReqErr,
		attr: func(a *Attr) { a.MaxDestRdAtomic = 0 },
		make: func(w *world) []*Packet { return []*Packet{w.readRequestPacket(100, 0, 8)} },
	},
	{
		name: "flush", want: nakInvalid, psn: 100, event: rdma.EventQPReqErr,
		make: func(w *world) []*Packet { return []*Packet{w.request(ib.RCFlush, 100, nil)} },
	},
	{
		name: "invalidate of an ordinary region", want: nakAccess, psn: 100,
		recv: rdma.WCRemAccessErr, noEvent: true, make: func(w *world) []*Packet {
			p := w.request(ib.RCSendOnlyInv, 100, mtuBytes(8))
			p.Headers.Inv = ib.IETH(w.b.region.Key)
			return []*Packet{p}
		},
	},
}

// TestResponder_Refusals gives the responder one wrong packet each.
func TestResponder_Refusals(t *testing.T) {
	for _, c := range refusals {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, worldConfig{edit: func(name string, a *Attr) {
				if name == "b" && c.attr != nil {
					c.attr(a)
				}
			}})
			before := slices.Clone(w.b.mem)
			w.b.receive(1, w.b.at(3000, 1500))
			w.b.receive(2, w.b.at(3000, 1500))
			got := w.give(c.make(w)...)
			for len(got) > 1 && got[0].Headers.BTH.Opcode != ib.RCAcknowledge {
				got = got[1:] // data of the READs before come first
			}
			wantAck(t, got, c.psn, c.want)
			checkRefused(t, w, c.recv)
			if c.noEvent != (len(w.b.events) == 0) || !c.noEvent && w.b.events[0] != c.event {
				t.Fatalf("events %v", w.b.events)
			}
			copy(before[:4500], w.b.mem[:4500])
			if !bytes.Equal(before, w.b.mem) {
				t.Fatal("memory that nobody named has changed")
			}
		})
	}
}

// checkRefused checks the end of a QP whose peer's request was refused: the receive in use fails
// with status, the others are flushed, and there is evidence.
func checkRefused(t *testing.T, w *world, status rdma.WCStatus) {
	t.Helper()
	if w.b.q.State() != rdma.QPStateError {
		t.Fatalf("state %v", w.b.q.State())
	}
	want := []rdma.WCStatus{rdma.WCWRFlushErr, rdma.WCWRFlushErr}
	if status != rdma.WCSuccess {
		want[0] = status
	}
	got := w.b.recvs.take()
	wantStatus(t, got, want...)
	if got[0].WRID != 1 || got[1].WRID != 2 {
		t.Fatalf("completions %+v", got)
	}
	if len(w.b.causes) != 1 || !w.b.causes[0].IsResponder || w.b.causes[0].Vendor == abi.VendorNone {
		t.Fatalf("evidence %+v", w.b.causes)
	}
	if got := w.give(w.request(ib.RCSendOnly, 100, mtuBytes(1))); len(got) != 0 {
		t.Fatal("a QP in error answers")
	}
}

func TestResponder_ReceiveAtFault_NaksRemoteOperational(t *testing.T) {
	for _, c := range []struct {
		name string
		list func(w *world) []abi.SGE
		want rdma.WCStatus
	}{
		{"unknown lkey", func(w *world) []abi.SGE {
			s := w.b.at(0, 100)
			s.LKey ^= 0x100
			return []abi.SGE{s}
		}, rdma.WCLocProtErr},
		{"out of bounds", func(w *world) []abi.SGE {
			return []abi.SGE{w.b.at(len(w.b.mem)-10, 100)}
		}, rdma.WCLocProtErr},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, worldConfig{})
			w.b.receive(1, c.list(w)...)
			w.b.receive(2, w.b.at(0, 100))
			wantAck(t, w.give(w.request(ib.RCSendOnly, 100, mtuBytes(50))), 100, nakOp)
			checkRefused(t, w, c.want)
			if w.b.causes[0].Key == 0 {
				t.Fatal("the evidence names no key")
			}
		})
	}
}

func TestResponder_MalformedReceive_FailsItAlone(t *testing.T) {
	w := newWorld(t, worldConfig{})
	slot := w.b.rq.Slot()
	abi.EncodeRecvWQE(slot, &abi.RecvWQE{WRID: 1, NumSGE: 0xffffffff})
	w.b.rq.Push()
	w.b.rq.Publish()
	w.b.receive(2, w.b.at(0, 100))
	wantAck(t, w.give(w.request(ib.RCSendOnly, 100, mtuBytes(50))), 100, nakOp)
	checkRefused(t, w, rdma.WCLocQPOpErr)
}

func TestResponder_Unmapped_NaksRemoteOperational(t *testing.T) {
	s := &space{}
	w := newWorld(t, worldConfig{spaceB: s})
	s.gone = true
	wantAck(t, w.give(w.writePacket(ib.RCWriteOnly, 100, 8, mtuBytes(8))), 100, nakOp)
}

// TestResponder_ProcessEnded_IsLikeAHostThatVanished: a process whose memory goes before its queue
// pairs do shows its peers no NAK that hardware would not send. What it did before is answered.
func TestResponder_ProcessEnded_IsLikeAHostThatVanished(t *testing.T) {
	for _, op := range []rdma.WROpcode{
		rdma.WRWrite, rdma.WRSend, rdma.WRRead, rdma.WRFetchAdd, rdma.WRCompareSwap,
		rdma.WRAtomicWrite,
	} {
		t.Run(op.String(), func(t *testing.T) {
			s := &space{}
			w := newWorld(t, worldConfig{spaceB: s})
			w.b.receive(1, w.b.at(0, 8192))
			w.b.receive(2, w.b.at(0, 8192))
			n := 5000
			if op != rdma.WRWrite && op != rdma.WRSend && op != rdma.WRRead {
				n = 8
			}
			post := func(id uint64, op rdma.WROpcode) {
				x := w.writeWR(id)
				x.Opcode = uint8(op)
				w.a.post(w.now, x, w.a.at(0, n))
			}
			post(1, op)
			w.settle()
			wantStatus(t, w.a.sends.take(), rdma.WCSuccess)
			s.ended = true
			post(2, op)
			post(3, rdma.WRRead)
			w.settle()
			wantStatus(t, w.a.sends.take(), rdma.WCRetryExcErr, rdma.WCWRFlushErr)
			if k := w.b.counters[work.CountSentNak]; k != 0 || len(w.b.events) > 1 {
				t.Errorf("%d NAKs, events %v", k, w.b.events)
			}
			if len(w.b.causes) != 1 || w.b.causes[0].Fault != mem.FaultGone {
				t.Errorf("evidence %+v", w.b.causes)
			}
		})
	}
}

// TestResponder_ProcessEnded_UnreliableIsSilent: neither completions nor events come of datagrams
// for a process that has ended.
func TestResponder_ProcessEnded_UnreliableIsSilent(t *testing.T) {
	for _, typ := range []rdma.QPType{rdma.QPTypeUC, rdma.QPTypeUD} {
		s := &space{}
		w := newWorld(t, worldConfig{qpType: typ, spaceB: s})
		w.b.receive(1, w.b.at(0, 100))
		s.ended = true
		for id := range uint64(2) {
			x := w.sendWR(id)
			x.AH, x.RemoteQPN, x.RemoteQKey = 1, 0x22, 0x1234
			w.a.post(w.now, x, w.a.at(0, 8))
			w.settle()
		}
		wantStatus(t, w.a.sends.take(), rdma.WCSuccess, rdma.WCSuccess)
		if got := w.b.recvs.take(); len(got) != 0 || w.b.q.State() != rdma.QPStateRTS {
			t.Errorf("%v: %+v, state %v", typ, got, w.b.q.State())
		}
		if len(w.b.events) != 0 || len(w.b.causes) != 1 {
			t.Errorf("%v: events %v, evidence %+v", typ, w.b.events, w.b.causes)
		}
	}
}

// TestResponder_RegionGoneWhileReading: the data stop and a NAK says why.
func TestResponder_RegionGoneWhileReading_Naks(t *testing.T) {
	w := newWorld(t, worldConfig{})
	w.b.q.HandlePacket(0, w.readRequestPacket(100, 0, 5000))
	var p Packet
	w.b.q.PollTransmit(0, &p)
	w.b.table.Deregister(w.b.region)
	wantAck(t, w.replies(w.b), 101, nakAccess)
	if w.b.q.State() != rdma.QPStateError || len(w.b.events) != 1 {
		t.Fatalf("state %v, events %v", w.b.q.State(), w.b.events)
	}
}

func TestResponder_AckAfterRead_WaitsForItsData(t *testing.T) {
	w := newWorld(t, worldConfig{})
	got := w.give(
		w.writePacket(ib.RCWriteOnly, 100, 4, mtuBytes(4)),
		w.readRequestPacket(101, 0, 2048),
		w.writePacket(ib.RCWriteOnly, 103, 4, mtuBytes(4)))
	if len(got) != 3 || got[0].Headers.BTH.PSN != 101 || got[1].Headers.BTH.PSN != 102 {
		t.Fatalf("replies %v", got)
	}
	wantAck(t, got[2:], 103, ack)
	if got[2].Headers.AETH.MSN != 3 {
		t.Fatalf("MSN %v", got[2].Headers.AETH.MSN)
	}
}

func TestResponder_Batch_CoalescesAcks(t *testing.T) {
	w := newWorld(t, worldConfig{})
	var batch []*Packet
	for psn := range rdma.PSN(20) {
		batch = append(batch, w.writePacket(ib.RCWriteOnly, 100+psn, 4, mtuBytes(4)))
	}
	wantAck(t, w.give(batch...), 119, ack)
	if w.b.counters[work.CountAckDeferred] != 19 {
		t.Fatalf("%d deferred", w.b.counters[work.CountAckDeferred])
	}
}

func TestResponder_Credits_TellPostedReceives(t *testing.T) {
	for _, shared := range []bool{false, true} {
		w := newWorld(t, worldConfig{sharedB: shared})
		for range 9 {
			w.b.receive(1, w.b.at(0, 100))
		}
		got := w.give(w.request(ib.RCSendOnly, 100, mtuBytes(1)))
		n, ok := got[0].Headers.AETH.Syndrome.Credits().Decode()
		if shared && ok || !shared && n != 8 {
			t.Errorf("shared %v: credits %d, %v", shared, n, ok)
		}
	}
}

func TestResponder_FirstPacketInRTR_EstablishesCommunication(t *testing.T) {
	w := newWorld(t, worldConfig{})
	a := testAttr("b", "a", 0x11)
	w.b.q.Modify(0, &a, rdma.QPAttrState, rdma.QPStateReset)
	w.b.q.Modify(0, &a, rdma.QPAttrAll, rdma.QPStateInit)
	if got := w.give(w.writePacket(ib.RCWriteOnly, 100, 4, mtuBytes(4))); len(got) != 0 {
		t.Fatal("a QP in INIT answers")
	}
	w.b.q.Modify(0, &a, rdma.QPAttrAll, rdma.QPStateRTR)
	for psn := range rdma.PSN(2) {
		wantAck(t, w.give(w.writePacket(ib.RCWriteOnly, 100+psn, 4, mtuBytes(4))), 100+psn, ack)
	}
	if !slices.Equal(w.b.events, []rdma.EventType{rdma.EventCommEst}) {
		t.Fatalf("events %v", w.b.events)
	}
}

func TestResponder_Strangers_AreDropped(t *testing.T) {
	w := newWorld(t, worldConfig{})
	for name, edit := range map[string]func(*Packet){
		"source":      func(p *Packet) { p.SGID[15]++ },
		"destination": func(p *Packet) { p.DGID[15]++ },
		"partition":   func(p *Packet) { p.Headers.BTH.PKey = 0x8001 },
		"service":     func(p *Packet) { p.Headers.BTH.Opcode = ib.UCWriteOnly },
		"datagram":    func(p *Packet) { p.Headers.BTH.Opcode = ib.UDSendOnly },
	} {
		p := w.writePacket(ib.RCWriteOnly, 100, 4, mtuBytes(4))
		edit(p)
		dropped := w.b.counters[work.CountDroppedSilently]
		if got := w.give(p); len(got) != 0 || w.b.mem[0] != 0 ||
			w.b.counters[work.CountDroppedSilently] != dropped+1 {
			t.Errorf("wrong %s: %d replies, memory %d", name, len(got), w.b.mem[0])
		}
	}
	for _, key := range []rdma.PKey{0xffff, 0x7fff} {
		p := w.writePacket(ib.RCWriteOnly, w.b.q.recv.expected, 4, mtuBytes(4))
		p.Headers.BTH.PKey = key
		if got := w.give(p); len(got) != 1 {
			t.Errorf("P_Key %#x was refused", key)
		}
	}
}

// TestResponder_MigReq_T10_BothAccepted: hardware sends the bit, software often does not.
func TestResponder_MigReq_T10_BothAccepted(t *testing.T) {
	w := newWorld(t, worldConfig{})
	for i, mig := range []bool{false, true} {
		p := w.writePacket(ib.RCWriteOnly, 100+rdma.PSN(i), 4, mtuBytes(4))
		p.Headers.BTH.MigReq = mig
		got := w.give(p)
		wantAck(t, got, 100+rdma.PSN(i), ack)
		if !got[0].Headers.BTH.MigReq {
			t.Fatal("MigReq is not set in a reply")
		}
	}
}

func TestResponder_CongestionMarks_NotifyNotTooOften(t *testing.T) {
	w := newWorld(t, worldConfig{})
	count := func(at clock.Time) int {
		w.now = at
		n := 0
		for range 3 {
			p := w.writePacket(ib.RCWriteOnly, w.b.q.recv.expected, 4, mtuBytes(4))
			p.TrafficClass |= 3
			for _, x := range w.give(p) {
				if x.Headers.BTH.Opcode == ib.CNP {
					n++
					if x.Headers.BTH.DestQPN != 0x11 || !x.Headers.BTH.BECN || len(x.Payload) != 16 {
						t.Fatalf("notification %v", &x.Headers)
					}
				}
			}
		}
		return n
	}
	if a, b, c := count(0), count(49_999), count(50_000); a != 1 || b != 0 || c != 1 {
		t.Fatalf("%d, %d, %d notifications", a, b, c)
	}
}
