package nic

import (
	"bytes"
	"math"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
)

// refused wants an errno.
func refused(t testing.TB, what string, r *rdma.Refusal, want syscall.Errno) {
	t.Helper()
	if r == nil || r.Errno != want {
		t.Errorf("%s: %v, want %v", what, r, want)
	}
}

func (b *bench) write(a *appQP, src abi.RegMRRsp, from uint64, key uint32, to uint64) {
	a.send(abi.SendWQE{
		WRID: 1, Opcode: uint8(rdma.WRWrite), Flags: uint8(rdma.SendSignaled), RemoteAddr: to,
		RKey: key,
	}, abi.SGE{Addr: from, Length: 8, LKey: src.LKey})
	b.run(second)
}

func wantOne(t *testing.T, cq *appCQ, want rdma.WCStatus) {
	t.Helper()
	got := cq.poll()
	if len(got) != 1 || rdma.WCStatus(got[0].Status) != want {
		t.Fatalf("completions %+v, want %v", got, want)
	}
}

func TestRereg_Access_TakesEffectAtOnce(t *testing.T) {
	b := newBench(t)
	a, z, cq := pairRC(b)
	src, srcAddr, srcMem := b.region(8, rdma.AccessLocalWrite)
	dst, dstAddr, dstMem := b.region(8, rdma.AccessLocalWrite)
	srcMem[0] = 9
	segs := []mem.Segment{{Addr: dstAddr, Length: 8, Mapped: dstMem}}
	rsp, old, r := b.c.ReregMR(&abi.ReregMRReq{
		Handle: dst.Handle, Flags: uint32(rdma.ReregAccess), Access: uint32(everyRight),
	}, segs)
	b.granted(r)
	if rsp != dst || len(old) != 1 {
		t.Errorf("reply %+v, was %+v, %d old segments", rsp, dst, len(old))
	}
	b.write(a, src, srcAddr, dst.RKey, dstAddr)
	wantOne(t, cq, rdma.WCSuccess)
	if dstMem[0] != 9 {
		t.Error("nothing written")
	}
	_, _, r = b.c.ReregMR(&abi.ReregMRReq{
		Handle: dst.Handle, Flags: uint32(rdma.ReregAccess), Access: uint32(rdma.AccessLocalWrite),
	}, segs)
	b.granted(r)
	b.write(a, src, srcAddr, dst.RKey, dstAddr)
	got := cq.poll()
	if len(got) == 0 || rdma.WCStatus(got[0].Status) != rdma.WCRemAccessErr {
		t.Errorf("completions %+v", got)
	}
	_ = z
}

func TestRereg_Translation_MovesTheKey(t *testing.T) {
	b := newBench(t)
	a, _, cq := pairRC(b)
	src, srcAddr, srcMem := b.region(8, rdma.AccessLocalWrite)
	dst, dstAddr, dstMem := b.region(8, everyRight)
	srcMem[0] = 9
	other := bytesOf(make([]uint64, 2))
	_, old, r := b.c.ReregMR(&abi.ReregMRReq{
		Handle: dst.Handle, Flags: uint32(rdma.ReregTranslation), Addr: 0x7000, Length: 16,
		IOVA: 0x9000,
	}, []mem.Segment{{Addr: 0x7000, Length: 16, Mapped: other}})
	b.granted(r)
	if len(old) != 1 || &old[0].Mapped[0] != &dstMem[0] {
		t.Errorf("old segments %v", old)
	}
	b.write(a, src, srcAddr, dst.RKey, 0x9008)
	wantOne(t, cq, rdma.WCSuccess)
	if other[8] != 9 || dstMem[0] != 0 {
		t.Error("written to the old place")
	}
	b.write(a, src, srcAddr, dst.RKey, dstAddr)
	if got := cq.poll(); len(got) == 0 || rdma.WCStatus(got[0].Status) != rdma.WCRemAccessErr {
		t.Errorf("completions %+v", got)
	}
}

func TestRereg_PD_CountsUsers(t *testing.T) {
	b := newBench(t)
	mr, _, _ := b.region(8, everyRight)
	pd, r := b.c.AllocPD()
	b.granted(r)
	_, old, r := b.c.ReregMR(&abi.ReregMRReq{
		Handle: mr.Handle, Flags: uint32(rdma.ReregPD), PD: pd,
	}, nil)
	b.granted(r)
	if old != nil {
		t.Error("segments that stay in use were given away")
	}
	refused(t, "dealloc of the new PD", b.c.DeallocPD(pd), syscall.EBUSY)
	b.granted(b.c.DeallocPD(b.pd))
	if _, r := b.c.DeregMR(mr.Handle); r != nil {
		t.Fatal(r)
	}
	b.granted(b.c.DeallocPD(pd))
}

func TestRereg_BadInput_ChangesNothing(t *testing.T) {
	b := newBench(t)
	mr, addr, m := b.region(64, everyRight)
	null, r := b.c.AllocNullMR(b.pd)
	b.granted(r)
	segs := []mem.Segment{{Addr: addr, Length: 64, Mapped: m}}
	access, moved := uint32(rdma.ReregAccess), uint32(rdma.ReregTranslation)
	for name, c := range map[string]struct {
		req   abi.ReregMRReq
		segs  []mem.Segment
		errno syscall.Errno
	}{
		"no flags": {abi.ReregMRReq{Handle: mr.Handle}, nil, syscall.EINVAL},
		"flags":    {abi.ReregMRReq{Handle: mr.Handle, Flags: 8}, nil, syscall.EINVAL},
		"handle":   {abi.ReregMRReq{Handle: 12345, Flags: 2, PD: b.pd}, nil, syscall.EINVAL},
		"null": {abi.ReregMRReq{
			Handle: null.Handle, Flags: 2, PD: b.pd,
		}, nil, syscall.EINVAL},
		"pd":          {abi.ReregMRReq{Handle: mr.Handle, Flags: 2, PD: 999}, nil, syscall.EINVAL},
		"length":      {abi.ReregMRReq{Handle: mr.Handle, Flags: moved}, segs, syscall.EINVAL},
		"no segments": {abi.ReregMRReq{Handle: mr.Handle, Flags: access}, nil, syscall.EINVAL},
		"other segments": {abi.ReregMRReq{
			Handle: mr.Handle, Flags: moved, Addr: 1, Length: 9,
		}, segs, syscall.EINVAL},
		"access": {abi.ReregMRReq{
			Handle: mr.Handle, Flags: access, Access: uint32(rdma.AccessRemoteWrite),
		}, segs, syscall.EINVAL},
		"unknown access": {abi.ReregMRReq{
			Handle: mr.Handle, Flags: access, Access: 1 << 15,
		}, segs, syscall.EINVAL},
		"flush": {abi.ReregMRReq{
			Handle: mr.Handle, Flags: access, Access: uint32(rdma.AccessFlushPersist),
		}, segs, syscall.EOPNOTSUPP},
	} {
		_, _, r := b.c.ReregMR(&c.req, c.segs)
		refused(t, name, r, c.errno)
	}
	region := b.c.mrs[mr.Handle]
	if region.Access != everyRight || region.Base != addr || region.Length != 64 {
		t.Errorf("the region has changed: %+v", region)
	}
	if got := describeMR(mr.Handle, region); got != mr {
		t.Errorf("%+v, was %+v", got, mr)
	}
}

func TestRegMR_FlagsMeanWhatTheySay(t *testing.T) {
	b := newBench(t)
	m := make([]byte, 64)
	reg := func(access rdma.Access) (abi.RegMRRsp, *rdma.Refusal) {
		return b.c.RegMR(&abi.RegMRReq{
			PD: b.pd, Access: uint32(access), Addr: 0x5000, Length: 64, IOVA: 0x5000,
		}, []mem.Segment{{Addr: 0x5000, Length: 64, Mapped: m}})
	}
	for _, access := range []rdma.Access{
		0, rdma.AccessRelaxedOrder, rdma.AccessHugeTLB | rdma.AccessOnDemand, rdma.AccessOnDemand,
		rdma.AccessMWBind, rdma.AccessZeroBased, everyRight | rdma.AccessOptional,
	} {
		if _, r := reg(access); r != nil {
			t.Errorf("%v: %v", access, r)
		}
	}
	_, r := reg(rdma.AccessFlushPersist)
	refused(t, "flush without flush operations", r, syscall.EOPNOTSUPP)
	_, r = reg(1 << 14)
	refused(t, "a flag that means nothing", r, syscall.EINVAL)
	rsp, r := reg(rdma.AccessZeroBased)
	b.granted(r)
	if b.c.mrs[rsp.Handle].Base != 0 {
		t.Error("a zero-based region does not begin at 0")
	}
}

// elsewhere is a process whose memory comes and goes.
type elsewhere struct{ pages map[uint64]byte }

func (e *elsewhere) Read(addr uint64, dst []byte) bool {
	for i := range dst {
		v, ok := e.pages[addr+uint64(i)]
		if !ok {
			return false
		}
		dst[i] = v
	}
	return true
}

func (e *elsewhere) Write(addr uint64, src []byte) bool {
	for i := range src {
		if _, ok := e.pages[addr+uint64(i)]; !ok {
			return false
		}
		e.pages[addr+uint64(i)] = src[i]
	}
	return true
}

func (e *elsewhere) IsGone() bool { return false }

func (e *elsewhere) put(addr uint64, n int) {
	for i := range uint64(n) {
		e.pages[addr+i] = 0
	}
}

// TestOnDemand_MemoryComesAndGoes: what is mapped when it is used is what counts.
func TestOnDemand_MemoryComesAndGoes(t *testing.T) {
	for name, whole := range map[string]bool{"explicit": false, "implicit": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			space := &elsewhere{map[uint64]byte{}}
			b.c.cfg.Space = space
			a, z, cq := pairRC(b)
			src, srcAddr, srcMem := b.region(8, rdma.AccessLocalWrite)
			srcMem[3] = 77
			req := abi.RegMRReq{
				PD: b.pd, Access: uint32(everyRight | rdma.AccessOnDemand), Addr: 0x40000,
				Length: 0x1000, IOVA: 0x40000,
			}
			if whole {
				req.Addr, req.Length, req.IOVA = 0, math.MaxUint64, 0
			}
			rsp, r := b.c.RegMR(&req, []mem.Segment{{Addr: req.Addr, Length: req.Length}})
			b.granted(r)
			for range 2 {
				space.put(0x40010, 8)
				b.write(a, src, srcAddr, rsp.RKey, 0x40010)
				wantOne(t, cq, rdma.WCSuccess)
				if space.pages[0x40013] != 77 {
					t.Fatal("nothing written")
				}
				clear(space.pages)
			}
			b.write(a, src, srcAddr, rsp.RKey, 0x40010)
			got := cq.poll()
			if len(got) == 0 || rdma.WCStatus(got[0].Status) != rdma.WCRemOpErr {
				t.Errorf("memory that is gone: %+v", got)
			}
			_ = z
		})
	}
}

func TestRegMR_ImplicitWithoutOnDemand_IsRefused(t *testing.T) {
	b := newBench(t)
	b.c.cfg.Space = &elsewhere{}
	for _, access := range []rdma.Access{0, rdma.AccessLocalWrite} {
		_, r := b.c.RegMR(&abi.RegMRReq{
			PD: b.pd, Access: uint32(access), Length: math.MaxUint64,
		}, []mem.Segment{{Length: math.MaxUint64}})
		refused(t, "all memory, pinned", r, syscall.EINVAL)
	}
	_, r := b.c.RegMR(&abi.RegMRReq{
		PD: b.pd, Access: uint32(rdma.AccessOnDemand), Length: math.MaxUint64, IOVA: 1,
	}, []mem.Segment{{Length: math.MaxUint64}})
	refused(t, "an address space beyond 64 bits", r, syscall.EINVAL)
}

func TestNullMR_ReadsZeros_SwallowsWrites_HasNoRKey(t *testing.T) {
	b := newBench(t)
	a, z, cq := pairRC(b)
	null, r := b.c.AllocNullMR(b.pd)
	b.granted(r)
	if null.RKey != 0 || null.LKey == 0 {
		t.Errorf("keys %+v", null)
	}
	mr, addr, m := b.region(16, everyRight)
	copy(m, "0123456789abcdef")
	write := abi.SendWQE{
		WRID: 1, Opcode: uint8(rdma.WRWrite), Flags: uint8(rdma.SendSignaled), RemoteAddr: addr,
		RKey: mr.RKey,
	}
	a.send(write, abi.SGE{Addr: 0xdead000, Length: 4, LKey: null.LKey},
		abi.SGE{Addr: addr + 8, Length: 2, LKey: mr.LKey})
	b.run(second)
	wantOne(t, cq, rdma.WCSuccess)
	if string(m) != "\x00\x00\x00\x008967"+"89abcdef" {
		t.Errorf("memory %q", m)
	}
	z.recv(5, abi.SGE{Addr: 0, Length: 4, LKey: null.LKey},
		abi.SGE{Addr: addr, Length: 4, LKey: mr.LKey})
	a.send(abi.SendWQE{WRID: 2, Opcode: uint8(rdma.WRSend)},
		abi.SGE{Addr: addr + 8, Length: 8, LKey: mr.LKey})
	b.run(second)
	wantOne(t, cq, rdma.WCSuccess)
	if string(m[:4]) != "cdef" {
		t.Errorf("memory %q", m)
	}
	write.RKey, write.RemoteAddr = null.LKey, 0
	a.send(write, abi.SGE{Addr: addr, Length: 4, LKey: mr.LKey})
	b.run(second)
	if got := cq.poll(); len(got) == 0 || rdma.WCStatus(got[0].Status) != rdma.WCRemAccessErr {
		t.Errorf("a null region from outside: %+v", got)
	}
}

func TestAdviseMR_JudgesEachRange(t *testing.T) {
	b := newBench(t)
	b.c.cfg.Space = &elsewhere{}
	reg := func(access rdma.Access) uint32 {
		rsp, r := b.c.RegMR(&abi.RegMRReq{
			PD: b.pd, Access: uint32(access), Addr: 0x9000, Length: 64, IOVA: 0x4000,
		}, []mem.Segment{{Addr: 0x9000, Length: 64}})
		b.granted(r)
		return rsp.LKey
	}
	paged, readOnly := reg(rdma.AccessOnDemand|rdma.AccessLocalWrite), reg(rdma.AccessOnDemand)
	pinned := reg(rdma.AccessLocalWrite)
	pd, r := b.c.AllocPD()
	b.granted(r)
	mw, r := b.c.AllocMW(&abi.AllocMWReq{PD: b.pd, Type: 1})
	b.granted(r)
	type ask struct {
		pd, advice, flags uint32
		key               uint32
		addr              uint64
		length            uint32
		errno             syscall.Errno
	}
	for name, x := range map[string]ask{
		"write":        {b.pd, 1, 1, paged, 0x4000, 64, 0},
		"read":         {b.pd, 0, 0, readOnly, 0x4001, 3, 0},
		"no fault":     {b.pd, 2, 0, paged, 0x4000, 64, 0},
		"pd":           {99, 0, 0, paged, 0x4000, 1, syscall.EINVAL},
		"other pd":     {pd, 0, 0, paged, 0x4000, 1, syscall.EPERM},
		"advice":       {b.pd, 3, 0, paged, 0x4000, 1, syscall.EOPNOTSUPP},
		"flags":        {b.pd, 0, 2, paged, 0x4000, 1, syscall.EINVAL},
		"key":          {b.pd, 0, 0, 0x777, 0x4000, 1, syscall.ENOENT},
		"window":       {b.pd, 0, 0, mw.RKey, 0x4000, 1, syscall.EINVAL},
		"pinned":       {b.pd, 0, 0, pinned, 0x4000, 1, syscall.EINVAL},
		"bounds":       {b.pd, 0, 0, paged, 0x4001, 64, syscall.EFAULT},
		"not to write": {b.pd, 1, 0, readOnly, 0x4000, 1, syscall.EPERM},
	} {
		got, r := b.c.AdviseMR(&abi.AdviseMRReq{PD: x.pd, Advice: x.advice, Flags: x.flags},
			[]abi.SGE{{Addr: x.addr, Length: x.length, LKey: x.key}})
		if x.errno == 0 && (r != nil || len(got) != 1 || got[0].Addr != x.addr+0x5000) {
			t.Errorf("%s: %v, %v", name, got, r)
		} else if x.errno != 0 {
			refused(t, name, r, x.errno)
		}
	}
	_, r = b.c.AdviseMR(&abi.AdviseMRReq{PD: b.pd}, nil)
	refused(t, "nothing", r, syscall.EINVAL)
}

func TestDeviceMemory_TransfersAndIsBounded(t *testing.T) {
	b := newBench(t)
	a, _, cq := pairRC(b)
	dm, shared, r := b.c.AllocDM(&abi.AllocDMReq{Length: 100, AlignLog: 6})
	b.granted(r)
	if dm.Length != 4096 || len(shared.Bytes()) != 4096 {
		t.Errorf("%+v, %d bytes", dm, len(shared.Bytes()))
	}
	access := uint32(everyRight | rdma.AccessZeroBased)
	mr, r := b.c.RegDM(&abi.RegDeviceMRReq{
		PD: b.pd, DM: dm.Handle, Offset: 40, Length: 60, Access: access,
	})
	b.granted(r)
	empty, r := b.c.RegDM(&abi.RegDeviceMRReq{PD: b.pd, DM: dm.Handle, Access: access})
	b.granted(r)
	src, srcAddr, srcMem := b.region(8, 0)
	copy(srcMem, "abcdefgh")
	b.write(a, src, srcAddr, mr.RKey, 52)
	wantOne(t, cq, rdma.WCSuccess)
	if !bytes.Equal(shared.Bytes()[92:100], srcMem) {
		t.Error("the bytes are not in device memory")
	}
	for name, req := range map[string]abi.RegDeviceMRReq{
		"dm":         {PD: b.pd, DM: 99, Length: 4, Access: access},
		"pd":         {PD: 99, DM: dm.Handle, Length: 4, Access: access},
		"length":     {PD: b.pd, DM: dm.Handle, Length: 104, Access: access},
		"offset":     {PD: b.pd, DM: dm.Handle, Offset: 97, Length: 4, Access: access},
		"wrap":       {PD: b.pd, DM: dm.Handle, Offset: 8, Length: ^uint64(0) - 3, Access: access},
		"zero-based": {PD: b.pd, DM: dm.Handle, Length: 4, Access: uint32(everyRight)},
		"on demand":  {PD: b.pd, DM: dm.Handle, Length: 4, Access: access | 1<<6},
		"flags":      {PD: b.pd, DM: dm.Handle, Length: 4, Access: access, Flags: 1},
		"write only": {
			PD: b.pd, DM: dm.Handle, Length: 4,
			Access: uint32(rdma.AccessRemoteWrite | rdma.AccessZeroBased),
		},
	} {
		_, r := b.c.RegDM(&req)
		refused(t, name, r, syscall.EINVAL)
	}
	refused(t, "free in use", b.c.FreeDM(dm.Handle), syscall.EBUSY)
	for _, h := range []uint32{mr.Handle, empty.Handle} {
		if segs, r := b.c.DeregMR(h); r != nil || segs != nil {
			t.Fatalf("%v, %d segments", r, len(segs))
		}
	}
	b.granted(b.c.FreeDM(dm.Handle))
	refused(t, "free twice", b.c.FreeDM(dm.Handle), syscall.EINVAL)
}

func TestDeviceMemory_Limits(t *testing.T) {
	b := newBench(t)
	for name, req := range map[string]abi.AllocDMReq{
		"nothing": {}, "align": {Length: 4, AlignLog: 13},
		"over max_dm_size": {Length: b.c.DeviceAttr().MaxDMSize + 1}, "wrap": {Length: ^uint64(0)},
	} {
		_, _, r := b.c.AllocDM(&req)
		refused(t, name, r, syscall.EINVAL)
	}
	live := b.heap.live
	half := abi.AllocDMReq{Length: b.c.DeviceAttr().MaxDMSize / 2}
	for range 2 {
		_, _, r := b.c.AllocDM(&half)
		b.granted(r)
	}
	_, _, r := b.c.AllocDM(&abi.AllocDMReq{Length: 1})
	refused(t, "beyond the context's share", r, syscall.ENOMEM)
	b.n.CloseContext(b.now, b.c)
	if b.heap.live != live || b.n.counts.dmBytes != 0 {
		t.Errorf("%d blocks and %d bytes outlive their context", b.heap.live-live, b.n.counts.dmBytes)
	}
}

func TestMW_HoldsItsRegionAndDomain(t *testing.T) {
	b := newBench(t)
	cq := b.cq(64, 0)
	a, z := b.rc(cq), b.rc(cq)
	a.connect(z.rsp.QPN)
	z.connect(a.rsp.QPN)
	mr, addr, _ := b.region(64, everyRight|rdma.AccessMWBind)
	mw, r := b.c.AllocMW(&abi.AllocMWReq{PD: b.pd, Type: uint32(rdma.MWType2)})
	b.granted(r)
	bind := abi.SendWQE{
		WRID: 1, Opcode: uint8(rdma.WRBindMW), Flags: uint8(rdma.SendSignaled), RKey: mw.RKey ^ 1,
		RemoteAddr: addr, CompareAdd: 64, Swap: uint64(rdma.AccessRemoteWrite), Extra: mr.LKey,
	}
	z.send(bind)
	b.run(second)
	wantOne(t, cq, rdma.WCSuccess)
	_, r = b.c.DeregMR(mr.Handle)
	refused(t, "dereg of a region with a window", r, syscall.EBUSY)
	_, _, r = b.c.ReregMR(&abi.ReregMRReq{Handle: mr.Handle, Flags: 2, PD: b.pd}, nil)
	refused(t, "rereg of a region with a window", r, syscall.EBUSY)
	b.granted(b.c.DestroyQP(b.now, z.rsp.Handle))
	if b.c.mrs[mr.Handle].Windows() != 0 {
		t.Error("a window outlives the queue pair that bound it")
	}
	b.granted(b.c.DestroyQP(b.now, a.rsp.Handle))
	if _, r = b.c.DeregMR(mr.Handle); r != nil {
		t.Fatal(r)
	}
	refused(t, "dealloc of a PD with a window", b.c.DeallocPD(b.pd), syscall.EBUSY)
	b.granted(b.c.DeallocMW(mw.Handle))
	refused(t, "dealloc twice", b.c.DeallocMW(mw.Handle), syscall.EINVAL)
	b.granted(b.c.DeallocPD(b.pd))
	for _, req := range []abi.AllocMWReq{{PD: b.pd, Type: 1}} {
		_, r = b.c.AllocMW(&req)
		refused(t, "unknown PD", r, syscall.EINVAL)
	}
}

func TestMW_WrongType_IsRefused(t *testing.T) {
	b := newBench(t)
	for _, typ := range []uint32{0, 3, ^uint32(0)} {
		_, r := b.c.AllocMW(&abi.AllocMWReq{PD: b.pd, Type: typ})
		refused(t, "window type", r, syscall.EINVAL)
	}
}

func TestMW_Deallocated_ClosesTheDoor(t *testing.T) {
	b := newBench(t)
	a, z, cq := pairRC(b)
	mr, addr, m := b.region(64, everyRight|rdma.AccessMWBind)
	mw, r := b.c.AllocMW(&abi.AllocMWReq{PD: b.pd, Type: uint32(rdma.MWType1)})
	b.granted(r)
	key := mw.RKey ^ 1
	z.send(abi.SendWQE{
		WRID: 1, Opcode: uint8(rdma.WRBindMW), Flags: uint8(rdma.SendSignaled), RKey: key,
		RemoteAddr: addr + 8, CompareAdd: 8, Swap: uint64(rdma.AccessRemoteWrite), Extra: mr.LKey,
	})
	b.run(second)
	wantOne(t, cq, rdma.WCSuccess)
	m[0] = 5
	b.write(a, mr, addr, key, addr+8)
	wantOne(t, cq, rdma.WCSuccess)
	if m[8] != 5 {
		t.Fatal("nothing written through the window")
	}
	b.granted(b.c.DeallocMW(mw.Handle))
	if _, r := b.c.DeregMR(mr.Handle); r != nil {
		t.Errorf("the region is still held: %v", r)
	}
	src, srcAddr, _ := b.region(8, 0)
	b.write(a, src, srcAddr, key, addr+8)
	if got := cq.poll(); len(got) == 0 || rdma.WCStatus(got[0].Status) != rdma.WCRemAccessErr {
		t.Errorf("completions %+v", got)
	}
}

// TestMemory_AnySequence_LeaksNothing runs verbs about memory in any order, with handles of this
// and of other contexts, and wants an empty NIC in the end.
func TestMemory_AnySequence_LeaksNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		heap := new(arena)
		n := New(Config{
			Devices: oneDevice, NodeGUID: 1, Secret: rapid.Uint64().Draw(rt, "secret"), Memory: heap,
		})
		var contexts [2]*Context
		handles := []uint32{0, 1, ^uint32(0)}
		for i := range contexts {
			c, r := n.OpenContext(0, ContextConfig{
				Doorbells: bytesOf(make([]uint64, abi.DoorbellPageBytes/8)), Space: &elsewhere{},
			})
			if r != nil {
				rt.Fatal(r)
			}
			contexts[i] = c
			h, _ := c.AllocPD()
			handles = append(handles, h)
		}
		handle := rapid.Custom(func(t *rapid.T) uint32 {
			return rapid.SampledFrom(handles).Draw(t, "h")
		})
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			c := contexts[rapid.IntRange(0, 1).Draw(rt, "context")]
			if h := memoryStep(rt, c, handle); h != 0 {
				handles = append(handles, h)
			}
		}
		for _, c := range contexts {
			n.CloseContext(0, c)
		}
		if n.memory.Len() != 0 || heap.live != 0 || n.counts != (census{}) {
			rt.Errorf("left: %d regions, %d blocks, %+v", n.memory.Len(), heap.live, n.counts)
		}
	})
}

// memoryStep calls one verb and returns the handle of what it made.
func memoryStep(rt *rapid.T, c *Context, handle *rapid.Generator[uint32]) uint32 {
	h, pd := handle.Draw(rt, "handle"), handle.Draw(rt, "pd")
	access := rapid.SampledFrom([]uint32{0, 1, 3, 16, 33, 65, 1 << 13}).Draw(rt, "access")
	addr := rapid.Uint64().Draw(rt, "addr")
	length := rapid.SampledFrom([]uint64{0, 1, 64, 1 << 20, math.MaxUint64}).Draw(rt, "length")
	segs := []mem.Segment{{Addr: addr, Length: length}}
	if length == 64 && addr%2 == 0 {
		segs[0].Mapped = make([]byte, 64)
	}
	switch rapid.IntRange(0, 9).Draw(rt, "verb") {
	case 0:
		rsp, _ := c.RegMR(&abi.RegMRReq{
			PD: pd, Access: access, Addr: addr, Length: length, IOVA: addr,
		}, segs)
		return rsp.Handle
	case 1:
		rsp, _ := c.AllocNullMR(pd)
		return rsp.Handle
	case 2:
		_, _, _ = c.ReregMR(&abi.ReregMRReq{
			Handle: h, Flags: rapid.Uint32Range(0, 9).Draw(rt, "flags"), PD: pd, Access: access,
			Addr: addr, Length: length, IOVA: addr,
		}, segs)
	case 3:
		_, _ = c.DeregMR(h)
	case 4:
		rsp, _ := c.AllocMW(&abi.AllocMWReq{PD: pd, Type: rapid.Uint32Range(0, 3).Draw(rt, "type")})
		return rsp.Handle
	case 5:
		_ = c.DeallocMW(h)
	case 6:
		rsp, _, _ := c.AllocDM(&abi.AllocDMReq{Length: min(length, 1<<16), AlignLog: access & 15})
		return rsp.Handle
	case 7:
		_ = c.FreeDM(h)
	case 8:
		rsp, _ := c.RegDM(&abi.RegDeviceMRReq{
			PD: pd, DM: h, Offset: addr % 128, Length: length, Access: access,
		})
		return rsp.Handle
	case 9:
		_ = c.DeallocPD(pd)
	}
	return 0
}

// TestRegMR_ManyCycles_TableDoesNotGrow: slots are used again, and no key comes back soon.
func TestRegMR_ManyCycles_TableDoesNotGrow(t *testing.T) {
	b := newBench(t)
	m := make([]byte, 64)
	req := abi.RegMRReq{
		PD: b.pd, Access: uint32(everyRight), Addr: 0x1000, Length: 64, IOVA: 0x1000,
	}
	segs := []mem.Segment{{Addr: 0x1000, Length: 64, Mapped: m}}
	var last uint32
	for range 20000 {
		rsp, r := b.c.RegMR(&req, segs)
		b.granted(r)
		if rsp.LKey == last {
			t.Fatal("a dead key came back at once")
		}
		last = rsp.LKey
		mw, r := b.c.AllocMW(&abi.AllocMWReq{PD: b.pd, Type: 2})
		b.granted(r)
		b.granted(b.c.DeallocMW(mw.Handle))
		if _, r := b.c.DeregMR(rsp.Handle); r != nil {
			t.Fatal(r)
		}
	}
	if n := b.n.memory.Slots(); n > 4 {
		t.Errorf("%d slots for two objects at a time", n)
	}
}
