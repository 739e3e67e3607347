package verbs

import (
	"math/rand/v2"
	"os"
	"sync/atomic"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
	"github.com/softrnic/softrnic/internal/shm"
)

// XRCD is an XRC domain (IBTA annex A14). Over XRC a process needs one connection to each peer
// process, whichever of the peer's shared receive queues a message is for: the sender names the
// queue in SendWR.SRQN. A queue pair of type QPTypeXRCSend sends, one of type QPTypeXRCRecv
// receives into the queues of its domain, those of other processes too.
type XRCD struct {
	ctx    *Context
	handle uint32
}

// XRCDConfig says which domain to open.
type XRCDConfig struct {
	// File names a domain that processes share: that of the file. Without it the domain is the
	// context's alone.
	File *os.File
	// Create makes the domain where there is none; Exclusive refuses one that is there.
	Create, Exclusive bool
}

// OpenXRCD opens an XRC domain. Errors are EAGAIN where the file has none and Create is not set,
// EINVAL where it has one and Exclusive is, os.ErrClosed for a file that was closed.
func (c *Context) OpenXRCD(cfg XRCDConfig) (*XRCD, error) {
	var req abi.OpenXRCDReq
	if cfg.Create {
		req.Flags |= abi.XRCDCreate
	}
	if cfg.Exclusive {
		req.Flags |= abi.XRCDExclusive
	}
	r := request{op: "open XRC domain", code: abi.OpOpenXRCD, body: ctl.Bytes(&req)}
	var rsp abi.HandleMsg
	var err error
	if cfg.File != nil {
		rsp, err = callWithFile[abi.HandleMsg](c, r, cfg.File)
	} else {
		rsp, _, err = call[abi.HandleMsg](c, r)
	}
	if err != nil {
		return nil, err
	}
	return &XRCD{ctx: c, handle: rsp.Handle}, nil
}

// Close gives the domain up. It is refused (EBUSY) while something that was made through it exists.
func (x *XRCD) Close() error {
	return x.ctx.destroy("close XRC domain", abi.OpCloseXRCD, x.handle)
}

// CreateQP makes a receiving queue pair of the domain in state RESET. It has no queues of its own:
// requests of the peer take receives of the domain's shared receive queues.
func (x *XRCD) CreateQP() (*QP, error) {
	const op = "create queue pair"
	req := abi.CreateQPReq{Type: uint32(rdma.QPTypeXRCRecv), XRCD: x.handle}
	rsp, fds, err := call[abi.CreateQPRsp](x.ctx, request{
		op: op, code: abi.OpCreateQP, body: ctl.Bytes(&req), fds: 1,
	})
	if err != nil {
		return nil, err
	}
	var memory *shm.Memory
	if rsp.Bytes < abi.QueueHeaderBytes {
		closeAll(fds)
		err = ErrDeviceFatal // no NIC of ours gives less
	} else {
		memory, err = shm.Open(fds[0], int(rsp.Bytes), true)
	}
	if err != nil {
		_ = x.ctx.destroy(op, abi.OpDestroyQP, rsp.Handle)
		return nil, &OpError{Op: op, Err: err}
	}
	q := x.target(rsp.Handle, QPN(rsp.QPN))
	q.memory, q.state = memory, ring.Word(memory.Bytes(), abi.OffQPState)
	q.sq.state = q.state
	if !x.ctx.adopt(q) {
		q.release()
		return nil, ErrClosed
	}
	return q, nil
}

// OpenQP returns a further handle of a receiving queue pair of the domain, which another process
// may have made. The queue pair lives until all its handles are closed. State is RESET at all
// times there; Query asks.
func (x *XRCD) OpenQP(n QPN) (*QP, error) {
	req := abi.OpenQPReq{XRCD: x.handle, QPN: uint32(n), Type: uint32(rdma.QPTypeXRCRecv)}
	rsp, _, err := call[abi.HandleMsg](x.ctx, request{
		op: "open queue pair", code: abi.OpOpenQP, body: ctl.Bytes(&req),
	})
	if err != nil {
		return nil, err
	}
	q := x.target(rsp.Handle, n)
	if !x.ctx.adopt(q) {
		return nil, ErrClosed
	}
	return q, nil
}

// target is what a receiving queue pair has on this side.
func (x *XRCD) target(handle uint32, n QPN) *QP {
	q := &QP{
		pd: &PD{ctx: x.ctx}, handle: handle, qpn: n, cfg: QPConfig{Type: rdma.QPTypeXRCRecv},
		psn: PSN(rand.Uint32() & rdma.PSNMask), state: new(atomic.Uint32),
	}
	q.sq = sendQueue{ctx: x.ctx, state: q.state, qpType: q.cfg.Type}
	return q
}
