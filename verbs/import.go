package verbs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/shm"
)

// File returns what another process needs to Import from this context (cmd_fd in C): who has it may
// use all that the context has. The caller closes it; the context stays as it is meanwhile, and
// ends at its own Close or with this process, whoever still has the descriptor. Nothing but Import
// may be done with it.
//
// It is refused (EOPNOTSUPP) for contexts of a NIC inside the program that were not opened by its
// socket, and by kernels before Linux 5.14.
func (c *Context) File() (*os.File, error) {
	const op = "export device"
	f, err := c.client.File()
	if errors.Is(err, io.EOF) {
		err = ctl.ErrGone // or closed here, as explain finds out
	}
	if err != nil {
		return nil, c.explain(op, err)
	}
	return f, nil
}

// Import opens the device that another context has open, of this process or another, and lets
// objects of that context, the source, be imported one by one (ibv_import_device(3)). file is the
// source's File; it stays the caller's, who may close it when Import has returned. The context that
// Import returns is one of its own: what is made from it ends with it, and it outlives the source.
//
// The options must lead to the NIC of the source. Errors are EINVAL for a file that is of no
// context that is open there, os.ErrClosed and os.ErrInvalid for one that is none; ctx bounds the
// call.
func Import(ctx context.Context, file *os.File, opts ...Option) (*Context, error) {
	const op = "import device"
	list, err := Devices(ctx, opts...)
	if err != nil {
		return nil, err
	}
	// The NIC does not tell whose device it is, and refuses all others.
	err = &OpError{Op: op, Err: fmt.Errorf("%w: the NIC has none", ErrNoDevice)}
	for _, d := range list {
		var c *Context
		c, err = openWith(ctx, opts, func(c *Context) error {
			if err := c.open(d.Name); err != nil {
				return err
			}
			return c.importFrom(file)
		})
		if err == nil {
			return c, nil
		}
		if !errors.Is(err, syscall.EINVAL) {
			break
		}
	}
	return nil, err
}

// importFrom shows the source's descriptor to the NIC.
func (c *Context) importFrom(file *os.File) error {
	_, err := callWithFile[struct{}](c, request{op: "import device", code: abi.OpImportContext}, file)
	return err
}

// ImportPD makes a protection domain of the source, by its PD.Handle, one of this context too
// (ibv_import_pd(3)). It is one and the same: it lives until either side deallocates it, or the
// last context that has it is closed. Close lets go of it here.
//
// It is refused (EINVAL) where the source has no such domain, or is closed.
func (c *Context) ImportPD(handle uint32) (*PD, error) {
	req := abi.HandleMsg{Handle: handle}
	rsp, _, err := call[abi.HandleMsg](c, request{
		op: "import protection domain", code: abi.OpImportPD, body: ctl.Bytes(&req),
	})
	if err != nil {
		return nil, err
	}
	return &PD{ctx: c, handle: rsp.Handle, imported: true}, nil
}

// ImportMR returns a region of the source, by its MR.Handle, for work requests of this program and
// its peers (ibv_import_mr(3)). The domain must be the region's, imported. The keys, the address
// and the length are those of the source when it is imported; the memory is not mapped here, so
// that Bytes is nil. The region stays the source's: it goes when the source closes it, whoever uses
// it. Close forgets it here.
//
// It is refused (EINVAL) where the source has no such region, or not in this domain.
func (p *PD) ImportMR(handle uint32) (*MR, error) {
	req := abi.ImportMRReq{PD: p.handle, Handle: handle}
	rsp, _, err := call[abi.ImportMRRsp](p.ctx, request{
		op: "import memory region", code: abi.OpImportMR, body: ctl.Bytes(&req), of: p,
	})
	if err != nil {
		return nil, err
	}
	r := &MR{
		ctx: p.ctx, kind: regionImported, handle: rsp.Handle, lkey: Key(rsp.LKey),
		rkey: Key(rsp.RKey),
	}
	r.set(0, rsp.IOVA, rsp.Length)
	return r, nil
}

// ImportDM maps device memory of the source, by its DeviceMemory.Handle, here too
// (ibv_import_dm(3)). Regions of it are the source's to make. Close ends the mapping; what is
// mapped stays until then, also when the source frees the memory.
//
// It is refused (EINVAL) where the source has no such memory.
func (c *Context) ImportDM(handle uint32) (*DeviceMemory, error) {
	const op = "import device memory"
	req := abi.HandleMsg{Handle: handle}
	rsp, fds, err := call[abi.AllocDMRsp](c, request{
		op: op, code: abi.OpImportDM, body: ctl.Bytes(&req), fds: 1,
	})
	if err != nil {
		return nil, err
	}
	d := &DeviceMemory{ctx: c, handle: rsp.Handle, length: int(rsp.Length), imported: true}
	if d.memory, err = shm.Open(fds[0], d.length, true); err != nil {
		return nil, &OpError{Op: op, Err: err}
	}
	if !c.adopt(d) {
		d.release()
		return nil, ErrClosed
	}
	return d, nil
}
