package daemon

import (
	"encoding/binary"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
)

// asyncBacklogMax bounds the asynchronous events that wait for a program whose pipe is full; a
// pipe alone holds 8192. The oldest are lost first, since the newest say where things stand.
const asyncBacklogMax = 1024

// recordBytes is the size of an event of a device context in a pipe; those of connections are
// larger. Pipes take any record whole or not at all, since all are below PIPE_BUF.
const recordBytes = 8

// outbox is the NIC's end of an event pipe. What a full pipe does not take waits here until the
// program has read something. Lane.
type outbox struct {
	lane    *lane
	fd      int
	backlog [][]byte
	waiting map[uint32]bool // CQs with a record in backlog behind the first
	watched bool
	dead    bool // the program has closed its end
	waits   *int // counts the backlog of several pipes together; nil for those that are bounded
}

// sendCompletion tells of a CQ. While records wait, one for the same CQ stands for all: the
// program polls the queue empty after it.
func (o *outbox) sendCompletion(cq uint32) {
	e := abi.CompEvent{CQ: cq}
	if len(o.backlog) > 0 {
		if o.waiting[cq] {
			return
		}
		if o.waiting == nil {
			o.waiting = map[uint32]bool{}
		}
		o.waiting[cq] = true
	}
	o.send(ctl.Bytes(&e))
}

func (o *outbox) sendAsync(e abi.AsyncEvent) {
	if len(o.backlog) >= asyncBacklogMax {
		o.backlog = slices.Delete(o.backlog, 0, 1)
		o.lane.stats.lostEvents++
	}
	o.send(ctl.Bytes(&e))
}

// send hands over a record, which it does not keep.
func (o *outbox) send(record []byte) {
	if len(o.backlog) == 0 && o.write(record) {
		return
	}
	if o.dead {
		return
	}
	o.backlog = append(o.backlog, slices.Clone(record))
	o.count(1)
	if !o.watched {
		w := watch{kind: watchOutbox, outbox: o}
		// Without a watch (no memory for it) the backlog goes out with the next event.
		o.watched = o.lane.addWatch(o.fd, unix.EPOLLOUT|edge, w) == nil
	}
}

// write reports whether the record needs no more attention.
func (o *outbox) write(record []byte) bool {
	if o.dead {
		return true
	}
	for {
		_, err := unix.Write(o.fd, record)
		switch {
		case err == nil:
			return true
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return false
		default: // EPIPE: nobody will ever read it
			o.abandon()
			return true
		}
	}
}

// count adds to what waits.
func (o *outbox) count(n int) {
	if o.waits != nil {
		*o.waits += n
	}
}

// abandon gives up what waits.
func (o *outbox) abandon() {
	o.count(-len(o.backlog))
	o.dead, o.backlog = true, nil
}

// flush writes what the pipe has room for now.
func (o *outbox) flush() {
	for len(o.backlog) > 0 && o.write(o.backlog[0]) {
		if o.dead {
			break
		}
		delete(o.waiting, binary.NativeEndian.Uint32(o.backlog[0])) // of other events: nothing
		o.backlog = o.backlog[1:]
		o.count(-1)
	}
	if len(o.backlog) == 0 {
		o.waiting = nil
		o.unwatch()
	}
}

func (o *outbox) unwatch() {
	if o.watched {
		o.lane.dropWatch(o.fd)
		o.watched = false
	}
}

// close gives the pipe up; the program reads what is in it, then its end.
func (o *outbox) close() {
	o.unwatch()
	_ = unix.Close(o.fd)
	o.abandon()
}

// deliverEvents tells applications what happened.
func (l *lane) deliverEvents() {
	for l.nic.PollEvent(&l.event) {
		e := &l.event
		s, ok := e.Context.Owner().(*session)
		if !ok {
			continue
		}
		if e.Channel == 0 {
			s.async.sendAsync(abi.AsyncEvent{Type: uint32(e.Type), Handle: e.Handle})
			continue
		}
		if o := s.channels[e.Channel]; o != nil {
			o.sendCompletion(e.Handle)
		}
	}
	l.deliverConnectionEvents()
}
