package nic

import (
	"math"
	"slices"
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
)

// knownAccess are the flags that have a meaning in verbs; supportedAccess are those that
// ibv_reg_mr may carry here. The optional range is ignored as its name promises.
const (
	knownAccess = rdma.AccessLocalWrite | rdma.AccessRemoteAny | rdma.AccessMWBind |
		rdma.AccessZeroBased | rdma.AccessOnDemand | rdma.AccessHugeTLB | rdma.AccessOptional
	supportedAccess = knownAccess &^ rdma.AccessFlushPersist
)

// On-demand paging (enum ibv_odp_general_caps, ibv_odp_transport_cap_bits). Nothing is ever pinned
// here, so every region is paged on demand; one that asks for it may lie where nothing is mapped
// yet.
const (
	odpSupport  = 1 << 0
	odpImplicit = 1 << 1
	odpSend     = 1 << 0
	odpRecv     = 1 << 1
	odpWrite    = 1 << 2
	odpRead     = 1 << 3
	odpAtomic   = 1 << 4
	odpSRQRecv  = 1 << 5
	odpFlush    = 1 << 6
	odpStore    = 1 << 7 // IBV_ODP_SUPPORT_ATOMIC_WRITE
	odpUD       = odpSend | odpRecv | odpSRQRecv
	odpUC       = odpUD | odpWrite
	odpReliable = odpUC | odpRead | odpAtomic
)

// setMemoryAttr fills what ibv_query_device_ex reports about memory.
func setMemoryAttr(a *abi.DeviceAttr, most *limits.Client, t *transport) {
	a.MaxMR, a.MaxMW, a.MaxMRSize = uint32(most.MRs), uint32(most.MWs), limits.MaxMRSize
	a.MaxDMSize = most.DeviceMemory
	a.ODPCaps = odpSupport | odpImplicit
	for _, o := range []struct {
		qpType rdma.QPType
		caps   uint32
		out    *uint32
	}{
		{rdma.QPTypeRC, t.odpRC, &a.ODPCapsRC},
		{rdma.QPTypeUC, odpUC, &a.ODPCapsUC},
		{rdma.QPTypeUD, odpUD, &a.ODPCapsUD},
		{rdma.QPTypeXRCSend, t.odpRC, &a.ODPCapsXRC},
	} {
		if t.makes(o.qpType) {
			*o.out = o.caps
		}
	}
}

// RegMR registers memory. segs are the request's segments as the shell could map them.
func (c *Context) RegMR(req *abi.RegMRReq, segs []mem.Segment) (abi.RegMRRsp, *rdma.Refusal) {
	access := rdma.Access(req.Access)
	if r := checkAccess(access); r != nil {
		return abi.RegMRRsp{}, r
	}
	if req.Length == 0 {
		return abi.RegMRRsp{}, refusef(syscall.EINVAL, "a region needs at least one byte")
	}
	return c.register(c.regionConfig(&mem.Config{
		PD: mem.PD(req.PD), Access: access, Addr: req.Addr, Length: req.Length, IOVA: req.IOVA,
		Segments: segs,
	}))
}

func checkAccess(access rdma.Access) *rdma.Refusal {
	if extra := access &^ knownAccess; extra != 0 {
		return refusef(syscall.EINVAL, "access flags %#x mean nothing", uint32(extra))
	}
	if extra := access &^ supportedAccess; extra != 0 {
		return refusef(syscall.EOPNOTSUPP, "access flags %v are not supported", extra)
	}
	return nil
}

// regionConfig completes the description of a region by what its flags mean.
func (c *Context) regionConfig(m *mem.Config) *mem.Config {
	m.Space = c.cfg.Space
	if m.Access.Has(rdma.AccessZeroBased) {
		m.IOVA = 0
	}
	if m.Access.Has(rdma.AccessOnDemand) && m.Addr == 0 && m.Length == math.MaxUint64 {
		m.Kind = mem.KindImplicit
	}
	return m
}

// register enters a region into the table and into its protection domain.
func (c *Context) register(m *mem.Config) (abi.RegMRRsp, *rdma.Refusal) {
	p := c.pds[uint32(m.PD)]
	if p == nil {
		return abi.RegMRRsp{}, refusef(syscall.EINVAL, "protection domain %d is unknown", m.PD)
	}
	if r := mayHave("memory regions", len(c.mrs), c.most().MRs); r != nil {
		return abi.RegMRRsp{}, r
	}
	r, refusal := c.nic.memory.Register(*m)
	if refusal != nil {
		return abi.RegMRRsp{}, refusal
	}
	p.users++
	h := c.nic.id()
	c.mrs[h] = r
	return describeMR(h, r), nil
}

func describeMR(h uint32, r *mem.Region) abi.RegMRRsp {
	rsp := abi.RegMRRsp{Handle: h, LKey: uint32(r.Key), RKey: uint32(r.Key)}
	if r.Kind() == mem.KindNull {
		rsp.RKey = 0
	}
	for _, s := range r.Segments() {
		if s.Mapped != nil {
			rsp.Mapped++
		}
	}
	return rsp
}

// AllocNullMR makes a region that reads as zeros and swallows what is written.
func (c *Context) AllocNullMR(pd uint32) (abi.RegMRRsp, *rdma.Refusal) {
	return c.register(&mem.Config{
		Kind: mem.KindNull, PD: mem.PD(pd), Access: rdma.AccessLocalWrite, Length: math.MaxUint64,
	})
}

// ReregMR changes a region (ibv_rereg_mr(3)); its keys stay. segs are new segments where the
// translation or the access changes. Those before are returned for the shell to drop; nil where
// they stay in use. After a refusal nothing has changed.
func (c *Context) ReregMR(req *abi.ReregMRReq, segs []mem.Segment) (
	abi.RegMRRsp, []mem.Segment, *rdma.Refusal,
) {
	var rsp abi.RegMRRsp
	r := c.mrs[req.Handle]
	flags := rdma.ReregMask(req.Flags)
	if refusal := c.checkRereg(r, req); refusal != nil {
		return rsp, nil, refusal
	}
	m := mem.Config{
		PD: r.PD, Access: r.Access, Addr: r.First(), Length: r.Length, IOVA: r.Base, Segments: segs,
	}
	if flags&rdma.ReregPD != 0 {
		m.PD = mem.PD(req.PD)
	}
	if flags&rdma.ReregAccess != 0 {
		m.Access = rdma.Access(req.Access)
		if r.Access.Has(rdma.AccessZeroBased) {
			m.IOVA = m.Addr
		}
	}
	if flags&rdma.ReregTranslation != 0 {
		m.Addr, m.Length, m.IOVA = req.Addr, req.Length, req.IOVA
	}
	isAnew := needsSegments(flags)
	if !isAnew {
		m.Segments = r.Segments()
	}
	was := r.PD
	c.nic.direct.revoke(r) // also where it then stays as it is: libraries ask again
	old, refusal := c.nic.memory.Reregister(r, *c.regionConfig(&m))
	if refusal != nil {
		return rsp, nil, refusal
	}
	c.pds[uint32(was)].users--
	c.pds[uint32(r.PD)].users++
	if !isAnew {
		old = nil
	}
	return describeMR(req.Handle, r), old, nil
}

// needsSegments reports changes after which the memory is reached anew: what may be written
// depends on the access.
func needsSegments(flags rdma.ReregMask) bool {
	return flags&(rdma.ReregTranslation|rdma.ReregAccess) != 0
}

func (c *Context) checkRereg(r *mem.Region, req *abi.ReregMRReq) *rdma.Refusal {
	flags := rdma.ReregMask(req.Flags)
	switch {
	case r == nil:
		return refusef(syscall.EINVAL, "memory region %d is unknown", req.Handle)
	case flags == 0 || flags&^rdma.ReregAll != 0:
		return refusef(syscall.EINVAL, "re-registration flags %#x", req.Flags)
	case r.Kind() == mem.KindNull || c.memory.dmOf[req.Handle] != nil:
		return refusef(syscall.EINVAL, "a null region, or one of device memory, cannot be changed")
	case flags&rdma.ReregPD != 0 && c.pds[req.PD] == nil:
		return refusef(syscall.EINVAL, "protection domain %d is unknown", req.PD)
	case flags&rdma.ReregTranslation != 0 && req.Length == 0:
		return refusef(syscall.EINVAL, "a region needs at least one byte")
	case flags&rdma.ReregAccess != 0:
		return checkAccess(rdma.Access(req.Access))
	}
	return nil
}

// AccessOf returns the access of a region.
func (c *Context) AccessOf(handle uint32) (access rdma.Access, ok bool) {
	r := c.mrs[handle]
	if r == nil {
		return 0, false
	}
	return r.Access, true
}

// DeregMR kills a region's key and returns its segments, whose mappings the shell may now drop.
func (c *Context) DeregMR(handle uint32) ([]mem.Segment, *rdma.Refusal) {
	r := c.mrs[handle]
	if r == nil {
		return nil, refusef(syscall.EINVAL, "memory region %d is unknown", handle)
	}
	if n := r.Windows(); n > 0 {
		return nil, refusef(syscall.EBUSY, "%d memory windows are bound to region %d", n, handle)
	}
	c.nic.direct.revoke(r)
	c.nic.memory.Deregister(r)
	delete(c.mrs, handle)
	c.pds[uint32(r.PD)].users--
	if d := c.memory.dmOf[handle]; d != nil {
		d.users--
		delete(c.memory.dmOf, handle)
		return nil, nil
	}
	return r.Segments(), nil
}

// AdviseMR judges advice about ranges of on-demand regions (ibv_advise_mr(3)), and returns where in
// the application's memory they lie. The pages are the application's, so its library follows the
// advice.
// checkAdvice judges one range and replaces its address by that in the application.
func (c *Context) AdviseMR(req *abi.AdviseMRReq, list []abi.SGE) ([]abi.SGE, *rdma.Refusal) {
	advice := rdma.AdviceMR(req.Advice)
	switch {
	case c.pds[req.PD] == nil:
		return nil, refusef(syscall.EINVAL, "protection domain %d is unknown", req.PD)
	case advice > rdma.AdvicePrefetchNoFault:
		return nil, refusef(syscall.EOPNOTSUPP, "advice %d is unknown", req.Advice)
	case req.Flags&^rdma.AdviceFlush != 0:
		return nil, refusef(syscall.EINVAL, "flags %#x of advice", req.Flags)
	case len(list) == 0:
		return nil, refusef(syscall.EINVAL, "advice about nothing")
	}
	places := slices.Clone(list)
	for i := range places {
		if r := c.checkAdvice(mem.PD(req.PD), advice, &places[i]); r != nil {
			return nil, r
		}
	}
	return places, nil
}

// checkAdvice judges one range, and replaces its address by the one in the application.
func (c *Context) checkAdvice(pd mem.PD, advice rdma.AdviceMR, s *abi.SGE) *rdma.Refusal {
	key := rdma.Key(s.LKey)
	r := c.nic.memory.Find(key)
	switch {
	case r == nil && c.nic.memory.FindWindow(key) != nil:
		return refusef(syscall.EINVAL, "key %v is a memory window's", key)
	case r == nil:
		return refusef(syscall.ENOENT, "lkey %v is unknown", key)
	case r.PD != pd:
		return refusef(syscall.EPERM, "lkey %v is of another protection domain", key)
	case !r.Access.Has(rdma.AccessOnDemand):
		return refusef(syscall.EINVAL, "the region of lkey %v is not paged on demand", key)
	case advice == rdma.AdvicePrefetchWrite && !r.Access.Has(rdma.AccessLocalWrite):
		return refusef(syscall.EPERM, "the region of lkey %v is not writable", key)
	}
	_, f := c.nic.memory.Check(key, pd, s.Addr, uint64(s.Length), 0)
	if f != mem.FaultNone {
		return refusef(syscall.EFAULT, "%v", f)
	}
	s.Addr = s.Addr - r.Base + r.First()
	if !c.owns(r) {
		s.Length = 0 // nothing of this process is to be brought in
	}
	return nil
}
