package verbs

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
)

// CompletionChannel delivers the events of one or more completion queues.
type CompletionChannel struct {
	ctx    *Context
	handle uint32
	pipe   *os.File
	closed atomic.Bool
	// closing says that the NIC may have closed its end because it was asked to.
	closing atomic.Bool

	// turn holds a token while a goroutine reads the pipe: one at a time, so that one's deadline
	// is not another's.
	turn chan struct{}
	// record is where the holder of the turn reads to.
	record   [compEventBytes]byte
	shutOnce sync.Once
	shut     chan struct{} // closed by Close
}

// errWoken says that a read ended because something changed, not because of an event.
var errWoken = errors.New("verbs: woken to look again")

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// CreateCompletionChannel makes a channel that completion queues can share.
func (c *Context) CreateCompletionChannel() (*CompletionChannel, error) {
	const op = "create completion channel"
	rsp, fds, err := call[abi.HandleMsg](c, request{op: op, code: abi.OpCreateCompChannel, fds: 1})
	if err != nil {
		return nil, err
	}
	pipe, err := pollable(fds[0], "completion channel")
	if err != nil {
		_ = c.destroy(op, abi.OpDestroyCompChannel, rsp.Handle)
		return nil, &OpError{Op: op, Err: err}
	}
	ch := &CompletionChannel{
		ctx: c, handle: rsp.Handle, pipe: pipe,
		turn: make(chan struct{}, 1), shut: make(chan struct{}),
	}
	if !c.adopt(ch) {
		ch.release()
		return nil, ErrClosed
	}
	return ch, nil
}

// pollable makes a file whose reads wait in the runtime's poller: they cost no thread and end at
// a deadline. It takes the descriptor over.
func pollable(fd int, name string) (*os.File, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Next waits for an event and returns its queue. The event says only that the queue may have
// completions: ask for the next event with RequestNotify, then poll. Events of queues that were
// closed meanwhile are passed over.
func (ch *CompletionChannel) Next(ctx context.Context) (*CQ, error) {
	if err := ch.take(ctx); err != nil {
		return nil, err
	}
	defer ch.give()
	for {
		switch err := ch.read(ctx, ch.record[:], nil); {
		case errors.Is(err, errWoken):
			continue
		case err != nil:
			return nil, err
		}
		if q := ch.ctx.findCQ(compEventCQ(ch.record[:])); q != nil {
			return q, nil
		}
	}
}

// take waits for the right to read.
func (ch *CompletionChannel) take(ctx context.Context) error {
	select {
	case ch.turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case ch.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-ch.shut:
		return ErrClosed
	}
}

func (ch *CompletionChannel) give() { <-ch.turn }

// read fills record with the next one. It ends early with the error of ctx, with ErrClosed or
// ErrDeviceFatal, or with errWoken; so it does also once the queue own, if any, has failed.
//
// Preconditions: the caller has the turn.
func (ch *CompletionChannel) read(ctx context.Context, record []byte, own *CQ) error {
	_ = ch.pipe.SetReadDeadline(time.Time{})
	// Look after the deadline was cleared: whoever wakes us changes the state first.
	if err := ch.state(); err != nil {
		return err
	}
	if own != nil && own.overrun.Load() {
		return errWoken
	}
	if ctx.Done() != nil {
		if err := ctx.Err(); err != nil {
			return err
		}
		fired := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			_ = ch.pipe.SetReadDeadline(longAgo)
			close(fired)
		})
		defer func() {
			if !stop() {
				<-fired
			}
		}()
	}
	_, err := io.ReadFull(ch.pipe, record)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case ch.state() != nil:
		return ch.state()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errWoken
	case ch.closing.Load():
		return ErrClosed
	}
	// The write end is gone, and with it the NIC.
	ch.ctx.die()
	return ErrDeviceFatal
}

func (ch *CompletionChannel) state() error {
	switch {
	case ch.closed.Load():
		return ErrClosed
	case ch.ctx.isDead():
		return ErrDeviceFatal
	}
	return nil
}

// wake makes a reader look at the state again.
func (ch *CompletionChannel) wake() { _ = ch.pipe.SetReadDeadline(longAgo) }

// Close destroys the channel. It is refused (EBUSY) while a completion queue uses it.
func (ch *CompletionChannel) Close() error {
	if ch.closed.Load() {
		return nil
	}
	const op = "destroy completion channel"
	ch.closing.Store(true)
	if err := ch.ctx.destroy(op, abi.OpDestroyCompChannel, ch.handle); err != nil {
		ch.closing.Store(false)
		return err
	}
	ch.ctx.disown(ch)
	ch.release()
	return nil
}

// release ends all readers.
func (ch *CompletionChannel) release() {
	ch.closed.Store(true)
	ch.shutOnce.Do(func() { close(ch.shut) })
	_ = ch.pipe.Close()
}
