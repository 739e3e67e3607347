package tcp

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/nic"
)

// life is two hosts whose streams are made, used and ended at random.
type life struct {
	t              *testing.T
	random         *rand.Rand
	client, server *host
	at             netip.AddrPort
	next           nic.StreamID
	sent           map[*stream][]byte // all that was given to a stream
	closed         map[*stream]int    // ends that were told when the NIC closed it
	ids            map[*stream]nic.StreamID
}

// newLife makes two hosts, or one that is its own peer.
func newLife(t *testing.T, seed uint64, isAlone bool) *life {
	c := Config{Linger: 200 * time.Millisecond}
	l := &life{
		t: t, random: rand.New(rand.NewPCG(seed, 1)), client: newHost(t, c),
		sent: map[*stream][]byte{}, closed: map[*stream]int{}, ids: map[*stream]nic.StreamID{},
		next: 1, // the listener's
	}
	l.server = l.client
	if !isAlone {
		l.server = newHost(t, c)
	}
	l.at = l.server.listen(lo4)
	return l
}

// alive lists the streams of a host that the NIC has not ended, in a fixed order.
func (l *life) alive(h *host) []*stream {
	var out []*stream
	for _, id := range slices.Sorted(slices.Values(h.order)) {
		s := h.streams[id]
		_, isClosed := l.closed[s]
		isMade := s.accepted.Local.IsValid() || s.connected != nil && s.connected.Errno == 0
		isGone := len(s.ends) > 0 && s.ends[len(s.ends)-1] != 0
		if !isClosed && isMade && !isGone {
			l.ids[s] = id
			out = append(out, s)
		}
	}
	return out
}

func (l *life) step() {
	h := l.client
	if l.random.IntN(2) == 0 {
		h = l.server
	}
	list := l.alive(h)
	what := l.random.IntN(20)
	switch {
	case what < 3 || len(list) == 0:
		if len(l.alive(l.client)) < 20 {
			l.next++
			l.client.connect(l.next, l.at)
		}
		l.client.turn(0)
		l.server.turn(0)
	case what == 3:
		s := list[l.random.IntN(len(list))]
		l.closed[s] = len(s.ends)
		if l.random.IntN(2) == 0 {
			h.port.Abort(l.ids[s])
		} else {
			h.port.Close(l.ids[s])
		}
		s.out, s.sent = nil, 0
	case what < 8:
		s := list[l.random.IntN(len(list))]
		b := pattern(l.random.IntN(200_000), l.random.IntN(256))
		s.out = append(s.out, b...)
		l.sent[s] = append(l.sent[s], b...)
	case what == 8:
		s := list[l.random.IntN(len(list))]
		s.unwilling = !s.unwilling
	case what < 11:
		s := list[l.random.IntN(len(list))]
		s.space, s.inOrder = make([]byte, l.random.IntN(50_000)), true
	default:
		l.client.turn(0)
		l.server.turn(0)
	}
}

// check compares what arrived with what was sent: nothing else, and in order. The kernel gives a
// port again that an aborted connection had, so more than one stream may have been another's peer.
func (l *life) check() {
	l.t.Helper()
	clients, servers := map[string][]*stream{}, map[string][]*stream{}
	for _, s := range l.client.streams {
		if s.connected != nil {
			name := fmt.Sprint(s.connected.Local)
			clients[name] = append(clients[name], s)
		}
	}
	for _, s := range l.server.streams {
		name := fmt.Sprint(s.accepted.Remote)
		servers[name] = append(servers[name], s)
	}
	for name, list := range clients {
		l.compare(servers[name], list)
		l.compare(list, servers[name])
	}
	for s, told := range l.closed {
		if len(s.ends) != told {
			l.t.Fatal("the NIC was told of a stream that it had ended")
		}
	}
}

// compare looks for what each receiver has among what the senders with its port have sent.
func (l *life) compare(senders, receivers []*stream) {
	l.t.Helper()
	for _, r := range receivers {
		isSent := func(s *stream) bool { return bytes.HasPrefix(l.sent[s], r.in) }
		if len(senders) > 0 && !slices.ContainsFunc(senders, isSent) {
			l.t.Fatalf("%d bytes that arrived are not those that were sent", len(r.in))
		}
	}
}

// finish ends everything and looks at what is left.
func (l *life) finish(what string) {
	t := l.t
	t.Helper()
	l.check()
	for _, h := range []*host{l.client, l.server} {
		for _, s := range l.alive(h) {
			l.closed[s] = len(s.ends)
			h.port.Close(l.ids[s])
			s.out, s.sent = nil, 0
		}
		h.refuse = true
	}
	until(t, what+": all is quiet", func() bool {
		c, s := l.client.port.Census(), l.server.port.Census()
		return s == Census{Listeners: 1} && (c == Census{} || l.client == l.server)
	}, l.client, l.server)
	l.check()
	n := l.server.port.Counters().Get(RxBytes)
	if l.client == l.server {
		n = l.server.port.Counters().Get(JoinedBytes)
	}
	if n < 1<<20 {
		t.Errorf("%s: only %d bytes: the test shows little", what, n)
	}
	l.server.port.Close(1)
	for _, h := range []*host{l.client, l.server} {
		if h.turn(0); h.port.HasWork() || !h.port.IsIdle() || h.port.Deadline() != clock.Never ||
			len(h.port.ends) != 0 {
			t.Fatalf("%s: a port has work and no sockets", what)
		}
	}
	for _, h := range []*host{l.client, l.server} {
		_ = unix.Close(h.epoll)
		h.epoll = -1
	}
}

// TestPort_RandomLives_BytesInOrderAndNothingLeft makes, uses and ends streams at random, between
// two hosts and within one.
func TestPort_RandomLives_BytesInOrderAndNothingLeft(t *testing.T) {
	for seed := range uint64(8) {
		before := countFDs(t)
		l := newLife(t, seed, seed%2 == 1)
		for range 3000 {
			l.step()
		}
		l.finish(fmt.Sprintf("seed %d", seed))
		if after := countFDs(t); after != before {
			t.Fatalf("seed %d: %d descriptors, %d before", seed, after, before)
		}
	}
}
