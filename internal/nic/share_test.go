package nic

import (
	"errors"
	"syscall"
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
)

// TestImport_PDAndMR_ServeAnotherContext: a queue pair of one context works with a region of the
// other, in the protection domain that both have.
func TestImport_PDAndMR_ServeAnotherContext(t *testing.T) {
	b := newBench(t)
	mr, addr, m := b.region(4096, rdma.AccessLocalWrite|rdma.AccessRemoteWrite)
	owner, pd := b.c, b.pd
	other, bells := b.open()
	if _, r := other.ImportPD(pd); r == nil || !errors.Is(r, syscall.EINVAL) {
		t.Errorf("a protection domain of nobody: %v", r)
	}
	b.granted(other.Import(owner))
	for what, r := range map[string]*rdma.Refusal{
		"itself": owner.Import(owner), "twice": other.Import(owner),
	} {
		if r == nil {
			t.Errorf("import %s is granted", what)
		}
	}
	if _, r := other.ImportMR(&abi.ImportMRReq{PD: pd, Handle: mr.Handle}); r == nil {
		t.Error("a region whose protection domain was not imported")
	}
	for range 2 {
		h, r := other.ImportPD(pd)
		b.granted(r)
		if h != pd {
			t.Errorf("handle %d, want %d", h, pd)
		}
	}
	got, r := other.ImportMR(&abi.ImportMRReq{PD: pd, Handle: mr.Handle})
	b.granted(r)
	if got.LKey != mr.LKey || got.RKey != mr.RKey || got.Length != 4096 || got.IOVA != addr {
		t.Errorf("the region is %+v", got)
	}
	if _, r := other.ImportMR(&abi.ImportMRReq{PD: pd, Handle: 999}); r == nil {
		t.Error("a region of nobody")
	}

	b.c, b.bells = other, bells
	q := b.cq(16, 0)
	one, two := b.rc(q), b.rc(q)
	one.connect(two.rsp.QPN)
	two.connect(one.rsp.QPN)
	m[0] = 0x77
	one.send(abi.SendWQE{
		Opcode: uint8(rdma.WRWrite), Flags: uint8(rdma.SendSignaled), RemoteAddr: addr + 64,
		RKey: got.RKey,
	}, abi.SGE{Addr: addr, Length: 8, LKey: got.LKey})
	b.run(second)
	if done := q.poll(); len(done) != 1 || done[0].Status != 0 || m[64] != 0x77 {
		t.Fatalf("completions %+v, memory %#x", done, m[64])
	}

	if r := owner.DeallocPD(pd); r == nil || !errors.Is(r, syscall.EBUSY) {
		t.Errorf("a protection domain that the other uses: %v", r)
	}
	pds := b.n.counts.pds
	b.n.CloseContext(b.now, owner)
	if other.Source() != nil || other.pds[pd] == nil || b.n.counts.pds != pds {
		t.Errorf("after the owner: source %v, %d protection domains", other.Source(), b.n.counts.pds)
	}
	for _, x := range []*appQP{one, two} {
		b.granted(other.DestroyQP(b.now, x.rsp.Handle))
	}
	b.granted(other.DeallocPD(pd))
	if b.n.counts.pds != pds-1 {
		t.Errorf("%d protection domains are counted", b.n.counts.pds)
	}
}

// TestImport_WindowOnAnothersRegion_DiesWithIt: the owner of a region may vanish while a window of
// who has imported its protection domain is bound to the region.
// TestImport_AdviceAboutTheSourcesMemory_IsForNobodyHere: pages of an on-demand region are in the
// process that registered it, and not at its addresses in the one that imported it.
func TestImport_AdviceAboutTheSourcesMemory_IsForNobodyHere(t *testing.T) {
	b := newBench(t)
	mr, addr, _ := b.region(4096, rdma.AccessLocalWrite|rdma.AccessOnDemand)
	owner, pd := b.c, b.pd
	other, _ := b.open()
	b.granted(other.Import(owner))
	_, r := other.ImportPD(pd)
	b.granted(r)
	req := abi.AdviseMRReq{PD: pd, Advice: uint32(rdma.AdvicePrefetchWrite)}
	for c, want := range map[*Context]uint32{owner: 4096, other: 0} {
		got, r := c.AdviseMR(&req, []abi.SGE{{Addr: addr, Length: 4096, LKey: mr.LKey}})
		b.granted(r)
		if len(got) != 1 || got[0].Length != want {
			t.Errorf("%+v, want %d bytes", got, want)
		}
		if _, r = c.AdviseMR(&req, []abi.SGE{{Addr: addr, Length: 4097, LKey: mr.LKey}}); r == nil {
			t.Error("advice about more than the region is taken")
		}
	}
}

func TestImport_WindowOnAnothersRegion_DiesWithIt(t *testing.T) {
	b := newBench(t)
	mr, addr, _ := b.region(4096, rdma.AccessLocalWrite|rdma.AccessMWBind)
	owner, pd := b.c, b.pd
	other, bells := b.open()
	b.granted(other.Import(owner))
	_, r := other.ImportPD(pd)
	b.granted(r)
	b.c, b.bells = other, bells
	q := b.cq(16, 0)
	one, two := b.rc(q), b.rc(q)
	one.connect(two.rsp.QPN)
	two.connect(one.rsp.QPN)
	w, r := other.AllocMW(&abi.AllocMWReq{PD: pd, Type: uint32(rdma.MWType2)})
	b.granted(r)
	key := w.RKey&^0xff | uint32(uint8(w.RKey)+1)
	one.send(abi.SendWQE{
		Opcode: uint8(rdma.WRBindMW), Flags: uint8(rdma.SendSignaled), RKey: key, RemoteAddr: addr,
		CompareAdd: 64, Swap: uint64(rdma.AccessRemoteRead), Extra: mr.LKey,
	})
	b.run(second)
	if done := q.poll(); len(done) != 1 || done[0].Status != 0 {
		t.Fatalf("the bind: %+v", done)
	}
	b.n.CloseContext(b.now, owner)
	two.send(abi.SendWQE{
		Opcode: uint8(rdma.WRRead), Flags: uint8(rdma.SendSignaled), RKey: key, RemoteAddr: addr,
	}, abi.SGE{Addr: addr, Length: 8, LKey: mr.LKey})
	b.run(second)
	for _, done := range q.poll() {
		if done.Status == 0 {
			t.Errorf("memory that is gone was read: %+v", done)
		}
	}
	b.n.CloseContext(b.now, other)
	if b.n.memory.Len() != 0 || b.n.counts.pds != 0 {
		t.Errorf("left: %d regions, %d protection domains", b.n.memory.Len(), b.n.counts.pds)
	}
}

// TestImport_DeallocatedByEither_IsGoneForBoth: a protection domain has one life.
func TestImport_DeallocatedByEither_IsGoneForBoth(t *testing.T) {
	b := newBench(t)
	other, _ := b.open()
	b.granted(other.Import(b.c))
	_, r := other.ImportPD(b.pd)
	b.granted(r)
	b.granted(other.DeallocPD(b.pd))
	if r := b.c.DeallocPD(b.pd); r == nil || !errors.Is(r, syscall.EINVAL) {
		t.Errorf("deallocated again: %v", r)
	}
	if b.n.counts.pds != 0 {
		t.Errorf("%d protection domains are counted", b.n.counts.pds)
	}
	if _, r := other.ImportDM(7); r == nil || !errors.Is(r, syscall.EINVAL) {
		t.Errorf("device memory of nobody: %v", r)
	}
}
