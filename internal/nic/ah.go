package nic

import (
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
)

// addressHandle is a UD destination.
type addressHandle struct {
	pd   uint32
	addr ibt.Address
}

// CreateAH makes an address handle.
func (c *Context) CreateAH(req *abi.CreateAHReq) (uint32, *rdma.Refusal) {
	p := c.pds[req.PD]
	if p == nil {
		return 0, refusef(syscall.EINVAL, "protection domain %d is unknown", req.PD)
	}
	if !c.device.transport.hasDatagrams {
		return 0, refusef(syscall.EOPNOTSUPP, "%s has no address handles: %v has no datagrams",
			c.device.name, c.device.transport)
	}
	if c.nic.counts.ahs >= limits.MaxAH {
		return 0, refusef(syscall.ENOMEM, "limit of %d address handles", limits.MaxAH)
	}
	if r := mayHave("address handles", len(c.ahs), c.most().AHs); r != nil {
		return 0, r
	}
	h := c.nic.id()
	addr, r := c.device.port.resolve(&req.Attr, h)
	if r != nil {
		return 0, r
	}
	ah := &addressHandle{pd: req.PD, addr: addr}
	c.ahs[h], c.nic.ahs[h] = ah, ah
	p.users++
	c.nic.counts.ahs++
	return h, nil
}

// DestroyAH removes an address handle.
func (c *Context) DestroyAH(handle uint32) *rdma.Refusal {
	ah := c.ahs[handle]
	if ah == nil {
		return refusef(syscall.EINVAL, "address handle %d is unknown", handle)
	}
	delete(c.ahs, handle)
	delete(c.nic.ahs, handle)
	c.pds[ah.pd].users--
	c.nic.counts.ahs--
	return nil
}

// AddressHandle implements ibt.Host: a handle serves QPs of its own protection domain only, and
// those belong to one context.
func (q *qp) AddressHandle(handle uint32, pd mem.PD) *ibt.Address {
	ah := q.nic.ahs[handle]
	if ah == nil || mem.PD(ah.pd) != pd {
		return nil
	}
	return &ah.addr
}
