package sim

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
)

// A storm is verbs with arguments of all kinds, right and wrong, on handles that exist and that do
// not. Each is granted or refused; nothing else may happen.

// stormHandles bounds the handles that a storm guesses: those of a young NIC.
const stormHandles = 200

func (v *vandal) handle() uint32 {
	w := v.world
	if w.chance(0.7) && len(v.known) > 0 {
		return v.known[w.between(0, len(v.known)-1)]
	}
	return uint32(w.between(0, stormHandles))
}

// learn remembers a handle that a verb gave.
func (v *vandal) learn(handle uint32, refusal *rdma.Refusal) {
	if refusal == nil {
		v.known = append(v.known, handle)
	}
}

// storm calls one verb.
func (v *vandal) storm() {
	w := v.world
	w.mark("vandal.verb")
	switch w.between(0, 12) {
	case 12:
		v.stormXRC()
	case 0, 1, 2:
		v.stormModify()
	case 3:
		v.stormCreateQP()
	case 4:
		v.stormCreateQueue()
	case 5:
		v.stormRegister()
	case 6:
		h, refusal := v.ctx.CreateAH(&abi.CreateAHReq{PD: v.handle(), Attr: v.randomAH()})
		v.learn(h, refusal)
	case 7:
		h, refusal := v.ctx.AllocPD()
		v.learn(h, refusal)
		_, _ = v.ctx.QueryQP(v.handle())
		_, _ = v.ctx.QuerySRQ(v.handle())
		_ = v.ctx.DeviceAttr()
		_, _ = v.ctx.PortAttr(uint32(w.between(0, 2)))
		_, _ = v.ctx.PKey(uint32(w.between(0, 2)), uint32(w.between(0, 2)))
	case 8:
		h, refusal := v.ctx.CreateChannel()
		v.learn(h, refusal)
		_ = v.ctx.DestroyChannel(v.handle())
	case 9:
		_ = v.ctx.ModifySRQ(&abi.SRQAttr{
			Handle: v.handle(), Mask: w.random.Uint32() & 3, MaxWR: uint32(w.pick(1, 16, 1<<31)),
			Limit: uint32(w.pick(0, 1, 16, 1<<31)),
		})
	default:
		v.stormDestroy()
	}
}

func (v *vandal) stormDestroy() {
	h := v.handle()
	switch v.world.between(0, 5) {
	case 0:
		_ = v.ctx.DestroyQP(v.world.now, h)
	case 1:
		_ = v.ctx.DestroyCQ(h)
	case 2:
		_ = v.ctx.DestroySRQ(h)
	case 3:
		_ = v.ctx.DestroyAH(h)
	case 4:
		segs, _ := v.ctx.DeregMR(h)
		v.held -= len(segs)
	case 5:
		_ = v.ctx.DeallocPD(h)
	}
}

func (v *vandal) randomAH() abi.AHAttr {
	w := v.world
	return abi.AHAttr{
		DGID:      w.hosts[w.between(0, len(w.hosts)-1)].gids[w.between(0, 1)],
		IsGlobal:  uint8(w.pick(0, 1, 1)),
		SGIDIndex: uint8(w.pick(0, 1, 2, 255)), Port: uint8(w.pick(0, 1, 1, 1, 2)),
		HopLimit: uint8(w.random.Uint32()), TrafficClass: uint8(w.random.Uint32()),
		FlowLabel: w.random.Uint32(), SL: uint8(w.random.Uint32()),
	}
}

// stormModify goes from any state to any other with attributes that are mostly in range.
func (v *vandal) stormModify() {
	w := v.world
	masks := []rdma.QPAttrMask{
		rdma.QPAttrPort | rdma.QPAttrPKeyIndex | rdma.QPAttrAccessFlags,
		rdma.QPAttrAV | rdma.QPAttrPathMTU | rdma.QPAttrDestQPN | rdma.QPAttrRQPSN |
			rdma.QPAttrMaxDestRdAtomic | rdma.QPAttrMinRNRTimer,
		rdma.QPAttrSQPSN | rdma.QPAttrTimeout | rdma.QPAttrRetryCnt | rdma.QPAttrRNRRetry |
			rdma.QPAttrMaxQPRdAtomic,
		rdma.QPAttrSQPSN, rdma.QPAttrEnSQDAsyncNotify, 0, 0, rdma.QPAttrMask(w.random.Uint32()),
	}
	mask := masks[w.between(0, len(masks)-1)]
	if w.chance(0.95) {
		mask |= rdma.QPAttrState
	}
	handle := v.handle()
	if w.chance(0.6) {
		handle = v.qps[w.between(0, len(v.qps)-1)].rsp.Handle
	}
	_, _ = v.ctx.ModifyQP(w.now, &abi.ModifyQPReq{
		Handle: handle, Mask: uint32(mask), Attr: abi.QPAttr{
			State: uint32(w.between(0, 7)), CurState: uint32(w.between(0, 7)),
			PathMTU: uint32(w.between(0, 6)), QKey: w.random.Uint32(), RQPSN: w.random.Uint32(),
			SQPSN: w.random.Uint32(), DestQPN: w.random.Uint32() & 0x1ffffff,
			AccessFlags: w.random.Uint32() & 0x1f, AH: v.randomAH(), AltAH: v.randomAH(),
			PKeyIndex: uint16(w.pick(0, 0, 0, 1)), EnSQDAsyncNotify: 1,
			MaxRdAtomic: uint8(w.random.Uint32()), MaxDestRdAtomic: uint8(w.random.Uint32()),
			MinRNRTimer: uint8(w.between(0, 33)), Port: uint8(w.pick(0, 1, 1, 1, 2)),
			Timeout: uint8(w.between(0, 33)), RetryCnt: uint8(w.between(0, 8)),
			RNRRetry: uint8(w.between(0, 8)),
		},
	})
}

func (v *vandal) stormCreateQP() {
	w := v.world
	rsp, _, refusal := v.ctx.CreateQP(w.now, &abi.CreateQPReq{
		Type: uint32(w.pick(2, 3, 4, 9, 77)), PD: v.handle(), SendCQ: v.handle(), RecvCQ: v.handle(),
		SRQ: uint32(w.pick(0, 0, int(v.handle()))), MaxSendWR: uint32(w.pick(0, 1, 100, 1<<31)),
		MaxRecvWR: uint32(w.pick(0, 1, 100, 1<<31)), MaxSendSGE: uint32(w.pick(0, 1, 32, 33, 1<<31)),
		MaxRecvSGE: uint32(w.pick(0, 1, 32, 33)), MaxInline: uint32(w.pick(0, 1, 1024, 1025)),
		CreateFlags: uint32(w.pick(0, 0, 0, 1)),
	})
	v.learn(rsp.Handle, refusal)
}

func (v *vandal) stormCreateQueue() {
	w := v.world
	if w.chance(0.5) {
		rsp, _, refusal := v.ctx.CreateCQ(&abi.CreateCQReq{
			Entries: uint32(w.pick(0, 1, 7, 100, 1<<31)), Channel: uint32(w.pick(0, int(v.handle()))),
		})
		v.learn(rsp.Handle, refusal)
		return
	}
	rsp, _, refusal := v.ctx.CreateSRQ(&abi.CreateSRQReq{
		PD: v.handle(), MaxWR: uint32(w.pick(0, 1, 50, 1<<31)), MaxSGE: uint32(w.pick(0, 1, 32, 33)),
		Limit: uint32(w.pick(0, 1, 1<<31)), Type: uint32(w.pick(0, 0, 0, 1)),
	})
	v.learn(rsp.Handle, refusal)
}

func (v *vandal) stormRegister() {
	w := v.world
	off := v.region.off + w.between(0, vandalBytes-1)
	n := w.between(0, v.region.end()-off)
	seg := mem.Segment{Addr: vandalBase + uint64(off), Length: uint64(n)}
	addr, length := seg.Addr, seg.Length
	if w.chance(0.2) {
		// Segments that do not say what the request says.
		addr, length = addr+uint64(w.between(0, 2)), w.random.Uint64()
	}
	rsp, refusal := v.ctx.RegMR(&abi.RegMRReq{
		PD: v.handle(), Access: w.random.Uint32() & uint32(w.pick(0xf, 0xff, 0xffffffff)),
		Addr: addr, Length: length, IOVA: w.random.Uint64(), NumSegments: 1,
	}, []mem.Segment{seg})
	if refusal == nil {
		v.held++
	}
	v.learn(rsp.Handle, refusal)
}
