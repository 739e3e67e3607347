package sim

import (
	"encoding/binary"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/sim/check"
	"github.com/softrnic/softrnic/internal/wire/mad"
)

// listen offers a service to all addresses.
func (c *caller) listen(kind rdma.QPType) {
	w := c.world
	e := c.newEnd(c.anyBox(), kind)
	if e == nil {
		return
	}
	backlog := uint32(0)
	if w.chance(w.board.plan.small) {
		backlog = uint32(w.between(1, 3))
	}
	s := c.service(kind)
	_, refusal := c.session.BindAddr(&abi.CMAddrReq{ID: e.handle, Src: abi.CMAddr{
		Family: 10, Port: s.port,
	}})
	if refusal == nil {
		_, refusal = c.session.Listen(&abi.CMListenReq{ID: e.handle, Backlog: backlog})
	}
	if refusal != nil {
		w.court.Failf("%s: listen: %v", e.fate.Name, refusal)
		return
	}
	e.fate.Move(check.EndListening)
	w.board.lit[s] = w.now
}

// dial begins a call to any service.
func (c *caller) dial() {
	w := c.world
	to := w.board.callers[w.between(0, len(w.board.callers)-1)]
	kind := rdma.QPType(w.pick(int(rdma.QPTypeRC), int(rdma.QPTypeRC), int(rdma.QPTypeUC),
		int(rdma.QPTypeUD), int(rdma.QPTypeXRCSend)))
	if len(w.board.calls) < w.board.plan.calls {
		c.dialTo(to.service(kind))
	}
}

func (c *caller) dialTo(to service) {
	w := c.world
	e := c.newEnd(c.anyBox(), to.kind)
	if e == nil {
		return
	}
	e.call = w.board.newCall(to)
	e.call.from = e
	e.setOptions()
	// A host that has lost an address is called by it nevertheless: lookups do not know.
	g := w.hosts[to.host].gids[w.between(0, 1)]
	refusal := c.session.ResolveAddr(w.now, &abi.CMAddrReq{
		ID: e.handle, TimeoutMS: 2000, Dst: addr(g, e.call.target.port),
	})
	if refusal != nil {
		w.court.Failf("%s: resolve_addr: %v", e.fate.Name, refusal)
		return
	}
	e.fate.Move(check.EndResolving)
	e.due("resolve_addr", deedTime)
}

func (e *callEnd) setOptions() {
	w := e.caller.world
	if e.kind == rdma.QPTypeRC && w.chance(0.2) {
		refusal := e.caller.session.SetOption(&abi.CMOptionReq{
			ID: e.handle, Name: 3, Len: 1, Value: uint64(w.pick(14, 18, 20)),
		})
		if refusal != nil {
			w.court.Failf("%s: set_option: %v", e.fate.Name, refusal)
		}
	}
}

// newCall makes a call with private data that nobody else has.
func (b *board) newCall(to service) *call {
	w := b.world
	b.tokens++
	room := mad.REQPrivateLen - mad.IPHeaderLen
	if to.kind == rdma.QPTypeUD {
		room = mad.SIDRREQPrivateLen - mad.IPHeaderLen
	}
	k := &call{token: b.tokens, kind: to.kind, target: to, askedAt: clock.Never}
	k.private = w.bytes(w.between(8, room))
	binary.BigEndian.PutUint64(k.private, k.token)
	room = mad.REPPrivateLen
	if to.kind == rdma.QPTypeUD {
		room = mad.SIDRREPPrivateLen
	}
	k.reply = w.bytes(w.between(0, room))
	b.calls[k.token] = k
	return k
}

func (w *World) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(w.random.Uint32())
	}
	return b
}
