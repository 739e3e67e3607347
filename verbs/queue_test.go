package verbs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
)

func TestPostSend_EveryField_ReachesTheQueue(t *testing.T) {
	r := newRig(t, QPConfig{})
	q := r.nic.qp(r.qp)
	list := []SGE{{Addr: 0x1000, Length: 10, LKey: 3}, {Addr: 0x2000, Length: 20, LKey: 4}}
	n, err := r.qp.PostSend(
		SendWR{
			ID: 1, Opcode: WRWriteWithImm, Flags: SendSignaled | SendFence | SendSolicited, SGE: list,
			Imm: 0x01020304, RemoteAddr: 0x99, RKey: 5,
		},
		SendWR{ID: 2, Opcode: WRSendWithInv, InvalidateKey: 77, Inline: []byte("hello")},
		SendWR{
			ID: 3, Opcode: WRCompareSwap, SGE: list[:1], CompareAdd: 8, Swap: 9, RemoteAddr: 16, RKey: 6,
		})
	if n != 3 || err != nil {
		t.Fatalf("posted %d, %v", n, err)
	}
	if pending, ok := q.sq.Pending(); pending != 3 || !ok {
		t.Fatalf("pending %d %v", pending, ok)
	}
	var w abi.SendWQE
	abi.DecodeSendWQE(q.sq.Slot(0), &w)
	want := abi.SendWQE{
		WRID: 1, Opcode: uint8(WRWriteWithImm), Flags: 0x7, NumSGE: 2, RemoteAddr: 0x99, RKey: 5,
		ImmOrRKey: binary.NativeEndian.Uint32([]byte{1, 2, 3, 4}),
	}
	if w != want {
		t.Errorf("slot 0 %+v\nwant   %+v", w, want)
	}
	for i := range list {
		var s abi.SGE
		abi.DecodeSGE(q.sq.Slot(0)[abi.SendWQEBytes:], i, &s)
		if (SGE{Addr: s.Addr, Length: s.Length, LKey: Key(s.LKey)}) != list[i] {
			t.Errorf("entry %d: %+v", i, s)
		}
	}
	abi.DecodeSendWQE(q.sq.Slot(1), &w)
	want = abi.SendWQE{
		WRID: 2, Opcode: uint8(WRSendWithInv), Flags: uint8(rdma.SendInline), ImmOrRKey: 77, InlineLen: 5,
	}
	if w != want || !bytes.HasPrefix(q.sq.Slot(1)[abi.SendWQEBytes:], []byte("hello")) {
		t.Errorf("slot 1 %+v\nwant   %+v", w, want)
	}
	abi.DecodeSendWQE(q.sq.Slot(2), &w)
	want = abi.SendWQE{
		WRID: 3, Opcode: uint8(WRCompareSwap), NumSGE: 1, CompareAdd: 8, Swap: 9, RemoteAddr: 16, RKey: 6,
	}
	if w != want {
		t.Errorf("slot 2 %+v\nwant   %+v", w, want)
	}
}

func TestPostSend_Doorbell_KicksOnlyASleepingLane(t *testing.T) {
	r := newRig(t, QPConfig{})
	slot := r.nic.qp(r.qp).rsp.Doorbell
	page := r.nic.bells.Bytes()
	word := ring.Word64(page, abi.OffDoorbellWords+8*int(slot/64))
	summary := ring.Word64(page, abi.OffDoorbellSummary)
	sleeping := ring.Word(r.nic.lane.Bytes(), abi.OffLaneSleeping)
	post := func() {
		t.Helper()
		if _, err := r.qp.PostSend(SendWR{Opcode: WRSend}); err != nil {
			t.Fatal(err)
		}
	}
	kicked := func() bool {
		var b [8]byte
		n, _ := unix.Read(r.nic.kicks, b[:])
		return n == 8
	}
	post()
	if word.Load() != 1<<(slot%64) || summary.Load() != 1<<(slot/64) {
		t.Errorf("word %#x, summary %#x for slot %d", word.Load(), summary.Load(), slot)
	}
	if kicked() {
		t.Error("kicked a lane that is awake")
	}
	sleeping.Store(1)
	post()
	if !kicked() {
		t.Error("did not kick a sleeping lane")
	}
}

func TestPostSend_Misuse_IsRefusedInWords(t *testing.T) {
	rc, ud := newRig(t, QPConfig{}), newRig(t, QPConfig{Type: QPTypeUD})
	five := make([]SGE, 5)
	for _, tc := range []struct {
		name string
		qp   *QP
		wr   SendWR
		want string
	}{
		{"opcode of another service", ud.qp, SendWR{Opcode: WRRead}, "READ"},
		{"unknown opcode", rc.qp, SendWR{Opcode: 200}, "200"},
		{"too many entries", rc.qp, SendWR{Opcode: WRSend, SGE: five}, "5 scatter/gather"},
		{"inline too long", rc.qp, SendWR{Opcode: WRSend, Inline: make([]byte, 65)}, "65 bytes"},
		{"inline flag alone", rc.qp, SendWR{Opcode: WRSend, Flags: rdma.SendInline}, "Inline"},
		{"both", rc.qp, SendWR{Opcode: WRSend, Inline: []byte{1}, SGE: five[:1]}, "either"},
		{"inline read", rc.qp, SendWR{Opcode: WRRead, Inline: []byte{1}}, "needs SGE"},
		{"no address", ud.qp, SendWR{Opcode: WRSend}, "address handle"},
	} {
		n, err := tc.qp.PostSend(tc.wr)
		if n != 0 || !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %d, %v", tc.name, n, err)
		}
	}
	if pending, _ := rc.nic.qp(rc.qp).sq.Pending(); pending != 0 {
		t.Errorf("%d refused requests are in the queue", pending)
	}
}

func TestPost_States_FollowTheManual(t *testing.T) {
	r := newRig(t, QPConfig{})
	for s := QPStateReset; s <= QPStateError; s++ {
		r.nic.qp(r.qp).setState(s)
		if r.qp.State() != s {
			t.Errorf("state %v reads as %v", s, r.qp.State())
		}
		_, sendErr := r.qp.PostSend(SendWR{Opcode: WRSend})
		_, recvErr := r.qp.PostRecv(RecvWR{})
		if mayNotSend := s < QPStateRTS; errors.Is(sendErr, syscall.EINVAL) != mayNotSend {
			t.Errorf("send in %v: %v", s, sendErr)
		}
		if mayNotRecv := s == QPStateReset; errors.Is(recvErr, syscall.EINVAL) != mayNotRecv {
			t.Errorf("receive in %v: %v", s, recvErr)
		}
	}
}

func TestPost_FullQueue_PostsWhatFits(t *testing.T) {
	r := newRig(t, QPConfig{MaxSendWR: 4, MaxRecvWR: 2})
	n, err := r.qp.PostSend(make6(SendWR{Opcode: WRSend})...)
	if n != 4 || !errors.Is(err, ErrQueueFull) {
		t.Errorf("send: %d, %v", n, err)
	}
	n, err = r.qp.PostRecv(make6(RecvWR{})...)
	if n != 2 || !errors.Is(err, ErrQueueFull) {
		t.Errorf("receive: %d, %v", n, err)
	}
	q := r.nic.qp(r.qp)
	q.sq.Release(4)
	r.nic.cq(r.cq).push(r.sendDone(3))
	if n, err := r.qp.PostSend(SendWR{Opcode: WRSend}); n != 0 || !errors.Is(err, ErrQueueFull) {
		t.Errorf("done, but not polled: %d, %v", n, err)
	}
	if n, err := r.cq.Poll(make([]WC, 8)); n != 1 || err != nil {
		t.Fatalf("polled %d, %v", n, err)
	}
	if n, err := r.qp.PostSend(make6(SendWR{Opcode: WRSend})...); n != 3 || err == nil {
		t.Errorf("after three came back: %d, %v", n, err)
	}
}

// sendDone is the completion that gives back the send queue below index.
func (r *rig) sendDone(index uint32) abi.CQE {
	return abi.CQE{QPNum: uint32(r.qp.QPN()), Opcode: uint32(WCOpSend), SQIndex: index}
}

func make6[T any](one T) []T { return []T{one, one, one, one, one, one} }

func TestPostRecv_RingsOnlyOnDemand(t *testing.T) {
	r := newRig(t, QPConfig{})
	q := r.nic.qp(r.qp)
	summary := ring.Word64(r.nic.bells.Bytes(), abi.OffDoorbellSummary)
	list := []SGE{{Addr: 1, Length: 2, LKey: 3}}
	if _, err := r.qp.PostRecv(RecvWR{ID: 9, SGE: list}); err != nil || summary.Load() != 0 {
		t.Errorf("rang for a receive: %v", err)
	}
	var w abi.RecvWQE
	abi.DecodeRecvWQE(q.rq.Slot(0), &w)
	var s abi.SGE
	abi.DecodeSGE(q.rq.Slot(0)[abi.RecvWQEBytes:], 0, &s)
	if w != (abi.RecvWQE{WRID: 9, NumSGE: 1}) || s != (abi.SGE{Addr: 1, Length: 2, LKey: 3}) {
		t.Errorf("entry %+v %+v", w, s)
	}
	ring.Word(q.memory.Bytes(), abi.OffRQDoorbell).Store(1)
	if _, err := r.qp.PostRecv(RecvWR{}); err != nil || summary.Load() == 0 {
		t.Errorf("did not ring although the NIC waits for receives: %v", err)
	}
}

func TestPoll_Completion_KeepsEveryField(t *testing.T) {
	r := newRig(t, QPConfig{})
	raw := binary.NativeEndian.Uint32([]byte{1, 2, 3, 4})
	e := abi.CQE{
		WRID: 1, Status: 0, Opcode: uint32(WCOpRecv), VendorErr: 4, ByteLen: 5, ImmOrRKey: raw, QPNum: 7,
		SrcQP: 8, WCFlags: uint32(WCWithImm | WCGRH), PKeyIndex: 9, SLID: 10, SL: 11, DLIDPathBits: 12,
		Timestamp: 13,
	}
	r.nic.cq(r.cq).push(e)
	e.WCFlags = uint32(WCWithInv)
	r.nic.cq(r.cq).push(e)
	var wcs [4]WC
	n, err := r.cq.Poll(wcs[:])
	if n != 2 || err != nil {
		t.Fatalf("polled %d, %v", n, err)
	}
	want := WC{
		ID: 1, Opcode: WCOpRecv, Evidence: 4, ByteLen: 5, Imm: 0x01020304, QPN: 7, SrcQPN: 8,
		Flags: WCWithImm | WCGRH, PKeyIndex: 9, SLID: 10, SL: 11, DLIDPathBits: 12, Timestamp: 13,
	}
	if wcs[0] != want {
		t.Errorf("got  %+v\nwant %+v", wcs[0], want)
	}
	want.Imm, want.InvalidatedKey, want.Flags = 0, Key(raw), WCWithInv
	if wcs[1] != want {
		t.Errorf("got  %+v\nwant %+v", wcs[1], want)
	}
}

func TestQP_ResetAndClose_DropTheirCompletionsOnly(t *testing.T) {
	r := newRig(t, QPConfig{})
	other, err := r.pd.CreateQP(QPConfig{Type: QPTypeRC, SendCQ: r.cq})
	if err != nil {
		t.Fatal(err)
	}
	push := func(id uint64, q *QP) { r.nic.cq(r.cq).push(abi.CQE{WRID: id, QPNum: uint32(q.QPN())}) }
	push(1, r.qp)
	push(2, other)
	push(3, r.qp)
	if err := r.qp.ToReset(); err != nil {
		t.Fatal(err)
	}
	push(4, other)
	push(5, r.qp)
	if err := r.qp.Close(); err != nil {
		t.Fatal(err)
	}
	var wcs [8]WC
	n, err := r.cq.Poll(wcs[:])
	if n != 2 || err != nil || wcs[0].ID != 2 || wcs[1].ID != 4 {
		t.Errorf("polled %d %v: %+v", n, err, wcs[:n])
	}
}

func TestPoll_FailedQueue_DeliversThenSaysSo(t *testing.T) {
	r := newRig(t, QPConfig{})
	q := r.nic.cq(r.cq)
	q.push(abi.CQE{WRID: 1})
	ring.Word(q.memory.Bytes(), abi.OffCQState).Store(1)
	var wcs [4]WC
	if n, err := r.cq.Poll(wcs[:]); n != 1 || err != nil {
		t.Errorf("the last completion: %d, %v", n, err)
	}
	if n, err := r.cq.Poll(wcs[:]); n != 0 || !errors.Is(err, ErrCQOverrun) {
		t.Errorf("after it: %d, %v", n, err)
	}
}

func TestDataPath_AllocatesNothing(t *testing.T) {
	r := newRig(t, QPConfig{})
	q, cq := r.nic.qp(r.qp), r.nic.cq(r.cq)
	mr, err := r.pd.Register(make([]byte, 64), AccessLocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	var wcs [4]WC
	inline := []byte("inline")
	sent, received := r.sendDone(0), r.sendDone(0)
	received.Opcode = uint32(WCOpRecv)
	complete := func(e *abi.CQE) {
		abi.EncodeCQE(cq.ring.Slot(), e)
		cq.ring.Push()
		cq.ring.Publish()
	}
	got := testing.AllocsPerRun(200, func() {
		_, err1 := r.qp.PostSend(SendWR{ID: 1, Opcode: WRSend, SGE: []SGE{mr.Piece(0, 64)}},
			SendWR{ID: 2, Opcode: WRSend, Inline: inline})
		_, err2 := r.qp.PostRecv(RecvWR{SGE: []SGE{mr.Piece(0, 64)}})
		q.sq.Release(2)
		q.rq.Release(1)
		sent.SQIndex += 2
		complete(&sent)
		complete(&received)
		err3 := r.cq.RequestNotify(false)
		n, err4 := r.cq.Poll(wcs[:])
		if _, err5 := r.cq.Poll(wcs[:]); n != 2 || errors.Join(err1, err2, err3, err4, err5) != nil {
			t.Error(n, err1, err2, err3, err4, err5)
		}
	})
	if got != 0 {
		t.Errorf("%v allocations per operation", got)
	}
}
