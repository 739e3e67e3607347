package nic

import (
	"syscall"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/rdma"
)

// surroundings are what a party's NIC is joined to others by, in virtual time.
type surroundings interface {
	run(d time.Duration)
	next() clock.Time
	time() clock.Time
}

// party is a NIC with one program that connects.
type party struct {
	*bench
	around  surroundings
	name    string
	s       *CMSession
	channel uint32
	events  []ConnectionEvent
	async   []Event
}

// join opens a session with one channel.
func (h *party) join(name string) (*CMSession, uint32) {
	h.t.Helper()
	s, r := h.n.OpenCM(h.around.time(), CMConfig{Name: name, PID: 7, PortMin: 1024})
	h.granted(r)
	ch, r := s.CreateEventChannel()
	h.granted(r)
	return s, ch
}

// collect takes what the NIC has to tell, and reports whether that is something to look up.
func (h *party) collect(route func(*Lookup) Route) (busy bool) {
	var e Event
	for h.n.PollEvent(&e) {
		h.async = append(h.async, e)
	}
	var c ConnectionEvent
	for h.n.PollConnectionEvent(&c) {
		h.events = append(h.events, c)
	}
	var l Lookup
	for h.n.PollLookup(&l) {
		busy = true
		r := route(&l)
		h.n.HandleRoute(h.now, &r)
	}
	return busy
}

// id makes an identifier of a session.
func (h *party) id(space portSpace, t rdma.QPType) uint32 {
	h.t.Helper()
	id, r := h.s.CreateID(&abi.CreateIDReq{
		Channel: h.channel, PortSpace: uint32(space), QPType: uint32(t),
	})
	h.granted(r)
	return id
}

func (h *party) tcp() uint32 { h.t.Helper(); return h.id(spaceTCP, rdma.QPTypeRC) }

// resolve takes an identifier to where it may connect.
func (h *party) resolve(id uint32, addr string, port uint16) {
	h.t.Helper()
	h.granted(h.s.ResolveAddr(h.around.time(), &abi.CMAddrReq{ID: id, Dst: cmAddr(addr, port)}))
	h.expect(eventAddrResolved, id)
	h.granted(h.s.ResolveRoute(h.around.time(), &abi.CMAddrReq{ID: id}))
	h.expect(eventRouteResolved, id)
}

// wait runs until the party has an event, and takes it.
func (h *party) wait(d time.Duration) *abi.CMEvent {
	h.t.Helper()
	h.around.run(0)
	for end := h.around.time().Add(d); len(h.events) == 0; {
		next := h.around.next()
		if next > end {
			h.t.Fatalf("%s: no event within %v", h.name, d)
		}
		h.around.run(time.Duration(max(next-h.around.time(), 0)))
	}
	e := h.events[0]
	h.events = h.events[1:]
	return &e.Record
}

// expect takes the next event and wants it to be of a kind, about an identifier.
func (h *party) expect(kind eventKind, id uint32) *abi.CMEvent {
	h.t.Helper()
	e := h.wait(5 * time.Minute)
	if eventKind(e.Event) != kind || id != 0 && e.ID != id {
		h.t.Fatalf("%s: event %d about %d (status %d), want %d about %d", h.name, e.Event, e.ID,
			e.Status, kind, id)
	}
	return e
}

// silent wants no event for a while.
func (h *party) silent(d time.Duration) {
	h.t.Helper()
	h.around.run(d)
	if len(h.events) > 0 {
		e := &h.events[0].Record
		h.t.Fatalf("%s: unwanted event %d about %d, status %d", h.name, e.Event, e.ID, e.Status)
	}
}

// refused wants a refusal with an errno.
func (h *party) refused(r *rdma.Refusal, errno syscall.Errno) {
	h.t.Helper()
	if r == nil || r.Errno != errno {
		h.t.Fatalf("got %v, want a refusal with %v", r, errno)
	}
	if r.Reason == "" {
		h.t.Fatalf("%v without words", errno)
	}
}
