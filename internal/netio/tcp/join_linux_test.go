package tcp

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/nic"
)

// joined is a connection of a host with itself, whose ends do without TCP.
func joined(t testing.TB, c Config) (h *host, client, server *stream) {
	t.Helper()
	h, client, server = selfConnected(t, c)
	client.out = append(client.out, "request"...)
	until(t, "joined", func() bool { return len(h.joined) == 1 && server.received == 7 }, h)
	server.in, server.received = nil, 0
	return h, client, server
}

// clientID names the end that has connected.
const clientID nic.StreamID = 7

func selfConnected(t testing.TB, c Config) (h *host, client, server *stream) {
	t.Helper()
	h = newHost(t, c)
	at := h.listen(lo4)
	client = h.connect(clientID, at)
	until(t, "connected", func() bool { return client.connected != nil && h.lastID != 1000 }, h)
	_, server = h.latest()
	return h, client, server
}

// callsOfTCP counts what a port has asked of the kernel to move bytes.
func callsOfTCP(h *host) uint64 {
	c := h.port.Counters()
	return c.Get(TxCalls) + c.Get(RxCalls)
}

func TestPort_Join_BytesPassWithoutTCP(t *testing.T) {
	h, client, server := joined(t, Config{})
	id, _ := h.latest()
	if h.joined[0] != [2]nic.StreamID{id, clientID} {
		t.Errorf("joined: %v", h.joined)
	}
	before := callsOfTCP(h)
	there, back := pattern(3_000_000, 1), pattern(2_000_000, 2)
	client.out, server.out = bytes.Clone(there), bytes.Clone(back)
	until(t, "received", func() bool {
		return server.received == len(there) && client.received == len(back)
	}, h)
	if !bytes.Equal(server.in, there) || !bytes.Equal(client.in, back) {
		t.Error("other bytes arrived")
	}
	c := h.port.Counters()
	if n := callsOfTCP(h) - before; n != 0 || c.Get(JoinedBytes) != 5_000_000 || c.Get(Joined) != 1 {
		t.Errorf("%d calls of TCP, %d bytes of %d connections without", n, c.Get(JoinedBytes),
			c.Get(Joined))
	}
}

func TestPort_Join_WaitsForBytesUnderWay(t *testing.T) {
	h, client, server := selfConnected(t, Config{})
	// The client's socket is full before the server reads a byte.
	server.unwilling = true
	there, back := pattern(20_000_000, 3), pattern(5_000_000, 4)
	client.out = bytes.Clone(there)
	until(t, "a full socket", func() bool { return client.full }, h)
	server.unwilling = false
	server.out = bytes.Clone(back)
	until(t, "received", func() bool {
		return server.received == len(there) && client.received == len(back)
	}, h)
	if !bytes.Equal(server.in, there) || !bytes.Equal(client.in, back) {
		t.Error("other bytes arrived, or in another order")
	}
}

func TestPort_Join_IsSwitchedOff(t *testing.T) {
	for _, how := range []string{"config", "environment"} {
		t.Run(how, func(t *testing.T) {
			if how == "environment" {
				t.Setenv("RNIC_DISABLE_JOIN", "1")
			}
			h, client, server := selfConnected(t, Config{DisableJoin: how == "config"})
			client.out = pattern(500_000, 1)
			until(t, "received", func() bool { return server.received == 500_000 }, h)
			c := h.port.Counters()
			if len(h.joined) > 0 || c.Get(JoinedBytes) > 0 || c.Get(RxBytes) != 500_000 {
				t.Errorf("joined %v; %d bytes without TCP", h.joined, c.Get(JoinedBytes))
			}
		})
	}
}

func TestPort_Join_OtherHost_IsNot(t *testing.T) {
	a, b := newHost(t, Config{}), newHost(t, Config{})
	at := b.listen(lo4)
	client := a.connect(clientID, at)
	client.out = pattern(100_000, 1)
	until(t, "received", func() bool {
		_, s := b.latest()
		return s != nil && s.received == 100_000
	}, a, b)
	if len(a.joined)+len(b.joined) > 0 {
		t.Error("two ports were joined")
	}
}

func TestPort_Join_UnwillingReceiver_HoldsItsSenderAlone(t *testing.T) {
	h, client, server := joined(t, Config{})
	server.unwilling = true
	client.out, server.out = pattern(300_000, 1), pattern(400_000, 2)
	until(t, "the other way", func() bool { return client.received == 400_000 }, h)
	if server.received > 0 || !client.full {
		t.Fatalf("%d bytes came to who wants none", server.received)
	}
	if at := h.port.Deadline(); at == clock.Never || at > h.now()+wantPause {
		t.Errorf("looks again at %v, it is %v", at, h.now())
	}
	server.unwilling = false
	h.port.Receive(h.now()) // at once, though the pause is not over
	if client.full {
		t.Error("the sender was not told")
	}
	until(t, "received", func() bool { return server.received == 300_000 }, h)
	if !bytes.Equal(server.in, pattern(300_000, 1)) {
		t.Error("other bytes arrived")
	}
}

// TestPort_Join_UnwillingAmidBytes stops and goes at pieces.
func TestPort_Join_UnwillingAmidBytes_LosesNone(t *testing.T) {
	h, client, server := joined(t, Config{})
	h.onStream = func(_ nic.StreamID, b []byte) {
		server.in = append(server.in, b...)
		server.received += len(b)
		server.unwilling = server.received/5000%3 == 2
	}
	client.out = pattern(200_000, 5)
	until(t, "received", func() bool {
		server.unwilling = false
		return server.received == 200_000
	}, h)
	if !bytes.Equal(server.in, pattern(200_000, 5)) {
		t.Error("other bytes arrived")
	}
}

func TestPort_Join_Ends_ComeBehindTheLastByte(t *testing.T) {
	for _, x := range []struct {
		how   string
		end   func(p *Port, id nic.StreamID)
		errno unix.Errno
	}{
		{"closed", (*Port).Close, 0},
		{"aborted", (*Port).Abort, unix.ECONNRESET},
	} {
		t.Run(x.how, func(t *testing.T) {
			h, client, server := joined(t, Config{})
			client.out = pattern(700_000, 1)
			until(t, "sent", func() bool { return len(client.out) == 0 }, h)
			x.end(h.port, clientID)
			until(t, "the end", func() bool { return server.ended }, h)
			if server.received != 700_000 || server.ends[0] != x.errno {
				t.Errorf("%d bytes, then %v", server.received, server.ends)
			}
		})
	}
}

func TestPort_Join_ClosedEnd_DropsWhatStillComes(t *testing.T) {
	h, client, server := joined(t, Config{Linger: 50 * time.Millisecond})
	h.port.Close(clientID)
	server.out = pattern(300_000, 1)
	until(t, "sent", func() bool { return len(server.out) == 0 && server.ended }, h)
	if client.received > 0 || server.ends[0] != 0 {
		t.Errorf("%d bytes came to a closed stream; ends %v", client.received, server.ends)
	}
	until(t, "the last is forgotten", func() bool { return h.port.Census().Lingering == 0 }, h)
	server.out = pattern(300_000, 1) // to a peer that is not there any more
	until(t, "reset", func() bool { return len(server.ends) == 2 }, h)
	if e := server.ends[1]; e != unix.ECONNRESET && e != unix.EPIPE {
		t.Errorf("ends %v", server.ends)
	}
}

// TestPort_Join_NICEndsAStreamAmidBytes ends either end from within the call that brings bytes.
func TestPort_Join_NICEndsAStreamAmidBytes_NothingMoreIsTold(t *testing.T) {
	for _, isSender := range []bool{false, true} {
		for _, abort := range []bool{false, true} {
			t.Run(fmt.Sprintf("sender %v, abort %v", isSender, abort), func(t *testing.T) {
				h, client, server := joined(t, Config{})
				id, _ := h.latest()
				ended, other := id, client
				if isSender {
					ended, other = clientID, server
				}
				calls := 0
				h.onStream = func(nic.StreamID, []byte) {
					if calls++; abort {
						h.port.Abort(ended)
					} else {
						h.port.Close(ended)
					}
				}
				client.out = pattern(600_000, 1)
				until(t, "the other end is told", func() bool { return other.ended }, h)
				want := unix.Errno(0)
				if abort {
					want = unix.ECONNRESET
				}
				if e := other.ends[0]; calls != 1 || e != want && e != unix.EPIPE {
					t.Errorf("%d calls, ends %v", calls, other.ends)
				}
				if h.streams[ended].ended {
					t.Error("an end was told that the NIC had made")
				}
			})
		}
	}
}

func TestPort_Join_FaultInMemory_EndsBoth(t *testing.T) {
	h, client, server := joined(t, Config{})
	h.onStream = func(nic.StreamID, []byte) { panic("fault") }
	client.out = pattern(100_000, 1)
	func() { // as a lane does
		defer func() { _ = recover() }()
		until(t, "the fault", func() bool { return false }, h)
	}()
	until(t, "both ends", func() bool { return server.ended && client.ended }, h)
	if server.ends[0] != unix.EFAULT || client.ends[0] != unix.ECONNRESET &&
		client.ends[0] != unix.EPIPE {
		t.Errorf("ends %v and %v", server.ends, client.ends)
	}
	if h.port.Census().Open != 0 || h.port.current != nil {
		t.Error("something is left")
	}
}

func TestPort_Join_Tap_IsShownBytesBeforeWhatComesOfThem(t *testing.T) {
	r := &recorder{on: true}
	h, client, server := joined(t, Config{Tap: r})
	id, _ := h.latest()
	r.lines, r.sent, r.got = nil, nil, nil
	h.onStream = func(nic.StreamID, []byte) {
		if server.received++; server.received == 2 { // of three pieces
			h.port.Abort(id)
		}
	}
	all := pattern(12_000, 1)
	client.out = bytes.Clone(all)
	until(t, "the end", func() bool { return client.ended }, h)
	want := []string{
		"7 sent at 7", fmt.Sprintf("%d received at 7", id), "7 sent at 5007",
		fmt.Sprintf("%d received at 5007", id), fmt.Sprintf("%d ended %d", id, ResetSent),
		fmt.Sprintf("7 ended %d", ResetReceived),
	}
	if !slices.Equal(r.lines, want) {
		t.Errorf("%q, want %q", r.lines, want)
	}
	if !bytes.Equal(r.sent, all[:10_000]) || !bytes.Equal(r.got, all[:10_000]) {
		t.Errorf("shown %d and %d bytes", len(r.sent), len(r.got))
	}
	first := append([]byte("request"), all...)[:FirstBytes]
	if f := r.flow; !bytes.Equal(f.FirstSent[:], first) || f.Sent != 10_007 || !f.Twin {
		t.Errorf("%+v", f)
	}
}

func TestPort_Join_TurnIsBounded(t *testing.T) {
	h, client, server := joined(t, Config{})
	server.drop = true
	client.out = make([]byte, 50_000_000)
	h.port.Transmit(h.now())
	if n := server.received; n == 0 || n > transmitBytesPerTurn+2*receiveBytes {
		t.Errorf("%d bytes in one turn", n)
	}
}

func TestPort_Join_LinkLocalOfOtherInterfaces_IsNot(t *testing.T) {
	h, client, server := selfConnected(t, Config{})
	h.port.byID[clientID].zone = 3 // as if it were another connection with the same addresses
	client.out = []byte("request")
	until(t, "received", func() bool { return server.received == 7 }, h)
	if len(h.joined) > 0 {
		t.Error("joined")
	}
}

func TestPort_Join_ManyConnections_EachWithItsOwn(t *testing.T) {
	h := newHost(t, Config{})
	at := h.listen(lo4)
	const count = 200
	for i := range nic.StreamID(count) {
		c := h.connect(10+i, at)
		until(t, "connected", func() bool { return c.connected != nil }, h)
		c.out = fmt.Appendf(nil, "I am %3d ", i)
	}
	until(t, "joined", func() bool { return len(h.joined) == count }, h)
	for i := range nic.StreamID(count) {
		h.streams[10+i].out = fmt.Appendf(nil, "still %3d", i)
	}
	until(t, "all is sent", func() bool {
		for i := range nic.StreamID(count) {
			if len(h.streams[10+i].out) > 0 {
				return false
			}
		}
		return true
	}, h)
	for _, x := range h.joined {
		want := fmt.Sprintf("I am %3d still %3d", x[1]-10, x[1]-10)
		if got := string(h.streams[x[0]].in); got != want {
			t.Fatalf("stream %d has %q, want %q", x[0], got, want)
		}
	}
}

func TestPort_Join_AllocatesNothing(t *testing.T) {
	h, client, server := joined(t, Config{})
	server.drop, client.drop = true, true
	payload, answer := make([]byte, 100_000), make([]byte, 64)
	exchange := func() {
		client.out = append(client.out, payload...)
		server.out = append(server.out, answer...)
		for len(client.out)+len(server.out) > 0 {
			h.port.Receive(h.now())
			h.port.Transmit(h.now())
		}
		h.log = h.log[:0]
	}
	for range 50 {
		exchange()
	}
	if n := testing.AllocsPerRun(200, exchange); n != 0 {
		t.Errorf("%v allocations an exchange", n)
	}
}

// BenchmarkJoin passes 64 KiB from end to end.
func BenchmarkJoin(b *testing.B) {
	for _, off := range []bool{false, true} {
		b.Run(fmt.Sprintf("off=%v", off), func(b *testing.B) {
			h, client, server := selfConnected(b, Config{DisableJoin: off})
			server.drop = true
			payload := make([]byte, 64<<10)
			b.SetBytes(int64(len(payload)))
			for b.Loop() {
				want := server.received + len(payload)
				client.out = append(client.out, payload...)
				for server.received < want {
					h.turn(0)
				}
				h.log = h.log[:0]
			}
		})
	}
}
