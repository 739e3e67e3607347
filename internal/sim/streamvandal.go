package sim

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/sim/check"
)

// hearer is whoever owns a session of the connection manager.
type hearer interface {
	hear(e *nic.ConnectionEvent)
}

// vandalCM is how a vandal comes by connections of iWARP.
type vandalCM struct {
	session *nic.CMSession
	box     uint32
	port    uint16
	asking  map[uint32]*vandalQP // by identifier
	ids     []uint32             // of all connections, oldest first
}

const (
	vandalPort   = 20000
	vandalIDsMax = 8
)

// openStreams has a vandal listen.
func (v *vandal) openStreams() *rdma.Refusal {
	w := v.world
	session, refusal := v.host.nic.OpenCM(w.now, nic.CMConfig{
		Name: "vandal", PortMin: 1024, Owner: v,
	})
	if refusal != nil {
		return refusal
	}
	m := &vandalCM{
		session: session, port: vandalPort + uint16(len(w.vandals)), asking: map[uint32]*vandalQP{},
	}
	v.cm = m
	m.box, refusal = session.CreateEventChannel()
	if refusal != nil {
		return refusal
	}
	id, refusal := v.newID()
	if refusal == nil {
		_, refusal = session.BindAddr(&abi.CMAddrReq{ID: id, Src: abi.CMAddr{
			Family: 10, Port: m.port,
		}})
	}
	if refusal == nil {
		_, refusal = session.Listen(&abi.CMListenReq{ID: id})
	}
	return refusal
}

func (v *vandal) newID() (uint32, *rdma.Refusal) {
	return v.cm.session.CreateID(&abi.CreateIDReq{
		Channel: v.cm.box, PortSpace: spaceTCP, QPType: uint32(rdma.QPTypeRC),
	})
}

// keep remembers an identifier and destroys the oldest where there are many.
func (v *vandal) keep(id uint32) {
	m := v.cm
	m.ids = append(m.ids, id)
	if len(m.ids) > vandalIDsMax {
		_ = m.session.DestroyID(v.world.now, m.ids[0])
		delete(m.asking, m.ids[0])
		m.ids = m.ids[1:]
	}
}

// dial connects a queue pair with its peer, whatever state both are in. Refusals are none of
// anybody's business.
func (q *vandalQP) dial() {
	v, w := q.v, q.v.world
	id, refusal := v.newID()
	if refusal != nil {
		return
	}
	v.keep(id)
	v.cm.asking[id] = q
	_ = v.cm.session.ResolveAddr(w.now, &abi.CMAddrReq{
		ID: id, TimeoutMS: 2000, Dst: addr(q.peer.v.host.gids[0], q.peer.v.cm.port),
	})
}

// prepare takes a queue pair to INIT.
func (q *vandalQP) prepare() {
	for _, s := range []rdma.QPState{rdma.QPStateReset, rdma.QPStateInit} {
		_, _ = q.v.ctx.ModifyQP(q.v.world.now, &abi.ModifyQPReq{
			Handle: q.rsp.Handle, Mask: uint32(rdma.QPAttrState | rdma.QPAttrAccessFlags),
			Attr: abi.QPAttr{State: uint32(s), AccessFlags: uint32(remoteStreamed)},
		})
	}
}

// hear does the next step of a connection, a moment later.
func (v *vandal) hear(e *nic.ConnectionEvent) {
	w, r := v.world, e.Record
	w.at(w.now, func() {
		if !v.isGone && !v.host.isDown && !w.isCalm {
			v.heed(&r)
			v.host.turn()
		}
	})
}

func (v *vandal) heed(r *abi.CMEvent) {
	w, s := v.world, v.cm.session
	q := v.cm.asking[r.ID]
	switch check.CMEvent(r.Event) {
	case check.AddrResolved:
		_ = s.ResolveRoute(w.now, &abi.CMAddrReq{ID: r.ID, TimeoutMS: 2000})
	case check.RouteResolved:
		if q != nil {
			q.prepare()
			_ = s.Connect(w.now, &abi.CMConnReq{ID: r.ID, Param: q.params()})
		}
	case check.ConnectRequest:
		v.keep(r.ID)
		q = v.qps[int(r.Param.PrivateData[0])%len(v.qps)]
		q.prepare()
		if refusal := s.Accept(w.now, &abi.CMConnReq{ID: r.ID, Param: q.params()}); refusal != nil {
			_ = s.Reject(w.now, &abi.CMConnReq{ID: r.ID})
		}
	case check.Established:
		w.mark("vandal.connected")
	default:
		// The rest is of no interest to somebody who keeps to nothing.
	}
}

// params has private data of one byte: which queue pair of the peer is meant.
func (q *vandalQP) params() abi.CMParam {
	w := q.v.world
	p := abi.CMParam{
		QPN: q.rsp.QPN, ResponderResources: uint8(w.pick(0, 1, 16, 255)),
		InitiatorDepth: uint8(w.pick(0, 1, 16, 255)), PrivateDataLen: 1,
	}
	for i, x := range q.peer.v.qps {
		if x == q.peer {
			p.PrivateData[0] = byte(i)
		}
	}
	return p
}
