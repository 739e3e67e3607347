package nic

import (
	"slices"
	"syscall"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/rdma"
)

// cqModerationMax bounds both values of a moderation, as the 16 bits that verbs have for them do.
const cqModerationMax = 0xffff

// moderation holds the events of a completion queue back until several completions are there or
// the first has waited long enough (ibv_modify_cq(3)).
type moderation struct {
	count  uint32
	period clock.Time
	held   uint32 // completions since the last event, each of which could have raised one
	due    clock.Time
}

func (m *moderation) isOn() bool { return m.count > 0 && m.period > 0 }

// ModifyCQ sets the moderation of a completion queue's events.
func (c *Context) ModifyCQ(req *abi.ModifyCQReq) *rdma.Refusal {
	q := c.cqs[req.Handle]
	switch {
	case q == nil:
		return refusef(syscall.EINVAL, "completion queue %d is unknown", req.Handle)
	case req.Count > cqModerationMax || req.PeriodMicroseconds > cqModerationMax:
		return refusef(syscall.EINVAL, "moderate: cq_count %d or cq_period %d over %d", req.Count,
			req.PeriodMicroseconds, cqModerationMax)
	}
	q.moderation.count = req.Count
	q.moderation.period = clock.Time(time.Duration(req.PeriodMicroseconds) * time.Microsecond)
	if q.moderation.held > 0 {
		c.nic.moderated.remove(q)
		q.notify()
	}
	return nil
}

// moderate reports that the event for one more completion is to wait.
func (q *cq) moderate() bool {
	m := &q.moderation
	m.held++
	if m.held >= m.count {
		q.nic.moderated.remove(q)
		return false
	}
	if m.held == 1 {
		m.due = q.nic.now + m.period
		q.nic.moderated = append(q.nic.moderated, q)
	}
	return true
}

// moderatedList is the queues that hold an event back. It is short: an event is held for 65 ms at
// most, and only where an application has asked for that.
type moderatedList []*cq

func (l *moderatedList) remove(q *cq) {
	if i := slices.Index(*l, q); i >= 0 {
		*l = slices.Delete(*l, i, i+1)
	}
}

func (l *moderatedList) deadline() clock.Time {
	at := clock.Never
	for _, q := range *l {
		at = min(at, q.moderation.due)
	}
	return at
}

// handleTimeout sends the events that have waited long enough.
func (l *moderatedList) handleTimeout(now clock.Time) {
	kept := (*l)[:0]
	for _, q := range *l {
		if q.moderation.due > now {
			kept = append(kept, q)
			continue
		}
		q.notify()
	}
	clear((*l)[len(kept):])
	*l = kept
}
