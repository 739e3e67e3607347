package nic

import (
	"slices"
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
)

// XRCKey names an XRC domain that processes share: the file that they open it by.
type XRCKey struct {
	Device, Inode uint64
}

// xrcDomain ties XRC SRQs and receiving XRC QPs together, those of several contexts too
// (IBTA A14.2.1). It implements ibt.Domain.
type xrcDomain struct {
	nic     *NIC
	key     *XRCKey // nil: of one context only
	refs    int     // handles
	targets []*qp
}

// xrcHandle is a context's hold on a domain; users counts its objects there.
type xrcHandle struct {
	domain *xrcDomain
	users  int
}

// Target implements ibt.Domain.
func (d *xrcDomain) Target(srqn uint32) *ibt.Target {
	s := d.nic.srqns[srqn]
	if s == nil || s.domain != d {
		return nil
	}
	return &s.target
}

// OpenXRCD opens the domain of a file, or one for this context alone where key is nil. The errors
// are those of the Linux kernel: EAGAIN for a domain that is not there and not to be made.
func (c *Context) OpenXRCD(key *XRCKey, flags uint32) (uint32, *rdma.Refusal) {
	n := c.nic
	if !c.device.transport.makes(rdma.QPTypeXRCRecv) {
		return 0, refusef(syscall.EOPNOTSUPP, "open_xrcd: %s has no XRC: %v does not know it",
			c.device.name, c.device.transport)
	}
	if flags&^(abi.XRCDCreate|abi.XRCDExclusive) != 0 {
		return 0, refusef(syscall.EINVAL, "open_xrcd: oflags %#x beside O_CREAT and O_EXCL", flags)
	}
	if n.counts.xrcds >= limits.MaxXRCD {
		return 0, refusef(syscall.ENOMEM, "limit of %d XRC domains", limits.MaxXRCD)
	}
	if r := mayHave("XRC domains", len(c.xrcds), c.most().XRCDs); r != nil {
		return 0, r
	}
	var d *xrcDomain
	if key != nil {
		d = n.domains[*key]
		switch {
		case d == nil && flags&abi.XRCDCreate == 0:
			return 0, refusef(syscall.EAGAIN, "open_xrcd: the file has no XRC domain, and no O_CREAT")
		case d != nil && flags&abi.XRCDExclusive != 0:
			return 0, refusef(syscall.EINVAL, "open_xrcd: the file has an XRC domain: O_EXCL")
		}
	}
	if d == nil {
		d = &xrcDomain{nic: n, key: key}
		if key != nil {
			n.domains[*key] = d
		}
	}
	d.refs++
	n.counts.xrcds++
	h := n.id()
	c.xrcds[h] = &xrcHandle{domain: d}
	return h, nil
}

// CloseXRCD gives a handle up through which nothing exists any more. The domain lives as long as
// there is another.
func (c *Context) CloseXRCD(handle uint32) *rdma.Refusal {
	h := c.xrcds[handle]
	switch {
	case h == nil:
		return refusef(syscall.EINVAL, "XRC domain %d is unknown", handle)
	case h.users > 0:
		return refusef(syscall.EBUSY, "XRC domain %d still holds %d objects", handle, h.users)
	}
	c.nic.closeXRCD(c, handle)
	return nil
}

func (n *NIC) closeXRCD(c *Context, handle uint32) {
	d := c.xrcds[handle].domain
	delete(c.xrcds, handle)
	n.counts.xrcds--
	d.refs--
	if d.refs == 0 && d.key != nil {
		delete(n.domains, *d.key)
	}
}

// newSRQN returns a free number for an XRC SRQ; peers name it in 24 bits.
func (n *NIC) newSRQN() uint32 {
	for {
		n.nextSRQN = (n.nextSRQN + 1) & numberMask
		if n.nextSRQN != 0 && n.srqns[n.nextSRQN] == nil {
			return n.nextSRQN
		}
	}
}

// OpenQP gives a context a handle of a receiving XRC QP that another one may have made
// (ibv_open_qp(3)). The QP lives until its last handle is destroyed.
func (c *Context) OpenQP(req *abi.OpenQPReq) (uint32, *rdma.Refusal) {
	x := c.xrcds[req.XRCD]
	if x == nil {
		return 0, refusef(syscall.EINVAL, "XRC domain %d is unknown", req.XRCD)
	}
	if rdma.QPType(req.Type) != rdma.QPTypeXRCRecv {
		return 0, refusef(syscall.EINVAL, "open_qp: qp_type %v is no XRC_RECV", rdma.QPType(req.Type))
	}
	q := c.nic.qps[rdma.QPN(req.QPN)]
	if q == nil || q.domain != x.domain {
		return 0, refusef(syscall.EINVAL, "open_qp: the domain has no queue pair %v", rdma.QPN(req.QPN))
	}
	if r := mayHave("queue pairs", len(c.qps), c.most().QPs); r != nil {
		return 0, r
	}
	if len(q.others) >= limits.MaxXRCShares {
		return 0, refusef(syscall.ENOMEM, "limit of %d handles of one queue pair", limits.MaxXRCShares)
	}
	h := c.nic.id()
	q.others = append(q.others, share{context: c, handle: h, xrcd: req.XRCD})
	x.users++
	c.qps[h] = q
	return h, nil
}

// share is a further handle of a queue pair.
type share struct {
	context *Context
	handle  uint32
	xrcd    uint32
}

// leaveQP takes a handle away from a queue pair that has others.
func (n *NIC) leaveQP(c *Context, handle uint32, q *qp) {
	delete(c.qps, handle)
	i := slices.IndexFunc(q.others, func(s share) bool {
		return s.context == c && s.handle == handle
	})
	if i >= 0 {
		c.xrcds[q.others[i].xrcd].users--
		q.others = slices.Delete(q.others, i, i+1)
		return
	}
	// Who made it leaves: the next one stands for it in lists and events.
	c.xrcds[q.init.XRCD].users--
	next := q.others[0]
	q.context, q.handle, q.init.XRCD = next.context, next.handle, next.xrcd
	q.others = slices.Delete(q.others, 0, 1)
}

// destroyHandle destroys a queue pair, or one of several handles of it.
func (n *NIC) destroyHandle(now clock.Time, c *Context, handle uint32) {
	n.now = now
	q := c.qps[handle]
	if len(q.others) > 0 {
		n.leaveQP(c, handle, q)
		return
	}
	n.removeQP(q)
}
