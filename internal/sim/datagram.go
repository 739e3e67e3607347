package sim

import (
	"net/netip"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/sim/check"
)

// qkey is the queue key of all datagram endpoints.
const qkey = 0x11112222

// newDatagramEndpoint makes a UD queue pair that is ready at once.
func (w *World) newDatagramEndpoint() {
	a := w.pickApp()
	if a == nil {
		return
	}
	e := a.newEndpoint(rdma.QPTypeUD, 0)
	if e == nil {
		return
	}
	e.modify(&abi.QPAttr{State: uint32(rdma.QPStateInit), Port: 1, QKey: qkey},
		rdma.QPAttrState|rdma.QPAttrPort|rdma.QPAttrPKeyIndex|rdma.QPAttrQKey)
	e.fill()
	e.setState(rdma.QPStateRTR)
	e.isOpen = e.modify(&abi.QPAttr{
		State: uint32(rdma.QPStateRTS), SQPSN: w.random.Uint32() & rdma.PSNMask,
	}, rdma.QPAttrState|rdma.QPAttrSQPSN)
	w.datagrams = append(w.datagrams, e)
	w.mark("connected.UD")
}

// address aims a request at a datagram endpoint, by a handle that is made when first needed.
func (e *endpoint) address(r *request, to *endpoint) bool {
	h, ok := e.handles[to]
	if !ok {
		ah, refusal := e.app.ctx.CreateAH(&abi.CreateAHReq{
			PD: e.app.pd, Attr: e.app.world.route(e, to),
		})
		if refusal != nil {
			e.app.world.court.Failf("%s: create_ah: %v", e.name, refusal)
			return false
		}
		h = ah
		e.handles[to] = h
	}
	r.wqe.AH, r.wqe.RemoteQPN, r.wqe.RemoteQKey = h, to.qpn, qkey
	return true
}

// addressAny aims at some datagram endpoint, itself included.
func (e *endpoint) addressAny(r *request) bool {
	w := e.app.world
	to := w.datagrams[w.between(0, len(w.datagrams)-1)]
	if !e.address(r, to) {
		return false
	}
	s := to.from[place(e.app.host, e.qpn)]
	if s == nil {
		s = &check.Stream{
			Court: &w.court, Name: e.name + " → " + to.name,
			Ordered: w.plan.isOrdered(),
		}
		to.from[place(e.app.host, e.qpn)] = s
	}
	e.out = s
	return true
}

// sender returns the place of who sent a datagram, from what the NIC says in front of it: a GRH, or
// an IPv4 header in its second half (IBTA annex A17.4.5.2).
func (w *World) sender(area []byte, qpn uint32) uint64 {
	gid := rdma.GID(area[8:24])
	if area[0]>>4 != 6 {
		gid = rdma.GIDFromAddr(netip.AddrFrom4([4]byte(area[32:36])))
	}
	h := w.hostOf(gid)
	if h == nil {
		return 0 // nobody's: no queue pair has the number 0
	}
	return place(h, qpn)
}

func (e *endpoint) postDatagram() bool {
	w := e.app.world
	r := request{}
	if !e.addressAny(&r) {
		return false
	}
	m := &check.Message{Bytes: w.length(w.plan.mtu.Bytes()), Seed: w.random.Uint64()}
	if !e.load(&r, m.Bytes, m.Seed, 0) {
		return false
	}
	r.wqe.Opcode = uint8(rdma.WRSend)
	r.entry.Opcode, r.entry.Bytes = rdma.WCOpSend, -1
	if w.chance(0.3) {
		m.HasImm, m.Imm = true, w.random.Uint32()
		r.wqe.Opcode, r.wqe.ImmOrRKey = uint8(rdma.WRSendWithImm), m.Imm
	}
	if w.plan.bad > 0 && w.chance(w.plan.bad) {
		// A wrong queue key: the datagram leaves and reaches nobody.
		r.wqe.RemoteQKey = qkey + 1
		w.mark("bad.qkey")
		return e.submit(&r)
	}
	return e.submitMessage(&r, m)
}
