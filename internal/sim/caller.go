package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/sim/check"
)

// caller is a program that connects: it listens to services of its own and calls those of others.
type caller struct {
	world   *World
	host    *host
	life    int // of the host's NIC
	slot    int // among the programs of its host
	name    string
	session *nic.CMSession
	isGone  bool
	boxes   []*mailbox
	ends    map[uint32]*callEnd // by handle
	desk
}

// mailbox is an event channel with what the program has not read yet.
type mailbox struct {
	caller    *caller
	handle    uint32
	events    []nic.ConnectionEvent
	isReading bool
}

// service is what a program listens to. The kind is that of the queue pairs that call.
type service struct {
	host int
	kind rdma.QPType
	port uint16
}

// servicePort is the lowest port; each program has one of its own.
const servicePort = 7000

// extendedPort is what the ports of XRC services have on top: they share a port space with RC's.
const extendedPort = 100

func (c *caller) service(kind rdma.QPType) service {
	s := service{c.host.index, kind, servicePort + uint16(c.slot)}
	if kind == rdma.QPTypeXRCRecv {
		s.kind = rdma.QPTypeXRCSend
	}
	if s.kind == rdma.QPTypeXRCSend {
		s.port += extendedPort
	}
	return s
}

// serviceKinds are the queue pairs that a program offers a service for.
var serviceKinds = [...]rdma.QPType{
	rdma.QPTypeRC, rdma.QPTypeUC, rdma.QPTypeUD, rdma.QPTypeXRCRecv,
}

func (w *World) newCaller(h *host) {
	w.appCount++
	c := &caller{
		world: w, host: h, life: h.lives, name: fmt.Sprintf("%s.c%d", h.name, w.appCount),
		ends: map[uint32]*callEnd{},
	}
	for slices.ContainsFunc(h.callers, func(o *caller) bool { return o.slot == c.slot }) {
		c.slot++
	}
	session, refusal := h.nic.OpenCM(w.now, nic.CMConfig{
		Name: c.name, PID: uint32(1000 + w.appCount), PortMin: 1024, Owner: c,
	})
	if refusal != nil {
		w.court.Failf("%s: open: %v", c.name, refusal)
		return
	}
	c.session = session
	c.openDesk()
	for range w.between(1, 2) {
		c.newBox()
	}
	h.callers = append(h.callers, c)
	w.board.callers = append(w.board.callers, c)
	for _, kind := range serviceKinds {
		c.listen(kind)
	}
	c.pace()
}

func (c *caller) newBox() {
	handle, refusal := c.session.CreateEventChannel()
	if refusal != nil {
		c.world.court.Failf("%s: create_event_channel: %v", c.name, refusal)
		return
	}
	c.boxes = append(c.boxes, &mailbox{caller: c, handle: handle})
}

// dropBox destroys an event channel with all identifiers on it (case C13), and makes another.
func (c *caller) dropBox(i int) {
	w, b := c.world, c.boxes[i]
	w.mark("call.channel_dropped")
	w.trace.note(w.now, "%s: destroys channel %d", c.name, int(b.handle))
	var gone []*callEnd
	for _, h := range sortedKeys(c.ends) {
		if e := c.ends[h]; e.channel == b.handle {
			e.retire()
			gone = append(gone, e)
		}
	}
	if r := c.session.DestroyEventChannel(w.now, b.handle); r != nil {
		w.court.Failf("%s: destroy_event_channel: %v", c.name, r)
	}
	c.boxes = slices.Delete(c.boxes, i, i+1)
	c.newBox()
	for _, e := range gone {
		e.vanish()
		if e.fate.State() == check.EndListening {
			c.after(w.delay(0, 2*w.board.plan.gap), func() { c.listen(e.kind) })
		}
	}
}

func (c *caller) anyBox() *mailbox { return c.boxes[c.world.between(0, len(c.boxes)-1)] }

// pickCaller returns some program that lives, or nil.
func (w *World) pickCaller() *caller {
	all := slices.DeleteFunc(slices.Clone(w.board.callers), func(c *caller) bool { return c.isGone })
	if len(all) == 0 {
		return nil
	}
	return all[w.between(0, len(all)-1)]
}

// after plans something that this program does, if it is still there then.
func (c *caller) after(d time.Duration, run func()) {
	w := c.world
	w.at(w.now.Add(d), func() {
		if !c.isGone {
			// What the NIC has to say already is not about what the program does now.
			c.host.turnCalls()
			run()
			c.host.turn()
		}
	})
}

// pace keeps the program going as long as the trouble lasts.
func (c *caller) pace() {
	w := c.world
	c.after(w.delay(0, 2*w.board.plan.gap), func() {
		if w.isCalm {
			return
		}
		c.act()
		c.poll()
		c.pace()
	})
}

// act does one thing.
func (c *caller) act() {
	w := c.world
	switch w.between(0, 12) {
	case 12:
		if w.chance(0.2) {
			c.dropBox(w.between(0, len(c.boxes)-1))
		}
	case 0:
		if e := c.anyEnd(check.EndListening); e != nil {
			e.destroy()
			c.after(w.delay(0, 2*w.board.plan.gap), func() { c.listen(e.kind) })
		}
	case 1, 2:
		if e := c.anyEnd(check.EndUp); e != nil {
			e.disconnect()
		}
	case 3:
		if e := c.anyCall(); e != nil {
			w.mark("call.destroy." + e.fate.State().String())
			e.destroy()
		}
	case 4:
		if e := c.anyCall(); e != nil {
			e.migrate(c.anyBox())
		}
	case 5:
		c.joinSome()
	case 6:
		if e := c.anyEnd(check.EndUp); e != nil {
			e.talk()
		}
	default:
		c.dial()
	}
}

// anyEnd returns some identifier in a state, or nil.
func (c *caller) anyEnd(s check.EndState) *callEnd {
	return c.some(func(e *callEnd) bool { return e.fate.State() == s })
}

// anyCall returns some identifier that is no listener, or nil.
func (c *caller) anyCall() *callEnd {
	return c.some(func(e *callEnd) bool { return e.fate.State() != check.EndListening })
}

func (c *caller) some(is func(*callEnd) bool) *callEnd {
	var all []*callEnd
	for _, h := range sortedKeys(c.ends) {
		if e := c.ends[h]; is(e) {
			all = append(all, e)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[c.world.between(0, len(all)-1)]
}

// hear takes an event as it is put into a channel. The program reads it later.
func (c *caller) hear(e *nic.ConnectionEvent) {
	w, r := c.world, &e.Record
	kind := check.CMEvent(r.Event)
	w.trace.note(w.now, "%s: event %d about %d, status %d", c.name, int(kind), int(r.ID),
		int(r.Status))
	w.mark(fmt.Sprintf("call.event.%d", kind))
	at := slices.IndexFunc(c.boxes, func(b *mailbox) bool { return b.handle == e.Channel })
	if c.isGone || at < 0 {
		w.court.Failf("%s: event %d for channel %d, which is not there", c.name, kind, e.Channel)
		return
	}
	end := c.ends[r.ID]
	switch {
	case kind == check.ConnectRequest:
		end = c.requested(r, e.Channel)
	case end == nil:
		w.court.Failf("%s: event %d about %d, which is no identifier", c.name, kind, r.ID)
	case kind == check.MulticastJoin:
	case end.fate.Take(kind, r.Status):
		end.judge(kind, r)
	}
	if end == nil {
		return
	}
	if end.channel != e.Channel {
		w.court.Failf("%s: event %d comes by channel %d, not %d", end.fate.Name, kind, e.Channel,
			end.channel)
	}
	b := c.boxes[at]
	b.events = append(b.events, *e)
	b.read()
}

// read takes the next event out of the channel when the program gets to it.
func (b *mailbox) read() {
	if b.isReading || len(b.events) == 0 {
		return
	}
	b.isReading = true
	c := b.caller
	c.after(c.world.delay(0, c.world.board.plan.nap), func() {
		b.isReading = false
		e := b.events[0]
		b.events = b.events[1:]
		if end := c.ends[e.Record.ID]; end != nil {
			end.react(&e.Record)
		}
		b.read()
	})
}

// handleEvent takes asynchronous events of verbs: the first packet stands for an RTU.
func (c *caller) handleEvent(e *nic.Event) {
	if e.Type != rdma.EventCommEst {
		return
	}
	for _, h := range sortedKeys(c.ends) {
		if end := c.ends[h]; end.plug != nil && end.plug.handle == e.Handle {
			c.after(0, func() { end.notify() })
		}
	}
}

// expectFarewells is called when the program is about to die: who is connected with it has to
// learn.
func (c *caller) expectFarewells() {
	for _, h := range sortedKeys(c.ends) {
		c.ends[h].sayFarewell()
	}
}

// lose says that the NIC or the program is gone.
func (c *caller) lose() {
	if c.isGone {
		return
	}
	w := c.world
	c.isGone = true
	for _, h := range sortedKeys(c.ends) {
		c.ends[h].vanish()
	}
	c.host.callers = slices.DeleteFunc(c.host.callers, func(o *caller) bool { return o == c })
	for _, kind := range serviceKinds {
		delete(w.board.lit, c.service(kind))
	}
}

// close gives everything back, as a process that ends: its two connections to the NIC break in any
// order.
func (c *caller) close() {
	if c.isGone {
		return
	}
	w := c.world
	if w.chance(0.5) {
		c.host.nic.CloseContext(w.now, c.ctx)
		c.host.nic.CloseCM(w.now, c.session)
	} else {
		c.host.nic.CloseCM(w.now, c.session)
		c.host.nic.CloseContext(w.now, c.ctx)
	}
	c.lose()
	c.host.turn()
}

// addr writes an address for requests.
func addr(g rdma.GID, port uint16) abi.CMAddr {
	a := g.Addr()
	out := abi.CMAddr{Family: 10, Port: port, Addr: a.As16()}
	if a.Is4() {
		four := a.As4()
		out.Family, out.Addr = 2, [16]byte{}
		copy(out.Addr[:], four[:])
	}
	return out
}

var _ mem.Space = (*caller)(nil)
