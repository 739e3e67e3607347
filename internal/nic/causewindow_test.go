package nic

import (
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
)

// bind posts the bind of a window of type 2 to the start of a region.
func (q *appQP) bind(x abi.SendWQE, n uint64, a rdma.Access) {
	x.Opcode, x.Flags = uint8(rdma.WRBindMW), uint8(rdma.SendSignaled)
	x.CompareAdd, x.Swap = n, uint64(a)
	q.send(x)
}

// windowBench has what windows of one queue pair of two are bound to.
type windowBench struct {
	b      *bench
	a, z   *appQP
	region abi.RegMRRsp
	addr   uint64
	key    uint32 // of the first bind
}

// wqe begins a bind of the region's start.
func (x *windowBench) wqe(id uint64, key uint32) abi.SendWQE {
	return abi.SendWQE{WRID: id, RKey: key, RemoteAddr: x.addr, Extra: x.region.LKey}
}

// TestCause_Windows_TellWhatTheWindowGrantsAndWhyABindFailed.
func TestCause_Windows_TellWhatTheWindowGrantsAndWhyABindFailed(t *testing.T) {
	const open = everyRight | rdma.AccessMWBind
	for name, tc := range map[string]struct {
		access rdma.Access // of the region
		do     func(x *windowBench)
		says   []string
	}{
		"READ through a window for writing": {open, func(x *windowBench) {
			x.z.bind(x.wqe(1, x.key), 64, rdma.AccessRemoteWrite)
			x.b.run(second)
			x.a.send(abi.SendWQE{
				WRID: 2, Opcode: uint8(rdma.WRRead), RemoteAddr: x.addr, RKey: x.key,
			}, abi.SGE{Addr: x.addr + 64, Length: 8, LKey: x.region.LKey})
		}, []string{
			"at the peer, test[7]: access right missing",
			"the memory window (type 2) is", "(64 bytes) and grants remote_write",
			"likely: the memory window was bound without remote_read",
		}},
		"bound already": {open, func(x *windowBench) {
			x.z.bind(x.wqe(1, x.key), 64, rdma.AccessRemoteWrite)
			x.z.bind(x.wqe(2, x.key+1), 64, rdma.AccessRemoteWrite)
		}, []string{"wr_id 2, BIND_MW", "memory window is bound already", "IBV_WR_LOCAL_INV"}},
		"key as before": {open, func(x *windowBench) {
			x.z.bind(x.wqe(1, x.key-1), 64, rdma.AccessRemoteWrite)
		}, []string{"has that key now", "for remote_write", "ibv_inc_rkey"}},
		"no bytes": {open, func(x *windowBench) {
			x.z.bind(x.wqe(1, x.key), 0, rdma.AccessRemoteRead)
		}, []string{"memory window of no bytes", "for remote_read", "likely: length 0"}},
		"region without local write": {rdma.AccessMWBind | rdma.AccessRemoteRead, func(x *windowBench) {
			x.z.bind(x.wqe(1, x.key), 64, rdma.AccessRemoteWrite)
		}, []string{
			"access right missing", "the region is", "grants remote_read|mw_bind",
			"likely: the region was registered without local_write",
		}},
		"region that is gone": {open, func(x *windowBench) {
			w := x.wqe(1, x.key)
			w.Extra ^= 1
			x.z.bind(w, 64, 0)
		}, []string{"unknown lkey of the region", "without any access"}},
		"invalidated though a region's": {open, func(x *windowBench) {
			x.z.send(abi.SendWQE{
				WRID: 1, Opcode: uint8(rdma.WRLocalInvalidate), ImmOrRKey: x.region.RKey,
			})
		}, []string{"key of a region", "to be invalidated", "likely: the rkey of ibv_reg_mr"}},
		"invalidated twice": {open, func(x *windowBench) {
			x.z.send(abi.SendWQE{
				WRID: 1, Opcode: uint8(rdma.WRLocalInvalidate), ImmOrRKey: x.key - 1,
			})
		}, []string{"memory window is not bound", "invalidated already, or never bound"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			x := &windowBench{b: b}
			x.a, x.z, _ = pairRC(b)
			x.region, x.addr, _ = b.region(4096, tc.access)
			w, r := b.c.AllocMW(&abi.AllocMWReq{PD: b.pd, Type: uint32(rdma.MWType2)})
			b.granted(r)
			x.key = w.RKey + 1
			tc.do(x)
			b.run(second)
			says(t, b.n, 1, tc.says...)
		})
	}
}

// TestCause_Datagrams_TellWhatIsWrongWithTheAddress.
func TestCause_Datagrams_TellWhatIsWrongWithTheAddress(t *testing.T) {
	b := newBench(t)
	cq := b.cq(64, 0)
	q := b.qp(abi.CreateQPReq{
		Type: uint32(rdma.QPTypeUD), PD: b.pd, SendCQ: cq.handle, RecvCQ: cq.handle, MaxSendWR: 8,
	})
	b.otherPD()
	foreign, r := b.c.CreateAH(&abi.CreateAHReq{PD: b.pd, Attr: fullAttr(1).AH})
	b.granted(r)
	for _, tc := range []struct {
		ah   uint32
		says []string
	}{
		{0, []string{"the datagram has no address handle", "ibv_wr_set_ud_addr was not called"}},
		{foreign, []string{
			"belongs to another protection domain", "likely: ibv_create_ah and ibv_create_qp",
		}},
		{4711, []string{"there is no address handle 4711", "likely: it was destroyed before"}},
	} {
		a := abi.QPAttr{Port: 1, QKey: 7}
		for _, step := range []struct {
			to   rdma.QPState
			mask rdma.QPAttrMask
		}{
			{sReset, rdma.QPAttrState},
			{sInit, rdma.QPAttrState | rdma.QPAttrPKeyIndex | rdma.QPAttrPort | rdma.QPAttrQKey},
			{sRTR, rdma.QPAttrState},
			{sRTS, rdma.QPAttrState | rdma.QPAttrSQPSN},
		} {
			a.State = uint32(step.to)
			b.granted(q.modify(a, step.mask))
		}
		q.send(abi.SendWQE{WRID: 5, Opcode: uint8(rdma.WRSend), AH: tc.ah, RemoteQPN: 1})
		b.run(second)
		says(t, b.n, 1, append(tc.says, "wr_id 5, SEND: local QP operation error")...)
	}
}

// TestCause_Atomics_TellAlignmentAndSize.
func TestCause_Atomics_TellAlignmentAndSize(t *testing.T) {
	for name, tc := range map[string]struct {
		at   uint64
		n    uint32
		says []string
	}{
		"not aligned": {4, 8, []string{
			"likely: the remote address 0x", "is not a multiple of 8",
			"at the peer, test[7]: likely: the peer's remote address is not a multiple of 8",
		}},
		"too few bytes":  {0, 4, []string{"has 4 bytes, and should have 8", "FETCH_ADD has exactly 8"}},
		"too many bytes": {0, 16, []string{"has 16 bytes, and should have 8"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			a, _, _ := pairRC(b)
			region, addr, _ := b.region(4096, everyRight)
			a.send(abi.SendWQE{
				WRID: 1, Opcode: uint8(rdma.WRFetchAdd), RemoteAddr: addr + tc.at, RKey: region.RKey,
			}, abi.SGE{Addr: addr + 64, Length: tc.n, LKey: region.LKey})
			b.run(second)
			says(t, b.n, 1, tc.says...)
		})
	}
}
