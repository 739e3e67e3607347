package nic

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
	"github.com/softrnic/softrnic/internal/wire/tm"
)

// Where the tests of rendezvous have things in the source region.
const (
	dataAt = 16 << 10
	finAt  = 60 << 10
)

// takeFin posts a receive for a FIN at the sender.
func (x *tagBench) takeFin(id uint64) {
	x.sender.recv(id, abi.SGE{
		Addr: x.sourceAddr + finAt + id%16*64, Length: 64, LKey: x.source.LKey,
	})
}

// TestRendezvous_Match_NICFetchesTheDataAndTellsTheSender: two completions here, a FIN there.
func TestRendezvous_Match_NICFetchesTheDataAndTellsTheSender(t *testing.T) {
	for _, n := range []uint32{0, 1, 1000, 5000, 20000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			x := newTagBench(t, 8)
			copy(x.sourceMem[dataAt:], pattern(20000))
			x.op(abi.TagWQE{RecvWRID: 5, Tag: 9, Mask: allTag}, x.into(0, 600), x.into(700, 19400))
			x.takeFin(3)
			request := append(x.request(9, dataAt, n), "and more"...)
			got := x.deliver(request)
			x.wants(got, seen{5, good, rdma.WCOpTagRecv, rdma.WCTagMatch, 0},
				seen{5, good, rdma.WCOpTagRecv, rdma.WCTagDataValid, n})
			if tag, context := got[0].Tag(); tag != 9 || context != 10 {
				t.Errorf("tag %d, context %d", tag, context)
			}
			if tag, _ := got[1].Tag(); tag != 0 {
				t.Errorf("tag %d without a match", tag)
			}
			data := append(bytes.Clone(x.targetMem[:600]), x.targetMem[700:700+19400]...)
			want := make([]byte, 20000)
			copy(want, pattern(20000)[:n])
			if !bytes.Equal(data, want) {
				t.Error("the buffer does not hold the data, and no more")
			}
			sent := x.scq.poll()
			x.wants(sent, seen{0, good, rdma.WCOpSend, 0, uint32(len(request))},
				seen{3, good, rdma.WCOpRecv, 0, finBytes})
			fin := append([]byte{byte(tm.OpFin)}, request[1:finBytes]...)
			if got := x.sourceMem[finAt+3*64:][:finBytes]; !bytes.Equal(got, fin) {
				t.Errorf("FIN %x, want %x", got, fin)
			}
			if x.released() != 1 {
				t.Errorf("released %d", x.released())
			}
			x.leavesNothing()
		})
	}
}

const finBytes = tm.HeaderLen + tm.RendezvousLen

// TestRendezvous_BufferTooShort_ProgramGetsTheRequest: the match stands, and nothing is fetched.
func TestRendezvous_BufferTooShort_ProgramGetsTheRequest(t *testing.T) {
	x := newTagBench(t, 8)
	x.add(5, 9, allTag, 0, 40)
	request := append(x.request(9, dataAt, 41), "more than fits"...)
	got := x.deliver(request)
	x.wants(got, seen{5, rdma.WCTagIncomplete, rdma.WCOpTagRecv, whole, 40})
	if tag, _ := got[0].Tag(); tag != 9 || !bytes.Equal(x.targetMem[:40], request[:40]) {
		t.Errorf("tag %d, buffer %x", tag, x.targetMem[:40])
	}
	// The connection goes on, and the buffer is room again.
	x.add(6, 9, allTag, 0, 8)
	x.wants(x.deliver(eager(9, 0, nil)), seen{6, good, rdma.WCOpTagRecv, whole, 0})
	if x.released() != 2 {
		t.Errorf("released %d", x.released())
	}
	x.leavesNothing()
}

// TestRendezvous_BufferTooShortForTheRequest_IsALengthError, as for any receive.
func TestRendezvous_BufferTooShortForTheRequest_IsALengthError(t *testing.T) {
	x := newTagBench(t, 8)
	x.add(5, 9, allTag, 0, 31)
	x.wants(x.deliver(x.request(9, dataAt, 32)),
		seen{5, rdma.WCLocLenErr, rdma.WCOpTagRecv, 0, 0})
	if x.receiver.state() != sError || x.sender.state() != sError || x.released() != 1 {
		t.Errorf("%v %v, released %d", x.receiver.state(), x.sender.state(), x.released())
	}
	x.leavesNothing()
}

// TestRendezvous_MalformedRequest_IsUnexpected: one without all of its header, and one that is too
// long. The program sees it whole, and counts it.
func TestRendezvous_MalformedRequest_IsUnexpected(t *testing.T) {
	x := newTagBench(t, 8)
	x.add(70, 9, allTag, 0, 4096)
	for i, n := range []int{tm.HeaderLen, finBytes - 1, limits.MaxRendezvousHeader + 1, 1500} {
		m := append(x.request(9, dataAt, 8), make([]byte, 2000)...)[:n]
		x.plain(uint64(i))
		x.wants(x.deliver(m), seen{uint64(i), good, rdma.WCOpTagRecv, 0, uint32(n)})
	}
	x.op(abi.TagWQE{
		WRID: 1, Opcode: uint8(rdma.TagSync), Unexpected: 4,
		Flags: uint8(rdma.TagSignaled | rdma.TagCounted),
	})
	x.takeFin(0)
	most := append(x.request(9, dataAt, 8), make([]byte, 2000)...)[:limits.MaxRendezvousHeader]
	x.wants(x.deliver(most), seen{1, good, rdma.WCOpTagSync, 0, 0},
		seen{70, good, rdma.WCOpTagRecv, rdma.WCTagMatch, 0},
		seen{70, good, rdma.WCOpTagRecv, rdma.WCTagDataValid, 8})
	x.leavesNothing()
}

// TestRendezvous_WrongKey_FailsTheBufferAndTheConnection: those behind it are flushed, those that
// were not matched stay.
func TestRendezvous_WrongKey_FailsTheBufferAndTheConnection(t *testing.T) {
	x := newTagBench(t, 8)
	for id := uint64(1); id <= 4; id++ {
		x.add(id, id, allTag, 0, 100)
	}
	for id := uint64(1); id <= 3; id++ {
		m := x.request(id, dataAt, 50)
		m[tm.HeaderLen+8] ^= 0x80 // the key
		x.sendFrom(x.sender, int(id)*256, m)
	}
	events := x.run(second)
	const match = rdma.WCTagMatch
	x.wants(x.rcq.poll(), seen{1, good, rdma.WCOpTagRecv, match, 0},
		seen{2, good, rdma.WCOpTagRecv, match, 0}, seen{3, good, rdma.WCOpTagRecv, match, 0},
		seen{1, rdma.WCRemAccessErr, rdma.WCOpTagRecv, 0, 0},
		seen{2, rdma.WCWRFlushErr, rdma.WCOpTagRecv, 0, 0},
		seen{3, rdma.WCWRFlushErr, rdma.WCOpTagRecv, 0, 0})
	if x.receiver.state() != sError || x.released() != 3 {
		t.Errorf("%v, released %d", x.receiver.state(), x.released())
	}
	last := false
	for _, e := range events {
		last = last || e.Type == rdma.EventQPLastWQEReached && e.Handle == x.receiver.rsp.Handle
	}
	if !last {
		t.Errorf("events %+v", events)
	}
	a, b := x.rc(x.scq), x.tagged()
	x.connectPair(a, b)
	x.sendFrom(a, 0, eager(4, 0, nil))
	x.run(second)
	x.wants(x.rcq.poll(), seen{4, good, rdma.WCOpTagRecv, whole, 0})
	x.leavesNothing()
}

// TestRendezvous_BufferWithoutRights_FailsHere: the peer does not learn what it did not do.
func TestRendezvous_BufferWithoutRights_FailsHere(t *testing.T) {
	x := newTagBench(t, 8)
	s := x.into(0, 100)
	s.LKey ^= 0x80
	x.op(abi.TagWQE{RecvWRID: 5, Tag: 9, Mask: allTag}, s)
	x.wants(x.deliver(x.request(9, dataAt, 50)), seen{5, good, rdma.WCOpTagRecv, rdma.WCTagMatch, 0},
		seen{5, rdma.WCLocProtErr, rdma.WCOpTagRecv, 0, 0})
	if x.receiver.state() != sError || x.released() != 1 {
		t.Errorf("%v, released %d", x.receiver.state(), x.released())
	}
	x.leavesNothing()
}

// TestRendezvous_FinMeetsNoReceive_ConnectionFailsLoudly: the data are here, the sender does not
// know.
func TestRendezvous_FinMeetsNoReceive_ConnectionFailsLoudly(t *testing.T) {
	x := newTagBench(t, 8)
	s, r := x.rc(x.scq), x.tagged()
	s.connect(r.rsp.QPN)
	b := fullAttr(s.rsp.QPN)
	b.RNRRetry = 2
	for _, step := range []struct {
		to   rdma.QPState
		mask rdma.QPAttrMask
	}{{sInit, toInit}, {sRTR, toRTR}, {sRTS, toRTS}} {
		b.State = uint32(step.to)
		x.granted(r.modify(b, step.mask))
	}
	x.add(5, 9, allTag, 0, 100)
	x.sendFrom(s, 0, x.request(9, dataAt, 50))
	events := x.run(10 * second)
	x.wants(x.rcq.poll(), seen{5, good, rdma.WCOpTagRecv, rdma.WCTagMatch, 0},
		seen{5, good, rdma.WCOpTagRecv, rdma.WCTagDataValid, 50})
	fatal := 0
	for _, e := range events {
		if e.Type == rdma.EventQPFatal && e.Handle == r.rsp.Handle {
			fatal++
		}
	}
	if fatal != 1 || r.state() != sError {
		t.Errorf("%d events, %v", fatal, r.state())
	}
	x.leavesNothing()
}

// TestRendezvous_ProgramSendsToo_BothKeepTheirOrder: requests of the program and of the NIC share
// the send queue, whose slots are the program's alone.
func TestRendezvous_ProgramSendsToo_BothKeepTheirOrder(t *testing.T) {
	x := newTagBench(t, 64)
	a := x.rc(x.scq)
	b := x.qp(abi.CreateQPReq{
		Type: uint32(rdma.QPTypeRC), PD: x.pd, SendCQ: x.rcq.handle, RecvCQ: x.rcq.handle,
		SRQ: x.srq.rsp.Handle, MaxSendWR: 4, MaxSendSGE: 1,
	})
	x.connectPair(a, b)
	copy(x.sourceMem[dataAt:], pattern(8000))
	done, fins, sends := 0, 0, 0
	for i := range 40 {
		id := uint64(i)
		x.add(id, id, allTag, 0, 8000)
		for _, n := range []uint64{2 * id, 2*id + 1} { // for the FIN and the send, in either order
			a.recv(n, abi.SGE{Addr: x.sourceAddr + finAt, Length: 64, LKey: x.source.LKey})
		}
		x.sendFrom(a, 256*(i%8), x.request(id, dataAt, uint32(200*i)))
		b.send(abi.SendWQE{
			WRID: 1000 + id, Opcode: uint8(rdma.WRSend), Flags: uint8(rdma.SendSignaled),
		}, x.into(0, 7))
		x.run(second)
		for _, e := range x.rcq.poll() {
			switch {
			case e.Status != 0:
				t.Fatalf("round %d: %+v", i, e)
			case rdma.WCOpcode(e.Opcode) == rdma.WCOpSend && e.SQIndex == uint32(i)+1:
				sends++
			case e.WCFlags == uint32(rdma.WCTagDataValid):
				done++
			}
		}
		for _, e := range x.scq.poll() {
			if e.Opcode == uint32(rdma.WCOpRecv) && e.ByteLen == finBytes {
				fins++
			}
		}
	}
	if done != 40 || fins != 40 || sends != 40 {
		t.Errorf("%d rendezvous, %d FINs, %d sends", done, fins, sends)
	}
	x.leavesNothing()
}

// TestRendezvous_MoreThanMaxRdAtomic_AllComplete in the order in which they were matched.
func TestRendezvous_MoreThanMaxRdAtomic_AllComplete(t *testing.T) {
	x := newTagBench(t, 64)
	for i := range uint32(32) {
		x.add(uint64(i), uint64(i), allTag, i*1024, 1024)
	}
	copy(x.sourceMem[dataAt:], pattern(32<<10))
	for i := range 8 {
		x.takeFin(uint64(i))
	}
	var order []uint64
	for i := range uint32(32) {
		x.sendFrom(x.sender, int(i)*64, x.request(uint64(i), dataAt+i*1024, 1024))
		if i%8 == 7 {
			x.run(second)
			for _, e := range x.rcq.poll() {
				if e.WCFlags == uint32(rdma.WCTagDataValid) {
					order = append(order, e.WRID)
				}
			}
			for j := range 8 {
				x.takeFin(uint64(j))
			}
			x.scq.poll()
		}
	}
	if len(order) != 32 || !bytes.Equal(x.targetMem[:32<<10], pattern(32<<10)) {
		t.Errorf("%d completed: %v", len(order), order)
	}
	for i, id := range order {
		if id != uint64(i) {
			t.Fatalf("order %v", order)
		}
	}
	x.leavesNothing()
}

// TestRendezvous_Losses_EveryMessageOnce: packets are lost both ways, and nothing is matched twice
// or forgotten.
func TestRendezvous_Losses_EveryMessageOnce(t *testing.T) {
	for seed := range uint64(20) {
		x := newTagBench(t, 64)
		r := rand.New(rand.NewPCG(seed, 1))
		copy(x.sourceMem[dataAt:], pattern(16<<10))
		matched, valid := map[uint64]int{}, map[uint64]int{}
		fins := 0
		for i := range uint64(24) {
			x.add(i, i, allTag, uint32(i)*1024, 1024)
			if i%3 == 0 {
				x.sendFrom(x.sender, 0, eager(i, 0, pattern(900)))
			} else {
				x.takeFin(i)
				x.sendFrom(x.sender, 0, x.request(i, dataAt, uint32(i)*40))
			}
			x.runLossy(r, 20*second)
			for _, e := range x.rcq.poll() {
				if e.Status != 0 {
					t.Fatalf("seed %d: %+v", seed, e)
				}
				if e.WCFlags&uint32(rdma.WCTagMatch) != 0 {
					matched[e.WRID]++
				}
				if e.WCFlags&uint32(rdma.WCTagDataValid) != 0 {
					valid[e.WRID]++
				}
			}
			for _, e := range x.scq.poll() {
				if e.Opcode == uint32(rdma.WCOpRecv) {
					fins++
				}
			}
		}
		for i := range uint64(24) {
			if matched[i] != 1 || valid[i] != 1 {
				t.Fatalf("seed %d: message %d matched %d times, valid %d", seed, i, matched[i], valid[i])
			}
		}
		if fins != 16 || x.released() != 24 {
			t.Errorf("seed %d: %d FINs, released %d", seed, fins, x.released())
		}
		x.leavesNothing()
	}
}

// runLossy is run over a link that loses a tenth of all packets.
func (x *tagBench) runLossy(r *rand.Rand, d clock.Time) {
	x.t.Helper()
	var p ibt.Packet
	for end := x.now + d; ; {
		x.n.HandleDoorbells(x.now)
		for x.n.PollTransmit(x.now, &p) {
			if r.IntN(10) > 0 {
				x.n.HandlePacket(x.now, &p)
			}
		}
		if x.n.HasWork() {
			continue
		}
		next := x.n.PollTimeout()
		if next > end {
			return
		}
		x.now = max(x.now, next)
		x.n.HandleTimeout(x.now)
	}
}

// TestTags_QueuePairEnds_MidMessage_GivesBuffersBack: to ERR with completions; to RESET, or
// destroyed, in silence.
func TestTags_QueuePairEnds_MidMessage_GivesBuffersBack(t *testing.T) {
	const match, flushed = rdma.WCTagMatch, rdma.WCWRFlushErr
	for name, c := range map[string]struct {
		end  func(x *tagBench)
		want []seen
	}{
		"error": {
			func(x *tagBench) {
				x.granted(x.receiver.modify(abi.QPAttr{State: uint32(sError)}, rdma.QPAttrState))
			},
			[]seen{
				{1, flushed, rdma.WCOpTagRecv, 0, 0},
				{2, flushed, rdma.WCOpTagRecv, 0, 0},
				{3, flushed, rdma.WCOpTagRecv, 0, 0},
			},
		},
		"reset": {
			func(x *tagBench) {
				x.granted(x.receiver.modify(abi.QPAttr{State: uint32(rdma.QPStateReset)}, rdma.QPAttrState))
			}, nil,
		},
		"destroyed": {
			func(x *tagBench) { x.granted(x.c.DestroyQP(x.now, x.receiver.rsp.Handle)) }, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newTagBench(t, 8)
			for id := uint64(1); id <= 4; id++ {
				x.add(id, id, allTag, 0, 8000)
			}
			x.sendFrom(x.sender, 0, x.request(1, dataAt, 4000))
			x.sendFrom(x.sender, 256, x.request(2, dataAt, 4000))
			x.sendFrom(x.sender, 512, eager(3, 0, pattern(3000)))
			// Everything of the sender arrives but the last packet; nothing of the receiver does.
			x.n.HandleDoorbells(x.now)
			var p ibt.Packet
			for x.n.PollTransmit(x.now, &p) {
				h := &p.Headers.BTH
				if uint32(h.DestQPN) == x.receiver.rsp.QPN && h.Opcode != ib.RCSendLast {
					x.n.HandlePacket(x.now, &p)
				}
			}
			x.wants(x.rcq.poll(), seen{1, good, rdma.WCOpTagRecv, match, 0},
				seen{2, good, rdma.WCOpTagRecv, match, 0}, seen{3, good, rdma.WCOpTagRecv, match, 0})
			c.end(x)
			x.run(clock.Time(1000))
			x.wants(x.rcq.poll(), c.want...)
			if x.released() != 3 {
				t.Errorf("released %d", x.released())
			}
			x.leavesNothing()
		})
	}
}

// TestRendezvous_MaxRdAtomicZero_FailsTheBuffer: the queue pair cannot fetch.
func TestRendezvous_MaxRdAtomicZero_FailsTheBuffer(t *testing.T) {
	x := newTagBench(t, 8)
	s, r := x.rc(x.scq), x.tagged()
	s.connect(r.rsp.QPN)
	a := fullAttr(s.rsp.QPN)
	a.MaxRdAtomic = 0
	for _, step := range []struct {
		to   rdma.QPState
		mask rdma.QPAttrMask
	}{{sInit, toInit}, {sRTR, toRTR}, {sRTS, toRTS}} {
		a.State = uint32(step.to)
		x.granted(r.modify(a, step.mask))
	}
	x.add(5, 9, allTag, 0, 100)
	x.sendFrom(s, 0, x.request(9, dataAt, 50))
	x.run(second)
	x.wants(x.rcq.poll(), seen{5, good, rdma.WCOpTagRecv, rdma.WCTagMatch, 0},
		seen{5, rdma.WCLocQPOpErr, rdma.WCOpTagRecv, 0, 0})
	if r.state() != sError || x.released() != 1 {
		t.Errorf("%v, released %d", r.state(), x.released())
	}
	x.leavesNothing()
}

// TestRendezvous_BeforeRTS_WaitsForIt: a queue pair that may not send yet fetches nothing yet.
func TestRendezvous_BeforeRTS_WaitsForIt(t *testing.T) {
	x := newTagBench(t, 8)
	s, r := x.rc(x.scq), x.tagged()
	s.connect(r.rsp.QPN)
	a := fullAttr(s.rsp.QPN)
	a.State = uint32(sInit)
	x.granted(r.modify(a, toInit))
	a.State = uint32(sRTR)
	x.granted(r.modify(a, toRTR))
	x.add(5, 9, allTag, 0, 100)
	s.recv(1, abi.SGE{Addr: x.sourceAddr + finAt, Length: 64, LKey: x.source.LKey})
	x.sendFrom(s, 0, x.request(9, dataAt, 50))
	x.run(second)
	x.wants(x.rcq.poll(), seen{5, good, rdma.WCOpTagRecv, rdma.WCTagMatch, 0})
	a.State = uint32(sRTS)
	x.granted(r.modify(a, toRTS))
	x.run(second)
	x.wants(x.rcq.poll(), seen{5, good, rdma.WCOpTagRecv, rdma.WCTagDataValid, 50})
	x.leavesNothing()
}
