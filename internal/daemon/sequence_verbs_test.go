package daemon_test

import (
	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/rdma"
)

// What verbs of each class may fail with. Nothing here runs into a limit of the system, so that
// ENOMEM is a limit of the NIC.
var (
	makeErrnos = []unix.Errno{unix.EINVAL, unix.ENOMEM, unix.EOPNOTSUPP}
	endErrnos  = []unix.Errno{unix.EINVAL, unix.EBUSY}
	askErrnos  = []unix.Errno{unix.EINVAL}
	mapErrnos  = []unix.Errno{unix.EINVAL, unix.ENOMEM, unix.EOPNOTSUPP, unix.EFAULT}
)

// sequenceVerbs are all verbs that a device context has.
//
//tidy:table
var sequenceVerbs = []sequenceVerb{
	{abi.OpQueryDevice, nothing, kindNone, kindNone, askErrnos},
	{abi.OpQueryPort, (*sequence).portReq, kindNone, kindNone, askErrnos},
	{abi.OpQueryPKey, (*sequence).portReq, kindNone, kindNone, askErrnos},
	{abi.OpQueryGIDTable, nothing, kindNone, kindNone, askErrnos},
	{abi.OpAllocPD, nothing, kindPD, kindNone, makeErrnos},
	{abi.OpDeallocPD, handleOf(kindPD), kindNone, kindPD, endErrnos},
	{abi.OpCreateCompChannel, nothing, kindChannel, kindNone, makeErrnos},
	{abi.OpDestroyCompChannel, handleOf(kindChannel), kindNone, kindChannel, endErrnos},
	{abi.OpCreateCQ, (*sequence).createCQ, kindCQ, kindNone, makeErrnos},
	{abi.OpDestroyCQ, handleOf(kindCQ), kindNone, kindCQ, endErrnos},
	{abi.OpResizeCQ, (*sequence).resizeCQ, kindNone, kindNone, []unix.Errno{
		unix.EINVAL, unix.ENOMEM, unix.EBUSY,
	}},
	{abi.OpModifyCQ, (*sequence).modifyCQ, kindNone, kindNone, askErrnos},
	{abi.OpOpenXRCD, (*sequence).openXRCD, kindXRCD, kindNone, append(makeErrnos, unix.EAGAIN)},
	{abi.OpCloseXRCD, handleOf(kindXRCD), kindNone, kindXRCD, endErrnos},
	{abi.OpCreateSRQ, (*sequence).createSRQ, kindSRQ, kindNone, makeErrnos},
	{abi.OpModifySRQ, (*sequence).modifySRQ, kindNone, kindNone, []unix.Errno{
		unix.EINVAL, unix.EOPNOTSUPP,
	}},
	{abi.OpResizeSRQ, (*sequence).resizeSRQ, kindNone, kindNone, []unix.Errno{
		unix.EINVAL, unix.ENOMEM, unix.EBUSY,
	}},
	{abi.OpQuerySRQ, handleOf(kindSRQ), kindNone, kindNone, askErrnos},
	{abi.OpDestroySRQ, handleOf(kindSRQ), kindNone, kindSRQ, endErrnos},
	{abi.OpCreateQP, (*sequence).createQP, kindQP, kindNone, makeErrnos},
	{abi.OpOpenQP, (*sequence).openQP, kindQP, kindNone, makeErrnos},
	{abi.OpModifyQP, (*sequence).modifyQP, kindNone, kindNone, []unix.Errno{
		unix.EINVAL, unix.EOPNOTSUPP,
	}},
	{abi.OpModifyQP, (*sequence).modifyQP, kindNone, kindNone, []unix.Errno{
		unix.EINVAL, unix.EOPNOTSUPP,
	}},
	{abi.OpModifyQP, (*sequence).modifyQP, kindNone, kindNone, []unix.Errno{
		unix.EINVAL, unix.EOPNOTSUPP,
	}},
	{abi.OpQueryQP, handleOf(kindQP), kindNone, kindNone, askErrnos},
	{abi.OpDestroyQP, handleOf(kindQP), kindNone, kindQP, endErrnos},
	{abi.OpCreateAH, (*sequence).createAH, kindAH, kindNone, makeErrnos},
	{abi.OpDestroyAH, handleOf(kindAH), kindNone, kindAH, endErrnos},
	{abi.OpAttachMulticast, (*sequence).multicast, kindNone, kindNone, makeErrnos},
	{abi.OpDetachMulticast, (*sequence).multicast, kindNone, kindNone, []unix.Errno{
		unix.EINVAL, unix.EOPNOTSUPP,
	}},
	{abi.OpRegMR, (*sequence).regMR, kindMR, kindNone, mapErrnos},
	{abi.OpAllocNullMR, handleOf(kindPD), kindMR, kindNone, makeErrnos},
	{abi.OpRegDeviceMR, (*sequence).regDeviceMR, kindMR, kindNone, makeErrnos},
	{abi.OpReregMR, (*sequence).reregMR, kindNone, kindNone, append(mapErrnos, unix.EBUSY)},
	{abi.OpAdviseMR, (*sequence).adviseMR, kindNone, kindNone, []unix.Errno{
		unix.EINVAL, unix.EOPNOTSUPP, unix.EFAULT, unix.ENOENT, unix.EPERM,
	}},
	{abi.OpDeregMR, handleOf(kindMR), kindNone, kindMR, endErrnos},
	{abi.OpAllocMW, (*sequence).allocMW, kindMW, kindNone, makeErrnos},
	{abi.OpDeallocMW, handleOf(kindMW), kindNone, kindMW, endErrnos},
	{abi.OpAllocDM, (*sequence).allocDM, kindDM, kindNone, makeErrnos},
	{abi.OpFreeDM, handleOf(kindDM), kindNone, kindDM, endErrnos},
}

func nothing(*sequence) []byte { return nil }

func handleOf(k kind) func(*sequence) []byte {
	return func(q *sequence) []byte { return ctl.Bytes(&abi.HandleMsg{Handle: q.a(k)}) }
}

func (q *sequence) portReq() []byte {
	return ctl.Bytes(&abi.PortReq{Port: q.one(1, 1, 0, 2, 257), Index: q.one(0, 0, 1, 1<<16)})
}

func (q *sequence) createCQ() []byte {
	return ctl.Bytes(&abi.CreateCQReq{
		Entries: q.one(16, 100, 0, 1, 4096, 1<<20, 1<<20+1), Channel: q.maybe(kindChannel),
		CompVector: q.one(0, 0, 0, 1), Flags: q.one(0, 0, 0, 1, 2, 4),
	})
}

func (q *sequence) resizeCQ() []byte {
	return ctl.Bytes(&abi.ResizeCQReq{Handle: q.a(kindCQ), Entries: q.one(16, 5000, 0, 1, 1<<21)})
}

func (q *sequence) modifyCQ() []byte {
	return ctl.Bytes(&abi.ModifyCQReq{
		Handle: q.a(kindCQ), Count: q.one(0, 10, 1, 1<<16), PeriodMicroseconds: q.one(0, 50, 1, 1<<16),
	})
}

func (q *sequence) openXRCD() []byte {
	return ctl.Bytes(&abi.OpenXRCDReq{Flags: q.one(1, 3, 0, 2, 4)})
}

func (q *sequence) createSRQ() []byte {
	return ctl.Bytes(&abi.CreateSRQReq{
		PD: q.a(kindPD), MaxWR: q.one(16, 64, 0, 1, 1<<15, 1<<16), MaxSGE: q.one(1, 4, 0, 32, 33),
		Limit: q.one(0, 0, 1, 100), Type: q.one(0, 1, 2, 2, 3), XRCD: q.a(kindXRCD), CQ: q.a(kindCQ),
		MaxTags: q.one(8, 1, 0, 1<<20), MaxTagOps: q.one(16, 1, 0, 1<<20),
	})
}

// workFor is a request for the ring that m has beside receives.
func (q *sequence) workFor(m *sequenceQueue) []byte {
	if !m.tags {
		return q.work()
	}
	return ctl.Bytes(&abi.TagWQE{
		Tag: uint64(q.any(0, 1)), Mask: uint64(q.any(0, 1)), Opcode: uint8(q.any(0, 0, 0, 1, 2, 7)),
		Flags: uint8(q.any(0, 1, 2, 3, 255)), NumSGE: uint16(q.one(1, 0, 4, 5, 65535)),
		Unexpected: q.any(0, 1, 2), Handle: q.any(0, 1, 2, 3, 99),
	})
}

func (q *sequence) modifySRQ() []byte {
	return ctl.Bytes(&abi.SRQAttr{
		Handle: q.a(kindSRQ), Mask: q.one(2, 2, 0, 1, 3, 4), MaxWR: q.one(0, 1, 100),
		Limit: q.one(1, 10, 0, 1<<20),
	})
}

func (q *sequence) resizeSRQ() []byte {
	return ctl.Bytes(&abi.ResizeSRQReq{
		Handle: q.a(kindSRQ), Entries: q.one(64, 100, 0, 1, 1<<16), MaxSGE: q.one(1, 4, 0, 32, 33),
	})
}

func (q *sequence) createQP() []byte {
	return ctl.Bytes(&abi.CreateQPReq{
		Type: q.any(2, 2, 2, 3, 4, 4, 9, 10, q.one(10, 2, 0, 8)), PD: q.a(kindPD), SendCQ: q.a(kindCQ),
		RecvCQ: q.a(kindCQ), SRQ: q.one(0, q.a(kindSRQ)), XRCD: q.a(kindXRCD),
		MaxSendWR: q.one(16, 200, 0, 1), MaxRecvWR: q.one(1, 16, 0, 1<<15),
		MaxSendSGE: q.any(0, 1, 4, 32), MaxRecvSGE: q.any(0, 1, 4, 32),
		MaxInline: q.any(0, 16, 1024),
		SignalAll: q.one(0, 1),
	})
}

func (q *sequence) openQP() []byte {
	return ctl.Bytes(&abi.OpenQPReq{
		XRCD: q.a(kindXRCD), QPN: q.one(q.from(q.xrc), q.from(q.xrc), q.from(q.qpns)),
		Type: q.one(10, 10, 2),
	})
}

func (q *sequence) ah() abi.AHAttr {
	a := abi.AHAttr{
		IsGlobal: uint8(q.one(1, 1, 0)), Port: uint8(q.one(1, 1, 0, 2)),
		SGIDIndex: uint8(q.one(0, 0, 0, 1, 255)), HopLimit: uint8(q.any(0, 64)),
		SL: uint8(q.one(0, 3, 16)), TrafficClass: uint8(q.any(0, 255)),
	}
	if len(q.gids) > 0 && (q.careful || !q.odds(4)) {
		a.DGID = q.gids[q.r.IntN(len(q.gids))].GID
	} else if q.odds(2) {
		a.DGID = [16]byte{0xff, 0x0e, 15: 1}
	}
	return a
}

// modifyQP mostly takes a step that the state diagram has, with the attributes that it needs.
func (q *sequence) modifyQP() []byte {
	attr := abi.QPAttr{
		Port: 1, PathMTU: q.one(3, 3, 3, 0, 1, 6), DestQPN: q.from(q.qpns), RQPSN: q.one(0, 1<<24-1),
		MaxRdAtomic: uint8(q.one(0, 4, 128, 255)), MaxDestRdAtomic: uint8(q.one(0, 4, 128, 129)),
		Timeout: uint8(q.one(8, 14, 0, 31, 32)), MinRNRTimer: uint8(q.one(1, 31, 32)),
		RetryCnt: uint8(q.one(1, 7, 8)), RNRRetry: uint8(q.one(1, 7, 8)), QKey: 0x11111111,
		AccessFlags: q.one(0, 7, 15, 1<<20), AH: q.ah(),
	}
	masks := []rdma.QPAttrMask{
		rdma.QPAttrPKeyIndex | rdma.QPAttrPort | rdma.QPAttrAccessFlags,
		rdma.QPAttrPKeyIndex | rdma.QPAttrPort | rdma.QPAttrQKey,
		rdma.QPAttrAV | rdma.QPAttrPathMTU | rdma.QPAttrDestQPN | rdma.QPAttrRQPSN |
			rdma.QPAttrMaxDestRdAtomic | rdma.QPAttrMinRNRTimer,
		rdma.QPAttrAV | rdma.QPAttrPathMTU | rdma.QPAttrDestQPN | rdma.QPAttrRQPSN,
		rdma.QPAttrTimeout | rdma.QPAttrRetryCnt | rdma.QPAttrRNRRetry | rdma.QPAttrSQPSN |
			rdma.QPAttrMaxQPRdAtomic,
		rdma.QPAttrSQPSN, 0, rdma.QPAttrMask(q.r.Uint32() >> q.r.IntN(30)),
	}
	steps := [][2]uint32{
		{1, 0}, {1, 1}, {2, 2}, {2, 3}, {2, 6}, {3, 4}, {3, 5}, {4, 6}, {6, 6}, {0, 6},
	}
	handle, step := q.a(kindQP), steps[q.r.IntN(len(steps))]
	if was := q.states[handle]; q.careful && was < 3 && !q.odds(4) {
		for step[0] != was+1 { // onwards
			step = steps[q.r.IntN(len(steps))]
		}
	}
	attr.State = step[0]
	mask := masks[step[1]]
	if !q.careful && q.odds(4) {
		attr.State, mask = q.one(attr.State, 0, 5, 7, 128), masks[q.r.IntN(len(masks))]
	}
	return ctl.Bytes(&abi.ModifyQPReq{
		Handle: handle, Mask: uint32(mask | rdma.QPAttrState), Attr: attr,
	})
}

func (q *sequence) createAH() []byte {
	return ctl.Bytes(&abi.CreateAHReq{PD: q.a(kindPD), Attr: q.ah()})
}

func (q *sequence) multicast() []byte {
	req := abi.AttachMulticastReq{GID: [16]byte{0xff, 0x0e, 15: byte(q.any(1, 2))}, QP: q.a(kindQP)}
	if !q.careful && q.odds(4) {
		req.GID[0] = 0xfe
	}
	return ctl.Bytes(&req)
}

// segments are pieces of the buffer or of files, for a registration of length bytes at addr.
func (q *sequence) segments() (addr, length uint64, list []abi.Segment) {
	addr, length = q.address(), uint64(q.one(4096, sequenceBytes, 0, 1, 64))
	piece := abi.Segment{Addr: addr, Length: length, FD: -1}
	if q.odds(2) {
		piece.FD, piece.FDOffset = int32(q.r.IntN(6)), uint64(q.one(0, 0, 4096, 1<<16))
		if q.careful || !q.odds(3) {
			piece.FD = 3
		}
	}
	list = []abi.Segment{piece}
	for !q.careful && q.odds(4) {
		list = append(list, piece)
	}
	return addr, length, list
}

func (q *sequence) access() uint32 {
	return q.any(0, 1, 7, 15, 31, 31, 31, 64|31, 1<<20|7, q.one(7, 1, 2, 8, 32, 128, 1<<10))
}

func (q *sequence) regMR() []byte {
	addr, length, list := q.segments()
	req := abi.RegMRReq{
		PD: q.a(kindPD), Access: q.access(), Addr: addr, Length: length, IOVA: q.address(),
		NumSegments: uint32(len(list)),
	}
	if q.odds(20) { // an implicit region: the whole of the address space
		req.Addr, req.Length, req.IOVA, req.Access = 0, ^uint64(0), 0, 64|7
		list, req.NumSegments = nil, 0
	}
	return append(append([]byte(nil), ctl.Bytes(&req)...), ctl.ListBytes(list)...)
}

func (q *sequence) reregMR() []byte {
	addr, length, list := q.segments()
	req := abi.ReregMRReq{
		Handle: q.a(kindMR), Flags: q.any(1, 2, 3, 4, 5, 6, 7, q.one(1, 2, 8, 0)), PD: q.a(kindPD),
		Access: q.access(), Addr: addr, Length: length, IOVA: q.address(),
	}
	if req.Flags&1 == 0 && !q.odds(4) {
		list = nil
	}
	req.NumSegments = uint32(len(list))
	return append(append([]byte(nil), ctl.Bytes(&req)...), ctl.ListBytes(list)...)
}

func (q *sequence) adviseMR() []byte {
	req := abi.AdviseMRReq{
		PD: q.a(kindPD), Advice: q.any(0, 1, 2, q.one(0, 1, 3)), Flags: q.one(0, 1, 2),
	}
	var list []abi.SGE
	for range 1 + q.r.IntN(3) {
		list = append(list, abi.SGE{
			Addr: q.address(), Length: q.one(64, 64, 0, 4096),
			LKey: q.one(q.from(q.paged), q.from(q.paged), q.from(q.keys)),
		})
	}
	req.NumSGE = uint32(len(list))
	return append(append([]byte(nil), ctl.Bytes(&req)...), ctl.ListBytes(list)...)
}

func (q *sequence) regDeviceMR() []byte {
	return ctl.Bytes(&abi.RegDeviceMRReq{
		PD: q.a(kindPD), DM: q.a(kindDM), Offset: uint64(q.one(0, 8, 4096)),
		Length: uint64(q.one(8, 64, 0, 4096, 1<<20)), Access: q.one(32, 32|31, 32|15, 0, 64),
	})
}

func (q *sequence) allocMW() []byte {
	return ctl.Bytes(&abi.AllocMWReq{PD: q.a(kindPD), Type: q.one(1, 2, 0, 3)})
}

func (q *sequence) allocDM() []byte {
	return ctl.Bytes(&abi.AllocDMReq{
		Length: uint64(q.one(4096, 1<<16, 0, 1, 1<<31)), AlignLog: q.one(0, 3, 12, 13, 63),
	})
}
