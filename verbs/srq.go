package verbs

import (
	"fmt"
	"sync"
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
	"github.com/softrnic/softrnic/internal/shm"
)

// SRQConfig describes a shared receive queue. Zero sizes mean 128 work requests and 4 entries.
type SRQConfig struct {
	MaxWR, MaxSGE int
	// Limit raises EventSRQLimitReached once when fewer receives are left; 0 is off.
	Limit int
	// XRC makes the queue one of an XRC domain, and CQ gets the completions of its receives.
	XRC *XRCD
	// Tags lets the queue match tags, and CQ gets the completions of its receives.
	Tags *TagConfig
	CQ   *CQ
}

// SRQ is a receive queue that several queue pairs share.
type SRQ struct {
	pd     *PD
	handle uint32
	number uint32
	rq     recvQueue
	tags   *tagQueue // nil without tag matching

	mu     sync.Mutex
	closed bool        // guarded by mu
	memory *shm.Memory // guarded by mu
	moved  *shm.Memory // the entries after a resize, else nil; guarded by mu
}

const (
	srqAttrLimit = 2 // IBV_SRQ_LIMIT
	srqTypeXRC   = 1 // IBV_SRQT_XRC
	srqTypeTags  = 2 // IBV_SRQT_TM
)

// CreateSRQ makes a shared receive queue.
func (p *PD) CreateSRQ(cfg SRQConfig) (*SRQ, error) {
	const op = "create shared receive queue"
	if err := checkSizes(op, size{"MaxWR", cfg.MaxWR}, size{"MaxSGE", cfg.MaxSGE},
		size{"Limit", cfg.Limit}); err != nil {
		return nil, err
	}
	req := abi.CreateSRQReq{
		PD: p.handle, MaxWR: orDefault(cfg.MaxWR, defaultWR),
		MaxSGE: orDefault(cfg.MaxSGE, defaultSGE), Limit: clampUint32(cfg.Limit),
	}
	if err := cfg.choose(&req); err != nil {
		return nil, refuse(op, err)
	}
	rsp, fds, err := call[abi.CreateSRQRsp](p.ctx, request{
		op: op, code: abi.OpCreateSRQ, body: ctl.Bytes(&req), fds: 1, of: p,
	})
	if err != nil {
		return nil, err
	}
	geo := ring.Geometry{Entries: rsp.Entries, Stride: rsp.Stride}
	place := layout{
		offset: rsp.Offset, bytes: rsp.Bytes, geo: geo,
		strideMin: abi.RQStride(min(rsp.MaxSGE, limits.MaxSGE)),
	}
	var memory *shm.Memory
	if err = place.check(); err == nil {
		err = checkTags(&rsp, cfg.Tags != nil)
	}
	if err != nil {
		closeAll(fds)
	} else {
		memory, err = shm.Open(fds[0], int(rsp.Bytes), true)
	}
	if err != nil {
		_ = p.ctx.destroy(op, abi.OpDestroySRQ, rsp.Handle)
		return nil, &OpError{Op: op, Err: err}
	}
	s := &SRQ{pd: p, handle: rsp.Handle, number: rsp.SRQN, memory: memory}
	m := memory.Bytes()
	s.rq.ctx, s.rq.maxSGE = p.ctx, int(min(rsp.MaxSGE, limits.MaxSGE))
	s.rq.refused = newRefusals(m)
	s.rq.ring = ring.NewProducer(m[rsp.Offset:], geo,
		ring.Word(m, abi.OffRQProducer), ring.Word(m, abi.OffRQConsumer))
	if cfg.Tags != nil {
		s.tags = p.ctx.newTagQueue(&rsp, m, cfg.CQ, s.rq.refused)
	}
	if !p.ctx.adopt(s) {
		s.release()
		return nil, ErrClosed
	}
	return s, nil
}

// choose puts the type of the queue into the request.
func (cfg *SRQConfig) choose(req *abi.CreateSRQReq) *Refusal {
	switch {
	case cfg.XRC == nil && cfg.Tags == nil:
		return nil
	case cfg.XRC != nil && cfg.Tags != nil:
		return rdma.Refuse(syscall.EINVAL, "a queue is one of XRC or matches tags")
	case cfg.CQ == nil:
		return rdma.Refuse(syscall.EINVAL, "CQ of an XRC queue, or one with tags, is missing")
	}
	req.Type, req.CQ = srqTypeXRC, cfg.CQ.handle
	if cfg.XRC != nil {
		req.XRCD = cfg.XRC.handle
		return nil
	}
	req.Type = srqTypeTags
	req.MaxTags = orDefault(cfg.Tags.MaxTags, defaultTags)
	req.MaxTagOps = orDefault(cfg.Tags.MaxOps, defaultTagOps)
	return nil
}

// Number is what peers name the queue by over XRC: SendWR.SRQN.
func (s *SRQ) Number() uint32 { return s.number }

// PostRecv posts receive work requests in order, and returns as QP.PostSend does.
func (s *SRQ) PostRecv(wrs ...RecvWR) (int, error) { return s.rq.post(wrs) }

// SetLimit arms EventSRQLimitReached: it comes once, when fewer than n receives are left.
func (s *SRQ) SetLimit(n int) error {
	req := abi.SRQAttr{Handle: s.handle, Mask: srqAttrLimit, Limit: clampUint32(n)}
	_, _, err := call[abi.SRQAttr](s.pd.ctx, request{
		op: "modify shared receive queue", code: abi.OpModifySRQ, body: ctl.Bytes(&req), of: s,
	})
	return err
}

// Resize changes how many receives the queue holds, to n at least. Those that are posted stay; it
// is refused (EINVAL) where they, or the limit, do not fit.
func (s *SRQ) Resize(n int) error {
	const op = "resize shared receive queue"
	s.rq.mu.Lock()
	defer s.rq.mu.Unlock()
	if s.rq.closed {
		return ErrClosed
	}
	req := abi.ResizeSRQReq{Handle: s.handle, Entries: clampUint32(n)}
	rsp, fds, err := call[abi.CreateSRQRsp](s.pd.ctx, request{
		op: op, code: abi.OpResizeSRQ, body: ctl.Bytes(&req), fds: 1,
	})
	if err != nil {
		return err
	}
	geo := ring.Geometry{Entries: rsp.Entries, Stride: rsp.Stride}
	var slots *shm.Memory
	if e := rsp.Entries; e == 0 || e&(e-1) != 0 || e > limits.MaxQPWR ||
		rsp.Stride < abi.RQStride(uint32(s.rq.maxSGE)) || int(rsp.Bytes) < geo.Bytes() {
		closeAll(fds)
		err = fmt.Errorf("the NIC describes a queue of %d entries of %d bytes", e, rsp.Stride)
	} else {
		slots, err = shm.Open(fds[0], int(rsp.Bytes), true)
	}
	if err != nil {
		s.rq.closed = true // the NIC reads where this side cannot write
		return &OpError{Op: op, Err: err}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.memory.Bytes()
	s.rq.ring = ring.NewProducer(slots.Bytes(), geo,
		ring.Word(m, abi.OffRQProducer), ring.Word(m, abi.OffRQConsumer))
	if s.moved != nil {
		s.moved.Release()
	}
	s.moved = slots
	return nil
}

// Close destroys the queue. It is refused (EBUSY) while a queue pair uses it.
func (s *SRQ) Close() error {
	if s.isClosed() {
		return nil
	}
	err := s.pd.ctx.destroy("destroy shared receive queue", abi.OpDestroySRQ, s.handle)
	if err != nil {
		return err
	}
	s.pd.ctx.disown(s)
	s.release()
	return nil
}

func (s *SRQ) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

func (s *SRQ) release() {
	s.rq.close()
	s.tags.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.memory.Release()
	if s.moved != nil {
		s.moved.Release()
	}
}
