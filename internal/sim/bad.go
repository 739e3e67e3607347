package sim

import (
	"slices"
	"strings"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/sim/check"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

// badRequest is a kind of wrong request with the outcome that the standard gives it.
type badRequest struct {
	name string
	// isLocal: the sender's own NIC refuses it, so that the peer never hears of it.
	isLocal bool
	types   []rdma.QPType
	status  rdma.WCStatus
	make    func(e *endpoint, r *request) bool
}

var (
	reliable  = []rdma.QPType{rdma.QPTypeRC, rdma.QPTypeXRCSend}
	connected = []rdma.QPType{rdma.QPTypeRC, rdma.QPTypeUC, rdma.QPTypeXRCSend}
	placing   = []rdma.QPType{rdma.QPTypeRC}
	extended  = []rdma.QPType{rdma.QPTypeXRCSend}
	datagrams = []rdma.QPType{rdma.QPTypeUD}
	anyType   = []rdma.QPType{rdma.QPTypeRC, rdma.QPTypeUC, rdma.QPTypeXRCSend, rdma.QPTypeUD}
)

// badRequests are the kinds (IBTA 9.7.5.2, 9.9.2, 10.8.2, 11.6.2).
//
//tidy:table
var badRequests = []badRequest{
	{"bad.rkey", false, reliable, rdma.WCRemAccessErr, func(e *endpoint, r *request) bool {
		r.wqe.RKey ^= 0x5a5a5a00
		return true
	}},
	{"bad.dead_rkey", false, reliable, rdma.WCRemAccessErr, func(e *endpoint, r *request) bool {
		x := e.remote().newWindow("dead window", total(r.pieces))
		if x == nil {
			return false
		}
		r.wqe.RKey, r.wqe.RemoteAddr = x.area.key, x.area.address(x.area.off)
		x.close()
		return true
	}},
	{"bad.bounds", false, reliable, rdma.WCRemAccessErr, func(e *endpoint, r *request) bool {
		r.wqe.RemoteAddr = e.far.area.address(e.far.area.end()) - uint64(total(r.pieces)) + 1
		return true
	}},
	{"bad.rights", false, reliable, rdma.WCRemAccessErr, func(e *endpoint, r *request) bool {
		x := e.remote().areas[areaCount-1]
		r.wqe.RKey, r.wqe.RemoteAddr = x.key, x.address(x.off)
		return true
	}},
	{"bad.read_rights", false, reliable, rdma.WCRemAccessErr, func(e *endpoint, r *request) bool {
		x := e.remote().areas[0]
		r.wqe.Opcode = uint8(rdma.WRRead)
		r.wqe.RKey, r.wqe.RemoteAddr = x.key, x.address(x.off)
		return true
	}},
	{"bad.atomic_alignment", false, reliable, rdma.WCRemInvReqErr, func(e *endpoint, r *request) bool {
		x := e.remote().cells
		r.wqe.Opcode = uint8(rdma.WRFetchAdd)
		r.wqe.RKey, r.wqe.RemoteAddr = x.key, x.address(x.off+4)
		return true
	}},
	{"bad.atomic_rights", false, reliable, rdma.WCRemAccessErr, func(e *endpoint, r *request) bool {
		x := e.remote().areas[0]
		r.wqe.Opcode = uint8(rdma.WRCompareSwap)
		r.wqe.RKey, r.wqe.RemoteAddr = x.key, x.address(x.off)
		return true
	}},
	{"bad.invalidate", false, reliable, rdma.WCRemAccessErr, func(e *endpoint, r *request) bool {
		r.wqe.Opcode, r.wqe.ImmOrRKey = uint8(rdma.WRSendWithInv), e.far.area.key
		return e.receiverRoom() >= total(r.pieces)
	}},
	{"bad.revoked_rkey", false, reliable, rdma.WCRemAccessErr, func(e *endpoint, r *request) bool {
		d := e.peer.door
		if d == nil || len(d.dead) == 0 {
			return false
		}
		r.wqe.RKey = d.dead[e.app.world.between(0, len(d.dead)-1)]
		return true
	}},
	{"bad.door_bounds", false, reliable, rdma.WCRemAccessErr, func(e *endpoint, r *request) bool {
		d := e.peer.door
		if d == nil || d.state != doorOpen {
			return false
		}
		end := e.far.area.address(e.far.area.off + d.at.end())
		if d.isZero {
			end = uint64(d.at.n)
		}
		r.wqe.RKey, r.wqe.RemoteAddr = d.key, end-uint64(total(r.pieces))+1
		return true
	}},
	{"bad.bind", true, connected, rdma.WCMWBindErr, func(e *endpoint, r *request) bool {
		if e.near == nil {
			return false
		}
		r.wqe = abi.SendWQE{Opcode: uint8(rdma.WRBindMW), RKey: e.near.area.key}
		r.badList = []abi.SGE{}
		return true
	}},
	{"bad.opcode", true, anyType, rdma.WCLocQPOpErr, func(e *endpoint, r *request) bool {
		r.wqe.Opcode = 0x7f
		return true
	}},
	{"bad.read_on_uc", true, []rdma.QPType{rdma.QPTypeUC}, rdma.WCLocQPOpErr, func(e *endpoint, r *request) bool {
		r.wqe.Opcode = uint8(rdma.WRRead)
		return true
	}},
	{"bad.address_handle", true, datagrams, rdma.WCLocQPOpErr, func(e *endpoint, r *request) bool {
		r.wqe.AH ^= 0x5a5a5a5a
		return true
	}},
	{"bad.lkey", true, anyType, rdma.WCLocProtErr, func(e *endpoint, r *request) bool {
		r.badList[0].LKey ^= 0x00a5a500
		return true
	}},
	{"bad.local_bounds", true, anyType, rdma.WCLocProtErr, func(e *endpoint, r *request) bool {
		x := r.pieces[0].area
		r.badList[0].Addr = x.address(x.end() - 7)
		return true
	}},
	{"bad.read_into_readonly", true, reliable, rdma.WCLocProtErr, func(e *endpoint, r *request) bool {
		x := e.app.areas[areaCount-1]
		r.wqe.Opcode = uint8(rdma.WRRead)
		r.badList[0].Addr, r.badList[0].LKey = x.address(x.off), x.key
		return true
	}},
	{"bad.too_many_entries", true, anyType, rdma.WCLocQPOpErr, func(e *endpoint, r *request) bool {
		r.wqe.NumSGE = 1000
		return true
	}},
	{"bad.atomic_write_alignment", false, placing, rdma.WCRemInvReqErr, func(e *endpoint, r *request) bool {
		x := e.remote().slots
		r.wqe.Opcode = uint8(rdma.WRAtomicWrite)
		r.wqe.RKey, r.wqe.RemoteAddr = x.key, x.address(x.off+4)
		return true
	}},
	{"bad.atomic_write_rights", false, placing, rdma.WCRemAccessErr, func(e *endpoint, r *request) bool {
		x := e.remote().cells
		r.wqe.Opcode = uint8(rdma.WRAtomicWrite)
		r.wqe.RKey, r.wqe.RemoteAddr = x.key, x.address(x.off)
		return true
	}},
	{"bad.atomic_write_length", true, placing, rdma.WCLocLenErr, func(e *endpoint, r *request) bool {
		r.wqe.Opcode = uint8(rdma.WRAtomicWrite)
		r.badList[0].Length = 7
		return true
	}},
	{"bad.flush_rights", false, reliable, rdma.WCRemAccessErr, func(e *endpoint, r *request) bool {
		x := e.remote().cells
		r.badList, r.wqe.Opcode = []abi.SGE{}, uint8(rdma.WRFlush)
		r.wqe.RKey, r.wqe.RemoteAddr = x.key, x.address(x.off)
		r.wqe.CompareAdd = uint64(ib.FlushGlobal) | uint64(ib.FlushMemoryRegion)<<4
		return true
	}},
	{"bad.flush_bounds", false, reliable, rdma.WCRemAccessErr, func(e *endpoint, r *request) bool {
		r.badList, r.wqe.Opcode = []abi.SGE{}, uint8(rdma.WRFlush)
		r.wqe.CompareAdd, r.wqe.Swap = uint64(ib.FlushGlobal), uint64(e.far.n)+1
		return true
	}},
	{"bad.flush_nothing", false, reliable, rdma.WCRemInvReqErr, func(e *endpoint, r *request) bool {
		r.badList, r.wqe.Opcode, r.wqe.Swap = []abi.SGE{}, uint8(rdma.WRFlush), 1
		return true
	}},
	{"bad.atomic_write_on_xrc", true, extended, rdma.WCLocQPOpErr, func(e *endpoint, r *request) bool {
		r.wqe.Opcode = uint8(rdma.WRAtomicWrite)
		return true
	}},
	{"bad.shared_queue", false, extended, rdma.WCRemInvReqErr, func(e *endpoint, r *request) bool {
		r.wqe.Extra = e.aimed.queue.number ^ 0x5a5a00
		return true
	}},
	{"bad.atomic_length", true, reliable, rdma.WCLocLenErr, func(e *endpoint, r *request) bool {
		r.wqe.Opcode = uint8(rdma.WRFetchAdd)
		r.badList[0].Length = 4
		return true
	}},
}

// postBad posts a request whose outcome has to be an error. One per connection is enough: after it
// nothing else arrives.
func (e *endpoint) postBad() bool {
	w := e.app.world
	if e.pair != nil && (e.pair.isSpoiled || e.far == nil || e.peer.isGone) || e.ledger.HasFailed() {
		return false
	}
	if e.isReliable() && w.chance(0.1) {
		return e.postTooLong()
	}
	var fit []*badRequest
	for i := range badRequests {
		for _, t := range badRequests[i].types {
			if t == e.kind && (w.streams == nil || !badRequests[i].isPlacement()) {
				fit = append(fit, &badRequests[i])
			}
		}
	}
	b := fit[w.between(0, len(fit)-1)]
	r := request{pieces: e.app.cut(8, 1, forResult)}
	if r.pieces == nil {
		return false
	}
	r.badList = slices.Clone(e.app.sges(r.pieces))
	r.wqe.Opcode = uint8(rdma.WRWrite)
	if e.kind == rdma.QPTypeUD {
		if !e.addressAny(&r) {
			return false
		}
		r.wqe.Opcode = uint8(rdma.WRSend)
	} else {
		r.wqe.RKey = e.far.area.key
		r.wqe.RemoteAddr = e.far.area.address(e.far.area.off)
	}
	if !b.make(e, &r) {
		e.app.uncut(r.pieces)
		return false
	}
	r.entry.Must = check.Statuses(b.status)
	if w.streams != nil && !b.isLocal {
		r.entry.Must = e.outcomeOnStream(&r, b.status)
	}
	if !b.isLocal {
		e.blame(&r)
	} else if w.streams != nil {
		e.pair.spoil()
	} else if e.pair != nil {
		e.peer.may(rdma.WCRetryExcErr)
		e.pair.isSpoiled = e.isReliable()
	}
	w.mark(b.name)
	return e.submit(&r)
}

// blame tolerates what a refusal by the peer does to the connection. Where a network loses packets
// the refusal may be lost, and the peer, in error by then, never repeats it.
func (e *endpoint) blame(r *request) {
	if e.app.world.streams != nil {
		e.pair.spoil()
		e.pair.ending = e.pair.life()
		return
	}
	e.pair.isSpoiled = true
	e.peer.may(rdma.WCRetryExcErr, rdma.WCWRFlushErr)
	if e.app.world.plan.isLossy() {
		e.may(rdma.WCRetryExcErr, rdma.WCWRFlushErr)
	}
	// The receives that the request needs may be missing for too long.
	r.entry.Must |= e.ledger.May
}

// receiverRoom is what a receive at the peer holds.
func (e *endpoint) receiverRoom() int {
	switch {
	case e.aimed != nil:
		return e.aimed.queue.each
	case e.peer.srq != nil:
		return e.peer.srq.each
	}
	return e.peer.receiveBytes
}

// postTooLong sends more than the peer's receives hold.
func (e *endpoint) postTooLong() bool {
	w := e.app.world
	size := e.receiverRoom()
	r := request{}
	m := &check.Message{Bytes: size + w.between(1, 5000), Seed: w.random.Uint64()}
	m.Must = check.Statuses(rdma.WCLocLenErr)
	r.pieces = e.app.cut(m.Bytes, e.maxSGE, forSend)
	if r.pieces == nil {
		return false
	}
	r.wqe.Opcode = uint8(rdma.WRSend)
	r.entry.Must = check.Statuses(rdma.WCRemInvReqErr)
	if w.streams != nil {
		r.entry.Opcode, r.entry.Bytes, r.entry.Must = rdma.WCOpSend, -1, 0
	}
	e.blame(&r)
	w.mark("bad.too_long")
	return e.submitMessage(&r, m)
}

// isPlacement reports a request that iWARP does not have.
func (b *badRequest) isPlacement() bool {
	return strings.HasPrefix(b.name, "bad.atomic_write") || strings.HasPrefix(b.name, "bad.flush")
}

// outcomeOnStream is how a request ends that the peer refuses with a Terminate: READs and atomics
// fail as on InfiniBand where the Terminate comes, others are mostly complete before the peer has
// seen them.
func (e *endpoint) outcomeOnStream(r *request, refusal rdma.WCStatus) check.StatusSet {
	switch rdma.WROpcode(r.wqe.Opcode) {
	case rdma.WRRead, rdma.WRFetchAdd, rdma.WRCompareSwap:
		return check.Statuses(refusal)
	case rdma.WRWrite:
		r.entry.Opcode = rdma.WCOpWrite
	default:
		r.entry.Opcode = rdma.WCOpSend
	}
	r.entry.Bytes = -1
	return 0
}
