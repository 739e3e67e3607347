package nic

import (
	"maps"
	"slices"
	"syscall"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/cm"
	"github.com/softrnic/softrnic/internal/rdma"
)

// connections is the part of a NIC that connects: rdma_cm's view of addresses, ports and events
// over the communication manager.
type connections struct {
	nic      *NIC
	engine   *cm.Engine
	sessions []*CMSession
	ids      map[uint32]*identifier
	calls    map[cm.ID]*identifier
	accepted map[rdma.QPN]*identifier // by the queue pair that the program gave a connection
	ports    portTable
	services map[uint64]*service // by service ID
	cookies  map[uint32]*service
	channels int
	joins    int

	// isActive says that the engine may have messages to send, isStirred that it may have events.
	isActive, isStirred bool
	event               cm.Event
	message             cm.Message
	psn                 rdma.PSN // of the next message
	asked               askedFor // by the last REQ

	events  connectionEvents
	lookups []Lookup
}

func newConnections(n *NIC) *connections {
	return &connections{
		nic: n,
		engine: cm.New(cm.Config{
			NodeGUID: n.cfg.NodeGUID, Seed: n.cfg.Secret, AckDelay: ackDelay,
		}),
		ids: make(map[uint32]*identifier), calls: make(map[cm.ID]*identifier),
		accepted: make(map[rdma.QPN]*identifier),
		ports:    portTable{owners: make(map[uint64][]*identifier)},
		services: make(map[uint64]*service), cookies: make(map[uint32]*service),
	}
}

// service is what listeners of one port have in common: the engine knows services, and which
// listener a request is for is in the addresses that it carries.
type service struct {
	id        uint64
	cookie    uint32
	listeners []*identifier
}

// serve enters a listener for requests that come in packets.
func (c *connections) serve(i *identifier) *rdma.Refusal {
	id := i.space.service(i.src.port)
	v := c.services[id]
	if v == nil {
		v = &service{id: id, cookie: c.nic.id()}
	}
	if len(v.listeners) > 0 {
		c.engine.Unlisten(v.cookie)
	}
	v.listeners = append(v.listeners, i)
	if r := c.offer(v); r != nil {
		v.listeners = v.listeners[:len(v.listeners)-1]
		_ = c.offer(v) // what was granted before
		return r
	}
	c.services[id], c.cookies[v.cookie] = v, v
	i.service = v
	return nil
}

// offer tells the engine about a service and the room of all its listeners together.
func (c *connections) offer(v *service) *rdma.Refusal {
	if len(v.listeners) == 0 {
		return nil
	}
	backlog := 0
	for _, l := range v.listeners {
		backlog += l.backlog
	}
	return c.engine.Listen(v.id, ^uint64(0), backlog, v.cookie)
}

// unlisten takes a listener out.
func (c *connections) unlisten(i *identifier) {
	c.unlistenStream(i)
	v := i.service
	if v == nil {
		return
	}
	i.service = nil
	v.listeners = slices.DeleteFunc(v.listeners, func(l *identifier) bool { return l == i })
	c.engine.Unlisten(v.cookie)
	_ = c.offer(v) // less than was granted before
	if len(v.listeners) == 0 {
		delete(c.services, v.id)
		delete(c.cookies, v.cookie)
	}
}

// destroy ends an identifier. A connection ends with a message to the peer that fits its state.
func (c *connections) destroy(i *identifier) {
	c.unlisten(i)
	c.ports.release(i)
	for _, h := range slices.Sorted(maps.Keys(i.joins)) {
		c.leave(i, h)
	}
	c.hangUp(i)
	i.isGone = true
	delete(c.ids, i.handle)
	delete(i.session.ids, i.handle)
}

// hangUp gives the identifier's connection back to the engine.
func (c *connections) hangUp(i *identifier) {
	if i.isUntaken {
		c.taken(i)
	}
	c.dropStream(i)
	if i.call == 0 {
		return
	}
	delete(c.calls, i.call)
	if c.accepted[i.qpn] == i {
		delete(c.accepted, i.qpn)
	}
	c.engine.Release(c.nic.now, i.call)
	i.call = 0
	c.stir()
}

// taken says that a program has seen a request, which counts against its listener's backlog no
// more.
func (c *connections) taken(i *identifier) {
	i.isUntaken = false
	if i.listener != nil {
		i.listener.untaken--
	} else {
		c.engine.Taken(i.call)
	}
}

// stir says that the engine was called.
func (c *connections) stir() { c.isActive, c.isStirred = true, true }

// pollTimeout returns when the engine wants to be called.
func (c *connections) pollTimeout() clock.Time { return c.engine.PollTimeout() }

// handleTimeout runs the engine's timers.
func (c *connections) handleTimeout(now clock.Time) {
	if c.engine.PollTimeout() > now {
		return
	}
	c.engine.HandleTimeout(now)
	c.stir()
	c.collect()
}

// handleUnreachable ends what waits for a host that is not there or has no NIC: it will not answer,
// and why is better told now than after the last retry.
func (c *connections) handleUnreachable(peer rdma.GID, why syscall.Errno) {
	for _, h := range slices.Sorted(maps.Keys(c.ids)) {
		i := c.ids[h]
		if i.state != idConnecting || i.binding.remote != peer || i.isStreamed() {
			continue
		}
		c.hangUp(i)
		i.state = idFailed
		c.raise(i, cmEvent{kind: eventUnreachable, status: -int32(why)})
	}
}

// noteTraffic says that the peer's first packet reached a queue pair that waits for it: it stands
// for an RTU that was lost (IBTA 12.9.8).
func (c *connections) noteTraffic(qpn rdma.QPN) {
	if i := c.accepted[qpn]; i != nil && i.state == idAccepted {
		c.engine.Established(c.nic.now, i.call)
		c.stir()
	}
}

// Connections counts what the communication manager knows of: connections and queries in any state,
// those included that only wait for old packets to die out.
func (n *NIC) Connections() int { return n.cm.engine.Len() }

// RemoveDevice tells every identifier on the device that it is going away.
func (n *NIC) RemoveDevice(now clock.Time) {
	n.now = now
	for _, h := range slices.Sorted(maps.Keys(n.cm.ids)) {
		if i := n.cm.ids[h]; i.binding.isBound {
			n.cm.raise(i, cmEvent{kind: eventDeviceRemoval})
		}
	}
}
