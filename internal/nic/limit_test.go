package nic

import (
	"syscall"
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
)

// TestLimits_OfAClient_AreToldAndKept: the operator's bounds hold for each program by itself, and
// what is given back counts no more.
func TestLimits_OfAClient_AreToldAndKept(t *testing.T) {
	b := &bench{t: t, heap: new(arena)}
	b.n = New(Config{Devices: oneDevice, NodeGUID: 1, Memory: b.heap, Client: limits.Client{
		PDs: 1, CQs: 1, QPs: 2, SRQs: 1, AHs: 1, MRs: 1, MWs: 1, DeviceMemory: 8192,
		Channels: 1, XRCDs: 1, EventChannels: 1, CMIDs: 1,
	}})
	b.n.SetPort(0, 0, Port{MTU: rdma.MTU1024, Active: true, GIDs: []abi.GIDEntry{
		{GID: gid(1), Port: 1, Type: 2},
	}})
	for range 2 {
		b.c, b.bells = b.open()
		a := b.c.DeviceAttr()
		if a.MaxPD != 1 || a.MaxCQ != 1 || a.MaxQP != 2 || a.MaxSRQ != 1 || a.MaxAH != 1 ||
			a.MaxMR != 1 || a.MaxMW != 1 || a.MaxDMSize != 8192 {
			t.Errorf("told: %+v", a)
		}
		pd, r := b.c.AllocPD()
		b.granted(r)
		b.pd = pd
		cq := b.cq(8, 0)
		b.rc(cq)
		last := b.rc(cq)
		b.exhaust(cq)
		b.granted(b.c.DestroyQP(b.now, last.rsp.Handle))
		b.rc(cq)
	}
}

// exhaust wants each verb refused by which a context would have more than it may.
func (b *bench) exhaust(cq *appCQ) {
	b.t.Helper()
	qp := abi.CreateQPReq{
		Type: uint32(rdma.QPTypeRC), PD: b.pd, SendCQ: cq.handle, RecvCQ: cq.handle,
		MaxSendWR: 1, MaxRecvWR: 1,
	}
	srq := abi.CreateSRQReq{PD: b.pd, MaxWR: 1}
	ah := abi.CreateAHReq{PD: b.pd, Attr: fullAttr(0).AH}
	mw := abi.AllocMWReq{PD: b.pd, Type: 1}
	_, _, r := b.c.CreateSRQ(&srq)
	b.granted(r)
	_, r = b.c.CreateAH(&ah)
	b.granted(r)
	_, r = b.c.AllocNullMR(b.pd)
	b.granted(r)
	_, r = b.c.AllocMW(&mw)
	b.granted(r)
	_, _, r = b.c.AllocDM(&abi.AllocDMReq{Length: 8000})
	b.granted(r)
	_, r = b.c.CreateChannel()
	b.granted(r)
	_, r = b.c.OpenXRCD(nil, abi.XRCDCreate)
	b.granted(r)
	_, r = b.c.CreateChannel()
	refused(b.t, "create_comp_channel", r, syscall.ENOMEM)
	_, r = b.c.OpenXRCD(nil, abi.XRCDCreate)
	refused(b.t, "open_xrcd", r, syscall.ENOMEM)
	_, r = b.c.AllocPD()
	refused(b.t, "alloc_pd", r, syscall.ENOMEM)
	_, _, r = b.c.CreateCQ(&abi.CreateCQReq{Entries: 1})
	refused(b.t, "create_cq", r, syscall.ENOMEM)
	_, _, r = b.c.CreateQP(b.now, &qp)
	refused(b.t, "create_qp", r, syscall.ENOMEM)
	_, _, r = b.c.CreateSRQ(&srq)
	refused(b.t, "create_srq", r, syscall.ENOMEM)
	_, r = b.c.CreateAH(&ah)
	refused(b.t, "create_ah", r, syscall.ENOMEM)
	_, r = b.c.AllocNullMR(b.pd)
	refused(b.t, "reg_mr", r, syscall.ENOMEM)
	_, r = b.c.AllocMW(&mw)
	refused(b.t, "alloc_mw", r, syscall.ENOMEM)
	_, _, r = b.c.AllocDM(&abi.AllocDMReq{Length: 8000})
	refused(b.t, "alloc_dm", r, syscall.ENOMEM)
}

// TestLimits_OfASession_AreKept is the same for connection management.
func TestLimits_OfASession_AreKept(t *testing.T) {
	n := New(Config{Devices: oneDevice, NodeGUID: 1, Memory: new(arena), Client: limits.Client{
		EventChannels: 1, CMIDs: 2,
	}})
	for range 2 {
		s, r := n.OpenCM(0, CMConfig{})
		if r != nil {
			t.Fatal(r)
		}
		channel, r := s.CreateEventChannel()
		if r != nil {
			t.Fatal(r)
		}
		_, r = s.CreateEventChannel()
		refused(t, "create_event_channel", r, syscall.ENOMEM)
		req := &abi.CreateIDReq{Channel: channel, PortSpace: uint32(spaceTCP)}
		for range 2 {
			if _, r := s.CreateID(req); r != nil {
				t.Fatal(r)
			}
		}
		_, r = s.CreateID(req)
		refused(t, "create_id", r, syscall.ENOMEM)
	}
}
