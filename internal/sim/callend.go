package sim

import (
	"fmt"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/sim/check"
)

// call is one connect and what comes of it.
type call struct {
	token          uint64
	kind           rdma.QPType
	target         service
	private, reply []byte
	askedAt        clock.Time
	from           *callEnd
	to             []*callEnd // one in each life of the target's NIC, and more after a refusal
	isEnding       bool       // somebody has done what ends it
	isDeclined     bool       // by the passive side
	number         number
	isFirst        bool     // the number was not connected before
	group          rdma.GID // of datagrams to many
	heard          int      // datagrams
}

// callEnd is one communication identifier.
type callEnd struct {
	fate            check.End
	caller          *caller
	handle, channel uint32
	kind            rdma.QPType
	isActive        bool
	isGone          bool
	call            *call // nil of a listener
	remote          number
	plug            *plug
	rtr, rts        abi.QPAttr // what the queue pair was moved with
	space           uint32
	group           rdma.GID // that a datagram end wants to join
	join            uint32
	before          int  // messages heard before the last words
	isTold          bool // the peer says something then
}

// Port spaces.
const (
	spaceTCP = 0x0106
	spaceUDP = 0x0111
	spaceIB  = 0x013f
)

// Events about calls end within what the managers try for: a message and its repetitions, and what
// a busy host adds.
const (
	managerTime  = 16 * 4294967296 * time.Nanosecond
	callTime     = managerTime + time.Second
	timewaitTime = 70 * time.Second // the most that an ACK timeout makes it
	deedTime     = 30 * time.Second // lookups, and what needs no peer
)

func (c *caller) newEnd(box *mailbox, kind rdma.QPType) *callEnd {
	space := map[rdma.QPType]uint32{
		rdma.QPTypeRC: spaceTCP, rdma.QPTypeUC: spaceIB, rdma.QPTypeUD: spaceUDP,
		rdma.QPTypeXRCSend: spaceTCP, rdma.QPTypeXRCRecv: spaceTCP,
	}[kind]
	handle, refusal := c.session.CreateID(&abi.CreateIDReq{
		Channel: box.handle, PortSpace: space, QPType: uint32(kind),
	})
	if refusal != nil {
		c.world.court.Failf("%s: create_id: %v", c.name, refusal)
		return nil
	}
	e := c.addEnd(handle, box.handle, kind)
	e.isActive, e.space = true, space
	return e
}

func (c *caller) addEnd(handle, channel uint32, kind rdma.QPType) *callEnd {
	e := &callEnd{
		caller: c, handle: handle, channel: channel, kind: kind,
		fate: check.End{Court: &c.world.court, Name: fmt.Sprintf("%s %v id %d", c.name, kind, handle)},
	}
	if c.ends[handle] != nil {
		c.world.court.Failf("%s is there twice", e.fate.Name)
	}
	c.ends[handle] = e
	return e
}

// due judges, after a while, that something has happened to the end.
func (e *callEnd) due(what string, d time.Duration) {
	w, turns := e.caller.world, e.fate.Turns()
	var look func()
	look = func() {
		switch {
		case e.isGone || e.caller.isGone || e.fate.Turns() != turns:
		case e.fate.Patience > w.now:
			w.at(e.fate.Patience, look)
		default:
			w.court.Failf("%v: %s has no outcome after %v", &e.fate, what, d)
		}
	}
	w.at(w.now.Add(d), look)
}

// react does what programs do about an event.
func (e *callEnd) react(r *abi.CMEvent) {
	c, w := e.caller, e.caller.world
	switch check.CMEvent(r.Event) {
	case check.AddrResolved:
		e.routeOrJoin()
	case check.RouteResolved:
		if e.fate.State() == check.EndRouted {
			e.ask()
		}
	case check.ConnectRequest:
		d := w.delay(0, w.board.plan.think)
		if w.chance(w.board.plan.sluggish) {
			d = w.delay(10*time.Second, 200*time.Second)
			w.mark("call.sluggish")
		}
		c.after(d, e.decide)
	case check.ConnectResponse:
		c.after(w.delay(0, w.board.plan.think), e.complete)
	case check.Established:
		e.talk()
	case check.MulticastJoin:
		e.joined(r)
	case check.AddrError, check.Rejected, check.Unreachable:
		c.after(w.delay(0, time.Second), e.destroy)
	case check.Disconnected:
		e.hangUp()
	case check.TimewaitExit:
		e.destroy()
	default:
	}
}

// talk sends a message to the peer. By XRC only one end can, to a shared queue of the other, whose
// number programs tell each other in private data.
func (e *callEnd) talk() {
	if e.isGone || e.plug == nil || e.fate.State() != check.EndUp || e.plug.said >= talkMax {
		return
	}
	p := e.peer()
	wqe := abi.SendWQE{}
	switch e.kind {
	case rdma.QPTypeXRCRecv:
		return
	case rdma.QPTypeXRCSend:
		if p == nil {
			return
		}
		wqe.Extra = p.plug.srqn
	default:
	}
	e.plug.say(e.call, wqe)
	if p != nil {
		p.isTold = true
	}
}

// hangUp does what programs do when the peer has gone: most disconnect too, and many do not wait
// for the end of TIMEWAIT.
func (e *callEnd) hangUp() {
	w := e.caller.world
	if w.chance(0.5) && e.fate.State() == check.EndDown {
		if r := e.caller.session.Disconnect(w.now, e.handle); r != nil {
			w.court.Failf("%v: disconnect: %v", &e.fate, r)
		}
	}
	if w.chance(0.5) {
		e.destroy()
	}
}

func (e *callEnd) routeOrJoin() {
	c, w := e.caller, e.caller.world
	if e.fate.State() != check.EndResolved {
		return
	}
	if !e.group.IsZero() {
		e.joinGroup()
		return
	}
	if r := c.session.ResolveRoute(w.now, &abi.CMAddrReq{ID: e.handle}); r != nil {
		w.court.Failf("%v: resolve_route: %v", &e.fate, r)
	}
	e.fate.Move(check.EndRouting)
	e.due("resolve_route", deedTime)
}

// param is what programs pass to connect and accept.
func (e *callEnd) param(private []byte) abi.CMParam {
	w := e.caller.world
	p := abi.CMParam{
		ResponderResources: uint8(w.between(0, 16)), InitiatorDepth: uint8(w.between(0, 16)),
		RetryCount: 7, RNRRetryCount: 7, PrivateDataLen: uint8(len(private)),
	}
	copy(p.PrivateData[:], private)
	if e.plug != nil {
		p.QPN = e.plug.qpn
	}
	return p
}

// ask connects.
func (e *callEnd) ask() {
	c, w, k := e.caller, e.caller.world, e.call
	if e.kind != rdma.QPTypeUD {
		if e.plug = c.newPlug(e.kind, k, true); e.plug == nil {
			e.destroy()
			return
		}
		e.move(rdma.QPStateInit)
		k.number = number{c.host.index, e.plug.qpn}
		w.board.numbers[k.number]++
		k.isFirst = w.board.numbers[k.number] == 1
	}
	k.askedAt = w.now
	w.trace.note(w.now, "%s: calls, token %d", e.fate.Name, k.token)
	r := c.session.Connect(w.now, &abi.CMConnReq{ID: e.handle, Param: e.param(k.private)})
	if r != nil {
		w.court.Failf("%v: connect: %v", &e.fate, r)
		return
	}
	state := check.EndAsking
	if e.kind == rdma.QPTypeUD {
		state = check.EndQuerying
	}
	w.mark("call.asked." + e.kind.String())
	e.fate.Move(state)
	e.due("connect", callTime)
}

// number is a queue pair of a host.
type number struct {
	host int
	qpn  uint32
}

// move takes the queue pair to a state with the attributes that rdma_cm gives.
func (e *callEnd) move(to rdma.QPState) bool {
	c := e.caller
	rsp, r := c.session.InitQPAttr(&abi.CMInitQPAttrReq{ID: e.handle, State: uint32(to)})
	if r != nil {
		c.world.court.Failf("%v: init_qp_attr to %v: %v", &e.fate, to, r)
		return false
	}
	switch to {
	case rdma.QPStateRTR:
		e.rtr = rsp.Attr
	case rdma.QPStateRTS:
		e.rts = rsp.Attr
	default:
	}
	if !e.plug.modify(&rsp.Attr, rdma.QPAttrMask(rsp.Mask)) {
		return false
	}
	if to == rdma.QPStateInit && e.plug.rq != nil {
		for i := range talkMax {
			e.plug.receive(i)
		}
	}
	return true
}

// decide answers a request.
func (e *callEnd) decide() {
	w := e.caller.world
	switch {
	case e.isGone || e.fate.State() != check.EndRequested:
	case w.chance(0.1):
		e.reject()
	case w.chance(0.05):
		e.destroy()
	default:
		e.accept()
	}
}

func (e *callEnd) accept() {
	c, w := e.caller, e.caller.world
	p := e.param(e.call.reply)
	if e.kind == rdma.QPTypeUD {
		p.QPN = c.own.qpn
	} else {
		if e.plug = c.newPlug(e.kind, e.call, false); e.plug == nil {
			e.reject()
			return
		}
		for _, s := range []rdma.QPState{rdma.QPStateInit, rdma.QPStateRTR, rdma.QPStateRTS} {
			if !e.move(s) {
				e.reject()
				return
			}
		}
		p.QPN = e.plug.qpn
		w.board.numbers[number{c.host.index, p.QPN}]++
		p.ResponderResources, p.InitiatorDepth = e.rtr.MaxDestRdAtomic, e.rts.MaxRdAtomic
	}
	w.trace.note(w.now, "%s: accepts, token %d", e.fate.Name, e.call.token)
	if r := c.session.Accept(w.now, &abi.CMConnReq{ID: e.handle, Param: p}); r != nil {
		w.court.Failf("%v: accept: %v", &e.fate, r)
		return
	}
	if e.kind == rdma.QPTypeUD {
		e.fate.Move(check.EndServing)
		return
	}
	e.fate.Move(check.EndAccepted)
	e.due("accept", callTime)
	if w.chance(0.05) {
		c.after(w.delay(0, 500*time.Millisecond), e.destroy)
	}
}

func (e *callEnd) reject() {
	c, w := e.caller, e.caller.world
	e.call.end(!e.isActive)
	r := c.session.Reject(w.now, &abi.CMConnReq{ID: e.handle, Param: abi.CMParam{}})
	if r != nil {
		w.court.Failf("%v: reject: %v", &e.fate, r)
	}
	w.mark("call.rejects")
	e.fate.Move(check.EndOver)
	c.after(w.delay(0, time.Second), e.destroy)
}

// complete finishes the active side of a connection.
func (e *callEnd) complete() {
	c, w := e.caller, e.caller.world
	switch {
	case e.isGone:
		return
	case e.fate.State() == check.EndAnswered && w.chance(0.1):
		e.reject()
		return
	case e.fate.State() != check.EndAnswered:
		// It has ended in the meantime, and the program does not know.
		if r := c.session.Establish(w.now, e.handle); r == nil {
			w.court.Failf("%v: establish is granted", &e.fate)
		}
		return
	}
	if !e.move(rdma.QPStateRTR) || !e.move(rdma.QPStateRTS) {
		e.reject()
		return
	}
	e.judgeAnswer()
	var err error
	if r := c.session.Establish(w.now, e.handle); r != nil {
		err = r
	}
	e.fate.Agrees("establish", true, err)
	e.fate.Move(check.EndUp)
	w.mark("call.up." + e.kind.String())
	e.talk()
}

// notify passes the news that the first packet has come on, as programs do that get COMM_EST.
func (e *callEnd) notify() {
	c := e.caller
	if e.isGone || e.fate.State() != check.EndAccepted && e.fate.State() != check.EndUp {
		return
	}
	r := c.session.Notify(c.world.now, &abi.CMNotifyReq{
		ID: e.handle, Event: uint32(rdma.EventCommEst),
	})
	if r != nil {
		c.world.court.Failf("%v: notify: %v", &e.fate, r)
	}
}

func (e *callEnd) disconnect() {
	c, w := e.caller, e.caller.world
	e.call.end(false)
	w.trace.note(w.now, "%s: disconnects", e.fate.Name)
	if r := c.session.Disconnect(w.now, e.handle); r != nil {
		w.court.Failf("%v: disconnect: %v", &e.fate, r)
	}
	e.due("disconnect", callTime)
}

func (e *callEnd) migrate(to *mailbox) {
	c := e.caller
	r := c.session.MigrateID(&abi.CMMigrateReq{ID: e.handle, Channel: to.handle})
	if r != nil {
		c.world.court.Failf("%v: migrate_id: %v", &e.fate, r)
		return
	}
	c.world.mark("call.migrated")
	e.channel = to.handle
}

// end says that somebody has done what ends the call.
func (k *call) end(isDeclined bool) {
	if k != nil {
		k.isEnding = true
		k.isDeclined = k.isDeclined || isDeclined
	}
}

// destroy ends an identifier, after its queue pair.
func (e *callEnd) destroy() {
	c, w := e.caller, e.caller.world
	if e.isGone {
		return
	}
	w.trace.note(w.now, "%s: destroyed", e.fate.Name)
	e.retire()
	if r := c.session.DestroyID(w.now, e.handle); r != nil {
		w.court.Failf("%v: destroy_id: %v", &e.fate, r)
	}
	e.vanish()
}

// retire does what comes before the end of an identifier.
func (e *callEnd) retire() {
	if e.fate.State() == check.EndListening {
		delete(e.caller.world.board.lit, e.caller.service(e.kind))
	}
	e.sayFarewell()
	if e.plug != nil {
		e.plug.destroy()
	}
}

// vanish forgets an identifier that is gone in one way or another.
func (e *callEnd) vanish() {
	e.call.end(!e.isActive)
	e.isGone = true
	delete(e.caller.ends, e.handle)
}
