package sim

import (
	"slices"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/sim/check"
)

// An XRC connection leads from the initiator of one application to the target of another, and
// through it to the shared receive queues of all applications on that host: they share a domain,
// named by a file (IBTA A14).

// target is where requests of an XRC initiator go: a shared queue, and a window of its application.
type target struct {
	queue *sharedQueue
	far   *window
	out   *check.Stream
}

// queuesMost is how many shared queues of XRC an application has at most.
const queuesMost = 2

// joinDomain opens the host's XRC domain and makes shared queues in it.
func (a *app) joinDomain() {
	w := a.world
	xrcd, refusal := a.ctx.OpenXRCD(&nic.XRCKey{Device: 1, Inode: 2}, abi.XRCDCreate)
	if refusal != nil {
		w.court.Failf("%s: open_xrcd: %v", a.name, refusal)
		return
	}
	a.xrcd = xrcd
	for range w.between(1, queuesMost) {
		q := a.newCQ(cqEntries)
		s := a.newSharedQueue(q)
		q.load += sharedLoad
		if s != nil {
			a.queues = append(a.queues, s)
		}
	}
}

// isXRC reports one end or the other of an XRC connection.
func (e *endpoint) isXRC() bool {
	return e.kind == rdma.QPTypeXRCSend || e.kind == rdma.QPTypeXRCRecv
}

// isReliable reports a service that delivers everything once and in order.
func (e *endpoint) isReliable() bool { return e.kind == rdma.QPTypeRC || e.isXRC() }

// isTarget reports an end without queues: its requests name shared ones.
func (e *endpoint) isTarget() bool { return e.kind == rdma.QPTypeXRCRecv }

// isReliable is that of both ends.
func (p *pair) isReliable() bool {
	return p.kind == rdma.QPTypeRC || p.kind == rdma.QPTypeXRCSend
}

// kindOf returns the type of queue pair of an end.
func (p *pair) kindOf(end int) rdma.QPType {
	if p.kind == rdma.QPTypeXRCSend && end == 1 {
		return rdma.QPTypeXRCRecv
	}
	return p.kind
}

// findTargets chooses the shared queues that an XRC connection uses, and windows beside them.
func (p *pair) findTargets() {
	w := p.world
	var all []*sharedQueue
	for _, a := range p.ends[1].app.host.apps {
		if !a.isGone && !a.process.isDead {
			all = append(all, a.queues...)
		}
	}
	w.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	all = all[:min(len(all), w.between(1, 3))]
	p.targets = nil
	for _, s := range all {
		t := &target{queue: s}
		n := max(w.pick(64, 4096, p.maxMessage), 64)
		t.far = s.app.newWindow(p.ends[0].name+" window", min(n, w.plan.windowsRoom/8))
		p.targets = append(p.targets, t)
	}
}

// aim chooses where the next request goes; it reports false where that is nowhere.
func (e *endpoint) aim() bool {
	w := e.app.world
	list := e.pair.targets
	if len(list) == 0 {
		return false
	}
	t := list[w.between(0, len(list)-1)]
	if t.queue.app.isGone && !w.chance(0.05) {
		return false // it would end the connection
	}
	e.aimed, e.far, e.out = t, t.far, t.out
	return true
}

// remote returns the application whose memory requests name.
func (e *endpoint) remote() *app {
	if e.aimed != nil {
		return e.aimed.queue.app
	}
	return e.peer.app
}

// userOf returns the queue pair that took a receive: for XRC it may be another application's.
func (s *sharedQueue) userOf(qpn uint32) *endpoint {
	if !s.isXRC {
		return s.app.endpointOf(qpn)
	}
	for _, a := range s.app.host.apps {
		if e := a.endpointOf(qpn); e != nil && e.isTarget() {
			return e
		}
	}
	return nil
}

// streamTo returns the stream of messages to a shared queue, nil where none leads there.
func (p *pair) streamTo(s *sharedQueue) *check.Stream {
	for _, t := range p.targets {
		if t.queue == s {
			return t.out
		}
	}
	return nil
}

// drainTargets takes the completions of all shared queues that a target may have used.
func (p *pair) drainTargets() {
	for _, t := range p.targets {
		if !t.queue.app.isGone {
			t.queue.cq.pollAll()
		}
	}
}

// closeTargets ends the windows after the target is gone.
func (p *pair) closeTargets() {
	for _, t := range p.targets {
		if t.far != nil {
			t.far.close()
		}
	}
}

// finish judges the streams at rest.
func (p *pair) finishTargets() {
	for _, t := range p.targets {
		if !t.queue.app.isGone && !t.queue.app.process.isDead {
			t.out.Finish()
		}
	}
}

// targetDies tolerates what the end of an application does to the connections that reach it through
// another's target.
func (w *World) targetDies(a *app) {
	for _, p := range w.pairs {
		if !p.reaches(a) || p.ends[0] == nil || p.ends[0].isGone {
			continue
		}
		w.mark("xrc.target_dies")
		p.spoil()
		p.ends[0].may(rdma.WCRemOpErr, rdma.WCRemAccessErr, rdma.WCRemInvReqErr)
	}
}

// reaches reports a connection with a shared queue of an application.
func (p *pair) reaches(a *app) bool {
	return slices.ContainsFunc(p.targets, func(t *target) bool { return t.queue.app == a })
}

// loseTargets says that the memory of an application changes no more.
func (w *World) loseTargets(a *app) {
	for _, p := range w.pairs {
		for _, t := range p.targets {
			if t.queue.app == a && t.far != nil {
				t.far.model.Close()
			}
		}
	}
}
