package verbs

import (
	"fmt"
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
	base       uint64
	length     int

	mu     sync.Mutex
	closed bool           // guarded by mu
	bytes  []byte         // guarded by mu; keeps a registered slice alive
	pin    runtime.Pinner // guarded by mu
	mapped *shm.Memory    // guarded by mu; nil for a registered slice
}

// Register makes the bytes of a slice a memory region. The slice must not be empty; it stays alive
// and in place until Close. The NIC reaches it as process memory, by system calls, so that the
// system may refuse (EPERM, with the remedy in the text) where the NIC is a process of another
// user.
//
// The region is exactly b: peers that write to it never touch a byte beside it.
func (p *PD) Register(b []byte, access Access) (*MR, error) {
	const op = "register memory"
	if len(b) == 0 {
		return nil, refuse(op, rdma.Refuse(syscall.EINVAL, "the slice is empty"))
	}
	r := &MR{ctx: p.ctx, bytes: b, length: len(b)}
	r.base = pinBytes(&r.pin, b)
	seg := abi.Segment{Addr: r.base, Length: uint64(len(b)), FD: -1}
	if err := r.register(p, access, seg, nil); err != nil {
		r.pin.Unpin()
		return nil, err
	}
	return r, nil
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
	r := &MR{ctx: p.ctx, bytes: m.Bytes(), length: n, mapped: m}
	r.base = addressOf(r.bytes)
	seg := abi.Segment{Addr: r.base, Length: uint64(n), FD: 0}
	err = r.register(p, access, seg, []int{m.FD()})
	m.CloseFD()
	if err != nil {
		m.Release()
		return nil, err
	}
	return r, nil
}

func (r *MR) register(p *PD, access Access, seg abi.Segment, fds []int) error {
	req := regMR{
		Head: abi.RegMRReq{
			PD: p.handle, Access: uint32(access), Addr: r.base, Length: uint64(r.length),
			IOVA: r.base, NumSegments: 1,
		},
		Segment: seg,
	}
	rsp, _, err := call[abi.RegMRRsp](p.ctx, request{
		op: "register memory", code: abi.OpRegMR, body: ctl.Bytes(&req), send: fds,
	})
	if err != nil {
		return err
	}
	r.handle, r.lkey, r.rkey = rsp.Handle, Key(rsp.LKey), Key(rsp.RKey)
	if !p.ctx.adopt(r) {
		// Close has begun and does not know of this region; its end takes the region away.
		_ = p.ctx.destroy("deregister memory", abi.OpDeregMR, r.handle)
		return ErrClosed
	}
	return nil
}

// regMR is a registration of one piece.
type regMR struct {
	Head    abi.RegMRReq
	Segment abi.Segment
}

// Bytes returns the memory. That of AllocMemory is gone after Close: touching it then is a fault.
func (r *MR) Bytes() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes
}

// Addr returns the address of the first byte, as work requests and peers count.
func (r *MR) Addr() uint64 { return r.base }

// Len returns the length in bytes.
func (r *MR) Len() int { return r.length }

// LKey returns the key for this program's scatter/gather entries.
func (r *MR) LKey() Key { return r.lkey }

// RKey returns the key for peers.
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
// touches the memory. Work requests that still name it fail.
func (r *MR) Close() error {
	r.mu.Lock()
	closed := r.closed
	r.mu.Unlock()
	if closed {
		return nil
	}
	if err := r.ctx.destroy("deregister memory", abi.OpDeregMR, r.handle); err != nil {
		return err
	}
	r.ctx.disown(r)
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
	} else {
		r.pin.Unpin()
	}
}
