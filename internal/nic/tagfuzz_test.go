package nic

import (
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/tm"
)

// FuzzTags_AnyBytes_LeaveNothing lets a hostile peer send any messages, and a hostile program write
// anything into the ring of operations. Nothing crashes, no byte outside the regions changes, and
// with the queue pairs gone every buffer is in the list or free.
//
// The input is steps: a byte that says what, a length, and so many bytes of a message or of an
// entry.
func FuzzTags_AnyBytes_LeaveNothing(f *testing.F) {
	step := func(kind byte, b []byte) []byte { return append([]byte{kind, byte(len(b))}, b...) }
	var add, sync, del [abi.TagWQEBytes + 2*abi.SGEBytes]byte
	abi.EncodeTagWQE(add[:], &abi.TagWQE{RecvWRID: 1, Tag: 7, Mask: 7, NumSGE: 1})
	abi.EncodeSGE(add[abi.TagWQEBytes:], 0, &abi.SGE{Addr: 0x200000, Length: 64, LKey: 1})
	abi.EncodeTagWQE(sync[:], &abi.TagWQE{Opcode: uint8(rdma.TagSync), Flags: 3, Unexpected: 1})
	abi.EncodeTagWQE(del[:], &abi.TagWQE{Opcode: uint8(rdma.TagDel), Flags: 1})
	header := tm.Header{Opcode: tm.OpRendezvous, Tag: 7}
	where := tm.Rendezvous{VA: 0x100000, RKey: 1, Length: 32}
	request := where.Append(header.Append(nil))
	f.Add(append(step(0, add[:]), step(1, eager(7, 0, []byte("data")))...))
	f.Add(append(step(4, add[:]), append(step(2, request), step(1, request)...)...))
	f.Add(append(step(1, eager(6, 0, nil)), append(step(0, sync[:]), step(0, del[:])...)...))
	f.Fuzz(func(t *testing.T, input []byte) {
		x := newTagBench(t, 4)
		other, peer := x.rc(x.scq), x.tagged()
		x.connectPair(other, peer)
		x.plain(0, 1, 2, 3)
		for range 40 {
			if len(input) < 2 {
				break
			}
			kind, n := input[0], min(int(input[1]), len(input)-2)
			body := input[2 : 2+n]
			input = input[2+n:]
			switch kind % 5 {
			case 0:
				x.rawOp(body, 0)
			case 1:
				x.fuzzSend(x.sender, body)
			case 2:
				x.fuzzSend(other, body)
			case 3:
				x.run(second / 100)
			default:
				x.rawOp(body, x.target.LKey)
			}
		}
		x.run(second)
		for _, q := range []*appQP{x.receiver, peer} {
			x.granted(x.c.DestroyQP(x.now, q.rsp.Handle))
		}
		s := x.c.srqs[x.srq.rsp.Handle]
		inList := 0
		for h := range x.ops.Pushed() {
			if s.tags.list.Del(h) {
				inList++
			}
		}
		if used := s.tags.list.Used(); used != 0 {
			t.Errorf("%d buffers are in nobody's hands; %d were in the list", used, inList)
		}
		for i, b := range x.targetMem[tagRegion-1024:] { // nothing names it
			if b != 0 {
				t.Fatalf("byte %d of what is nobody's has changed", i)
			}
		}
		x.leavesNothing()
	})
}

// rawOp writes any bytes into the ring. Where key is not 0, a buffer of the target region goes with
// them, so that it can be used.
func (x *tagBench) rawOp(b []byte, key uint32) {
	if x.ops.Free() == 0 {
		return
	}
	slot := x.ops.Slot()
	clear(slot)
	copy(slot, b)
	if key != 0 {
		s := x.into(0, 256)
		abi.EncodeSGE(slot[abi.TagWQEBytes:], 0, &s)
	}
	x.ops.Push()
	x.ops.Publish()
	(&appQP{b: x.bench, rsp: abi.CreateQPRsp{Doorbell: x.srq.rsp.Doorbell}}).ring()
}

// fuzzSend sends any bytes, while the queue pair can. Half of the rendezvous requests name memory
// that is there, and have a place for the FIN.
func (x *tagBench) fuzzSend(q *appQP, b []byte) {
	if q.state() != sRTS || q.sq.Free() == 0 {
		return
	}
	if len(b) >= finBytes && b[0] == byte(tm.OpRendezvous) && b[1]%2 == 0 {
		r, _ := tm.ParseRendezvous(b[tm.HeaderLen:])
		r.VA, r.RKey = x.sourceAddr+r.VA%tagRegion, rdma.Key(x.source.RKey)
		b = append(r.Append(append([]byte(nil), b[:tm.HeaderLen]...)), b[finBytes:]...)
		if q.rq.Free() > 0 {
			q.recv(0, abi.SGE{Addr: x.sourceAddr + finAt, Length: 64, LKey: x.source.LKey})
		}
	}
	x.sendFrom(q, 0, b)
}
