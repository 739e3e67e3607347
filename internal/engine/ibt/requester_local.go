package ibt

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
)

// executeLocal does a bind or a local invalidate when it is its turn to be sent: all requests
// before it were sent at least once, and none after it (IBTA 10.8.3.3). It takes no PSN, and
// completes with those before it. One that was done before the sender went back is passed over.
func (q *QP) executeLocal(w *sendWR) {
	r := &q.send
	if !w.isDone {
		if f := q.applyLocal(w); f != mem.FaultNone {
			w.SetFail(rdma.WCMWBindErr, abi.VendorWindow)
			w.Fault = f
			return
		}
		w.isDone = true
	}
	if r.cur > 0 {
		r.cur++
		return
	}
	q.completeHead()
	q.releaseSlots()
	q.noteDrained()
}

func (q *QP) applyLocal(w *sendWR) mem.Fault {
	x := &w.WQE
	if w.op.wc == rdma.WCOpLocalInvalidate {
		return q.table.Invalidate(q.accessor(), rdma.Key(x.ImmOrRKey))
	}
	return q.table.Bind(q.accessor(), &mem.Binding{
		Key: rdma.Key(x.RKey), Region: rdma.Key(x.Extra), Addr: x.RemoteAddr, Length: x.CompareAdd,
		Access: rdma.Access(x.Swap),
	})
}
