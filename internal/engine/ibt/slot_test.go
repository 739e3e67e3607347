package ibt

import (
	"slices"
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
)

func wantIndices(t *testing.T, got []abi.CQE, want ...uint32) {
	t.Helper()
	var have []uint32
	for i := range got {
		have = append(have, got[i].SQIndex)
	}
	if !slices.Equal(have, want) {
		t.Errorf("completions carry the send queue indices %v, want %v", have, want)
	}
}

// TestSlots_EverySendCompletion_TellsItsIndex: the index counts requests that complete unseen, and
// goes on through errors, flushes and resets.
func TestSlots_EverySendCompletion_TellsItsIndex(t *testing.T) {
	for _, qpType := range []rdma.QPType{rdma.QPTypeRC, rdma.QPTypeUC, rdma.QPTypeUD} {
		t.Run(qpType.String(), func(t *testing.T) {
			w := newWorld(t, worldConfig{qpType: qpType, entries: 16})
			send := abi.SendWQE{Opcode: uint8(rdma.WRSend), AH: 1, RemoteQPN: 0x22, RemoteQKey: 0x1234}
			post := func(flags uint8, edit func(*abi.SendWQE)) {
				x := send
				x.Flags = flags
				if edit != nil {
					edit(&x)
				}
				w.a.post(w.now, x, w.a.at(0, 8))
			}
			for range 5 {
				w.b.receive(1, w.b.at(0, 100))
			}
			for _, flags := range []uint8{signaled, 0, 0, signaled, 0} {
				post(flags, nil)
			}
			w.settle()
			wantIndices(t, w.a.sends.take(), 1, 4)
			post(signaled, func(x *abi.SendWQE) { x.Opcode = 250 })
			post(0, nil) // flushed, so seen
			w.settle()
			got := w.a.sends.take()
			wantStatus(t, got, rdma.WCLocQPOpErr, rdma.WCWRFlushErr)
			wantIndices(t, got, 6, 7)
			w.a.modify(w.now, rdma.QPStateReset)
			w.a.bring(testAttr("a", "b", 0x22))
			w.a.modify(w.now, rdma.QPStateError)
			post(0, nil)
			post(0, nil)
			wantIndices(t, w.a.sends.take(), 8, 9)
		})
	}
}

// TestSlots_FlushOfFetchedAndUnfetched_CountsOn: a queue that goes to error with requests in both
// places flushes each with its own index, and receives tell none.
func TestSlots_FlushOfFetchedAndUnfetched_CountsOn(t *testing.T) {
	w := newWorld(t, worldConfig{entries: 8})
	w.a.receive(7, w.a.at(0, 8))
	for range 2 {
		w.a.post(0, w.writeWR(1), w.a.at(0, 8))
	}
	w.replies(w.a)
	for range 2 {
		w.a.write(w.writeWR(2), nil, nil)
	}
	w.a.sq.Publish()
	w.a.modify(0, rdma.QPStateError)
	wantIndices(t, w.a.sends.take(), 1, 2, 3, 4)
	wantIndices(t, w.a.recvs.take(), 0)
}
