package sim

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/sim/check"
)

// streamPort is what every application listens to, plus its number.
const streamPort = 7000

// dialState is where an end is on its way to a connection.
type dialState uint8

const (
	dialIdle dialState = iota
	dialResolving
	dialRouting
	dialAsking // connect or accept was called
	dialUp
	dialOver
)

// dial is an end's identifier of rdma_cm.
type dial struct {
	state dialState
	id    uint32
}

// openStreams has an application listen for those who connect with it.
func (a *app) openStreams() {
	w := a.world
	session, refusal := a.host.nic.OpenCM(w.now, nic.CMConfig{
		Name: a.name, PID: uint32(1000 + w.appCount), UID: 1000, PortMin: 1024, Owner: a,
	})
	if refusal != nil {
		w.court.Failf("%s: open the connection manager: %v", a.name, refusal)
		return
	}
	a.session, a.port = session, streamPort+uint16(w.appCount)
	a.box, refusal = session.CreateEventChannel()
	if refusal == nil {
		a.listener, refusal = session.CreateID(&abi.CreateIDReq{
			Channel: a.box, PortSpace: spaceTCP, QPType: uint32(rdma.QPTypeRC),
		})
	}
	if refusal == nil {
		_, refusal = session.BindAddr(&abi.CMAddrReq{ID: a.listener, Src: abi.CMAddr{
			Family: 10, Port: a.port,
		}})
	}
	if refusal == nil {
		_, refusal = session.Listen(&abi.CMListenReq{ID: a.listener})
	}
	if refusal != nil {
		w.court.Failf("%s: listen: %v", a.name, refusal)
	}
}

// raiseStream connects both ends by rdma_cm.
func (p *pair) raiseStream() {
	w := p.world
	for _, e := range p.ends {
		e.dial = dial{}
		e.modify(&abi.QPAttr{
			State: uint32(rdma.QPStateInit), AccessFlags: uint32(remoteStreamed),
		}, rdma.QPAttrState|rdma.QPAttrAccessFlags)
		e.fill()
		e.ledger.May = 0
	}
	p.later(w.delay(0, 100*time.Microsecond), func() { p.call() })
}

const remoteStreamed = rdma.AccessLocalWrite | rdma.AccessRemoteWrite | rdma.AccessRemoteRead |
	rdma.AccessRemoteAtomic

// call resolves the address of the second end.
func (p *pair) call() {
	e := p.ends[0]
	if e.isGone || e.peer.isGone || p.isDoomed {
		return
	}
	w, a := p.world, e.app
	id, refusal := a.session.CreateID(&abi.CreateIDReq{
		Channel: a.box, PortSpace: spaceTCP, QPType: uint32(rdma.QPTypeRC),
	})
	if refusal == nil {
		e.dial.id = id
		a.dials[id] = e
		refusal = a.session.ResolveAddr(w.now, &abi.CMAddrReq{
			ID: id, TimeoutMS: 2000,
			Dst: addr(e.peer.app.host.gids[p.serial&1], e.peer.app.port),
		})
	}
	if refusal != nil {
		w.court.Failf("%s: resolve_addr: %v", e.name, refusal)
		return
	}
	e.dial.state = dialResolving
}

// token names a connection of a pair in private data.
func (p *pair) token() []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(p.number))
	b = binary.BigEndian.AppendUint32(b, p.life())
	return append(b, make([]byte, p.world.between(0, 40))...)
}

// life tells the connections of a pair apart.
func (p *pair) life() uint32 { return uint32(p.serial)<<8 | uint32(p.tries&0xff) }

// pairOf finds the pair whose connection has private data; nil where that is gone.
func (w *World) pairOf(private []byte) *pair {
	if len(private) < 8 {
		return nil
	}
	p := w.pairs[binary.BigEndian.Uint32(private)]
	if binary.BigEndian.Uint32(private[4:]) != p.life() {
		return nil
	}
	return p
}

// hear takes an event of the connection manager.
func (a *app) hear(e *nic.ConnectionEvent) {
	w, r := a.world, &e.Record
	kind := check.CMEvent(r.Event)
	w.trace.note(w.now, "%s: event %d about %d, status %d", a.name, int(kind), int(r.ID),
		int(r.Status))
	w.mark(fmt.Sprintf("cm.event.%d", kind))
	if w.streams.isDeaf != nil && w.streams.isDeaf(kind) {
		return
	}
	if a.isGone {
		w.court.Failf("%s: event %d for a program that is gone", a.name, kind)
		return
	}
	if kind == check.ConnectRequest {
		a.requested(r)
		return
	}
	x := a.dials[r.ID]
	if x == nil {
		w.court.Failf("%s: event %d about %d, which is no identifier", a.name, kind, r.ID)
		return
	}
	x.heard(kind, r.Status)
}

// requested takes a call: the program decides a moment later.
func (a *app) requested(r *abi.CMEvent) {
	w, id := a.world, r.ID
	p := w.pairOf(r.Param.PrivateData[:r.Param.PrivateDataLen])
	if p == nil || p.ends[1] == nil || p.ends[1].app != a || p.ends[1].isGone ||
		p.ends[1].dial.id != 0 {
		w.mark("cm.stale_request")
		a.after(0, func() { a.session.DestroyID(w.now, id) })
		return
	}
	e := p.ends[1]
	e.dial = dial{dialIdle, id}
	a.dials[id] = e
	serial := p.serial
	a.after(w.delay(0, 200*time.Microsecond), func() {
		if p.serial == serial && e.dial.id == id && !e.isGone {
			e.answer()
		}
	})
}

// answer accepts or rejects.
func (e *endpoint) answer() {
	w, a := e.app.world, e.app
	if w.chance(w.streams.rejects) && !w.isCalm {
		w.mark("cm.reject")
		e.pair.spoil()
		if r := a.session.Reject(w.now, &abi.CMConnReq{ID: e.dial.id}); r != nil && r.Errno != 104 {
			w.court.Failf("%s: reject: %v", e.name, r)
		}
		e.dial.state = dialOver
		e.pair.doom(0)
		return
	}
	r := a.session.Accept(w.now, &abi.CMConnReq{ID: e.dial.id, Param: e.params(nil)})
	if r != nil {
		if !e.pair.isSpoiled {
			w.court.Failf("%s: accept: %v", e.name, r)
		}
		e.dial.state = dialOver
		e.pair.doom(0)
		return
	}
	e.dial.state = dialAsking
}

func (e *endpoint) params(private []byte) abi.CMParam {
	w := e.app.world
	p := abi.CMParam{
		QPN: e.qpn, ResponderResources: uint8(w.pick(1, 2, 16)),
		InitiatorDepth: uint8(w.pick(1, 2, 16)), PrivateDataLen: uint8(len(private)),
	}
	copy(p.PrivateData[:], private)
	return p
}

// heard moves an end by an event about its connection.
func (e *endpoint) heard(kind check.CMEvent, status int32) {
	w, d := e.app.world, &e.dial
	p := e.pair
	switch {
	case kind == check.AddrResolved && d.state == dialResolving:
		d.state = dialRouting
		e.soon(func() {
			r := e.app.session.ResolveRoute(w.now, &abi.CMAddrReq{ID: d.id, TimeoutMS: 2000})
			if r != nil {
				w.court.Failf("%s: resolve_route: %v", e.name, r)
			}
		})
	case kind == check.RouteResolved && d.state == dialRouting:
		e.soon(e.connect)
	case kind == check.Established && d.state == dialAsking:
		d.state = dialUp
		e.isOpen = true
		p.isUp = p.ends[0].isOpen && p.ends[1].isOpen
		w.mark("connected.iwarp")
		if w.now < max(e.app.sleepTill, e.peer.app.sleepTill) {
			p.spoil()
		}
	case kind == check.Disconnected && d.state == dialUp:
		d.state = dialOver
		if !p.isSpoiled {
			w.court.Failf("%s: disconnected (%d) without a cause", e.name, status)
		}
		if !p.isRenewing {
			p.doom(flushTime)
		}
	case kind == check.TimewaitExit && d.state == dialOver:
	case status != 0 && d.state == dialAsking &&
		(kind == check.Rejected || kind == check.Unreachable || kind == check.ConnectError):
		d.state = dialOver
		p.spoil()
		p.doom(0)
	default:
		w.court.Failf("%s: event %d (status %d) in dial state %d", e.name, kind, status, d.state)
	}
}

// soon does something for this connection a moment later.
func (e *endpoint) soon(run func()) {
	w, serial, id := e.app.world, e.pair.serial, e.dial.id
	e.app.after(w.delay(0, 50*time.Microsecond), func() {
		if e.pair.serial == serial && e.dial.id == id && !e.isGone {
			run()
		}
	})
}

func (e *endpoint) connect() {
	w := e.app.world
	p := e.pair
	if e.qpState() != rdma.QPStateInit {
		return // reset meanwhile, or failed
	}
	r := e.app.session.Connect(w.now, &abi.CMConnReq{ID: e.dial.id, Param: e.params(p.token())})
	if r != nil {
		w.court.Failf("%s: connect: %v", e.name, r)
		return
	}
	e.dial.state = dialAsking
}

// disconnect ends the connection in order.
func (e *endpoint) disconnect() {
	w := e.app.world
	if e.dial.state != dialUp {
		return
	}
	w.mark("cycle.disconnect")
	wasSpoiled := e.pair.isSpoiled
	e.pair.spoil()
	if !wasSpoiled {
		e.parted = parting{last: w.ids, spoils: e.pair.spoils}
	}
	e.isOpen = false
	if w.chance(0.3) && e.qpState() == rdma.QPStateRTS {
		w.mark("cycle.closing")
		e.setState(rdma.QPStateSQD) // which is CLOSING on iWARP
		return
	}
	if r := e.app.session.Disconnect(w.now, e.dial.id); r != nil {
		w.court.Failf("%s: disconnect: %v", e.name, r)
	}
}

// parting is an orderly end: what was posted by then gets done, unless something else comes
// between.
type parting struct {
	last   uint64 // the last request number by then; 0: no parting
	spoils int    // causes for another end by then
}

// judgeParting judges the end of a request.
func (e *endpoint) judgeParting(id uint64, status rdma.WCStatus) {
	x := &e.parted
	if id > x.last || e.pair == nil || e.pair.spoils != x.spoils || e.isGone {
		return
	}
	w := e.app.world
	w.mark("parting.done")
	if status != rdma.WCSuccess {
		w.court.Failf("%s: request %d (%v) was posted before disconnect and is not done", e.name, id,
			status)
	}
}

// hangUp destroys the identifier.
func (e *endpoint) hangUp() {
	id := e.dial.id
	if id == 0 || e.app.isGone {
		return
	}
	e.app.host.tellCalls() // what is on its way already is about the identifier
	e.dial = dial{}
	delete(e.app.dials, id)
	if r := e.app.session.DestroyID(e.app.world.now, id); r != nil {
		e.app.world.court.Failf("%s: destroy_id: %v", e.name, r)
	}
}

// unseen is a WRITE that is complete, which on iWARP says that TCP has its bytes and no more.
type unseen struct {
	model  *check.Window
	record *check.Write
	leave  func()
}

// wrote takes the success of a WRITE.
func (e *endpoint) wrote(x *window, record *check.Write, leave func()) {
	if e.app.world.streams == nil {
		leave()
		x.model.Confirm(record)
		return
	}
	e.unseen = append(e.unseen, unseen{x.model, record, leave})
}

// see says that all WRITEs that were complete by now are in the memory of the peer: the answer to
// a later request came (RFC 5040 5.5).
func (e *endpoint) see() {
	for _, u := range e.unseen {
		u.leave()
		u.model.Confirm(u.record)
	}
	e.unseen = nil
}

// lookAt judges, as a message completes a receive, that the WRITEs before it are there.
func (e *endpoint) lookAt(m *check.Message) {
	x := e.far
	if e.app.world.streams == nil || x == nil || x.area.isGone {
		return
	}
	list, before := x.model.Pending(), m.Landed
	m.Landed = func() {
		if before != nil {
			before()
		}
		if !x.area.isGone && !x.area.app.isGone {
			x.model.Flushed(list)
		}
	}
}
