package verbs

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/ring"
	"github.com/softrnic/softrnic/internal/shm"
)

// CQConfig describes a completion queue.
type CQConfig struct {
	// Entries is how many completions it holds at least; 0 is 256. Work requests that were posted
	// and whose completions were not polled must not exceed it, or the queue overruns and is lost.
	// With as many entries as the send and receive queues have that complete into it (QP.Config)
	// it cannot, as a slot of those has room again when its completion was polled. Shared receive
	// queues count by what is posted to them and not yet polled.
	Entries int
	// Channel receives the queue's events together with those of other queues. Without it the
	// queue gets a channel of its own, which Wait uses.
	Channel *CompletionChannel
	// PollOnly makes a queue without any channel, which saves a descriptor.
	PollOnly bool
	// CompVector is a hint that SoftRNIC accepts and ignores.
	CompVector int
}

const defaultCQEntries = 256

// CQ is a completion queue.
type CQ struct {
	ctx     *Context
	handle  uint32
	channel *CompletionChannel // nil: poll only
	own     bool               // the channel belongs to this queue

	// overrun is set once the NIC has told so.
	overrun atomic.Bool
	// owed says that an event was asked for and not yet taken from the channel by Wait; guarded
	// by the channel's turn.
	owed bool

	mu      sync.Mutex
	closed  bool           // guarded by mu
	entries int            // guarded by mu
	memory  *shm.Memory    // guarded by mu
	moved   *shm.Memory    // the entries after a resize, else nil; guarded by mu
	ring    *ring.Consumer // guarded by mu
	slots   slotTable      // queues that complete here; guarded by mu
	users   map[QPN]*QP    // queue pairs that complete here; guarded by mu
	empty   uint32         // polls in a row that found nothing; guarded by mu
}

// CreateCQ makes a completion queue.
func (c *Context) CreateCQ(cfg CQConfig) (*CQ, error) {
	if err := checkSizes("create completion queue", size{"Entries", cfg.Entries}); err != nil {
		return nil, err
	}
	q := &CQ{ctx: c, channel: cfg.Channel, slots: slotTable{}, users: map[QPN]*QP{}}
	if cfg.Entries == 0 {
		cfg.Entries = defaultCQEntries
	}
	if q.channel == nil && !cfg.PollOnly {
		ch, err := c.CreateCompletionChannel()
		if err != nil {
			return nil, err
		}
		q.channel, q.own = ch, true
	}
	req := abi.CreateCQReq{Entries: clampUint32(cfg.Entries), CompVector: clampUint32(cfg.CompVector)}
	if q.channel != nil {
		req.Channel = q.channel.handle
	}
	if err := q.create(&req); err != nil {
		if q.own {
			_ = q.channel.Close()
		}
		return nil, err
	}
	return q, nil
}

func (q *CQ) create(req *abi.CreateCQReq) error {
	const op = "create completion queue"
	rsp, fds, err := call[abi.CreateCQRsp](q.ctx, request{
		op: op, code: abi.OpCreateCQ, body: ctl.Bytes(req), fds: 1,
	})
	if err != nil {
		return err
	}
	geo := ring.Geometry{Entries: rsp.Entries, Stride: abi.CQEBytes}
	place := layout{
		offset: abi.QueueHeaderBytes, bytes: abi.QueueHeaderBytes + rsp.Entries*abi.CQEBytes,
		geo: geo, strideMin: abi.CQEBytes,
	}
	if err = place.check(); err != nil {
		closeAll(fds)
	} else {
		q.memory, err = shm.Open(fds[0], int(place.bytes), true)
	}
	if err != nil {
		_ = q.ctx.destroy(op, abi.OpDestroyCQ, rsp.Handle)
		return &OpError{Op: op, Err: err}
	}
	m := q.memory.Bytes()
	q.handle, q.entries = rsp.Handle, int(rsp.Entries)
	q.ring = ring.NewConsumer(m[abi.QueueHeaderBytes:], geo,
		ring.Word(m, abi.OffCQProducer), ring.Word(m, abi.OffCQConsumer))
	if !q.ctx.adopt(q) {
		q.release()
		return ErrClosed
	}
	return nil
}

// Entries returns how many completions the queue holds: a power of two, at least what was asked.
func (q *CQ) Entries() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.entries
}

// Channel returns the channel that gets the queue's events, or nil.
func (q *CQ) Channel() *CompletionChannel { return q.channel }

// Close destroys the queue. It is refused (EBUSY) while a queue pair uses it.
func (q *CQ) Close() error {
	if q.isClosed() {
		return nil
	}
	if err := q.ctx.destroy("destroy completion queue", abi.OpDestroyCQ, q.handle); err != nil {
		return err
	}
	q.ctx.disown(q)
	q.release()
	if q.own {
		return q.channel.Close()
	}
	return nil
}

func (q *CQ) isClosed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

// release gives the memory back; it waits for calls that are under way.
func (q *CQ) release() {
	q.mu.Lock()
	q.closed = true
	q.ring = nil
	q.memory.Release()
	if q.moved != nil {
		q.moved.Release()
	}
	q.mu.Unlock()
	if q.own {
		q.channel.wake()
	}
}

// emptyPollsPerPause is how many polls in a row find nothing before the caller's processor is
// offered to others: about 2 µs.
const emptyPollsPerPause = 64

// Poll moves up to len(wcs) completions into wcs and returns how many. 0 without an error means
// that nothing has completed; a program that polls again and again lets others run now and then.
// Errors are ErrCQOverrun, ErrDeviceFatal and ErrClosed; completions that came before are
// delivered first.
func (q *CQ) Poll(wcs []WC) (int, error) {
	q.mu.Lock()
	n, err := q.pollLocked(wcs)
	idle := false
	if n == 0 && err == nil {
		q.empty++
		idle = q.empty%emptyPollsPerPause == 0
	} else {
		q.empty = 0
	}
	q.mu.Unlock()
	if idle {
		pause()
	}
	q.addCauses(wcs[:n])
	return n, err
}

func (q *CQ) pollLocked(wcs []WC) (int, error) {
	if q.closed {
		return 0, ErrClosed
	}
	pending, ok := q.ring.Pending()
	if !ok {
		return 0, ErrDeviceFatal // no NIC of ours writes such an index
	}
	n, taken, done := 0, uint32(0), uint32(0)
	var back credit
	for ; taken < pending && n < len(wcs); taken++ {
		var e abi.CQE
		abi.DecodeCQE(q.ring.Slot(taken-done), &e)
		if e.Opcode == abi.CQESkip {
			continue
		}
		wcs[n].set(&e)
		n++
		done = q.countLocked(&back, &e, taken, done)
	}
	if taken > done {
		q.ring.Release(taken - done)
	}
	back.grant()
	if n == 0 && taken == pending {
		return 0, q.stateLocked()
	}
	return n, nil
}

// stateLocked says why no more completions will come, if so.
func (q *CQ) stateLocked() error {
	switch {
	case q.closed:
		return ErrClosed
	case ring.Word(q.memory.Bytes(), abi.OffCQState).Load() != 0:
		return ErrCQOverrun
	case q.ctx.isDead():
		return ErrDeviceFatal
	}
	return nil
}

// ready reports whether Poll would return something.
func (q *CQ) ready() (bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false, ErrClosed
	}
	pending, ok := q.ring.Pending()
	if ok && pending > 0 {
		return true, nil
	}
	return false, q.stateLocked()
}

// RequestNotify asks for one event on the channel: at the next completion, or with solicited only
// at the next receive whose sender marked it solicited, and at any failure. Completions that are
// in the queue already raise none: poll once more after asking.
func (q *CQ) RequestNotify(solicited bool) error {
	if q.channel == nil {
		return ErrNoChannel
	}
	arm := abi.ArmNext
	if solicited {
		arm = abi.ArmSolicited
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.usableLocked(); err != nil {
		return err
	}
	// An earlier wish for any completion outranks one for solicited ones (IBTA 11.4.2.2).
	word := ring.Word(q.memory.Bytes(), abi.OffCQArm)
	if !solicited || word.Load() != abi.ArmNext {
		word.Store(arm)
	}
	return nil
}

func (q *CQ) usableLocked() error {
	switch {
	case q.closed:
		return ErrClosed
	case q.ctx.isDead():
		return ErrDeviceFatal
	}
	return nil
}

// Wait returns once Poll will find a completion, or with an error: that of ctx, or one that Poll
// would return. It sleeps without taking up a thread. Any number of goroutines may wait.
// The queue needs a channel of its own.
func (q *CQ) Wait(ctx context.Context) error {
	if !q.own {
		return ErrNoChannel
	}
	for range spinsBeforeSleep {
		if ok, err := q.ready(); ok || err != nil {
			return err
		}
		pause()
	}
	for {
		if ok, err := q.ready(); ok || err != nil {
			return err
		}
		if err := q.sleep(ctx); err != nil {
			return err
		}
	}
}

// spinsBeforeSleep is how often Wait offers its processor to others before it asks for an event:
// long enough for a round trip on one host, short enough not to be seen as load.
const spinsBeforeSleep = 16

// sleep waits for an event. A return without an error says only to look again.
func (q *CQ) sleep(ctx context.Context) error {
	ch := q.channel
	if err := ch.take(ctx); err != nil {
		return err
	}
	defer ch.give()
	// Whoever had the turn before may have left completions behind, or an event.
	if ok, err := q.ready(); ok || err != nil {
		return err
	}
	if !q.owed {
		if err := q.RequestNotify(false); err != nil {
			return err
		}
		q.owed = true
	}
	if ok, err := q.ready(); ok || err != nil {
		return err
	}
	err := ch.read(ctx, ch.record[:], q)
	if err == nil {
		q.owed = false
	}
	if errors.Is(err, errWoken) {
		return nil
	}
	return err
}

// cancel marks the completions of a queue pair that was reset or destroyed, so that Poll skips
// them, and gives its slots back.
func (q *CQ) cancel(n QPN) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	for _, isRecv := range []bool{false, true} {
		if s := q.slots.get(slotKey{uint32(n), isRecv}); s != nil {
			s.reset()
		}
	}
	pending, _ := q.ring.Pending()
	for i := range pending {
		slot := q.ring.Slot(i)
		var e abi.CQE
		abi.DecodeCQE(slot, &e)
		if e.QPNum == uint32(n) {
			e.Opcode = abi.CQESkip
			abi.EncodeCQE(slot, &e)
		}
	}
}

// compEventBytes is the size of abi.CompEvent.
const compEventBytes = 8

func compEventCQ(record []byte) uint32 { return binary.NativeEndian.Uint32(record) }
