package nic

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/rdma"
)

// lan is NICs whose TCP is joined in memory, in virtual time. Bytes travel in pieces of any size.
type lan struct {
	t     testing.TB
	now   clock.Time
	nodes []*node
	r     *rand.Rand
	delay clock.Time
	acts  []act
	// room is how many bytes a direction of a connection holds.
	room int
	// isDead says whether a host does not answer SYN.
	isDead func(netip.Addr) bool
}

// act is something that happens later.
type act struct {
	at clock.Time
	do func()
}

// node is a NIC with one program.
type node struct {
	*party
	lan       *lan
	addr      netip.Addr
	listeners map[StreamID]StreamListener
	taken     map[netip.AddrPort]bool // by other programs
	socks     map[StreamID]*sock
	refuses   error // what Connect returns at once
}

// sock is one end of a TCP connection. A wild one is a peer that is no NIC.
type sock struct {
	node     *node // nil: wild
	id       StreamID
	peer     *sock
	got      []byte // of a wild one
	hasEnded bool   // of a wild one: FIN or reset came
	errno    syscall.Errno
	flying   int  // bytes to the peer
	wasFull  bool // told the NIC so
	isShut   bool // FIN sent
	isGone   bool
	isJoined bool       // its bytes are handed to the peer at once
	lastAt   clock.Time // when the last piece arrives: order is kept
}

const lanPort = 7000

func newLAN(t testing.TB, devices ...DeviceConfig) *lan {
	l := &lan{
		t: t, r: rand.New(rand.NewPCG(1, 2)), delay: clock.Time(10 * time.Microsecond),
		room: 1 << 20,
	}
	if devices == nil {
		devices = []DeviceConfig{{Name: "iwarp0", Transport: TransportIWARP}}
	}
	for i := range 2 {
		l.nodes = append(l.nodes, l.newNode(byte(i+1), devices))
	}
	return l
}

func (l *lan) newNode(number byte, devices []DeviceConfig) *node {
	l.t.Helper()
	h := &node{
		lan: l, addr: netip.AddrFrom4([4]byte{10, 0, 0, number}),
		listeners: map[StreamID]StreamListener{}, taken: map[netip.AddrPort]bool{},
		socks: map[StreamID]*sock{},
	}
	h.party = &party{
		bench: &bench{t: l.t, heap: new(arena), now: l.now}, around: l, name: h.addr.String(),
	}
	h.n = New(Config{
		Devices: devices, NodeGUID: rdma.GUID(0x1000 + uint64(number)), Version: "test",
		Secret: uint64(number) * 0x9e3779b97f4a7c15, Memory: h.heap, Streams: h,
	})
	for i := range devices {
		h.n.SetPort(l.now, i, h.portOf(devices[i].Transport, number))
	}
	h.bells = bytesOf(make([]uint64, abi.DoorbellPageBytes/8))
	c, r := h.n.OpenContext(h.now, ContextConfig{
		Name: "test", PID: 7, Doorbells: h.bells, Device: len(devices) - 1,
	})
	h.granted(r)
	h.c = c
	pd, r := h.c.AllocPD()
	h.granted(r)
	h.pd = pd
	h.s, h.channel = h.join("test")
	return h
}

func (h *node) portOf(t Transport, number byte) Port {
	p := Port{MTU: rdma.MTU1024, Active: true}
	v6 := netip.AddrFrom16([16]byte{0: 0xfd, 15: number})
	if t == TransportIWARP {
		p.GIDs = []abi.GIDEntry{{GID: [16]byte{2, 0, 0, 0, 0, number}, Port: 1, IfIndex: 3}}
		p.Addresses = []PortAddress{{Addr: h.addr, Interface: 3}, {Addr: v6, Interface: 3}}
		return p
	}
	for i, a := range []netip.Addr{h.addr, v6} {
		p.GIDs = append(p.GIDs, abi.GIDEntry{
			GID: rdma.GIDFromAddr(a), Index: uint32(i), Port: 1, Type: 2, IfIndex: 3,
		})
	}
	return p
}

// Listen implements StreamPort.
func (h *node) Listen(id StreamID, l *StreamListener) error {
	if h.taken[l.At] {
		return fmt.Errorf("bind: %w", syscall.EADDRINUSE)
	}
	for _, o := range h.listeners {
		if o.At == l.At {
			return fmt.Errorf("bind: %w", syscall.EADDRINUSE)
		}
	}
	h.listeners[id] = *l
	return nil
}

// Connect implements StreamPort.
func (h *node) Connect(id StreamID, r *StreamRoute) error {
	if h.refuses != nil {
		return h.refuses
	}
	if h.taken[r.Local] {
		return fmt.Errorf("bind: %w", syscall.EADDRINUSE)
	}
	s := &sock{node: h, id: id}
	h.socks[id] = s
	local := r.Local
	if local.Port() == 0 {
		local = netip.AddrPortFrom(local.Addr(), 50000+uint16(id))
	}
	remote := r.Remote
	if h.lan.isDead != nil && h.lan.isDead(remote.Addr()) {
		h.lan.after(time.Minute, func() { s.fail(syscall.ETIMEDOUT) })
		return nil
	}
	h.lan.after(time.Duration(2*h.lan.delay), func() { h.lan.shake(s, local, remote) })
	return nil
}

// fail ends an attempt to connect.
func (s *sock) fail(errno syscall.Errno) {
	if s.isGone {
		return
	}
	s.isGone = true
	delete(s.node.socks, s.id)
	s.node.n.HandleConnected(s.node.lan.now, s.id, &StreamConnected{Errno: errno})
}

// shake ends the handshake of TCP.
func (l *lan) shake(s *sock, local, remote netip.AddrPort) {
	if s.isGone {
		return
	}
	peer := l.answer(local, remote)
	if peer == nil {
		s.fail(syscall.ECONNREFUSED)
		return
	}
	s.peer, peer.peer = peer, s
	s.node.n.HandleConnected(l.now, s.id, &StreamConnected{Local: local, MSS: 1448})
}

// answer finds who listens, and hands the connection over.
func (l *lan) answer(from, to netip.AddrPort) *sock {
	for _, h := range l.nodes {
		for id, o := range h.listeners {
			at := o.At.Addr()
			if o.At.Port() != to.Port() || h.addr != to.Addr() || at != to.Addr() && !at.IsUnspecified() {
				continue
			}
			s := &sock{node: h}
			sid, ok := h.n.HandleAccepted(l.now, id, &StreamAccepted{Local: to, Remote: from, MSS: 1448})
			if !ok {
				return nil
			}
			s.id = sid
			h.socks[sid] = s
			return s
		}
	}
	return nil
}

// Close implements StreamPort.
func (h *node) Close(id StreamID) {
	if _, ok := h.listeners[id]; ok {
		delete(h.listeners, id)
		return
	}
	s := h.socks[id]
	if s == nil {
		h.t.Errorf("%v: Close of stream %d, which the shell does not have", h.addr, id)
		return
	}
	s.isGone, s.isShut = true, true
	delete(h.socks, id)
	s.carry(nil, func(p *sock) { p.end(0) })
}

// Abort implements StreamPort.
func (h *node) Abort(id StreamID) {
	s := h.socks[id]
	if s == nil {
		h.t.Errorf("%v: Abort of stream %d, which the shell does not have", h.addr, id)
		return
	}
	s.isGone = true
	delete(h.socks, id)
	s.carry(nil, func(p *sock) { p.end(syscall.ECONNRESET) })
}

// end tells an end that its peer has ended.
func (s *sock) end(errno syscall.Errno) {
	if s.isGone {
		return
	}
	s.hasEnded, s.errno = true, errno
	if errno != 0 {
		s.isGone = true
	}
	if s.node == nil {
		return
	}
	if errno != 0 {
		delete(s.node.socks, s.id)
	}
	s.node.n.HandleStreamEnd(s.node.lan.now, s.id, errno)
}

// carry takes bytes to the peer, in order, or does something there behind them.
func (s *sock) carry(b []byte, then func(peer *sock)) {
	if s.peer == nil {
		return
	}
	l := s.lan()
	at := max(l.now+l.delay, s.lastAt) + 1
	s.lastAt = at
	b = slices.Clone(b)
	s.flying += len(b)
	l.acts = append(l.acts, act{at, func() {
		s.flying -= len(b)
		if len(b) > 0 {
			s.peer.take(b)
		}
		if then != nil {
			then(s.peer)
		}
		if s.wasFull && !s.isGone && s.flying < l.room/2 {
			s.wasFull = false
			s.node.n.HandleWritable(l.now, s.id)
		}
	}})
}

func (s *sock) lan() *lan {
	if s.node != nil {
		return s.node.lan
	}
	return s.peer.node.lan
}

// take receives, as often as not in place.
func (s *sock) take(b []byte) {
	if s.isGone {
		return
	}
	if s.node == nil {
		s.got = append(s.got, b...)
		return
	}
	n, l := s.node.n, s.node.lan
	if l.r.IntN(2) == 0 {
		space := n.ReceiveSpace(s.id)
		count := 0
		for _, p := range space {
			c := copy(p, b)
			b, count = b[c:], count+c
		}
		if count > 0 {
			n.HandleReceived(l.now, s.id, count)
		}
	}
	for len(b) > 0 && !s.isGone {
		c := 1 + l.r.IntN(len(b))
		n.HandleStream(l.now, s.id, b[:c])
		b = b[c:]
	}
}

// dial connects a peer that is no NIC to a port of a node.
func (l *lan) dial(h *node, port uint16) *sock {
	l.t.Helper()
	w := &sock{}
	from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 99}), 1234)
	p := l.answer(from, netip.AddrPortFrom(h.addr, port))
	if p == nil {
		l.t.Fatal("nobody takes the connection")
	}
	w.peer, p.peer = p, w
	return w
}

// write sends bytes of a peer that is no NIC.
func (s *sock) write(b []byte) { s.carry(b, nil) }

// after does something later.
func (l *lan) after(d time.Duration, f func()) {
	l.acts = append(l.acts, act{l.now.Add(d), f})
}

// run moves everything until nothing is left to do, or d has passed.
func (l *lan) run(d time.Duration) {
	l.t.Helper()
	end := l.now.Add(d)
	for {
		for busy := true; busy; {
			busy = false
			for _, h := range l.nodes {
				h.now = l.now
				busy = h.turn() || busy
			}
		}
		next := l.next()
		if next > end {
			l.now = end
			return
		}
		l.now = max(l.now, next)
		for _, h := range l.nodes {
			h.now = l.now
			h.n.HandleTimeout(l.now)
		}
		l.perform()
	}
}

func (l *lan) time() clock.Time { return l.now }

// next is when something happens by itself.
func (l *lan) next() clock.Time {
	at := clock.Never
	for _, h := range l.nodes {
		at = min(at, h.n.PollTimeout())
	}
	for i := range l.acts {
		at = min(at, l.acts[i].at)
	}
	return at
}

// perform does what is due, in order.
func (l *lan) perform() {
	for {
		at := -1
		for i := range l.acts {
			if l.acts[i].at <= l.now && (at < 0 || l.acts[i].at < l.acts[at].at) {
				at = i
			}
		}
		if at < 0 {
			return
		}
		do := l.acts[at].do
		l.acts = slices.Delete(l.acts, at, at+1)
		do()
	}
}

// turn is what a shell does.
func (h *node) turn() bool {
	busy := h.n.HandleDoorbells(h.now)
	busy = h.transmit() || busy
	var p ibt.Packet
	for h.n.PollTransmit(h.now, &p) {
		busy = true
	}
	busy = h.collect(func(l *Lookup) Route {
		return Route{ID: l.ID, Source: h.addr, MTU: rdma.MTU1024}
	}) || busy
	return busy || h.n.HasWork()
}

func (h *node) transmit() bool {
	var id StreamID
	var v work.Vector
	busy := false
	for turns := 0; h.n.PollStream(h.now, &id); turns++ {
		if turns == 10000 {
			h.t.Fatalf("%v: stream %d has work that it does not do", h.addr, id)
		}
		busy = true
		if s := h.socks[id]; s != nil && s.isJoined {
			s.move()
			continue
		}
		v.Reset()
		if !h.n.FillStream(h.now, id, &v) {
			continue
		}
		h.socks[id].send(&v)
	}
	return busy
}

// send takes some of what the NIC has.
func (s *sock) send(v *work.Vector) {
	l, b := s.node.lan, []byte(nil)
	for _, p := range v.Pieces {
		b = append(b, p...)
	}
	if v.Bytes != len(b) {
		l.t.Errorf("vector of %d bytes says %d", len(b), v.Bytes)
	}
	free := max(l.room-s.flying, 0)
	n := min(len(b), free)
	if n > 1 && l.r.IntN(4) == 0 {
		n = 1 + l.r.IntN(n)
	}
	s.wasFull = n < len(b)
	if s.wasFull && s.flying == 0 && n == 0 {
		l.t.Fatal("a socket without room")
	}
	for rest := b[:n]; len(rest) > 0; {
		c := min(1+l.r.IntN(3000), len(rest))
		s.carry(rest[:c], nil)
		rest = rest[c:]
	}
	s.node.n.HandleSent(l.now, s.id, n, s.wasFull)
}

func (h *node) listen(at string, port uint16, backlog uint32) (uint32, *rdma.Refusal) {
	h.t.Helper()
	id := h.tcp()
	_, r := h.s.BindAddr(&abi.CMAddrReq{ID: id, Src: cmAddr(at, port)})
	h.granted(r)
	_, r = h.s.Listen(&abi.CMListenReq{ID: id, Backlog: backlog})
	return id, r
}

// server listens on the port of the tests.
func (h *node) server() uint32 {
	h.t.Helper()
	id, r := h.listen("0.0.0.0", lanPort, 8)
	h.granted(r)
	return id
}

// caller takes an identifier to where it may connect to a node.
func (h *node) caller(to *node) uint32 {
	h.t.Helper()
	id := h.tcp()
	h.resolve(id, to.addr.String(), lanPort)
	return id
}

// end is one end of a connection.
type end struct {
	*node
	id uint32
	q  *appQP
	cq *appCQ

	vector work.Vector
}

// queue makes a queue pair in INIT.
func (h *node) queue() *end {
	h.t.Helper()
	e := &end{node: h, cq: h.cq(64, 0)}
	e.q = h.rc(e.cq)
	h.granted(e.q.modify(abi.QPAttr{State: uint32(sInit), AccessFlags: uint32(accessStreamed)},
		rdma.QPAttrState|rdma.QPAttrAccessFlags))
	return e
}

// pair connects the two nodes; the second listens.
func (l *lan) pair() (a, z *end, listener uint32) {
	l.t.Helper()
	x, y := l.nodes[0], l.nodes[1]
	listener = y.server()
	a, z = l.join(x.queue(), y.queue())
	return a, z, listener
}

// join connects two queue pairs; there is a listener.
func (l *lan) join(a, z *end) (*end, *end) {
	l.t.Helper()
	a.id = a.caller(z.node)
	a.granted(a.s.Connect(l.now, &abi.CMConnReq{ID: a.id, Param: params(a.q.rsp.QPN, "hello")}))
	z.id = z.expect(eventConnectRequest, 0).ID
	z.granted(z.s.Accept(l.now, &abi.CMConnReq{ID: z.id, Param: params(z.q.rsp.QPN, "welcome")}))
	a.expect(eventEstablished, a.id)
	z.expect(eventEstablished, z.id)
	return a, z
}

// polled runs until count completions have come, and wants them to have a status.
func (e *end) polled(count int, want rdma.WCStatus) []abi.CQE {
	e.t.Helper()
	var out []abi.CQE
	for range 1000 {
		out = append(out, e.cq.poll()...)
		if len(out) >= count {
			break
		}
		e.lan.run(100 * time.Microsecond)
	}
	if len(out) != count {
		e.t.Fatalf("%v: %d completions, want %d: %+v", e.addr, len(out), count, out)
	}
	for i := range out {
		if rdma.WCStatus(out[i].Status) != want {
			e.t.Fatalf("%v: completion %+v, want %v", e.addr, out[i], want)
		}
	}
	return out
}

// clean wants nothing left of connections that nobody owns, neither here nor with the shell.
func (l *lan) clean() {
	l.t.Helper()
	l.run(5 * time.Minute)
	for _, h := range l.nodes {
		n := h.n
		owned := 0
		for _, i := range n.cm.ids {
			if i.stream != nil {
				owned++
			}
		}
		if len(n.streams.byID) != owned || len(n.streams.unasked) != 0 {
			l.t.Errorf("%v: %d streams, %d owned, %d have not asked", h.addr, len(n.streams.byID),
				owned, len(n.streams.unasked))
		}
		if len(h.socks)+len(h.listeners) != len(n.streams.byID) {
			l.t.Errorf("%v: %d sockets, %d listeners, %d streams", h.addr, len(h.socks),
				len(h.listeners), len(n.streams.byID))
		}
		if n.streams.run.head != nil || len(n.streams.flushing) != 0 {
			l.t.Errorf("%v: work is left", h.addr)
		}
		for _, q := range n.qps {
			if q.stream != nil && n.streams.byID[q.stream.id] != q.stream {
				l.t.Errorf("%v: QP %v has a stream that is gone", h.addr, q.qpn)
			}
		}
	}
}

// empty destroys all that programs have, and wants nothing left.
func (l *lan) empty() {
	l.t.Helper()
	for _, h := range l.nodes {
		h.n.CloseCM(l.now, h.s)
		h.n.CloseContext(l.now, h.c)
	}
	l.clean()
	for _, h := range l.nodes {
		if h.heap.live != 0 || len(h.n.streams.byID) != 0 || len(h.n.qps) != 0 {
			l.t.Errorf("%v: %d pieces of memory, %d streams, %d queue pairs are left", h.addr,
				h.heap.live, len(h.n.streams.byID), len(h.n.qps))
		}
	}
}

// crc is a device that asks for CRCs.
func crcDevice() DeviceConfig {
	return DeviceConfig{
		Name: "iwarp0", Transport: TransportIWARP, Stream: StreamOptions{Markers: true},
	}
}
