package verbs

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"iter"
	"strings"
)

// Event is an asynchronous event of a context. What it is about is in one of QP, CQ, SRQ and
// Port, according to Type; nil if the object was closed meanwhile.
type Event struct {
	Type EventType
	QP   *QP
	CQ   *CQ
	SRQ  *SRQ
	Port uint32
}

// Cause returns why the queue pair of an event about an error is in error, or nil. The peer's
// forbidden requests are told by events alone: no completion has them.
func (e Event) Cause() *Cause {
	switch e.Type {
	case EventQPFatal, EventQPReqErr, EventQPAccessErr:
		if e.QP != nil {
			return e.QP.Cause()
		}
	default:
	}
	return nil
}

func (e Event) String() string {
	switch {
	case e.QP != nil:
		text := fmt.Sprintf("%v on QP %v", e.Type, e.QP.QPN())
		if c := e.Cause(); c != nil {
			text += ": " + strings.Join(c.chain, "; ")
		}
		return text
	case e.Port != 0:
		return fmt.Sprintf("%v on port %d", e.Type, e.Port)
	}
	return e.Type.String()
}

// eventsKept bounds the asynchronous events that wait for NextEvent. The oldest are dropped.
const eventsKept = 256

const asyncEventBytes = 8 // of abi.AsyncEvent

// NextEvent waits for an asynchronous event. When the NIC goes away there is one event of type
// EventDeviceFatal, and ErrDeviceFatal after that.
func (c *Context) NextEvent(ctx context.Context) (Event, error) {
	select {
	case e := <-c.events:
		return e, nil
	default:
	}
	select {
	case e := <-c.events:
		return e, nil
	case <-ctx.Done():
		return Event{}, ctx.Err()
	case <-c.done:
	}
	// The reader may have left an event behind before it ended.
	select {
	case e := <-c.events:
		return e, nil
	default:
	}
	if c.isDead() {
		return Event{}, ErrDeviceFatal
	}
	return Event{}, ErrClosed
}

// Events yields asynchronous events until ctx ends, the context is closed, or the NIC is gone.
func (c *Context) Events(ctx context.Context) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		for {
			e, err := c.NextEvent(ctx)
			if err != nil || !yield(e) {
				return
			}
		}
	}
}

// EventsLost counts events that were dropped because nobody took them.
func (c *Context) EventsLost() uint64 { return c.lost.Load() }

// readEvents runs as a goroutine of the context: its pipe also tells that the NIC is gone.
func (c *Context) readEvents() {
	defer close(c.done)
	var record [asyncEventBytes]byte
	for {
		if _, err := io.ReadFull(c.async, record[:]); err != nil {
			break
		}
		c.deliver(EventType(binary.NativeEndian.Uint32(record[:])),
			binary.NativeEndian.Uint32(record[4:]))
	}
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if !closed {
		c.die()
		c.keep(Event{Type: EventDeviceFatal})
	}
}

func (c *Context) deliver(t EventType, handle uint32) {
	e := Event{Type: t}
	c.mu.Lock()
	switch t {
	case EventCQErr:
		e.CQ = c.cqs[handle]
	case EventSRQErr, EventSRQLimitReached:
		e.SRQ = c.srqs[handle]
	case EventPortActive, EventPortErr, EventGIDChange:
		e.Port = handle
	case EventDeviceFatal:
	default:
		e.QP = c.qps[handle]
	}
	c.mu.Unlock()
	if e.CQ != nil {
		e.CQ.overrun.Store(true)
		if e.CQ.own {
			e.CQ.channel.wake()
		}
	}
	c.keep(e)
}

// keep queues an event; only the reader calls it.
func (c *Context) keep(e Event) {
	for {
		select {
		case c.events <- e:
			return
		default:
		}
		select {
		case <-c.events:
			c.lost.Add(1)
		default:
		}
	}
}
