package verbs

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/invariant"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/shm"
)

// MR is a memory region: memory that the NIC may access for this program and, with its remote
// key, for peers.
type MR struct {
	ctx        *Context
	handle     uint32
	lkey, rkey Key
	kind       regionKind
	access     Access
	base       uint64
	length     int

	mu     sync.Mutex
	closed bool            // guarded by mu
	bytes  []byte          // guarded by mu; keeps a registered slice alive
	pin    *runtime.Pinner // guarded by mu; nil where nothing of Go's is registered
	mapped *shm.Memory     // guarded by mu; nil for a registered slice
}

// regionKind is what a region consists of.
type regionKind uint8

const (
	regionSlice regionKind = iota
	regionMapped
	regionImplicit // all that the program has mapped
	regionNull
	regionDevice
	regionImported // another context's; see PD.ImportMR
)

// Register makes the bytes of a slice a memory region. The slice must not be empty; it stays alive
// and in place until Close. The NIC reaches it as process memory, by system calls, so that the
// system may refuse (EPERM, with the remedy in the text) where the NIC is a process of another
// user.
//
// The region is exactly b: peers that write to it never touch a byte beside it.
func (p *PD) Register(b []byte, access Access) (*MR, error) {
	return p.registerAt(b, access, func(addr uint64) uint64 { return addr })
}

// RegisterAt is Register for a region whose first byte has the address iova in work requests, here
// and at peers (ibv_reg_mr_iova(3)). With AccessZeroBased it has address 0.
func (p *PD) RegisterAt(b []byte, iova uint64, access Access) (*MR, error) {
	return p.registerAt(b, access, func(uint64) uint64 { return iova })
}

func (p *PD) registerAt(b []byte, access Access, iova func(addr uint64) uint64) (*MR, error) {
	const op = "register memory"
	if len(b) == 0 {
		return nil, refuse(op, rdma.Refuse(syscall.EINVAL, "the slice is empty"))
	}
	r := &MR{ctx: p.ctx, bytes: b, pin: new(runtime.Pinner)}
	addr := pinBytes(r.pin, b)
	err := r.register(p, &abi.RegMRReq{
		Access: uint32(access), Addr: addr, Length: uint64(len(b)), IOVA: iova(addr),
	}, abi.Segment{Addr: addr, Length: uint64(len(b)), FD: -1}, nil)
	if err != nil {
		r.pin.Unpin()
		return nil, err
	}
	return r, nil
}

// RegisterImplicit makes one region of all memory that the program has mapped, or will have
// (implicit on-demand paging, ibv_reg_mr(3)): the addresses in work requests are the program's own.
// It is for memory that the garbage collector does not manage, such as mmap's. With it go the
// rights of access to all of the program's memory, so give the key to none but friends.
func (p *PD) RegisterImplicit(access Access) (*MR, error) {
	r := &MR{ctx: p.ctx, kind: regionImplicit}
	err := r.register(p, &abi.RegMRReq{
		Access: uint32(access | AccessOnDemand), Length: math.MaxUint64,
	}, abi.Segment{Length: math.MaxUint64, FD: -1}, nil)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// AllocNull makes a region that reads as zeros at every address, and in which what is written is
// gone: for parts of a message that nobody needs. It has no remote key (ibv_alloc_null_mr(3)).
func (p *PD) AllocNull() (*MR, error) {
	req := abi.HandleMsg{Handle: p.handle}
	r := &MR{ctx: p.ctx, kind: regionNull}
	return r.adopt(request{
		op: "allocate null region", code: abi.OpAllocNullMR, body: ctl.Bytes(&req),
		of: p,
	})
}

// AllocMemory makes n bytes of zeroed memory, page-aligned, that this program and the NIC both
// map, as a memory region. It is not garbage-collected: Close gives it back.
func (p *PD) AllocMemory(n int, access Access) (*MR, error) {
	const op = "allocate memory"
	if n <= 0 {
		return nil, refuse(op, rdma.Refuse(syscall.EINVAL, fmt.Sprintf("%d bytes asked for", n)))
	}
	m, err := shm.Create("rnic-region", n)
	if err != nil {
		return nil, &OpError{Op: op, Err: err}
	}
	r := &MR{ctx: p.ctx, bytes: m.Bytes(), mapped: m, kind: regionMapped}
	addr := addressOf(r.bytes)
	err = r.register(p, &abi.RegMRReq{
		Access: uint32(access), Addr: addr, Length: uint64(n), IOVA: addr,
	}, abi.Segment{Addr: addr, Length: uint64(n), FD: 0}, []int{m.FD()})
	m.CloseFD()
	if err != nil {
		m.Release()
		return nil, err
	}
	return r, nil
}

func (r *MR) register(p *PD, req *abi.RegMRReq, seg abi.Segment, fds []int) error {
	req.PD, req.NumSegments = p.handle, 1
	r.set(req.Access, req.IOVA, req.Length)
	_, err := r.adopt(request{
		op: "register memory", code: abi.OpRegMR, body: ctl.Bytes(&regMR{*req, seg}), send: fds,
		of: p,
	})
	return err
}

// set notes how a region is addressed.
func (r *MR) set(access uint32, base, length uint64) {
	r.access, r.base, r.length = Access(access), base, int(min(length, math.MaxInt))
	if r.access.Has(AccessZeroBased) {
		r.base = 0
	}
}

// adopt asks for the region and enters it into the context.
func (r *MR) adopt(ask request) (*MR, error) {
	rsp, _, err := call[abi.RegMRRsp](r.ctx, ask)
	if err != nil {
		return nil, err
	}
	r.handle, r.lkey, r.rkey = rsp.Handle, Key(rsp.LKey), Key(rsp.RKey)
	if !r.ctx.adopt(r) {
		// Close has begun and does not know of this region; its end takes the region away.
		_ = r.ctx.destroy("deregister memory", abi.OpDeregMR, r.handle)
		return nil, ErrClosed
	}
	return r, nil
}

// regMR is a registration of one piece.
type regMR struct {
	Head    abi.RegMRReq
	Segment abi.Segment
}

// Handle names the region to PD.ImportMR.
func (r *MR) Handle() uint32 { return r.handle }

// Bytes returns the memory; nil for a region that is no slice of this program. That of AllocMemory
// is gone after Close: touching it then is a fault.
func (r *MR) Bytes() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes
}

// Addr returns the address of the first byte, as work requests and peers count. Reregister may
// change it.
func (r *MR) Addr() uint64 { return r.base }

// Len returns the length in bytes; the largest number for a region of everything.
func (r *MR) Len() int { return r.length }

// LKey returns the key for this program's scatter/gather entries.
func (r *MR) LKey() Key { return r.lkey }

// RKey returns the key for peers; 0 where there is none.
func (r *MR) RKey() Key { return r.rkey }

// Piece returns the scatter/gather entry for n bytes at offset off.
//
// Preconditions: the piece lies inside the region.
func (r *MR) Piece(off, n int) SGE {
	invariant.Assert(off >= 0 && n >= 0 && off <= r.length && n <= r.length-off,
		"verbs: the piece lies outside the memory region")
	return SGE{Addr: r.base + uint64(off), Length: uint32(n), LKey: r.lkey}
}

// SGE returns a scatter/gather list of one entry, Piece(off, n).
func (r *MR) SGE(off, n int) []SGE { return []SGE{r.Piece(off, n)} }

// Close takes the region away from the NIC and its peers: when it returns, the NIC no longer
// touches the memory. Work requests that still name it fail. It is refused (EBUSY) while a memory
// window is bound to the region. A region that was imported is gone here only
// (ibv_unimport_mr(3)).
func (r *MR) Close() error {
	r.mu.Lock()
	closed := r.closed
	r.mu.Unlock()
	if closed {
		return nil
	}
	if r.kind != regionImported {
		if err := r.ctx.destroy("deregister memory", abi.OpDeregMR, r.handle); err != nil {
			return err
		}
		r.ctx.disown(r)
	}
	r.release()
	return nil
}

func (r *MR) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.closed = true
	r.bytes = nil
	if r.mapped != nil {
		r.mapped.Release()
	}
	if r.pin != nil {
		r.pin.Unpin()
	}
}
