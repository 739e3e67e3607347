package verbs

import (
	"sync/atomic"

	"github.com/softrnic/softrnic/internal/abi"
)

// PD is a protection domain: memory, queue pairs and address handles work together only within
// one.
type PD struct {
	ctx    *Context
	handle uint32
	closed atomic.Bool
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

// Close frees the domain. It is refused (EBUSY) while objects of it exist.
func (p *PD) Close() error {
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
