package sim

import (
	"fmt"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/sim/check"
)

// pair is a connection slot: two endpoints that are connected, fail or are taken down, and are
// replaced by a new connection between applications that are there then.
type pair struct {
	world *World
	kind  rdma.QPType
	ends  [2]*endpoint
	// targets are the shared queues that an XRC connection uses.
	targets []*target
	// isUp: both ends may post. isDoomed: the connection is on its way out.
	ending                    uint32 // the life that a request ends which the peer has to refuse
	spoils                    int    // how often a cause for the end was given
	isUp, isDoomed, isSpoiled bool
	isRenewing                bool // both ends are reset and will connect again
	number                    int  // among the pairs of the world
	tries                     int  // since the world began
	serial                    int  // connections so far; plans for an older one are void
	timeout                   uint8
	retryCnt, rnrRetry        uint8
	maxMessage                int
}

// stir says that verbs were called at both ends.
func (p *pair) stir() {
	for _, e := range p.ends {
		if e != nil {
			e.app.host.stir()
		}
	}
}

const remoteAny = rdma.AccessRemoteWrite | rdma.AccessRemoteRead | rdma.AccessRemoteAtomic |
	rdma.AccessFlushGlobal

// later plans something for this connection.
func (p *pair) later(d time.Duration, run func()) {
	w, serial := p.world, p.serial
	w.at(w.now.Add(d), func() {
		if p.serial != serial {
			return
		}
		p.stir()
		run()
		p.stir() // who may be others now
		w.turnAll()
	})
}

// connect makes a new connection.
func (p *pair) connect() {
	w := p.world
	p.serial++
	p.isUp, p.isDoomed, p.isSpoiled, p.isRenewing = false, false, false, false
	p.ends, p.targets = [2]*endpoint{}, nil
	if w.isCalm {
		return
	}
	a, b := w.pickApp(), w.pickApp()
	if first := w.manyApp(p); first != nil {
		a = first
	}
	if a == nil || b == nil {
		p.later(5*time.Millisecond, p.connect)
		return
	}
	p.maxMessage = w.between(0, w.plan.maxMessage)
	if p.kind == rdma.QPTypeXRCSend {
		p.maxMessage = min(p.maxMessage, sharedMost)
	}
	p.ends[0] = a.newEndpoint(p.kindOf(0), p.maxMessage)
	p.ends[1] = b.newEndpoint(p.kindOf(1), p.maxMessage)
	if p.ends[0] == nil || p.ends[1] == nil {
		p.isDoomed = true
		return
	}
	p.wire()
	p.raise()
}

// wire tells the ends of each other.
func (p *pair) wire() {
	w := p.world
	for i, e := range p.ends {
		e.pair, e.peer = p, p.ends[1-i]
	}
	if p.kind == rdma.QPTypeXRCSend {
		p.findTargets()
		p.newStreams()
		p.ends[1].share()
		return
	}
	p.newStreams()
	for _, e := range p.ends {
		n := max(w.pick(64, 4096, p.maxMessage), 64)
		e.near = e.app.newWindow(e.name+" window", min(n, w.plan.windowsRoom/8))
		e.peer.far = e.near
	}
}

func (p *pair) newStreams() {
	w := p.world
	for _, t := range p.targets {
		t.out = &check.Stream{
			Court: &w.court, Exact: true,
			Name: fmt.Sprintf("%s → SRQ %#x", p.ends[0].name, t.queue.number),
		}
	}
	if p.kind == rdma.QPTypeXRCSend {
		return
	}
	for i, e := range p.ends {
		e.out = &check.Stream{
			Court: &w.court, Name: e.name + " → " + e.peer.name,
			Exact: p.kind == rdma.QPTypeRC, Ordered: w.plan.isOrdered(),
		}
		p.ends[1-i].in = e.out
	}
}

// raise takes both ends to RTS as programs do that talk over a side channel: INIT, receives, RTR
// on both, then RTS at times of their own.
func (p *pair) raise() {
	w := p.world
	if p.isDoomed || w.isCalm || p.ends[0].app.process.isDead || p.ends[1].app.process.isDead {
		return
	}
	if w.streams != nil {
		p.tries++
		p.raiseStream()
		return
	}
	p.timeout = uint8(w.pick(10, 12, 14, 14))
	if w.plan.profile.Delay >= time.Millisecond {
		// A timeout shorter than the way there and back gets through, but one window at a time.
		p.timeout = 14
	}
	p.retryCnt, p.rnrRetry = uint8(w.pick(7, 7, 7, 2)), uint8(w.pick(7, 7, 7, 3))
	for _, e := range p.ends {
		e.psn = rdma.PSN(w.random.Uint32() & rdma.PSNMask)
		if w.chance(0.4) {
			e.psn = rdma.PSN(rdma.PSNMask - w.between(0, 200))
		}
		e.modify(&abi.QPAttr{
			State: uint32(rdma.QPStateInit), Port: 1, AccessFlags: uint32(remoteAny),
		}, rdma.QPAttrState|rdma.QPAttrPort|rdma.QPAttrPKeyIndex|rdma.QPAttrAccessFlags)
		e.fill()
	}
	p.tolerate()
	for _, e := range p.ends {
		if p.isReliable() && !e.isTarget() && e.app.host != e.peer.app.host {
			w.observe.listen(e)
		}
	}
	for i := range p.ends {
		p.later(w.delay(0, 100*time.Microsecond), func() { p.toRTR(i) })
	}
}

// tolerate says which errors the network and the settings give cause for.
func (p *pair) tolerate() {
	w := p.world
	plan := &w.plan
	for _, e := range p.ends {
		e.ledger.May = 0
		if !p.isReliable() {
			continue
		}
		isTight := p.retryCnt < 7 || p.timeout < 14
		if plan.loss() > 0.02 || isTight && (plan.isLossy() || plan.isSluggish()) {
			e.may(rdma.WCRetryExcErr)
		}
		if p.ends[0].mayOverrun || p.ends[1].mayOverrun {
			e.may(rdma.WCRetryExcErr, rdma.WCWRFlushErr)
		}
		if p.rnrRetry < 7 {
			// The other end loses its peer when this one fails.
			e.may(rdma.WCRNRRetryExcErr, rdma.WCRetryExcErr)
		}
	}
}

// isOrdered reports a network on which no packet overtakes another or comes twice.
func (p *plan) isOrdered() bool { return p.profile.Dup == 0 && p.profile.Reorder == 0 }

// isSluggish reports a network or hosts that may need longer than short timeouts allow.
func (p *plan) isSluggish() bool {
	return p.profile.Delay >= time.Millisecond || p.packetCost > time.Microsecond
}

// isLossy reports a network that does not deliver everything in order and soon.
func (p *plan) isLossy() bool {
	return p.loss() > 0 || p.profile.Reorder > 0 || p.profile.Rate > 0 || p.partitions || p.clogs
}

func (p *pair) toRTR(i int) {
	e := p.ends[i]
	if e.isGone || e.peer.isGone || e.qpState() != rdma.QPStateInit {
		return
	}
	w := p.world
	a := abi.QPAttr{
		State: uint32(rdma.QPStateRTR), AH: w.route(e, e.peer), PathMTU: uint32(w.plan.mtu),
		DestQPN: e.peer.qpn, RQPSN: uint32(e.peer.psn), MaxDestRdAtomic: 16,
		MinRNRTimer: uint8(w.pick(1, 4, 8, 12)),
	}
	mask := rdma.QPAttrState | rdma.QPAttrAV | rdma.QPAttrPathMTU | rdma.QPAttrDestQPN |
		rdma.QPAttrRQPSN
	if p.kind == rdma.QPTypeRC || e.isTarget() {
		mask |= rdma.QPAttrMaxDestRdAtomic | rdma.QPAttrMinRNRTimer
	}
	if !e.modify(&a, mask) || e.peer.qpState() != rdma.QPStateRTR {
		return
	}
	for j := range p.ends {
		p.later(w.delay(0, 200*time.Microsecond), func() { p.toRTS(j) })
	}
}

func (p *pair) toRTS(i int) {
	e := p.ends[i]
	if e.isGone || e.qpState() != rdma.QPStateRTR {
		return
	}
	w := p.world
	a := abi.QPAttr{
		State: uint32(rdma.QPStateRTS), SQPSN: uint32(e.psn), Timeout: p.timeout,
		RetryCnt: p.retryCnt, RNRRetry: p.rnrRetry, MaxRdAtomic: uint8(w.pick(1, 2, 16)),
	}
	mask := rdma.QPAttrState | rdma.QPAttrSQPSN
	switch {
	case e.isTarget():
		mask |= rdma.QPAttrTimeout
	case p.isReliable():
		mask |= rdma.QPAttrTimeout | rdma.QPAttrRetryCnt | rdma.QPAttrRNRRetry |
			rdma.QPAttrMaxQPRdAtomic
	}
	// A target needs no send queue, and many programs leave it where it can receive.
	if e.isTarget() && w.chance(0.3) || e.modify(&a, mask) {
		e.isOpen = true
		p.isUp = p.ends[0].isOpen && p.ends[1].isOpen
		w.mark("connected." + p.kind.String())
	}
}

// route describes the way from one endpoint to another.
func (w *World) route(from, to *endpoint) abi.AHAttr {
	index := w.between(0, 1)
	if from.pair != nil {
		// Both ends have to choose the same addresses.
		index = from.pair.serial & 1
	}
	a := abi.AHAttr{
		DGID: to.app.host.gids[index], SGIDIndex: uint8(index), IsGlobal: 1, Port: 1,
		HopLimit: uint8(w.pick(0, 1, 64)), FlowLabel: uint32(w.pick(0, 0x12345)),
	}
	if w.plan.marks > 0 {
		a.TrafficClass = 2 // ECN-capable
	}
	return a
}

// spoil tolerates what an error of one end does to both.
func (p *pair) spoil() {
	p.isSpoiled = true
	p.spoils++
	for _, e := range p.ends {
		if p.world.streams != nil {
			e.may(rdma.WCWRFlushErr)
			continue
		}
		e.may(rdma.WCRetryExcErr, rdma.WCWRFlushErr, rdma.WCRNRRetryExcErr)
	}
}

// lost hears that an end is gone.
func (p *pair) lost(e *endpoint) {
	p.isUp = false
	if p.world.streams != nil {
		p.spoil()
	}
	for _, x := range p.ends {
		if x != nil && !x.isGone {
			x.may(rdma.WCRetryExcErr, rdma.WCRNRRetryExcErr)
		}
	}
	p.doom(0)
}

// doom ends the connection after a while and makes a new one.
func (p *pair) doom(d time.Duration) {
	if p.isDoomed {
		return
	}
	p.isDoomed = true
	w := p.world
	first := w.between(0, 1)
	p.later(d+w.delay(0, 10*time.Millisecond), func() {
		p.destroy(first)
		p.later(w.delay(0, 20*time.Millisecond), func() {
			p.destroy(1 - first)
			p.later(w.delay(0, 5*time.Millisecond), p.connect)
		})
	})
}

func (p *pair) destroy(i int) {
	if e := p.ends[i]; e != nil && !e.isGone {
		e.destroy()
	}
}

// watch looks for connections that failed or have lived long enough, from time to time.
func (p *pair) watch() {
	w := p.world
	w.at(w.now.Add(w.slowDown(w.delay(500*time.Microsecond, 3*time.Millisecond))), func() {
		for _, e := range p.ends {
			if e == nil || e.isGone {
				continue
			}
			e.noteError()
			if e.errorAt != clock.Never && (w.streams == nil || !p.isRenewing) {
				p.spoil()
				p.doom(flushTime)
			}
			e.judgeDrain()
			if w.chance(0.1) && w.streams == nil {
				e.inspect()
			}
		}
		if p.isUp && !p.isDoomed && !w.isCalm && w.plan.cycles && w.chance(0.08) {
			p.cycle()
		}
		if p.isUp && !p.isDoomed && !w.isCalm && w.chance(w.plan.strips) && len(p.targets) > 0 {
			p.strip()
		}
		p.stir()
		w.turnAll()
		if !w.isSettled() {
			p.watch()
		}
	})
}

// cycle lets an application do something with the connection's state.
func (p *pair) cycle() {
	w := p.world
	e := p.ends[w.between(0, 1)]
	switch w.between(0, 5) {
	case 0, 1, 2:
		if w.streams != nil {
			e.disconnect()
			return
		}
		e.drain()
	case 3:
		w.mark("cycle.error")
		p.spoil()
		p.now(e, func() {
			e.setState(rdma.QPStateError)
			e.noteError()
		})
	case 4:
		p.now(e, p.renew)
	case 5:
		w.mark("cycle.destroy")
		p.spoil()
		p.now(e, func() { p.doom(0) })
	}
}

// now does something to an end, or at its next message between two packets of it.
func (p *pair) now(e *endpoint, do func()) {
	if p.world.chance(0.5) {
		p.world.strike(e, do)
		return
	}
	do()
}

// quarantine is longer than any packet lives: until then those of a queue pair's former life may
// arrive, and its new one could take them for its own.
const quarantine = 100 * time.Millisecond

// renew resets both ends, one after the other, and connects them again.
func (p *pair) renew() {
	w := p.world
	w.mark("cycle.reset")
	p.spoil()
	p.isUp, p.isRenewing = false, true
	first := w.between(0, 1)
	p.reset(first)
	p.later(w.delay(0, 2*time.Millisecond), func() {
		if p.isDoomed {
			return
		}
		p.reset(1 - first)
		p.later(quarantine, func() {
			if p.isDoomed || w.isCalm {
				return
			}
			for _, e := range p.ends {
				e.newLedgers()
				e.errorAt, e.drainTill = clock.Never, clock.Never
				if e.near != nil && !e.near.area.isGone {
					e.near.renew()
				}
			}
			for _, t := range p.targets {
				if t.far != nil && !t.far.area.isGone && !t.queue.app.isGone {
					t.far.renew()
				}
			}
			p.newStreams()
			p.isSpoiled = false
			p.isRenewing = false
			w.mark("cycle.renew")
			p.raise()
		})
	})
}

func (p *pair) reset(i int) {
	e := p.ends[i]
	if e.isGone {
		return
	}
	e.drainCQs()
	e.abandon()
	if p.world.streams != nil && p.world.chance(0.5) {
		e.hangUp()
		e.drainCQs()
	}
	e.setState(rdma.QPStateReset)
	e.hangUp()
	e.isOpen = false
	e.forget()
	e.removeDoor()
	p.world.observe.forget(e)
}

// drainTime is how long a drain may take when the network lets it.
const drainTime = 5 * time.Second

// drain takes the send queue to SQD and, once it is drained, back to RTS.
func (e *endpoint) drain() {
	w := e.app.world
	if e.qpState() != rdma.QPStateRTS || e.drainTill != clock.Never {
		return
	}
	w.mark("cycle.drain")
	e.isDrained = false
	e.drainTill = w.now.Add(drainTime)
	e.modify(&abi.QPAttr{State: uint32(rdma.QPStateSQD), EnSQDAsyncNotify: 1},
		rdma.QPAttrState|rdma.QPAttrEnSQDAsyncNotify)
}

// judgeDrain follows a drain: the event comes, and then the queue goes on.
func (e *endpoint) judgeDrain() {
	w := e.app.world
	if e.drainTill == clock.Never {
		return
	}
	if e.qpState() != rdma.QPStateSQD {
		e.drainTill = clock.Never
		return
	}
	if !e.isDrained {
		if w.now > e.drainTill {
			w.court.Failf("%s: SQD for %v and no event", e.name, drainTime)
			e.drainTill = clock.Never
		}
		return
	}
	a, refusal := e.app.ctx.QueryQP(e.handle)
	if refusal != nil || a.SQDraining != 0 {
		w.court.Failf("%s: drained, yet query_qp says draining (%v)", e.name, refusal)
	}
	w.mark("sq.drained")
	if w.chance(0.5) {
		e.retune()
	}
	e.drainTill = clock.Never
	e.setState(rdma.QPStateRTS)
}

func (p *pair) String() string { return fmt.Sprintf("%v connection %d", p.kind, p.serial) }
