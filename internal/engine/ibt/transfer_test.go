package ibt

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/rdma"
)

// sizesAround are the message lengths around multiples of the path MTU.
func sizesAround(mtu int) []int {
	out := []int{0, 1, 2, 3}
	for _, k := range []int{1, 2, 3, 7, 40, 64} {
		for d := -2; d <= 2; d++ {
			out = append(out, k*mtu+d)
		}
	}
	return out
}

const half = 512 << 10

// TestTransfer_T01_SizesAroundMTU moves every size around k × MTU by every operation, and looks at
// each byte around the target too.
func TestTransfer_T01_SizesAroundMTU(t *testing.T) {
	for _, mtu := range []rdma.MTU{rdma.MTU256, rdma.MTU1024, rdma.MTU4096} {
		for _, op := range []rdma.WROpcode{
			rdma.WRWrite, rdma.WRWriteWithImm, rdma.WRSend, rdma.WRSendWithImm, rdma.WRRead,
		} {
			t.Run(fmt.Sprintf("%v/%v", op, mtu), func(t *testing.T) {
				w := newWorld(t, worldConfig{edit: func(_ string, a *Attr) { a.PathMTU = mtu }})
				for i, size := range sizesAround(mtu.Bytes()) {
					transferOne(t, w, op, size, byte(i))
				}
			})
		}
	}
}

func transferOne(t *testing.T, w *world, op rdma.WROpcode, size int, seed byte) {
	t.Helper()
	src, dst := w.a, w.b
	if op == rdma.WRRead {
		src, dst = w.b, w.a
	}
	clear(dst.mem)
	pattern(src.mem[:size], seed)
	w.b.receive(uint64(seed), w.b.at(half, size))
	wqe := abi.SendWQE{
		WRID: 1000 + uint64(seed), Opcode: uint8(op), Flags: signaled, ImmOrRKey: 0xa1b2c3d4,
		RemoteAddr: testBase + half, RKey: uint32(w.b.region.Key),
	}
	off := 0
	if op == rdma.WRRead {
		wqe.RemoteAddr, off = testBase, half
	}
	w.a.post(w.now, wqe, w.a.at(off, size))
	w.settle()
	sends := w.a.sends.take()
	wantStatus(t, sends, rdma.WCSuccess)
	if sends[0].WRID != wqe.WRID || sends[0].QPNum != 0x11 {
		t.Fatalf("send completion %+v", sends[0])
	}
	want := make([]byte, len(dst.mem))
	copy(want[half:], src.mem[:size])
	if !bytes.Equal(dst.mem, want) {
		t.Fatalf("size %d: memory differs", size)
	}
	recvs := w.b.recvs.take()
	if op == rdma.WRWrite || op == rdma.WRRead {
		wantStatus(t, recvs)
		w.b.q.cfg.RQ.(*work.RingReceiveQueue).Skip()
		return
	}
	wantStatus(t, recvs, rdma.WCSuccess)
	checkReceive(t, &recvs[0], op, size, seed)
}

func checkReceive(t *testing.T, e *abi.CQE, op rdma.WROpcode, size int, seed byte) {
	t.Helper()
	want := abi.CQE{
		WRID: uint64(seed), Opcode: uint32(rdma.WCOpRecv), ByteLen: uint32(size), QPNum: 0x22,
		SrcQP: 0x11, SL: 3, Timestamp: e.Timestamp,
	}
	if op != rdma.WRSend {
		want.WCFlags, want.ImmOrRKey = uint32(rdma.WCWithImm), 0xa1b2c3d4
	}
	if op == rdma.WRWriteWithImm {
		want.Opcode = uint32(rdma.WCOpRecvWriteImm)
	}
	if *e != want {
		t.Fatalf("receive completion\n got %+v\nwant %+v", *e, want)
	}
}

func TestTransfer_GatherAndScatter_AcrossEntries(t *testing.T) {
	for _, mapped := range []bool{true, false} {
		c := worldConfig{}
		if !mapped {
			c.spaceA, c.spaceB = &space{}, &space{}
		}
		w := newWorld(t, c)
		pattern(w.a.mem[:4000], 9)
		w.b.receive(1, w.b.at(100, 1), w.b.at(5000, 1500), w.b.at(9000, 0), w.b.at(10000, 3000))
		w.a.post(0, abi.SendWQE{WRID: 5, Opcode: uint8(rdma.WRSend), Flags: signaled},
			w.a.at(0, 700), w.a.at(700, 0), w.a.at(700, 3), w.a.at(703, 3297))
		w.settle()
		wantStatus(t, w.a.sends.take(), rdma.WCSuccess)
		recvs := w.b.recvs.take()
		wantStatus(t, recvs, rdma.WCSuccess)
		if recvs[0].ByteLen != 4000 {
			t.Fatalf("byte_len %d", recvs[0].ByteLen)
		}
		got := append([]byte{}, w.b.mem[100])
		got = append(got, w.b.mem[5000:6500]...)
		got = append(got, w.b.mem[10000:12499]...)
		if !bytes.Equal(got, w.a.mem[:4000]) {
			t.Fatal("scattered bytes differ")
		}
	}
}

// TestTransfer_ProcessMemory_ReadsAhead counts the calls into memory that is not mapped: a long
// message must not cost one a packet.
func TestTransfer_ProcessMemory_ReadsAhead(t *testing.T) {
	sa, sb := &space{}, &space{}
	w := newWorld(t, worldConfig{spaceA: sa, spaceB: sb})
	pattern(w.a.mem[:half], 3)
	w.a.post(0, abi.SendWQE{
		Opcode: uint8(rdma.WRWrite), Flags: signaled, RemoteAddr: testBase,
		RKey: uint32(w.b.region.Key),
	}, w.a.at(0, half))
	w.settle()
	wantStatus(t, w.a.sends.take(), rdma.WCSuccess)
	if !bytes.Equal(w.a.mem[:half], w.b.mem[:half]) {
		t.Fatal("bytes differ")
	}
	const scratchBytes = 64 << 10 // as work.Scratch reads ahead
	if want := half / scratchBytes; sa.calls != want {
		t.Fatalf("%d reads of process memory, want %d", sa.calls, want)
	}
	sb.calls = 0
	clear(w.a.mem)
	w.a.post(w.now, abi.SendWQE{
		Opcode: uint8(rdma.WRRead), Flags: signaled, RemoteAddr: testBase,
		RKey: uint32(w.b.region.Key),
	}, w.a.at(0, half))
	w.settle()
	wantStatus(t, w.a.sends.take(), rdma.WCSuccess)
	if !bytes.Equal(w.a.mem[:half], w.b.mem[:half]) {
		t.Fatal("bytes read differ")
	}
	if sb.calls > 2*half/scratchBytes {
		t.Fatalf("%d reads of process memory for a READ", sb.calls)
	}
}

func TestTransfer_Inline_CopiesAtPost(t *testing.T) {
	w := newWorld(t, worldConfig{})
	data := []byte("inline bytes travel in the work request")
	w.b.receive(1, w.b.at(0, 100))
	w.a.postInline(0, abi.SendWQE{Opcode: uint8(rdma.WRSend), Flags: signaled}, data)
	w.settle()
	wantStatus(t, w.a.sends.take(), rdma.WCSuccess)
	if !bytes.Equal(w.b.mem[:len(data)], data) {
		t.Fatal("bytes differ")
	}
}

// TestTransfer_PSNWrap runs long messages of every kind across PSN 2^24.
func TestTransfer_PSNWrap(t *testing.T) {
	w := newWorld(t, worldConfig{edit: func(_ string, a *Attr) {
		a.SQPSN, a.RQPSN, a.PathMTU = 0xffffe0, 0xffffe0, rdma.MTU256
	}})
	for i, op := range []rdma.WROpcode{rdma.WRWrite, rdma.WRRead, rdma.WRSend, rdma.WRRead} {
		transferOne(t, w, op, 256*13+5, byte(i))
	}
	if p := w.a.q.Attr().SQPSN; p != 24 || w.b.q.Attr().RQPSN != p {
		t.Fatalf("PSN %v, peer expects %v", p, w.b.q.Attr().RQPSN)
	}
}

func TestTransfer_T18_AtomicsInHostOrder(t *testing.T) {
	w := newWorld(t, worldConfig{})
	putNative(w.b.mem[64:], 40)
	base := abi.SendWQE{Flags: signaled, RemoteAddr: testBase + 64, RKey: uint32(w.b.region.Key)}
	faa, cas := base, base
	faa.Opcode, faa.CompareAdd = uint8(rdma.WRFetchAdd), 2
	cas.Opcode, cas.CompareAdd, cas.Swap = uint8(rdma.WRCompareSwap), 42, 0x0102030405060708
	w.a.post(0, faa, w.a.at(0, 8))
	w.a.post(0, cas, w.a.at(8, 8))
	w.a.post(0, cas, w.a.at(16, 8))
	w.settle()
	sends := w.a.sends.take()
	wantStatus(t, sends, rdma.WCSuccess, rdma.WCSuccess, rdma.WCSuccess)
	if sends[0].Opcode != uint32(rdma.WCOpFetchAdd) || sends[0].ByteLen != 8 ||
		sends[1].Opcode != uint32(rdma.WCOpCompareSwap) {
		t.Fatalf("completions %+v", sends)
	}
	for i, want := range []uint64{40, 42, 0x0102030405060708} {
		if got := getNative(w.a.mem[8*i:]); got != want {
			t.Errorf("original value %d: %#x, want %#x", i, got, want)
		}
	}
	if got := getNative(w.b.mem[64:]); got != 0x0102030405060708 {
		t.Errorf("memory holds %#x", got)
	}
}

func TestTransfer_Unsignaled_CompletesInSilence(t *testing.T) {
	w := newWorld(t, worldConfig{})
	for i := range 600 { // more than the ring holds
		flags := uint8(0)
		if i%50 == 49 {
			flags = signaled
		}
		w.a.post(w.now, abi.SendWQE{
			WRID: uint64(i), Opcode: uint8(rdma.WRWrite), Flags: flags, RemoteAddr: testBase,
			RKey: uint32(w.b.region.Key),
		}, w.a.at(0, 10))
		if flags != 0 {
			w.settle()
		}
	}
	got := w.a.sends.take()
	if len(got) != 12 || got[11].WRID != 599 {
		t.Fatalf("%d completions", len(got))
	}
}

func TestTransfer_Datagram(t *testing.T) {
	w := newWorld(t, worldConfig{qpType: rdma.QPTypeUD})
	pattern(w.a.mem[:1000], 4)
	send := abi.SendWQE{
		WRID: 3, Opcode: uint8(rdma.WRSendWithImm), Flags: signaled | uint8(rdma.SendSolicited),
		ImmOrRKey: 77, AH: 1, RemoteQPN: 0x22, RemoteQKey: 0x1234,
	}
	w.b.receive(8, w.b.at(0, 40), w.b.at(100, 1000))
	w.a.post(0, send, w.a.at(0, 1000))
	w.settle()
	wantStatus(t, w.a.sends.take(), rdma.WCSuccess)
	got := w.b.recvs.take()
	wantStatus(t, got, rdma.WCSuccess)
	want := abi.CQE{
		WRID: 8, Opcode: uint32(rdma.WCOpRecv), ByteLen: 1040, ImmOrRKey: 77, QPNum: 0x22,
		SrcQP: 0x11, SL: 3, WCFlags: uint32(rdma.WCGRH | rdma.WCWithImm), Timestamp: got[0].Timestamp,
	}
	if got[0] != want {
		t.Fatalf("completion\n got %+v\nwant %+v", got[0], want)
	}
	sgid := testAddr("a")
	if !bytes.Equal(w.b.mem[8:24], sgid[:]) || !bytes.Equal(w.b.mem[100:1100], w.a.mem[:1000]) {
		t.Fatal("bytes differ")
	}
	if w.b.recvs.solicited != 1 {
		t.Fatal("solicited event was not asked for")
	}
}

func TestTransfer_UC_AllSizes(t *testing.T) {
	w := newWorld(t, worldConfig{qpType: rdma.QPTypeUC})
	for i, size := range sizesAround(1024) {
		for _, op := range []rdma.WROpcode{rdma.WRWrite, rdma.WRSend, rdma.WRWriteWithImm} {
			transferOne(t, w, op, size, byte(i))
		}
	}
}

// TestTransfer_LongMessage moves one that is larger than every window.
func TestTransfer_LongMessage(t *testing.T) {
	const size = 20 << 20
	w := newWorld(t, worldConfig{bytes: size})
	pattern(w.a.mem, 1)
	w.a.post(0, abi.SendWQE{
		Opcode: uint8(rdma.WRWrite), Flags: signaled, RemoteAddr: testBase,
		RKey: uint32(w.b.region.Key),
	}, w.a.at(0, size))
	w.run(time.Second)
	wantStatus(t, w.a.sends.take(), rdma.WCSuccess)
	if !bytes.Equal(w.a.mem, w.b.mem) {
		t.Fatal("bytes differ")
	}
	clear(w.a.mem)
	w.a.post(w.now, abi.SendWQE{
		Opcode: uint8(rdma.WRRead), Flags: signaled, RemoteAddr: testBase,
		RKey: uint32(w.b.region.Key),
	}, w.a.at(0, size))
	w.run(time.Second)
	wantStatus(t, w.a.sends.take(), rdma.WCSuccess)
	if !bytes.Equal(w.a.mem, w.b.mem) {
		t.Fatal("bytes read differ")
	}
}
