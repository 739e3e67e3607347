package nic

import (
	"maps"
	"slices"
	"syscall"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
)

// ContextConfig describes an application that opens a device.
type ContextConfig struct {
	Device    int    // its place in Config.Devices
	Name      string // program, for people
	PID, UID  uint32
	Space     mem.Space // reaches the application's memory; nil where the shell may not
	Doorbells []byte    // abi.DoorbellPageBytes, shared with the application
	KeepsOut  bool      // of the direct path
	// ReleaseSegments gets the segments of regions that die with the context; may be nil.
	ReleaseSegments func([]mem.Segment)
	Owner           any
}

// Context is one application's view of a device. Handles that it passes are looked up among its
// own objects only.
type Context struct {
	nic       *NIC
	device    *device
	cfg       ContextConfig
	id        uint32
	doorbells *doorbells
	slots     []*qp // by doorbell slot
	freeSlots []uint32
	tagSlots  map[uint32]*tagging // by doorbell slot, which slots has no QP for

	source   *Context // that it imports from, or nil
	pds      map[uint32]*pd
	mrs      map[uint32]*mem.Region
	channels map[uint32]bool
	cqs      map[uint32]*cq
	qps      map[uint32]*qp
	srqs     map[uint32]*srq
	ahs      map[uint32]*addressHandle
	memory   memoryObjects
	errors   history
	xrcds    map[uint32]*xrcHandle
}

// pd is a protection domain; users counts the objects in it, holders the contexts that have it.
type pd struct {
	users   int
	holders int
}

// census counts objects of the whole NIC against the limits.
type census struct {
	pds, cqs, qps, srqs, ahs, channels, xrcds int
	tags                                      uint32 // room in all matching lists
	dmBytes                                   uint64
}

// OpenContext lets an application in.
func (n *NIC) OpenContext(now clock.Time, cfg ContextConfig) (*Context, *rdma.Refusal) {
	n.now = now
	if len(n.contexts) >= limits.MaxContexts {
		return nil, refusef(syscall.ENOMEM, "limit of %d contexts", limits.MaxContexts)
	}
	if cfg.Device < 0 || cfg.Device >= len(n.devices) {
		return nil, refusef(syscall.ENODEV, "the NIC has no device %d", cfg.Device)
	}
	c := &Context{
		nic: n, device: n.devices[cfg.Device], cfg: cfg, id: n.id(),
		doorbells: newDoorbells(cfg.Doorbells),
		pds:       make(map[uint32]*pd), mrs: make(map[uint32]*mem.Region),
		channels: make(map[uint32]bool), cqs: make(map[uint32]*cq), qps: make(map[uint32]*qp),
		srqs: make(map[uint32]*srq), ahs: make(map[uint32]*addressHandle),
		memory: newMemoryObjects(),
		xrcds:  make(map[uint32]*xrcHandle),
	}
	n.contexts = append(n.contexts, c)
	return c, nil
}

// CloseContext destroys everything that the context has, in the order that dependencies ask for.
func (n *NIC) CloseContext(now clock.Time, c *Context) {
	n.now = now
	i := slices.Index(n.contexts, c)
	if i < 0 {
		return
	}
	for _, h := range slices.Sorted(maps.Keys(c.qps)) {
		n.destroyHandle(now, c, h)
	}
	n.causes.retire(&c.errors, now)
	for _, h := range slices.Sorted(maps.Keys(c.srqs)) {
		n.removeSRQ(c.srqs[h])
	}
	for _, h := range slices.Sorted(maps.Keys(c.cqs)) {
		c.cqs[h].release()
	}
	for h, ah := range c.ahs {
		delete(n.ahs, h)
		c.pds[ah.pd].users--
	}
	c.releaseMemory()
	for h := range c.xrcds {
		n.closeXRCD(c, h)
	}
	n.counts.cqs -= len(c.cqs)
	n.counts.ahs -= len(c.ahs)
	for _, p := range c.pds {
		p.holders--
		if p.holders == 0 {
			n.counts.pds--
		}
	}
	n.forgetSource(c)
	n.counts.channels -= len(c.channels)
	n.contexts = slices.Delete(n.contexts, i, i+1)
	n.events.forget(c)
	n.doomed = slices.DeleteFunc(n.doomed, func(q *cq) bool { return q.context == c })
}

// most returns what the context may have.
func (c *Context) most() *limits.Client { return &c.nic.cfg.Client }

// mayHave refuses one more of what a context has enough of.
func mayHave(what string, have int, most uint64) *rdma.Refusal {
	if uint64(have) < most {
		return nil
	}
	return refusef(syscall.ENOMEM, "limit of %d %s a program", most, what)
}

// Owner returns what the shell attached.
func (c *Context) Owner() any { return c.cfg.Owner }

// ID is the context's number in listings.
func (c *Context) ID() uint32 { return c.id }

// sortedQPs lists the QPs by handle, so that whatever a loop does repeats.
func (c *Context) sortedQPs() []*qp {
	out := make([]*qp, 0, len(c.qps))
	for _, h := range slices.Sorted(maps.Keys(c.qps)) {
		out = append(out, c.qps[h])
	}
	return out
}

// AllocPD makes a protection domain.
func (c *Context) AllocPD() (uint32, *rdma.Refusal) {
	if c.nic.counts.pds >= limits.MaxPD {
		return 0, refusef(syscall.ENOMEM, "limit of %d protection domains", limits.MaxPD)
	}
	if r := mayHave("protection domains", len(c.pds), c.most().PDs); r != nil {
		return 0, r
	}
	h := c.nic.id()
	c.pds[h] = &pd{holders: 1}
	c.nic.counts.pds++
	return h, nil
}

// DeallocPD removes a protection domain that holds nothing.
func (c *Context) DeallocPD(handle uint32) *rdma.Refusal {
	p := c.pds[handle]
	if p == nil {
		return refusef(syscall.EINVAL, "protection domain %d is unknown", handle)
	}
	if p.users > 0 {
		return refusef(syscall.EBUSY, "protection domain %d still holds %d objects", handle, p.users)
	}
	c.nic.dropPD(handle, p)
	return nil
}

// CreateChannel makes a completion channel; the shell gives it a pipe.
func (c *Context) CreateChannel() (uint32, *rdma.Refusal) {
	if c.nic.counts.channels >= limits.MaxCompChannels {
		return 0, refusef(syscall.ENOMEM, "limit of %d completion channels", limits.MaxCompChannels)
	}
	if r := mayHave("completion channels", len(c.channels), c.most().Channels); r != nil {
		return 0, r
	}
	h := c.nic.id()
	c.channels[h] = true
	c.nic.counts.channels++
	return h, nil
}

// DestroyChannel removes a completion channel that no CQ uses.
func (c *Context) DestroyChannel(handle uint32) *rdma.Refusal {
	if !c.channels[handle] {
		return refusef(syscall.EINVAL, "completion channel %d is unknown", handle)
	}
	for _, q := range c.cqs {
		if q.channel == handle {
			return refusef(syscall.EBUSY, "completion channel %d still has completion queues", handle)
		}
	}
	delete(c.channels, handle)
	c.nic.counts.channels--
	return nil
}
