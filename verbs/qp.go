package verbs

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
	"github.com/softrnic/softrnic/internal/shm"
)

// QPConfig describes a queue pair. Zero sizes mean the defaults: 128 work requests, 4
// scatter/gather entries, 64 bytes inline. The NIC may grant more.
type QPConfig struct {
	Type QPType
	// SendCQ and RecvCQ get the completions. RecvCQ nil means SendCQ. With an SRQ that matches tags
	// it is that queue's CQ, whatever is said here.
	SendCQ, RecvCQ *CQ
	// SRQ, when not nil, supplies the receives.
	SRQ        *SRQ
	MaxSendWR  int
	MaxRecvWR  int
	MaxSendSGE int
	MaxRecvSGE int
	MaxInline  int
	// QKey is what datagrams to a UD queue pair must carry; 0 means DefaultQKey.
	QKey QKey
	// SignalAll makes every send request complete visibly, as if it had SendSignaled.
	SignalAll bool
}

const (
	defaultWR     = 128
	defaultSGE    = 4
	defaultInline = 64
)

// size is a number of a configuration, with its name.
type size struct {
	name  string
	value int
}

// checkSizes refuses numbers below 0, which mean nothing.
func checkSizes(op string, sizes ...size) error {
	for _, s := range sizes {
		if s.value < 0 {
			return refuse(op, rdma.Refuse(syscall.EINVAL, fmt.Sprintf("%s is %d", s.name, s.value)))
		}
	}
	return nil
}

func orDefault(v, fallback int) uint32 {
	if v == 0 {
		v = fallback
	}
	return clampUint32(v)
}

// clampUint32 makes a number that the NIC will refuse out of one that does not fit.
func clampUint32(v int) uint32 {
	if v < 0 || uint64(v) > math.MaxUint32 {
		return math.MaxUint32
	}
	return uint32(v)
}

// QP is a queue pair.
type QP struct {
	pd     *PD
	handle uint32
	qpn    QPN
	cfg    QPConfig
	state  *atomic.Uint32
	sq     sendQueue
	rq     *recvQueue // nil with an SRQ

	mu     sync.Mutex
	closed bool        // guarded by mu
	memory *shm.Memory // guarded by mu
	psn    PSN         // where this side's packets begin; guarded by mu
	local  *Endpoint   // what Endpoint told, for ConnectTo; guarded by mu
}

// CreateQP makes a queue pair in state RESET.
func (p *PD) CreateQP(cfg QPConfig) (*QP, error) {
	const op = "create queue pair"
	switch {
	case cfg.Type == rdma.QPTypeXRCRecv:
		return nil, refuse(op, rdma.Refuse(syscall.EINVAL, "XRC_RECV: XRCD.CreateQP makes one"))
	case cfg.SendCQ == nil:
		return nil, refuse(op, rdma.Refuse(syscall.EINVAL, "SendCQ is missing"))
	case cfg.RecvCQ == nil:
		cfg.RecvCQ = cfg.SendCQ
	}
	if err := checkSizes(op, size{"MaxSendWR", cfg.MaxSendWR}, size{"MaxRecvWR", cfg.MaxRecvWR},
		size{"MaxSendSGE", cfg.MaxSendSGE}, size{"MaxRecvSGE", cfg.MaxRecvSGE},
		size{"MaxInline", cfg.MaxInline}); err != nil {
		return nil, err
	}
	req := abi.CreateQPReq{
		Type: uint32(cfg.Type), PD: p.handle,
		SendCQ: cfg.SendCQ.handle, RecvCQ: cfg.RecvCQ.handle,
		MaxSendWR:  orDefault(cfg.MaxSendWR, defaultWR),
		MaxSendSGE: orDefault(cfg.MaxSendSGE, defaultSGE),
		MaxRecvWR:  orDefault(cfg.MaxRecvWR, defaultWR),
		MaxRecvSGE: orDefault(cfg.MaxRecvSGE, defaultSGE),
		MaxInline:  orDefault(cfg.MaxInline, defaultInline),
	}
	if cfg.SRQ != nil {
		if t := cfg.SRQ.tags; t != nil {
			cfg.RecvCQ = t.cq
		}
		req.SRQ, req.MaxRecvWR, req.MaxRecvSGE = cfg.SRQ.handle, 0, 0
	}
	if cfg.QKey == 0 {
		cfg.QKey = DefaultQKey
	}
	if cfg.SignalAll {
		req.SignalAll = 1
	}
	rsp, fds, err := call[abi.CreateQPRsp](p.ctx, request{
		op: op, code: abi.OpCreateQP, body: ctl.Bytes(&req), fds: 1, of: p,
	})
	if err != nil {
		return nil, err
	}
	var memory *shm.Memory
	if err = checkQP(&rsp, !cfg.hasReceives()); err != nil {
		closeAll(fds)
	} else {
		memory, err = shm.Open(fds[0], int(rsp.Bytes), true)
	}
	if err != nil {
		_ = p.ctx.destroy(op, abi.OpDestroyQP, rsp.Handle)
		return nil, &OpError{Op: op, Err: err}
	}
	q := &QP{pd: p, cfg: cfg, memory: memory, psn: PSN(rand.Uint32() & rdma.PSNMask)}
	q.attach(&rsp)
	q.join()
	if !p.ctx.adopt(q) {
		q.release()
		return nil, ErrClosed
	}
	return q, nil
}

// hasReceives reports a queue pair with a receive queue of its own.
func (c *QPConfig) hasReceives() bool { return c.SRQ == nil && c.Type != rdma.QPTypeXRCSend }

// checkQP refuses a reply that does not describe two queues and a doorbell.
func checkQP(r *abi.CreateQPRsp, shared bool) error {
	if r.Doorbell >= abi.DoorbellSlots {
		return fmt.Errorf("the NIC gives doorbell %d", r.Doorbell)
	}
	send := layout{
		offset: r.SQOffset, bytes: r.Bytes,
		geo:       ring.Geometry{Entries: r.SQEntries, Stride: r.SQStride},
		strideMin: abi.SQStride(r.MaxSendSGE, r.MaxInline),
	}
	receive := layout{
		offset: r.RQOffset, bytes: r.Bytes,
		geo:       ring.Geometry{Entries: r.RQEntries, Stride: r.RQStride},
		strideMin: abi.RQStride(r.MaxRecvSGE),
	}
	if r.MaxSendSGE > limits.MaxSGE || r.MaxRecvSGE > limits.MaxSGE || r.MaxInline > limits.MaxInline {
		return fmt.Errorf("the NIC grants %d, %d scatter/gather entries and %d bytes inline",
			r.MaxSendSGE, r.MaxRecvSGE, r.MaxInline)
	}
	if err := send.check(); err != nil || shared {
		return err
	}
	return receive.check()
}

// attach lays the application's ends over the queue memory.
func (q *QP) attach(rsp *abi.CreateQPRsp) {
	m, ctx := q.memory.Bytes(), q.pd.ctx
	bell := newBell(ctx.bells.Bytes(), ctx.lane.Bytes(), rsp.Doorbell, ctx.kick)
	q.handle, q.qpn = rsp.Handle, QPN(rsp.QPN)
	q.state = ring.Word(m, abi.OffQPState)
	q.cfg.MaxSendWR, q.cfg.MaxRecvWR = int(rsp.SQEntries), int(rsp.RQEntries)
	q.cfg.MaxSendSGE, q.cfg.MaxRecvSGE = int(rsp.MaxSendSGE), int(rsp.MaxRecvSGE)
	q.cfg.MaxInline = int(rsp.MaxInline)
	q.sq = sendQueue{
		ctx: ctx, state: q.state, bell: bell,
		service: serviceOf(q.cfg.Type), qpType: q.cfg.Type,
		maxSGE: int(rsp.MaxSendSGE), maxInline: int(rsp.MaxInline),
	}
	q.sq.refused = newRefusals(m)
	q.sq.slots = newSlots(m, abi.OffSQProducer, abi.OffSQConsumer)
	q.sq.ring = ring.NewProducer(m[rsp.SQOffset:],
		ring.Geometry{Entries: rsp.SQEntries, Stride: rsp.SQStride},
		ring.Word(m, abi.OffSQProducer), &q.sq.slots.polled)
	if !q.cfg.hasReceives() {
		return
	}
	q.rq = &recvQueue{
		ctx: ctx, state: q.state, wanted: ring.Word(m, abi.OffRQDoorbell), bell: bell,
		maxSGE: int(rsp.MaxRecvSGE), refused: q.sq.refused,
	}
	q.rq.slots = newSlots(m, abi.OffRQProducer, abi.OffRQConsumer)
	q.rq.ring = ring.NewProducer(m[rsp.RQOffset:],
		ring.Geometry{Entries: rsp.RQEntries, Stride: rsp.RQStride},
		ring.Word(m, abi.OffRQProducer), &q.rq.slots.polled)
}

// join lets polls give slots back, and find out why requests failed.
func (q *QP) join() {
	q.cfg.SendCQ.serve(q)
	q.cfg.RecvCQ.serve(q)
	q.cfg.SendCQ.join(slotKey{uint32(q.qpn), false}, q.sq.slots)
	if q.rq != nil {
		q.cfg.RecvCQ.join(slotKey{uint32(q.qpn), true}, q.rq.slots)
	}
}

// QPN returns the queue pair's number.
func (q *QP) QPN() QPN { return q.qpn }

// Config returns what the queue pair was made with, sizes as granted.
func (q *QP) Config() QPConfig { return q.cfg }

// PD returns the protection domain that the queue pair is in.
func (q *QP) PD() *PD { return q.pd }

// State returns the state as the NIC sees it at this moment, without asking it.
func (q *QP) State() QPState {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return rdma.QPStateReset
	}
	return QPState(q.state.Load())
}

// PostSend posts send work requests in order and returns how many; fewer than all come with an
// error: ErrQueueFull, ErrDeviceFatal, ErrClosed, or an *OpError that says what is wrong with the
// first one not posted (EINVAL). In state ERR requests are taken and flushed.
func (q *QP) PostSend(wrs ...SendWR) (int, error) { return q.sq.post(wrs) }

// PostRecv posts receive work requests in order, and returns as PostSend does.
func (q *QP) PostRecv(wrs ...RecvWR) (int, error) {
	if q.rq == nil {
		return 0, badRecv("the QP has no receives of its own: an SRQ has them")
	}
	return q.rq.post(wrs)
}

// Close destroys the queue pair. Its completions that were not polled vanish.
func (q *QP) Close() error {
	if q.isClosed() {
		return nil
	}
	if err := q.pd.ctx.destroy("destroy queue pair", abi.OpDestroyQP, q.handle); err != nil {
		return err
	}
	q.pd.ctx.disown(q)
	q.forget()
	q.release()
	return nil
}

func (q *QP) isClosed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

// queues returns the completion queues that the queue pair has, each once.
func (q *QP) queues() []*CQ {
	if q.cfg.SendCQ == nil {
		return nil
	}
	if q.cfg.SendCQ == q.cfg.RecvCQ {
		return []*CQ{q.cfg.SendCQ}
	}
	return []*CQ{q.cfg.SendCQ, q.cfg.RecvCQ}
}

// leave ends that polls give slots back; it waits for polls that are under way.
func (q *QP) leave() {
	for _, cq := range q.queues() {
		cq.leave(q.qpn)
	}
}

// forget drops completions that are in the queues, as a reset does.
func (q *QP) forget() {
	for _, cq := range q.queues() {
		cq.cancel(q.qpn)
	}
}

// release gives the memory back; it waits for posts and polls that are under way.
func (q *QP) release() {
	q.leave()
	q.sq.close()
	if q.rq != nil {
		q.rq.close()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	if q.memory != nil { // else a further handle of somebody's
		q.memory.Release()
	}
}
