package ibt

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

// TestUnreliable_UC_LossDropsItsMessageOnly: messages arrive whole or not at all, and in order.
func TestUnreliable_UC_LossDropsItsMessageOnly(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 2))
		w := newWorld(t, worldConfig{qpType: rdma.QPTypeUC, bytes: 2 << 20})
		w.judge = faults{lose: r.IntN(20), double: r.IntN(5), delay: r.IntN(5)}.judge(r)
		const n = 100
		sizes := make([]int, n)
		for i := range sizes {
			sizes[i] = 8 + r.IntN(4000)
			w.b.receive(uint64(i), w.b.at(i*8192, 8192))
		}
		for i, size := range sizes {
			pattern(w.a.mem[i*8192:i*8192+size], byte(i))
			putNative(w.a.mem[i*8192:], uint64(i))
			w.a.post(w.now, w.sendWR(uint64(i)), w.a.at(i*8192, size))
			w.run(time.Millisecond)
		}
		if got := w.a.sends.take(); len(got) != n {
			t.Fatalf("%d of %d sends completed", len(got), n)
		}
		last := -1
		for k, e := range w.b.recvs.take() {
			if e.WRID != uint64(k) || e.Status != 0 {
				t.Fatalf("receive %d: %+v", k, e)
			}
			got := w.b.mem[k*8192 : k*8192+int(e.ByteLen)]
			i := int(getNative(got))
			if i <= last || !bytes.Equal(got, w.a.mem[i*8192:i*8192+sizes[i]]) {
				t.Fatalf("receive %d holds message %d after %d, %d bytes", k, i, last, e.ByteLen)
			}
			last = i
		}
	})
}

func (w *world) ucPacket(op ib.Opcode, psn rdma.PSN, payload []byte) *Packet {
	p := w.request(op, psn, payload)
	p.Headers.RETH = ib.RETH{VA: testBase, RKey: w.b.region.Key, Length: uint32(len(payload))}
	return p
}

func TestUnreliable_UC_RefusalsAreSilent(t *testing.T) {
	w := newWorld(t, worldConfig{qpType: rdma.QPTypeUC})
	bad := w.ucPacket(ib.UCWriteOnly, 100, mtuBytes(8))
	bad.Headers.RETH.RKey++
	stray := w.ucPacket(ib.UCSendMiddle, 101, mtuBytes(1024))
	noReceive := w.ucPacket(ib.UCSendOnly, 102, mtuBytes(8))
	if got := w.give(bad, stray, noReceive); len(got) != 0 || w.b.q.State() != rdma.QPStateRTS {
		t.Fatalf("%d replies, state %v", len(got), w.b.q.State())
	}
	w.give(w.ucPacket(ib.UCWriteOnly, 103, mtuBytes(8)))
	if !bytes.Equal(w.b.mem[:8], mtuBytes(8)) {
		t.Fatal("the next message was not taken")
	}
}

func TestUnreliable_UC_ReceiveTooShort_FailsHere(t *testing.T) {
	w := newWorld(t, worldConfig{qpType: rdma.QPTypeUC})
	w.b.receive(1, w.b.at(0, 4))
	w.b.receive(2, w.b.at(0, 4))
	w.give(w.ucPacket(ib.UCSendOnly, 100, mtuBytes(8)))
	wantStatus(t, w.b.recvs.take(), rdma.WCLocLenErr, rdma.WCWRFlushErr)
}

// datagram is a UD packet to b.
func (w *world) datagram(n int) *Packet {
	p := w.request(ib.UDSendOnly, 5, mtuBytes(n))
	p.Headers.DETH = ib.DETH{QKey: 0x1234, SrcQPN: 0x99}
	return p
}

func TestUnreliable_UD_Strangers(t *testing.T) {
	w := newWorld(t, worldConfig{qpType: rdma.QPTypeUD})
	w.b.receive(1, w.b.at(0, 100))
	wrongKey := w.datagram(8)
	wrongKey.Headers.DETH.QKey++
	w.give(wrongKey, w.datagram(1028), w.datagram(61)) // the last needs 101 bytes
	wantStatus(t, w.b.recvs.take())
	if w.b.q.State() != rdma.QPStateRTS || w.b.counters[work.CountBadQKey] != 1 {
		t.Fatalf("state %v, %d bad Q_Keys", w.b.q.State(), w.b.counters[work.CountBadQKey])
	}
	other := w.datagram(60)
	other.SGID[15] = 77 // anybody may send
	w.give(other)
	got := w.b.recvs.take()
	wantStatus(t, got, rdma.WCSuccess)
	if got[0].SrcQP != 0x99 || got[0].ByteLen != 100 {
		t.Fatalf("completion %+v", got[0])
	}
	w.give(w.datagram(1)) // nothing is posted
	if w.b.counters[work.CountResourceMissing] < 1 {
		t.Fatal("not counted")
	}
}

func TestUnreliable_UD_ReceiveAtFault(t *testing.T) {
	w := newWorld(t, worldConfig{qpType: rdma.QPTypeUD})
	s := w.b.at(0, 100)
	s.LKey ^= 0x100
	w.b.receive(1, s)
	w.give(w.datagram(8))
	wantStatus(t, w.b.recvs.take(), rdma.WCLocProtErr)
	if w.b.q.State() != rdma.QPStateError {
		t.Fatalf("state %v", w.b.q.State())
	}
}

// TestUnreliable_Completion_AfterThePayloadIsUsed: the packet refers to the application's memory,
// so the completion must not be there before the next call.
func TestUnreliable_Completion_AfterThePayloadIsUsed(t *testing.T) {
	w := newWorld(t, worldConfig{qpType: rdma.QPTypeUC})
	w.a.post(0, abi.SendWQE{Opcode: uint8(rdma.WRSend), Flags: signaled}, w.a.at(0, 8))
	var p Packet
	if !w.a.q.PollTransmit(0, &p) || len(w.a.sends.take()) != 0 || !w.a.q.HasWork() {
		t.Fatal("completed while the packet is in use")
	}
	if w.a.q.PollTransmit(0, &p) || len(w.a.sends.take()) != 1 || w.a.q.HasWork() {
		t.Fatal("not completed at the next call")
	}
}
