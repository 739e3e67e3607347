package sim

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
)

// How an application learns of completions.
type cqMode int

const (
	cqPolled    cqMode = iota
	cqAwaited          // armed for the next completion, then asleep
	cqSolicited        // armed for solicited completions; the rest is polled now and then
)

// cqEntries is the size of every completion queue; endpoints are spread so that none overruns.
const cqEntries = 1024

// cq is an application's end of a completion queue.
type cq struct {
	app    *app
	handle uint32
	mode   cqMode
	ring   *ring.Consumer
	arm    *atomic.Uint32
	state  *atomic.Uint32
	load   int // completions that can be due at once
	// isArmed: an event may come. isAwake: one has come and is not answered yet.
	isArmed, isAwake bool
	armedAt          clock.Time
	// solicited counts the completions taken since then that may wake a solicited sleeper.
	solicited int
	// isSmall: it is meant to overrun. isOver: it has, and takes nothing any more.
	isSmall, isOver, isGone bool
}

func (a *app) newCQ(entries uint32) *cq {
	w := a.world
	q := &cq{app: a, isSmall: entries < cqEntries}
	req := abi.CreateCQReq{Entries: entries}
	if w.chance(w.plan.events) {
		q.mode = cqAwaited
		if w.chance(0.3) {
			q.mode = cqSolicited
		}
		req.Channel = a.channel
	}
	rsp, shared, refusal := a.ctx.CreateCQ(&req)
	if refusal != nil {
		w.court.Failf("%s: create_cq: %v", a.name, refusal)
		return nil
	}
	m := shared.Bytes()
	q.handle = rsp.Handle
	q.ring = ring.NewConsumer(m[abi.QueueHeaderBytes:],
		ring.Geometry{Entries: rsp.Entries, Stride: abi.CQEBytes},
		ring.Word(m, abi.OffCQProducer), ring.Word(m, abi.OffCQConsumer))
	q.arm = ring.Word(m, abi.OffCQArm)
	q.state = ring.Word(m, abi.OffCQState)
	a.cqs = append(a.cqs, q)
	if q.mode != cqPolled {
		q.sleep()
	}
	return q
}

// room returns a completion queue that can take so many more completions.
func (a *app) room(completions int) *cq {
	first := a.world.random.IntN(len(a.cqs) + 1)
	for i := range a.cqs {
		q := a.cqs[(first+i)%len(a.cqs)]
		if !q.isSmall && q.load+completions <= cqEntries {
			return q
		}
	}
	return a.newCQ(cqEntries)
}

// overrun takes the event that a queue has lost a completion (IBTA 10.10.2.3).
func (q *cq) overrun() {
	a := q.app
	if !q.isSmall {
		a.world.court.Failf("%s: CQ %d overran", a.name, q.handle)
	}
	if q.state.Load() != 1 {
		a.world.court.Failf("%s: CQ %d overran and does not say so", a.name, q.handle)
	}
	a.world.mark("cq.overrun")
	q.isOver = true
}

// destroy ends a queue that no queue pair uses any more.
func (q *cq) destroy() {
	a := q.app
	if refusal := a.ctx.DestroyCQ(q.handle); refusal != nil {
		a.world.court.Failf("%s: destroy_cq: %v", a.name, refusal)
	}
	q.isGone = true
	a.cqs = slices.DeleteFunc(a.cqs, func(x *cq) bool { return x == q })
}

// poll takes up to n completions and returns how many there were.
func (q *cq) poll(n int) int {
	pending, ok := q.ring.Pending()
	if !ok {
		q.app.world.court.Failf("%s: the producer index of CQ %d is impossible", q.app.name, q.handle)
		return 0
	}
	n = min(n, int(pending))
	for range n {
		var c abi.CQE
		abi.DecodeCQE(q.ring.Slot(0), &c)
		q.ring.Release(1)
		if rdma.WCStatus(c.Status) != rdma.WCSuccess {
			q.noteSolicited(&c)
		}
		q.app.complete(q, &c)
	}
	return n
}

func (q *cq) pollAll() int {
	n := 0
	for {
		k := q.poll(cqEntries)
		if k == 0 {
			return n
		}
		n += k
	}
}

// sleep arms the queue, polls once more after a moment, in which anything may happen, and waits for
// the event (case E11).
func (q *cq) sleep() {
	if q.isGone {
		return
	}
	w := q.app.world
	q.isArmed, q.armedAt, q.solicited = true, w.now, 0
	if q.mode == cqSolicited {
		q.arm.Store(abi.ArmSolicited)
	} else {
		q.arm.Store(abi.ArmNext)
	}
	q.isAwake = true
	q.app.after(w.delay(0, 3*time.Microsecond), func() {
		q.isAwake = false
		q.pollAll()
	})
}

// wake answers a completion event.
func (q *cq) wake() {
	w := q.app.world
	if !q.isArmed {
		w.court.Failf("%s: a completion event of CQ %d, which is not armed", q.app.name, q.handle)
	}
	w.mark("cq.event")
	q.isArmed = false
	q.isAwake = true
	q.app.after(w.delay(0, w.plan.pause), func() {
		if q.mode == cqSolicited || w.chance(0.5) {
			q.pollAll()
		}
		if q.mode == cqSolicited && q.solicited == 0 {
			w.court.Failf("%s: CQ %d had an event, yet no completion in it is solicited",
				q.app.name, q.handle)
		}
		q.sleep()
	})
}

// eventTime is how long an event may be on its way from the NIC to the application.
const eventTime = 5 * time.Millisecond

// noteSolicited takes a completion for which an event is due when the queue is armed in the
// solicited way.
func (q *cq) noteSolicited(c *abi.CQE) {
	w := q.app.world
	at := clock.Time(c.Timestamp)
	if at < q.armedAt {
		return
	}
	q.solicited++
	if q.mode == cqSolicited && q.isArmed && at > q.armedAt && w.now.Sub(at) > eventTime {
		w.court.Failf("%s: a solicited completion in CQ %d and no event for %v",
			q.app.name, q.handle, w.now.Sub(at))
	}
}

// judgeSleep finds a lost wakeup: completions wait, and nothing will tell.
func (q *cq) judgeSleep() {
	if n, _ := q.ring.Pending(); n > 0 && q.mode == cqAwaited && !q.isAwake && !q.isOver {
		q.app.world.court.Failf("%s: %d completions wait in CQ %d, armed %d, and no event came",
			q.app.name, n, q.handle, q.arm.Load())
	}
}
