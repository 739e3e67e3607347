package verbs

import (
	"fmt"
	"io"
	"sync"
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/shm"
)

// DeviceMemory is memory of the NIC (ibv_alloc_dm(3)). On adapters it saves the way to the host's
// memory; here it is a place that no program but this one and, through regions, its peers reach.
type DeviceMemory struct {
	ctx      *Context
	handle   uint32
	length   int
	imported bool

	mu     sync.RWMutex
	memory *shm.Memory // nil once released; guarded by mu
}

var (
	_ io.ReaderAt = (*DeviceMemory)(nil)
	_ io.WriterAt = (*DeviceMemory)(nil)
)

// AllocDeviceMemory makes n bytes of zeroed device memory, aligned to a page.
func (c *Context) AllocDeviceMemory(n int) (*DeviceMemory, error) {
	const op = "allocate device memory"
	if n <= 0 {
		return nil, refuse(op, rdma.Refuse(syscall.EINVAL, fmt.Sprintf("%d bytes asked for", n)))
	}
	req := abi.AllocDMReq{Length: uint64(n)}
	rsp, fds, err := call[abi.AllocDMRsp](c, request{
		op: op, code: abi.OpAllocDM, body: ctl.Bytes(&req), fds: 1,
	})
	if err != nil {
		return nil, err
	}
	d := &DeviceMemory{ctx: c, handle: rsp.Handle, length: n}
	if d.memory, err = shm.Open(fds[0], n, true); err != nil {
		_ = c.destroy("free device memory", abi.OpFreeDM, d.handle)
		return nil, &OpError{Op: op, Err: err}
	}
	if !c.adopt(d) {
		_ = c.destroy("free device memory", abi.OpFreeDM, d.handle)
		d.release()
		return nil, ErrClosed
	}
	return d, nil
}

// Handle names the memory to ImportDM.
func (d *DeviceMemory) Handle() uint32 { return d.handle }

// Len returns the length in bytes.
func (d *DeviceMemory) Len() int { return d.length }

// ReadAt copies from device memory; it implements io.ReaderAt.
func (d *DeviceMemory) ReadAt(b []byte, off int64) (int, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	at, err := d.at("read device memory", off)
	if err != nil {
		return 0, err
	}
	n := copy(b, at)
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt copies to device memory; it implements io.WriterAt.
func (d *DeviceMemory) WriteAt(b []byte, off int64) (int, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	at, err := d.at("write device memory", off)
	if err != nil {
		return 0, err
	}
	n := copy(at, b)
	if n < len(b) {
		return n, io.ErrShortWrite
	}
	return n, nil
}

// at returns the memory from an offset on. The caller holds mu.
func (d *DeviceMemory) at(op string, off int64) ([]byte, error) {
	switch {
	case d.memory == nil:
		return nil, &OpError{Op: op, Err: ErrClosed}
	case off < 0 || off > int64(d.length):
		return nil, refuse(op, rdma.Refuse(syscall.EINVAL,
			fmt.Sprintf("offset %d of %d bytes", off, d.length)))
	}
	return d.memory.Bytes()[off:d.length], nil
}

// RegisterDevice makes n bytes of device memory at off a region, whose addresses count from 0.
func (p *PD) RegisterDevice(d *DeviceMemory, off, n int, access Access) (*MR, error) {
	const op = "register device memory"
	if off < 0 || n < 0 {
		return nil, refuse(op, rdma.Refuse(syscall.EINVAL, fmt.Sprintf("%d bytes at %d", n, off)))
	}
	req := abi.RegDeviceMRReq{
		PD: p.handle, DM: d.handle, Offset: uint64(off), Length: uint64(n),
		Access: uint32(access | AccessZeroBased),
	}
	r := &MR{ctx: p.ctx, kind: regionDevice}
	r.set(req.Access, 0, req.Length)
	return r.adopt(request{
		op: op, code: abi.OpRegDeviceMR, body: ctl.Bytes(&req), of: p,
	})
}

// Close frees the memory. It is refused (EBUSY) while regions of it exist. Memory that was imported
// is gone here only.
func (d *DeviceMemory) Close() error {
	if !d.imported {
		if err := d.ctx.destroy("free device memory", abi.OpFreeDM, d.handle); err != nil {
			return err
		}
	}
	d.ctx.disown(d)
	d.release()
	return nil
}

func (d *DeviceMemory) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.memory != nil {
		d.memory.Release()
		d.memory = nil
	}
}
