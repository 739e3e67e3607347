package nic

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
	wire "github.com/softrnic/softrnic/internal/wire/iwarp"
)

// couple is two ends on their way to a connection.
type couple struct {
	*lan
	a, z     *end
	listener uint32
	posted   int // by each end
}

// stages take a couple to a state, each from the beginning.
//
//tidy:table
var stages = []struct {
	name string
	to   func(c *couple)
}{
	{"TCP connects", func(c *couple) { c.begin() }},
	{"request out", func(c *couple) { c.begin(); c.run(30 * time.Microsecond) }},
	{"request waits", func(c *couple) { c.begin(); c.asked() }},
	{"reply out", func(c *couple) { c.begin(); c.asked(); c.accept() }},
	{"RTR out", func(c *couple) {
		c.begin()
		c.asked()
		c.accept()
		c.run(11 * time.Microsecond)
	}},
	{"established", func(c *couple) { c.begin(); c.asked(); c.accept(); c.settle() }},
	{"busy", func(c *couple) { c.busy(); c.run(15 * time.Microsecond) }},
	{"busy, sockets full", func(c *couple) {
		c.room = 5000
		c.busy()
		c.run(300 * time.Microsecond)
	}},
	{"disconnecting", func(c *couple) {
		c.room = 5000
		c.busy()
		c.run(100 * time.Microsecond)
		c.a.granted(c.a.s.Disconnect(c.now, c.a.id))
	}},
	{"disconnected", func(c *couple) {
		c.begin()
		c.asked()
		c.accept()
		c.settle()
		c.a.granted(c.a.s.Disconnect(c.now, c.a.id))
		c.settle()
	}},
}

func (c *couple) begin() {
	c.a, c.z = c.nodes[0].queue(), c.nodes[1].queue()
	c.listener = c.z.server()
	c.a.id = c.a.caller(c.z.node)
	c.a.granted(c.a.s.Connect(c.now, &abi.CMConnReq{ID: c.a.id, Param: params(c.a.q.rsp.QPN, "")}))
}

func (c *couple) asked() { c.z.id = c.z.expect(eventConnectRequest, 0).ID }

func (c *couple) accept() {
	c.z.granted(c.z.s.Accept(c.now, &abi.CMConnReq{ID: c.z.id, Param: params(c.z.q.rsp.QPN, "")}))
}

func (c *couple) settle() { c.run(time.Millisecond) }

// busy posts much in both directions.
func (c *couple) busy() {
	c.begin()
	c.asked()
	c.accept()
	c.settle()
	const size = 60_000
	c.posted = 10
	for _, e := range []*end{c.a, c.z} {
		mr, addr, _ := e.region(size, everyRight)
		other := c.a
		if e == c.a {
			other = c.z
		}
		far, farAddr, _ := other.region(size, everyRight)
		for i := range uint64(3) {
			e.q.recv(100+i, abi.SGE{Addr: addr, Length: size, LKey: mr.LKey})
			for _, op := range []rdma.WROpcode{rdma.WRSend, rdma.WRWrite} {
				w := wr(op, i)
				w.RemoteAddr, w.RKey = farAddr, far.RKey
				e.q.send(w, abi.SGE{Addr: addr, Length: size, LKey: mr.LKey})
			}
		}
		w := wr(rdma.WRRead, 9)
		w.RemoteAddr, w.RKey = farAddr, far.RKey
		e.q.send(w, abi.SGE{Addr: addr, Length: size, LKey: mr.LKey})
	}
}

// blows end a connection, or do something like it.
//
//tidy:table
var blows = []struct {
	name string
	// endsOne says that after it the queue pair of this end is not in RTS.
	endsOne bool
	do      func(c *couple, e *end)
}{
	{"destroy the identifier", true, func(c *couple, e *end) {
		if e.id != 0 {
			e.granted(e.s.DestroyID(c.now, e.id))
		}
	}},
	{"destroy the queue pair", false, func(c *couple, e *end) {
		e.granted(e.c.DestroyQP(c.now, e.q.rsp.Handle))
	}},
	{"error", true, func(c *couple, e *end) {
		e.granted(e.q.modify(abi.QPAttr{State: uint32(sError)}, rdma.QPAttrState))
	}},
	{"reset the queue pair", true, func(c *couple, e *end) {
		e.granted(e.q.modify(abi.QPAttr{State: uint32(sReset)}, rdma.QPAttrState))
	}},
	{"SQD", true, func(c *couple, e *end) {
		e.granted(e.q.modify(abi.QPAttr{State: uint32(sSQD)}, rdma.QPAttrState))
	}},
	{"disconnect", false, func(c *couple, e *end) {
		if e.id != 0 {
			e.s.Disconnect(c.now, e.id)
		}
	}},
	{"stop listening", false, func(c *couple, e *end) {
		if e == c.z {
			e.granted(e.s.DestroyID(c.now, c.listener))
		}
	}},
	{"the program's connections go", true, func(c *couple, e *end) {
		e.n.CloseCM(c.now, e.s)
		e.s, e.channel = e.join("test")
	}},
	{"the program's device goes", false, func(c *couple, e *end) {
		e.n.CloseContext(c.now, e.c)
	}},
	{"reset by TCP", false, func(c *couple, e *end) {
		for _, s := range sorted(e.socks) {
			if s.peer != nil {
				s.peer.end(syscall.ECONNRESET)
				s.end(syscall.ECONNRESET)
			}
		}
	}},
	{"timeout of TCP", false, func(c *couple, e *end) {
		for _, s := range sorted(e.socks) {
			if s.peer != nil {
				s.end(syscall.ETIMEDOUT)
			}
		}
	}},
	{"the device is removed", false, func(c *couple, e *end) { e.n.RemoveDevice(c.now) }},
	{"nothing", false, func(*couple, *end) {}},
}

// checkCompletions wants each work request of a queue pair in error to have completed once, and
// none of any twice.
func (c *couple) checkCompletions(t *testing.T) {
	t.Helper()
	for _, e := range []*end{c.a, c.z} {
		seen := map[string]int{}
		for _, d := range e.cq.poll() {
			seen[fmt.Sprintf("%d of %d", d.Opcode, d.WRID)]++
		}
		total := 0
		for what, n := range seen {
			if total += n; n > 1 {
				t.Errorf("%v: %s completes %d times", e.addr, what, n)
			}
		}
		if s := e.q.state(); s == sError && e.n.qps[rdma.QPN(e.q.rsp.QPN)] != nil && total != c.posted {
			t.Errorf("%v: %d completions of %d", e.addr, total, c.posted)
		}
	}
}

func sorted(m map[StreamID]*sock) []*sock {
	var out []*sock
	for _, s := range m {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b *sock) int { return int(a.id) - int(b.id) })
	return out
}

// Whatever ends a connection in whatever state: nothing is left behind on either side, every work
// request completes once, and the peer of what died does not go on.
func TestStreams_EndInEveryState_LeavesNothing(t *testing.T) {
	for _, stage := range stages {
		for _, blow := range blows {
			for side := range 2 {
				name := fmt.Sprintf("%s/%s/side %d", stage.name, blow.name, side)
				t.Run(name, func(t *testing.T) {
					c := &couple{lan: newLAN(t)}
					stage.to(c)
					e := []*end{c.a, c.z}[side]
					blow.do(c, e)
					c.run(10 * time.Minute)
					c.checkCompletions(t)
					if s := e.q.state(); blow.endsOne && s == sRTS && e.id != 0 {
						t.Errorf("the queue pair is in %v", s)
					}
					c.clean()
					c.empty()
				})
			}
		}
	}
}

// A listener's port is open to everybody who speaks TCP. Whoever does not speak MPA is shown the
// door, and neither the listener nor other connections notice.
func TestStreams_Strangers_AreShownTheDoor(t *testing.T) {
	l := newLAN(t)
	a, z, _ := l.pair()
	for name, say := range map[string][]byte{
		"HTTP":      []byte("GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"),
		"TLS":       {0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3},
		"reply":     append([]byte("MPA ID Rep Frame"), 0, 1, 0, 0),
		"version 9": append([]byte("MPA ID Req Frame"), 0, 9, 0, 0),
		"too long":  append([]byte("MPA ID Req Frame"), 0, 1, 0xff, 0xff),
		"early":     append(append([]byte("MPA ID Req Frame"), 0, 1, 0, 0), make([]byte, 40)...),
	} {
		w := l.dial(z.node, lanPort)
		w.write(say)
		l.run(time.Minute)
		if !w.hasEnded {
			t.Errorf("%s: still connected", name)
		}
	}
	silent := l.dial(z.node, lanPort)
	slow := l.dial(z.node, lanPort)
	for _, b := range []byte("MPA ID Req Frame") {
		slow.write([]byte{b})
		l.run(10 * time.Second)
	}
	if !silent.hasEnded || !slow.hasEnded {
		t.Errorf("silent one gone: %v, slow one gone: %v", silent.hasEnded, slow.hasEnded)
	}
	if len(z.events) != 0 || a.q.state() != sRTS || z.q.state() != sRTS {
		t.Errorf("events %+v, states %v and %v", z.events, a.q.state(), z.q.state())
	}
	if got := z.n.counters.StreamsNoMPA; got != 8 {
		t.Errorf("%d connections without an MPA request were counted", got)
	}
	l.clean()
	l.empty()
}

// Nobody can fill the table of connections that have not asked: the newest has its chance.
func TestStreams_Flood_DisplacesTheOldest(t *testing.T) {
	l := newLAN(t)
	y := l.nodes[1]
	y.server()
	first := l.dial(y, lanPort)
	for range 1024 {
		l.dial(y, lanPort)
	}
	l.run(time.Second)
	if !first.hasEnded || y.n.counters.StreamsDisplaced != 1 {
		t.Errorf("first gone: %v, %d displaced", first.hasEnded, y.n.counters.StreamsDisplaced)
	}
	x := l.nodes[0]
	a, z := l.join(x.queue(), y.queue())
	if a.q.state() != sRTS || z.q.state() != sRTS {
		t.Error("nobody else connects")
	}
	l.empty()
}

// A server that is no NIC: what it says instead of an MPA reply.
func TestStreams_Connect_ServerDoesNotSpeakMPA_IsAnError(t *testing.T) {
	for name, c := range map[string]struct {
		say    []byte
		kind   eventKind
		status syscall.Errno
	}{
		"HTTP":   {[]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), eventConnectError, syscall.EINVAL},
		"FIN":    {nil, eventRejected, syscall.ECONNRESET},
		"silent": {nil, eventUnreachable, syscall.ETIMEDOUT},
	} {
		l := newLAN(t)
		x := l.nodes[0]
		a, id := x.queue(), x.caller(l.nodes[1])
		x.granted(x.s.Connect(l.now, &abi.CMConnReq{ID: id, Param: params(a.q.rsp.QPN, "")}))
		wild := &sock{}
		for _, s := range x.socks {
			s.peer, wild.peer = wild, s
			x.n.HandleConnected(l.now, s.id, &StreamConnected{MSS: 1448})
		}
		l.acts = nil // the handshake with the other node
		switch {
		case name == "FIN":
			wild.carry(nil, func(p *sock) { p.end(0) })
		case c.say != nil:
			wild.write(c.say)
		}
		if e := x.expect(c.kind, id); e.Status != -int32(c.status) {
			t.Errorf("%s: status %d", name, e.Status)
		}
		if a.q.state() != sInit {
			t.Errorf("%s: the queue pair is in %v", name, a.q.state())
		}
		l.clean()
		l.empty()
	}
}

// Bytes of a peer that has gone mad, in the middle of a connection, end that connection and
// nothing else.
func TestStreams_Garbage_EndsOneConnection(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for round := range 50 {
		l := newLAN(t)
		a, z, _ := l.pair()
		other, zother := l.join(l.nodes[0].queue(), l.nodes[1].queue())
		mr, addr, _ := z.region(4096, everyRight)
		z.q.recv(1, abi.SGE{Addr: addr, Length: 4096, LKey: mr.LKey})
		id := z.n.qps[rdma.QPN(z.q.rsp.QPN)].stream.id
		junk := make([]byte, 1+r.IntN(5000))
		for i := range junk {
			junk[i] = byte(r.Uint32())
		}
		if round%2 == 0 {
			junk[0], junk[1] = 0, byte(r.IntN(64)) // a length that soon is there
		}
		z.n.HandleStream(l.now, id, junk)
		l.run(10 * time.Minute)
		if other.q.state() != sRTS || zother.q.state() != sRTS {
			t.Fatalf("round %d: another connection is in %v, %v", round, other.q.state(),
				zother.q.state())
		}
		_ = a
		l.clean()
		l.empty()
	}
}

// TestStreams_Accept_PeerClosesBeforeItsFirstWord_IsAnError: the program that accepted is told a
// cause, though the peer's end was in order.
func TestStreams_Accept_PeerClosesBeforeItsFirstWord_IsAnError(t *testing.T) {
	l := newLAN(t)
	h := l.nodes[1]
	h.server()
	w := l.dial(h, lanPort)
	f := wire.Frame{Revision: wire.Revision2, Enhanced: true}
	f.Setup.PeerToPeer, f.Setup.RTRWrite = true, true
	w.write(f.Append(nil))
	id := h.expect(eventConnectRequest, 0).ID
	e := h.queue()
	h.granted(h.s.Accept(l.now, &abi.CMConnReq{ID: id, Param: params(e.q.rsp.QPN, "")}))
	w.carry(nil, func(p *sock) { p.end(0) })
	if got := h.expect(eventConnectError, id); got.Status != -int32(syscall.ECONNRESET) {
		t.Errorf("status %d", got.Status)
	}
	h.silent(time.Minute)
}

// TestStreams_ResetWhileTheLastWordIsSaid_IsTheEnd: a stream that the shell has forgotten is not
// closed once more.
func TestStreams_ResetWhileTheLastWordIsSaid_IsTheEnd(t *testing.T) {
	l := newLAN(t)
	a, z, _ := l.pair()
	l.room = 30
	mine, addr, _ := a.region(100, everyRight)
	w := wr(rdma.WRWrite, 1)
	w.RemoteAddr, w.RKey = addr, 0x12345600
	a.q.send(w, abi.SGE{Addr: addr, Length: 100, LKey: mine.LKey})
	for range 1000 {
		if l.run(time.Microsecond); z.q.state() == sError {
			break
		}
	}
	s := z.socks[sorted(z.socks)[0].id]
	if z.q.state() != sError || s.isShut {
		t.Fatalf("state %v, the last word is out: %v", z.q.state(), s.isShut)
	}
	s.end(syscall.ECONNRESET)
	s.peer.end(syscall.ECONNRESET)
	l.clean()
}
