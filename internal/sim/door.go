package sim

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/sim/check"
)

// door is a memory window of verbs, which one end opens over a part of its window for the peer, and
// closes again once the peer has no request through it.
type door struct {
	owner  *endpoint
	handle uint32
	kind   rdma.MWType
	state  doorState
	key    uint32 // of the last bind
	at     span   // by offset in the window
	isZero bool   // its addresses count from 0
	users  int    // open requests of the peer through it
	dead   []uint32
}

type doorState uint8

const (
	doorShut doorState = iota
	doorMoving
	doorOpen
)

// deadKeys bounds the keys that are remembered as dead: fewer than a key has variants.
const deadKeys = 16

// newDoor makes a door that is shut.
func (e *endpoint) newDoor() *door {
	w := e.app.world
	d := &door{owner: e, kind: rdma.MWType(w.between(1, 2))}
	rsp, refusal := e.app.ctx.AllocMW(&abi.AllocMWReq{PD: e.app.pd, Type: uint32(d.kind)})
	if refusal != nil {
		w.court.Failf("%s: alloc_mw: %v", e.name, refusal)
		return nil
	}
	d.handle, d.key = rsp.Handle, rsp.RKey
	return d
}

// removeDoor frees the memory window, whatever it opens.
func (e *endpoint) removeDoor() {
	d := e.door
	e.door = nil
	if d == nil || e.app.isGone {
		return
	}
	if d.state == doorMoving {
		e.may(rdma.WCMWBindErr)
		e.peer.may(rdma.WCRemAccessErr)
	}
	if refusal := e.app.ctx.DeallocMW(d.handle); refusal != nil {
		e.app.world.court.Failf("%s: dealloc_mw: %v", e.name, refusal)
	}
}

// postDoor opens or shuts a door of this end, or lets the peer's be shut, if it can now.
func (e *endpoint) postDoor() bool {
	if e.near == nil || e.near.area.isGone || e.peer.isGone ||
		e.pair.isSpoiled || !e.pair.isUp {
		return false
	}
	if d := e.peer.door; d != nil && d.isIdle() && d.kind == rdma.MWType2 &&
		e.kind == rdma.QPTypeRC && e.app.world.chance(0.3) {
		return e.postInvalidate(d)
	}
	if e.door == nil {
		e.door = e.newDoor()
	}
	switch d := e.door; {
	case d == nil:
		return false
	case d.state == doorShut:
		return e.postOpen(d)
	case d.isIdle():
		return e.postShut(d)
	}
	return false
}

func (d *door) isIdle() bool { return d.state == doorOpen && d.users == 0 }

// nextKey gives the key another variant, as ibv_inc_rkey does.
func nextKey(key uint32) uint32 { return key&^0xff | (key+1)&0xff }

func (e *endpoint) postOpen(d *door) bool {
	w := e.app.world
	x := e.near
	d.at = span{0, x.n}
	if w.chance(0.5) {
		d.at.off = w.between(0, x.n-1)
		d.at.n = w.between(1, x.n-d.at.off)
	}
	access := rdma.AccessRemoteWrite | rdma.AccessRemoteRead
	d.isZero = d.kind == rdma.MWType2 && w.chance(0.5)
	if d.isZero {
		access |= rdma.AccessZeroBased
	}
	w.mark("door.open")
	return e.postMove(d, doorOpen, abi.SendWQE{
		Opcode: uint8(rdma.WRBindMW), RKey: nextKey(d.key), Extra: x.area.key,
		RemoteAddr: x.area.address(x.area.off + d.at.off), CompareAdd: uint64(d.at.n),
		Swap: uint64(access),
	})
}

// postShut unbinds a window of type 1, and invalidates one of type 2.
func (e *endpoint) postShut(d *door) bool {
	if d.kind == rdma.MWType1 {
		e.app.world.mark("door.unbind")
		return e.postMove(d, doorShut, abi.SendWQE{
			Opcode: uint8(rdma.WRBindMW), RKey: nextKey(d.key),
		})
	}
	e.app.world.mark("door.invalidate")
	return e.postMove(d, doorShut, abi.SendWQE{
		Opcode: uint8(rdma.WRLocalInvalidate), ImmOrRKey: d.key,
	})
}

// postMove posts a request of this side that takes the door to a state.
func (e *endpoint) postMove(d *door, to doorState, wqe abi.SendWQE) bool {
	r := request{wqe: wqe}
	r.entry.Opcode, r.entry.Bytes = rdma.WCOpBindMW, -1
	key := wqe.RKey
	if rdma.WROpcode(wqe.Opcode) == rdma.WRLocalInvalidate {
		r.entry.Opcode, key = rdma.WCOpLocalInvalidate, d.key
	}
	was := d.state
	d.state = doorMoving
	r.entry.Done = func(status rdma.WCStatus) { d.moved(to, key, status) }
	if !e.submit(&r) {
		d.state = was
		return false
	}
	return true
}

// moved hears the outcome. After a failure nobody knows what the door is; it is not used again.
func (d *door) moved(to doorState, key uint32, status rdma.WCStatus) {
	if status != rdma.WCSuccess {
		return
	}
	if to == doorShut {
		d.dead = append(d.dead, d.key)
		d.dead = d.dead[max(0, len(d.dead)-deadKeys):]
	}
	d.state, d.key = to, key
}

// postInvalidate sends a message that shuts the peer's door.
func (e *endpoint) postInvalidate(d *door) bool {
	w := e.app.world
	r := request{}
	n := w.length(e.pair.maxMessage)
	m := &check.Message{Bytes: n, Seed: w.random.Uint64(), HasInv: true, Imm: d.key}
	if !e.load(&r, n, m.Seed, 0) {
		return false
	}
	r.wqe.Opcode, r.wqe.ImmOrRKey = uint8(rdma.WRSendWithInv), d.key
	r.entry.Opcode, r.entry.Bytes = rdma.WCOpSend, -1
	key := d.key
	if w.streams != nil {
		m.Landed = func() { d.moved(doorShut, key, rdma.WCSuccess) }
	} else {
		r.entry.Done = func(status rdma.WCStatus) { d.moved(doorShut, key, status) }
	}
	d.state = doorMoving
	w.mark("door.peer_invalidate")
	return e.submitMessage(&r, m)
}

// through sends a request for n bytes at off of the peer's window through its door, if it fits, and
// returns what is to be called when the request is done.
func (e *endpoint) through(r *request, off, n int) (finish func()) {
	w := e.app.world
	d := e.peer.door
	if d == nil || d.state != doorOpen || off < d.at.off || off+n > d.at.end() || !w.chance(0.7) {
		return func() {}
	}
	d.users++
	r.wqe.RKey = d.key
	if d.isZero {
		r.wqe.RemoteAddr = uint64(off - d.at.off)
	}
	w.mark("door." + rdma.WROpcode(r.wqe.Opcode).String())
	return func() { d.users-- }
}
