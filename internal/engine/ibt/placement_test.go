package ibt

import (
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

func (w *world) atomicWrite(id uint64, off int) abi.SendWQE {
	return abi.SendWQE{
		WRID: id, Opcode: uint8(rdma.WRAtomicWrite), Flags: signaled,
		RemoteAddr: testBase + uint64(off), RKey: uint32(w.b.region.Key),
	}
}

// flush asks for the visibility of length bytes.
func (w *world) flush(
	id uint64, off int, length uint64, typ ib.FlushPlacement, level ib.FlushSelect,
) abi.SendWQE {
	return abi.SendWQE{
		WRID: id, Opcode: uint8(rdma.WRFlush), Flags: signaled,
		RemoteAddr: testBase + uint64(off), RKey: uint32(w.b.region.Key),
		CompareAdd: uint64(typ) | uint64(level)<<4, Swap: length,
	}
}

func TestPlacement_AtomicWrite_StoresEightBytes(t *testing.T) {
	w := newWorld(t, worldConfig{})
	putNative(w.a.mem, 0x0102030405060708)
	w.a.post(0, w.atomicWrite(1, 64), w.a.at(0, 8))
	w.a.postInline(0, w.atomicWrite(2, 80), []byte{1, 2, 3, 4, 5, 6, 7, 8})
	w.settle()
	got := w.a.sends.take()
	wantStatus(t, got, rdma.WCSuccess, rdma.WCSuccess)
	if got[0].Opcode != uint32(rdma.WCOpAtomicWrite) || got[1].WRID != 2 {
		t.Errorf("completions %+v", got)
	}
	if v := getNative(w.b.mem[64:]); v != 0x0102030405060708 {
		t.Errorf("memory holds %#x", v)
	}
	if string(w.b.mem[80:88]) != "\x01\x02\x03\x04\x05\x06\x07\x08" || w.b.mem[88] != 0 {
		t.Errorf("memory holds % x", w.b.mem[80:96])
	}
}

func TestPlacement_OrderedWithWrites_FlushCompletesAfterThem(t *testing.T) {
	w := newWorld(t, worldConfig{})
	pattern(w.a.mem[:9000], 7)
	w.a.post(0, abi.SendWQE{
		WRID: 1, Opcode: uint8(rdma.WRWrite), Flags: signaled, RemoteAddr: testBase + 4096,
		RKey: uint32(w.b.region.Key),
	}, w.a.at(0, 9000))
	w.a.post(0, w.flush(2, 4096, 9000, ib.FlushGlobal, ib.FlushRange))
	w.a.post(0, w.flush(3, 0, 0, ib.FlushGlobal, ib.FlushMemoryRegion))
	w.settle()
	got := w.a.sends.take()
	wantStatus(t, got, rdma.WCSuccess, rdma.WCSuccess, rdma.WCSuccess)
	for i, id := range []uint64{1, 2, 3} {
		if got[i].WRID != id {
			t.Errorf("completion %d is of %d", i, got[i].WRID)
		}
	}
	if got[1].Opcode != uint32(rdma.WCOpFlush) ||
		string(w.b.mem[4096:4096+9000]) != string(w.a.mem[:9000]) {
		t.Errorf("opcode %d, or the bytes are not there", got[1].Opcode)
	}
}

// TestPlacement_OnXRC_FlushOnly: ibv_wr_post(3) lists FLUSH for XRC, and ATOMIC WRITE nowhere but
// for RC.
func TestPlacement_OnXRC_FlushOnly(t *testing.T) {
	w := newWorld(t, worldConfig{qpType: rdma.QPTypeXRCSend})
	pattern(w.a.mem[:5000], 7)
	lost := 0
	w.judge = func(_ *node, p *Packet) fate {
		if p.Headers.BTH.Opcode == ib.XRCReadResponseOnly && lost == 0 {
			lost++
			return lose
		}
		return deliver
	}
	write := abi.SendWQE{
		WRID: 1, Opcode: uint8(rdma.WRWrite), RemoteAddr: testBase + 4096,
		RKey: uint32(w.b.region.Key), Extra: xrcQueue,
	}
	w.a.post(0, write, w.a.at(0, 5000))
	x := w.flush(2, 4096, 5000, ib.FlushGlobal, ib.FlushRange)
	x.Extra = xrcQueue
	w.a.post(0, x)
	w.settle()
	got := w.a.sends.take()
	wantStatus(t, got, rdma.WCSuccess)
	if got[0].WRID != 2 || got[0].Opcode != uint32(rdma.WCOpFlush) || lost != 1 ||
		string(w.b.mem[4096:4096+5000]) != string(w.a.mem[:5000]) {
		t.Errorf("completions %+v after %d losses, or the bytes are not there", got, lost)
	}
	y := w.atomicWrite(3, 64)
	y.Extra = xrcQueue
	w.a.post(0, y, w.a.at(0, 8))
	w.settle()
	wantStatus(t, w.a.sends.take(), rdma.WCLocQPOpErr)
}

func TestPlacement_LostAnswer_IsRepeatedNotDoneAgain(t *testing.T) {
	w := newWorld(t, worldConfig{})
	lost := 0
	w.judge = func(_ *node, p *Packet) fate {
		if p.Headers.BTH.Opcode == ib.RCReadResponseOnly && lost == 0 {
			lost++
			putNative(w.b.mem[64:], 99) // a later store, which the repetition must not undo
			return lose
		}
		return deliver
	}
	putNative(w.a.mem, 5)
	w.a.post(0, w.atomicWrite(1, 64), w.a.at(0, 8))
	w.settle()
	wantStatus(t, w.a.sends.take(), rdma.WCSuccess)
	if v := getNative(w.b.mem[64:]); v != 99 || lost != 1 {
		t.Errorf("memory holds %d after %d losses", v, lost)
	}
}

func TestPlacement_PeerRefuses(t *testing.T) {
	narrow := func(name string, a *Attr) {
		if name == "b" {
			a.Access = rdma.AccessRemoteRead
		}
	}
	for _, row := range []struct {
		name string
		edit func(string, *Attr)
		wr   func(w *world) (abi.SendWQE, []abi.SGE)
		want rdma.WCStatus
	}{
		{"AtomicWrite/Unaligned", nil, func(w *world) (abi.SendWQE, []abi.SGE) {
			return w.atomicWrite(1, 60), []abi.SGE{w.a.at(0, 8)}
		}, rdma.WCRemInvReqErr},
		{"AtomicWrite/NoRightOfQP", narrow, func(w *world) (abi.SendWQE, []abi.SGE) {
			return w.atomicWrite(1, 64), []abi.SGE{w.a.at(0, 8)}
		}, rdma.WCRemInvReqErr},
		{"AtomicWrite/BadKey", nil, func(w *world) (abi.SendWQE, []abi.SGE) {
			x := w.atomicWrite(1, 64)
			x.RKey++
			return x, []abi.SGE{w.a.at(0, 8)}
		}, rdma.WCRemAccessErr},
		{"AtomicWrite/FourBytes", nil, func(w *world) (abi.SendWQE, []abi.SGE) {
			return w.atomicWrite(1, 64), []abi.SGE{w.a.at(0, 4)}
		}, rdma.WCLocLenErr},
		{"Flush/NoRightOfQP", narrow, func(w *world) (abi.SendWQE, []abi.SGE) {
			return w.flush(1, 0, 8, ib.FlushGlobal, ib.FlushRange), nil
		}, rdma.WCRemInvReqErr},
		{"Flush/OutOfBounds", nil, func(w *world) (abi.SendWQE, []abi.SGE) {
			return w.flush(1, len(w.b.mem)-4, 8, ib.FlushGlobal, ib.FlushRange), nil
		}, rdma.WCRemAccessErr},
		{"Flush/BadKeyOfRegion", nil, func(w *world) (abi.SendWQE, []abi.SGE) {
			x := w.flush(1, 0, 0, ib.FlushGlobal, ib.FlushMemoryRegion)
			x.RKey++
			return x, nil
		}, rdma.WCRemAccessErr},
		{"Flush/OfNothing", nil, func(w *world) (abi.SendWQE, []abi.SGE) {
			return w.flush(1, 0, 8, 0, ib.FlushRange), nil
		}, rdma.WCRemInvReqErr},
		{"Flush/UnknownLevel", nil, func(w *world) (abi.SendWQE, []abi.SGE) {
			return w.flush(1, 0, 8, ib.FlushGlobal, 2), nil
		}, rdma.WCRemInvReqErr},
		{"Flush/WithData", nil, func(w *world) (abi.SendWQE, []abi.SGE) {
			return w.flush(1, 0, 8, ib.FlushGlobal, ib.FlushRange), []abi.SGE{w.a.at(0, 8)}
		}, rdma.WCLocLenErr},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, worldConfig{edit: row.edit})
			x, list := row.wr(w)
			w.a.post(0, x, list...)
			w.settle()
			wantStatus(t, w.a.sends.take(), row.want)
			if w.a.q.State() != rdma.QPStateError {
				t.Errorf("the requester is in %v", w.a.q.State())
			}
		})
	}
}

func TestPlacement_UnreliableQP_Refuses(t *testing.T) {
	w := newWorld(t, worldConfig{qpType: rdma.QPTypeUC})
	w.a.post(0, w.atomicWrite(1, 64), w.a.at(0, 8))
	w.settle()
	wantStatus(t, w.a.sends.take(), rdma.WCLocQPOpErr)
}

func TestPlacement_AnswerWithData_IsABadResponse(t *testing.T) {
	w := newWorld(t, worldConfig{})
	w.a.post(0, w.flush(1, 0, 8, ib.FlushGlobal, ib.FlushRange))
	if sent := w.replies(w.a); len(sent) != 1 || sent[0].Headers.Flush.Placement != ib.FlushGlobal ||
		sent[0].Headers.RETH.Length != 8 {
		t.Fatalf("sent %v", sent)
	}
	p := w.answer(ib.RCReadResponseOnly, 100, ack)
	p.Payload = make([]byte, 4)
	w.a.q.HandlePacket(w.now, p)
	wantStatus(t, w.a.sends.take(), rdma.WCBadRespErr)
}
