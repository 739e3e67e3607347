package sim

import (
	"maps"
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
	if t.queue.isLost() || t.queue.app.process.isDead {
		if !w.chance(0.05) {
			return false // it would end the connection
		}
		e.pair.spoil()
		e.may(targetErrors...)
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
		if !t.queue.isLost() {
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

// finishTargets judges the streams at rest.
func (p *pair) finishTargets() {
	for _, t := range p.targets {
		if !t.queue.isLost() && !t.queue.app.process.isDead {
			t.out.Finish()
		}
	}
}

// targetErrors are what requests to a target get whose application ends.
var targetErrors = []rdma.WCStatus{rdma.WCRemOpErr, rdma.WCRemAccessErr, rdma.WCRemInvReqErr}

// targetDies tolerates what the end of an application does to the connections that reach it through
// another's target.
func (w *World) targetDies(a *app) {
	for _, p := range w.pairs {
		if !p.reaches(a) || p.ends[0] == nil || p.ends[0].isGone {
			continue
		}
		w.mark("xrc.target_dies")
		p.spoil()
		p.ends[0].may(targetErrors...)
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

// isLost reports a shared queue that is gone, alone or with its application.
func (s *sharedQueue) isLost() bool { return s.isGone || s.app.isGone }

// strip takes something away that an XRC connection uses, between two messages or in the middle of
// one.
func (p *pair) strip() { p.now(p.ends[1], p.loseTarget) }

// loseTarget takes a window away, or a shared queue.
func (p *pair) loseTarget() {
	w := p.world
	t := p.targets[w.between(0, len(p.targets)-1)]
	a := t.queue.app
	if t.queue.isLost() || a.process.isDead || p.ends[0].isGone || p.ends[1].isGone {
		return
	}
	if w.chance(0.5) {
		t.queue.destroy()
		return
	}
	if t.far == nil || t.far.area.isGone {
		return
	}
	w.mark("xrc.dereg")
	w.trace.note(w.now, "%s: deregisters the window of a target", a.name)
	p.spoil()
	p.ends[0].may(rdma.WCRemAccessErr)
	a.deregister(t.far.area)
	t.far.model.Close()
}

// destroy ends a shared queue of XRC under the messages that come in: what they were writing to
// stays as it is from now on.
func (s *sharedQueue) destroy() {
	a, w := s.app, s.app.world
	w.mark("xrc.queue_destroyed")
	w.trace.note(w.now, "%s: destroys SRQ %d", a.name, int(s.number))
	for _, p := range w.pairs {
		if p.streamTo(s) != nil && !p.ends[0].isGone {
			p.spoil()
			p.ends[0].may(rdma.WCRemInvReqErr)
		}
	}
	s.cq.pollAll()
	if refusal := a.ctx.DestroySRQ(s.handle); refusal != nil {
		w.court.Failf("%s: destroy_srq: %v", a.name, refusal)
	}
	s.isGone = true
	a.queues = slices.DeleteFunc(a.queues, func(x *sharedQueue) bool { return x == s })
	for _, id := range slices.Sorted(maps.Keys(a.receives)) {
		if r := a.receives[id]; r.shared == s {
			r.drop()
		}
	}
	if s.cq.load -= sharedLoad; s.cq.load == 0 {
		s.cq.destroy()
	}
}

// share is a further handle of a target, with which it outlives who made it (ibv_open_qp(3)).
type share struct {
	app    *app
	handle uint32
}

// share lets other applications of the host open a target.
func (e *endpoint) share() {
	w := e.app.world
	for _, a := range e.app.host.apps {
		if a.isGone || a.process.isDead || !w.chance(0.3) {
			continue
		}
		h, refusal := a.ctx.OpenQP(&abi.OpenQPReq{
			XRCD: a.xrcd, QPN: e.qpn, Type: uint32(rdma.QPTypeXRCRecv),
		})
		if refusal != nil {
			w.court.Failf("%s: open_qp: %v", a.name, refusal)
			continue
		}
		w.mark("xrc.shared")
		e.shares = append(e.shares, share{a, h})
	}
}

// dropShares destroys the further handles; the queue pair goes with the last one of all.
func (e *endpoint) dropShares() {
	for _, s := range e.shares {
		if s.app.isGone {
			continue
		}
		if refusal := s.app.ctx.DestroyQP(e.app.world.now, s.handle); refusal != nil {
			e.app.world.court.Failf("%s: destroy_qp: %v", e.name, refusal)
		}
	}
	e.shares = nil
}

// moveOn hands a target over whose application ends to one that has another handle of it.
func (e *endpoint) moveOn() bool {
	a := e.app
	if !e.isTarget() || a.host.isDown {
		return false
	}
	for i, s := range e.shares {
		if s.app.isGone || s.app == a {
			continue
		}
		a.world.mark("xrc.outlived")
		e.shares = slices.Delete(e.shares, i, i+1)
		a.endpoints = slices.DeleteFunc(a.endpoints, func(x *endpoint) bool { return x == e })
		e.app, e.handle = s.app, s.handle
		e.app.endpoints = append(e.app.endpoints, e)
		return true
	}
	return false
}

// abandon counts the receives of shared queues that a queue pair may have in use as it ends.
func (e *endpoint) abandon() {
	if e.isFlushed() {
		return
	}
	list := []*sharedQueue{}
	if e.srq != nil {
		list = append(list, e.srq)
	}
	if e.isTarget() {
		for _, t := range e.pair.targets {
			list = append(list, t.queue)
		}
	}
	for _, s := range list {
		if s.taken() > s.lost {
			s.lost++
		}
	}
}

// taken returns how many receives queue pairs took that have not completed.
func (s *sharedQueue) taken() uint32 { return s.consumed.Load() - s.done }

// judgeShared finds receives of shared queues that were taken and never completed: at rest no
// message is half there, but where it may have been cut off (IBTA 10.2.9.4).
func (a *app) judgeShared() {
	list := slices.Clone(a.queues)
	if a.srq != nil {
		list = append(list, a.srq)
	}
	for _, s := range list {
		most := s.lost
		for _, e := range a.endpoints {
			if e.srq == s && e.kind == rdma.QPTypeUC {
				most++
			}
		}
		if n := s.taken(); n > most {
			a.world.court.Failf("%s: %d receives of SRQ %#x were taken and did not complete; at most %d "+
				"may be lost", a.name, n, s.number, most)
		}
	}
}
