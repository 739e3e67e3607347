package verbs

import (
	"sync/atomic"

	"github.com/softrnic/softrnic/internal/abi"
)

// PD is a protection domain: memory, queue pairs and address handles work together only within
// one.
type PD struct {
	ctx      *Context
	handle   uint32
	imported bool
	closed   atomic.Bool
}

// AllocPD makes a protection domain.
func (c *Context) AllocPD() (*PD, error) {
	rsp, _, err := call[abi.HandleMsg](c, request{
		op: "allocate protection domain", code: abi.OpAllocPD,
	})
	if err != nil {
		return nil, err
	}
	return &PD{ctx: c, handle: rsp.Handle}, nil
}

// Context returns the context that the domain belongs to.
func (p *PD) Context() *Context { return p.ctx }

// Handle names the domain to ImportPD.
func (p *PD) Handle() uint32 { return p.handle }

// Close frees the domain. It is refused (EBUSY) while objects of it exist. A domain that was
// imported is gone here only (ibv_unimport_pd(3)), and what was made in it stays; see Dealloc.
func (p *PD) Close() error {
	if p.imported {
		p.closed.Store(true)
		return nil
	}
	return p.Dealloc()
}

// Dealloc frees the domain in every context that has it, whichever made it (ibv_dealloc_pd(3)):
// programs that share it agree who does. It is refused (EBUSY) while objects of it exist, in any
// program. Others that ask for something in the domain afterwards are refused (EINVAL).
func (p *PD) Dealloc() error {
	if p.isClosed() {
		return nil
	}
	err := p.ctx.destroy("free protection domain", abi.OpDeallocPD, p.handle)
	if err == nil {
		p.closed.Store(true)
	}
	return err
}

func (p *PD) isClosed() bool { return p.closed.Load() }
