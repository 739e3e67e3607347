package cm

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/mad"
)

// latency is what a message takes from one node to the other.
const latency = time.Millisecond

// fate is what the link does to a message.
type fate struct {
	lost   bool
	double bool
	later  time.Duration
	stray  time.Duration // a second copy comes that much later
}

// world is two nodes and the link between them. A node may also talk to itself.
type world struct {
	t     testing.TB
	now   clock.Time
	nodes map[string]*node
	wire  []*flight
	judge func(from *node, m *Message) fate
	log   func(format string, args ...any)
	names map[ID]string // of connections, for people
	calls []call
}

// call is what an application does at some time.
type call struct {
	at clock.Time
	f  func()
}

// after plans a call.
func (w *world) after(d time.Duration, f func()) {
	w.calls = append(w.calls, call{w.now.Add(d), f})
}

// flight is a message on its way.
type flight struct {
	at   clock.Time
	to   *node
	path Path // the way back
	from rdma.QPN
	mad  []byte
}

// node is an engine and what came of it.
type node struct {
	w        *world
	name     string
	gid      rdma.GID
	guid     rdma.GUID
	e        *Engine
	restarts uint64
	seen     int // connections named so far
	events   []Event
	sent     []Message
	onEvent  func(v *Event)
}

func newWorld(t testing.TB) *world {
	w := &world{
		t: t, nodes: map[string]*node{}, names: map[ID]string{},
		judge: func(*node, *Message) fate { return fate{} },
		log:   func(string, ...any) {},
	}
	for i, name := range []string{"a", "b"} {
		w.nodes[name] = &node{
			w: w, name: name, gid: rdma.GID{10: 0xff, 11: 0xff, 12: 10, 15: byte(i + 1)},
			guid: rdma.GUID(0xa0 + i),
		}
		w.nodes[name].restart()
	}
	return w
}

// restart begins anew, without a memory of any connection.
func (n *node) restart() {
	n.restarts++
	n.e = New(Config{NodeGUID: n.guid, Seed: n.restarts, AckDelay: DefaultAckDelay})
	n.events = nil
}

// path returns the way from one node to another.
func (n *node) path(to *node) Path {
	return Path{SGID: n.gid, DGID: to.gid, HopLimit: 64, FlowLabel: 0x12345, Port: 1}
}

// name gives a connection the next name of its node.
func (n *node) nameOf(id ID) string {
	if n.w.names[id] == "" && n.e.conns[id] != nil {
		n.seen++
		n.w.names[id] = fmt.Sprintf("%s%d", n.name, n.seen)
	}
	if n.w.names[id] == "" {
		return "?"
	}
	return n.w.names[id]
}

// drain takes what the engine has to say, as its owner does after each call.
func (n *node) drain() {
	var m Message
	for n.e.PollTransmit(n.w.now, &m) {
		n.sent = append(n.sent, m)
		n.w.send(n, &m)
	}
	var v Event
	for n.e.PollEvent(&v) {
		n.events = append(n.events, v)
		n.w.log("%v %s: %s", stamp(n.w.now), n.name, n.describe(&v))
		if n.onEvent != nil {
			n.onEvent(&v)
		}
	}
}

func (w *world) send(from *node, m *Message) {
	f := w.judge(from, m)
	what := w.describe(m.MAD[:])
	switch {
	case f.lost:
		w.log("%v %s: %s, lost", stamp(w.now), from.name, what)
		return
	case f.double:
		w.log("%v %s: %s, twice", stamp(w.now), from.name, what)
	case f.stray > 0:
		w.log("%v %s: %s, and once more %v later", stamp(w.now), from.name, what, f.stray)
	default:
		w.log("%v %s: %s", stamp(w.now), from.name, what)
	}
	var to *node
	for _, n := range w.nodes {
		if n.gid == m.Path.DGID {
			to = n
		}
	}
	if to == nil {
		return
	}
	back := m.Path
	back.SGID, back.DGID = m.Path.DGID, m.Path.SGID
	flight := flight{
		at: w.now.Add(latency + f.later), to: to, path: back, from: rdma.QPNGSI,
		mad: slices.Clone(m.MAD[:]),
	}
	w.wire = append(w.wire, &flight)
	if f.double || f.stray > 0 {
		again := flight
		again.at = again.at.Add(max(latency/2, f.stray))
		w.wire = append(w.wire, &again)
	}
}

// next returns when something happens by itself.
func (w *world) next() clock.Time {
	at := clock.Never
	for _, f := range w.wire {
		at = min(at, f.at)
	}
	for _, c := range w.calls {
		at = min(at, c.at)
	}
	for _, n := range w.nodes {
		at = min(at, n.e.PollTimeout())
	}
	return at
}

// run lets time pass until then.
func (w *world) run(until clock.Time) {
	for {
		at := w.next()
		if at > until || at == clock.Never {
			if until != clock.Never {
				w.now = until
			}
			return
		}
		w.now = max(w.now, at)
		w.step()
	}
}

// step delivers what has arrived, makes the calls that are planned, then serves timers.
func (w *world) step() {
	for i := 0; i < len(w.wire); {
		f := w.wire[i]
		if f.at > w.now {
			i++
			continue
		}
		w.wire = slices.Delete(w.wire, i, i+1)
		f.to.e.HandleMAD(w.now, &f.path, f.from, f.mad)
		f.to.drain()
		checkEngine(w.t, f.to.e)
	}
	for i := 0; i < len(w.calls); {
		c := w.calls[i]
		if c.at > w.now {
			i++
			continue
		}
		w.calls = slices.Delete(w.calls, i, i+1)
		c.f()
	}
	for _, name := range []string{"a", "b"} {
		n := w.nodes[name]
		n.e.HandleTimeout(w.now)
		n.drain()
		checkEngine(w.t, n.e)
	}
}

// quiet lets time pass until nothing is left to happen.
func (w *world) quiet() { w.run(clock.Never) }

func stamp(t clock.Time) string { return fmt.Sprintf("%11.6f", time.Duration(t).Seconds()) }

// describe shows a message with the names of connections.
func (w *world) describe(b []byte) string {
	h, err := mad.ParseHeader(b)
	if err != nil {
		return err.Error()
	}
	name := func(id mad.CommID) string {
		if id == 0 {
			return "0"
		}
		if n := w.names[ID(id)]; n != "" {
			return n
		}
		for _, n := range w.nodes {
			if n.e.conns[ID(id)] != nil {
				return n.nameOf(ID(id))
			}
		}
		return "?"
	}
	d := b[mad.HeaderLen:]
	ids := func(local, remote mad.CommID) string { return name(local) + "→" + name(remote) }
	switch h.Attribute {
	case mad.AttributeREQ:
		var m mad.REQ
		_ = m.Parse(d)
		return fmt.Sprintf("REQ %s service=%d qpn=%d psn=%d", name(m.LocalID), m.ServiceID,
			uint32(m.LocalQPN), uint32(m.StartPSN))
	case mad.AttributeREP:
		var m mad.REP
		_ = m.Parse(d)
		return fmt.Sprintf("REP %s qpn=%d psn=%d", ids(m.LocalID, m.RemoteID),
			uint32(m.LocalQPN)|m.LocalEECN, uint32(m.StartPSN))
	case mad.AttributeREJ:
		var m mad.REJ
		_ = m.Parse(d)
		return fmt.Sprintf("REJ %s of %v, %v", ids(m.LocalID, m.RemoteID), m.Answered, m.Reason)
	case mad.AttributeMRA:
		var m mad.MRA
		_ = m.Parse(d)
		return fmt.Sprintf("MRA %s of %v, timeout=%d", ids(m.LocalID, m.RemoteID), m.Answered,
			m.ServiceTimeout)
	case mad.AttributeSIDRREQ:
		var m mad.SIDRREQ
		_ = m.Parse(d)
		return fmt.Sprintf("SIDR_REQ %s service=%d", name(m.RequestID), m.ServiceID)
	case mad.AttributeSIDRREP:
		var m mad.SIDRREP
		_ = m.Parse(d)
		return fmt.Sprintf("SIDR_REP %s %v qpn=%d", name(m.RequestID), m.Status, uint32(m.QPN))
	}
	var m mad.RTU // DREQ, DREP, LAP and APR begin like it
	_ = m.Parse(d)
	return fmt.Sprintf("%v %s", h.Attribute, ids(m.LocalID, m.RemoteID))
}

func (n *node) describe(v *Event) string {
	name := n.nameOf(v.ID)
	private := strings.TrimRight(string(v.PrivateData[:v.PrivateLen]), "\x00")
	if private != "" {
		private = fmt.Sprintf(" %q", private)
	}
	switch v.Kind {
	case EventRequestReceived, EventReplyReceived:
		return fmt.Sprintf("%s %v qpn=%d psn=%d%s", name, v.Kind, uint32(v.RemoteQPN),
			uint32(v.StartPSN), private)
	case EventRejected:
		return fmt.Sprintf("%s %v: %v%s", name, v.Kind, mad.Reason(v.Reason), private)
	case EventDisconnected:
		return fmt.Sprintf("%s %v %v%s", name, v.Kind, v.How, private)
	case EventServiceReply:
		return fmt.Sprintf("%s %v: %v qpn=%d qkey=%d%s", name, v.Kind, mad.SIDRStatus(v.Status),
			uint32(v.RemoteQPN), uint32(v.QKey), private)
	default:
		return fmt.Sprintf("%s %v%s", name, v.Kind, private)
	}
}

// checkEngine looks for bookkeeping that does not add up.
func checkEngine(t testing.TB, e *Engine) {
	t.Helper()
	if err := bookkeeping(e); err != "" {
		t.Fatal(err)
	}
}

func bookkeeping(e *Engine) string {
	pending, timed, lingering := 0, 0, 0
	for id, c := range e.conns {
		if c.id != id || id == 0 {
			return "a connection stands under a wrong ID"
		}
		if c.listener != nil {
			pending++
		}
		if c.timer != noTimer {
			timed++
			if e.timers[c.timer] != c {
				return "a timer has lost its connection"
			}
		}
		if c.lingers {
			lingering++
		}
		if c.released && c.state == StateClosed {
			return "a released connection is kept"
		}
		if c.released && !c.lingers && c.state != StateDisconnectSent {
			return "a released connection in state " + c.state.String() + " does not linger"
		}
		waits := c.timer != noTimer
		switch c.state {
		case StateRequestSent, StateReplySent, StateDisconnectSent, StateTimewait, StateRejected,
			StateQuerySent, StateQueryAnswered:
			if !waits {
				return c.state.String() + " has no deadline"
			}
		default:
			if waits {
				return c.state.String() + " has a deadline"
			}
		}
	}
	for i := 1; i < len(e.timers); i++ {
		if e.timers[(i-1)/2].deadline > e.timers[i].deadline {
			return "the timers are out of order"
		}
	}
	for key, c := range e.peers {
		if c.peerKey() != key || e.conns[c.id] != c {
			return "a peer's name leads nowhere"
		}
	}
	for key, c := range e.qps {
		if c.qpKey() != key || e.conns[c.id] != c {
			return "a peer's QPN leads nowhere"
		}
	}
	for key, c := range e.queries {
		if c.queryKey() != key || e.conns[c.id] != c {
			return "a query leads nowhere"
		}
	}
	if pending != e.pending || timed != len(e.timers) || lingering != e.lingering.len {
		return fmt.Sprintf("%d pending (%d), %d timers (%d), %d lingering (%d)", pending,
			e.pending, timed, len(e.timers), lingering, e.lingering.len)
	}
	return ""
}

// checkEmpty wants an engine that remembers nothing.
func checkEmpty(t testing.TB, n *node) {
	t.Helper()
	e := n.e
	if len(e.conns)+len(e.peers)+len(e.qps)+len(e.queries)+len(e.timers)+e.pending != 0 ||
		e.out.len+e.events.len+e.lingering.len != 0 || e.PollTimeout() != clock.Never {
		t.Errorf("%s keeps %d connections, %d peers, %d QPs, %d queries, %d timers, %d pending",
			n.name, len(e.conns), len(e.peers), len(e.qps), len(e.queries), len(e.timers),
			e.pending)
	}
}
