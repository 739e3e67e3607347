package iwarp

import (
	"testing"

	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
)

// TestReceive_OfASharedQueueInAnotherPD_IsJudgedThere: lists are the shared queue's, STags the
// queue pair's.
func TestReceive_OfASharedQueueInAnotherPD_IsJudgedThere(t *testing.T) {
	const sharedPD mem.PD = testPD + 1
	w := connected(t, worldConfig{b: nodeConfig{receivePD: sharedPD}})
	lent := w.b.register(sharedPD, rdma.AccessLocalWrite, nil)
	sge := w.b.at(0, 100)
	sge.LKey = uint32(lent.Key)
	w.b.receive(1, sge)
	w.a.post(w.now, wqeOf(rdma.WRSend, 2), w.a.at(0, 100))
	w.a.post(w.now, remote(wqeOf(rdma.WRWrite, 3), w.b, 5000), w.a.at(0, 100))
	w.settle()
	wantStatus(t, w.a.sends.take(), rdma.WCSuccess, rdma.WCSuccess)
	wantStatus(t, w.b.recvs.take(), rdma.WCSuccess)

	w.b.receive(4, w.b.at(0, 100))
	w.a.post(w.now, wqeOf(rdma.WRSend, 5), w.a.at(0, 100))
	w.settle()
	wantStatus(t, w.b.recvs.take(), rdma.WCLocProtErr)
}
