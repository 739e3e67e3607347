package verbs

import (
	"fmt"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/ring"
	"github.com/softrnic/softrnic/internal/shm"
)

// Resize changes how many completions the queue holds, to n at least. Those that were not polled
// stay; it is refused (EINVAL) where they do not fit.
func (q *CQ) Resize(n int) error {
	const op = "resize completion queue"
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.usableLocked(); err != nil {
		return err
	}
	if err := checkSizes(op, size{"the number of entries", n}); err != nil {
		return err
	}
	req := abi.ResizeCQReq{Handle: q.handle, Entries: clampUint32(n)}
	rsp, fds, err := call[abi.CreateCQRsp](q.ctx, request{
		op: op, code: abi.OpResizeCQ, body: ctl.Bytes(&req), fds: 1,
	})
	if err != nil {
		return err
	}
	geo := ring.Geometry{Entries: rsp.Entries, Stride: abi.CQEBytes}
	var slots *shm.Memory
	if e := rsp.Entries; e == 0 || e&(e-1) != 0 || e > limits.MaxCQE {
		closeAll(fds)
		err = fmt.Errorf("the NIC describes a queue of %d entries", e)
	} else {
		slots, err = shm.Open(fds[0], geo.Bytes(), true)
	}
	if err != nil {
		// The NIC writes where this side cannot read: nothing more will come out of this queue.
		q.overrun.Store(true)
		ring.Word(q.memory.Bytes(), abi.OffCQState).Store(1)
		return &OpError{Op: op, Err: err}
	}
	m := q.memory.Bytes()
	q.ring = ring.NewConsumer(slots.Bytes(), geo,
		ring.Word(m, abi.OffCQProducer), ring.Word(m, abi.OffCQConsumer))
	if q.moved != nil {
		q.moved.Release()
	}
	q.moved, q.entries = slots, int(rsp.Entries)
	return nil
}

// Moderate lets an event wait until count completions are there, or the first has waited for
// period, in whole microseconds up to 65535; so may count be. 0 for either ends it. Completions
// with an error do not wait, nor does Poll notice anything.
func (q *CQ) Moderate(count int, period time.Duration) error {
	req := abi.ModifyCQReq{
		Handle: q.handle, Count: clampUint32(count),
		PeriodMicroseconds: clampUint32(int(period / time.Microsecond)),
	}
	_, err := q.ctx.exchange(request{
		op: "moderate completion queue", code: abi.OpModifyCQ, body: ctl.Bytes(&req), of: q,
	})
	return err
}
