package conformance

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/softrnic/softrnic/verbs"
)

// runFlush fails a queue pair with work in both queues: each request completes exactly once, in
// order within its queue, and so does what is posted afterwards (cases E04, E05).
func runFlush(t *testing.T, f Fabric, service verbs.QPType) {
	a, _ := f.Connect(t, Link{Type: service})
	r := a.Region(t, RegionConfig{Size: 64, Access: verbs.AccessAll})
	receives := func(first uint64) {
		t.Helper()
		for id := first; id < first+5; id++ {
			if _, err := a.Recv(verbs.RecvWR{ID: id, SGE: []verbs.SGE{r.Piece(0, 64)}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	receives(100)
	a.Fail(t)
	for i := range uint64(5) {
		if wc := next(t, a); wc.Status != verbs.WCWRFlushErr || wc.ID != 100+i {
			t.Fatalf("E04, E05: receive %d: %+v", i, wc)
		}
	}
	// In ERR requests are taken and flushed.
	receives(105)
	for id := range uint64(5) {
		wr := verbs.SendWR{ID: 200 + id, Opcode: verbs.WRSend, Inline: []byte("x")}
		if service == verbs.QPTypeUD {
			a.Aim(&wr)
		}
		if _, err := a.Send(wr); err != nil {
			t.Fatal(err)
		}
	}
	recvID, sendID := uint64(105), uint64(200)
	for range 10 {
		wc := next(t, a)
		switch {
		case wc.Status != verbs.WCWRFlushErr:
			t.Fatalf("completion %+v", wc)
		case wc.ID == recvID:
			recvID++
		case wc.ID == sendID:
			sendID++
		default:
			t.Fatalf("completion of %d, expected %d or %d", wc.ID, recvID, sendID)
		}
	}
	quiet(t, a)
	if a.State() != verbs.QPStateError {
		t.Errorf("state %v", a.State())
	}
}

// runOrder sends many numbered messages both ways at once.
func runOrder(t *testing.T, f Fabric, service verbs.QPType) {
	const total, window = 2000, 32
	a, b := f.Connect(t, Link{Type: service})
	var flows [2]*flow
	for i, pair := range [2][2]End{{a, b}, {b, a}} {
		flows[i] = newFlow(t, pair[0], window, uint64(i)<<32)
	}
	for _, x := range flows {
		for range window {
			x.post(t)
		}
	}
	done := func() bool { return flows[0].received == total && flows[1].received == total }
	for !done() {
		for i, x := range flows {
			wc := next2(t, x, flows[1-i])
			if wc.Err() != nil {
				t.Fatal(wc.Err())
			}
		}
		for i, x := range flows {
			other := flows[1-i]
			for x.sent < total && x.sent-x.completed < window && x.sent-other.received < window {
				x.send(t)
			}
		}
	}
}

// flow is one direction's sender, and the other's receiver.
type flow struct {
	end       End
	region    Region // window slots to receive
	window    int
	tag       uint64
	posted    int
	sent      int
	completed int
	received  int
}

func newFlow(t *testing.T, e End, window int, tag uint64) *flow {
	r := e.Region(t, RegionConfig{Size: 8 * window, Access: verbs.AccessLocalWrite})
	return &flow{end: e, region: r, window: window, tag: tag}
}

func (x *flow) post(t *testing.T) {
	t.Helper()
	slot := x.posted % x.window
	wr := verbs.RecvWR{ID: 1 << 63, SGE: []verbs.SGE{x.region.Piece(8*slot, 8)}}
	if _, err := x.end.Recv(wr); err != nil {
		t.Fatal(err)
	}
	x.posted++
}

func (x *flow) send(t *testing.T) {
	t.Helper()
	b := binary.NativeEndian.AppendUint64(nil, x.tag|uint64(x.sent))
	wr := verbs.SendWR{
		ID: uint64(x.sent), Opcode: verbs.WRSend, Inline: b, Flags: verbs.SendSignaled,
	}
	if _, err := x.end.Send(wr); err != nil {
		t.Fatal(err)
	}
	x.sent++
}

// next2 takes what is there for x; an empty success if there is nothing.
func next2(t *testing.T, x, other *flow) verbs.WC {
	t.Helper()
	wc, ok := x.end.Poll(t)
	switch {
	case !ok || wc.Err() != nil:
	case wc.ID != 1<<63:
		if wc.ID != uint64(x.completed) {
			t.Fatalf("send %d completed, expected %d", wc.ID, x.completed)
		}
		x.completed++
	default:
		slot := x.received % x.window
		got := binary.NativeEndian.Uint64(x.region.Load()[8*slot:])
		if want := other.tag | uint64(x.received); got != want {
			t.Fatalf("message %#x arrived, expected %#x", got, want)
		}
		x.received++
		x.post(t)
	}
	return wc
}

// runWrap starts just below the end of the PSN space, so that messages cross it.
func runWrap(t *testing.T, f Fabric) {
	require(t, f, FeaturePSN)
	first := verbs.PSN(0xfffffe)
	end := EndConfig{PSN: &first}
	a, b := f.Connect(t, Link{Type: verbs.QPTypeRC, A: end, B: end})
	c := RegionConfig{Size: 17*f.MTU() + 13 + margin, Access: verbs.AccessAll}
	ra, rb := a.Region(t, c), b.Region(t, c)
	for i, op := range operations {
		m := mover{op: op, fabric: f, service: verbs.QPTypeRC, a: a, b: b, ra: ra, rb: rb}
		m.id = uint64(i)
		m.move(t, 3*f.MTU(), 1)
		m = mover{op: op, fabric: f, service: verbs.QPTypeRC, a: b, b: a, ra: rb, rb: ra}
		m.id = uint64(i)
		m.move(t, 3*f.MTU(), 1)
	}
}

// runFence reads, then writes back what was read: the fence makes the write wait.
func runFence(t *testing.T, f Fabric) {
	size := 4 * f.MTU()
	a, b := f.Connect(t, Link{Type: verbs.QPTypeRC})
	c := RegionConfig{Size: 2 * size, Access: verbs.AccessAll}
	ra, rb := a.Region(t, c), b.Region(t, c)
	for round := range byte(20) {
		data := pattern(2*size, round)
		rb.Store(data)
		ra.Store(make([]byte, 2*size))
		_, err := a.Send(
			verbs.SendWR{
				ID: 1, Opcode: verbs.WRRead, SGE: []verbs.SGE{ra.Piece(0, size)},
				RemoteAddr: rb.Addr(), RKey: rb.RKey(),
			},
			verbs.SendWR{
				ID: 2, Opcode: verbs.WRWrite, SGE: []verbs.SGE{ra.Piece(0, size)},
				RemoteAddr: rb.Addr() + uint64(size), RKey: rb.RKey(),
				Flags: verbs.SendFence | verbs.SendSignaled,
			})
		if err != nil {
			t.Fatal(err)
		}
		if wc := next(t, a); wc.Err() != nil || wc.ID != 2 {
			t.Fatalf("%+v: %v", wc, wc.Err())
		}
		landed(t, f, fmt.Sprintf("round %d: the write waits for the read", round), func() bool {
			return bytes.Equal(rb.Load()[size:], data[:size])
		})
	}
}

// runUnsignaled completes every fourth request visibly; the send queue goes round many times.
func runUnsignaled(t *testing.T, f Fabric) {
	a, b := f.Connect(t, Link{Type: verbs.QPTypeRC, A: EndConfig{MaxSendWR: 8}})
	rb := b.Region(t, RegionConfig{Size: 64, Access: verbs.AccessAll})
	for i := range uint64(200) {
		wr := verbs.SendWR{
			ID: i, Opcode: verbs.WRWrite, Inline: []byte{byte(i)}, RemoteAddr: rb.Addr() + i%64,
			RKey: rb.RKey(),
		}
		if i%4 == 3 {
			wr.Flags = verbs.SendSignaled
		}
		if _, err := a.Send(wr); err != nil {
			t.Fatal(err)
		}
		if i%4 != 3 {
			continue
		}
		if wc := next(t, a); wc.Err() != nil || wc.ID != i {
			t.Fatalf("%+v: %v, expected %d", wc, wc.Err(), i)
		}
	}
	all, peer := f.Connect(t, Link{Type: verbs.QPTypeRC, A: EndConfig{SignalAll: true}})
	r := peer.Region(t, RegionConfig{Size: 64, Access: verbs.AccessAll})
	wr := verbs.SendWR{
		ID: 9, Opcode: verbs.WRWrite, Inline: []byte{1}, RemoteAddr: r.Addr(), RKey: r.RKey(),
	}
	if _, err := all.Send(wr); err != nil {
		t.Fatal(err)
	}
	if wc := next(t, all); wc.Err() != nil || wc.ID != 9 {
		t.Fatalf("SignalAll: %+v", wc)
	}
}

// runSilentDrop breaks a UC request at the responder: nobody hears of it, and the next message
// arrives intact.
func runSilentDrop(t *testing.T, f Fabric) {
	a, b := f.Connect(t, Link{Type: verbs.QPTypeUC})
	rb := b.Region(t, RegionConfig{Size: 64, Access: verbs.AccessAll})
	rb.Store(make([]byte, 64))
	good := verbs.SendWR{
		ID: 2, Opcode: verbs.WRWrite, Inline: []byte{7}, RemoteAddr: rb.Addr(), RKey: rb.RKey(),
		Flags: verbs.SendSignaled,
	}
	bad := good
	bad.ID, bad.RKey = 1, good.RKey^0x00ff0000
	if _, err := a.Send(bad, good); err != nil {
		t.Fatal(err)
	}
	for id := uint64(1); id <= 2; id++ {
		if wc := next(t, a); wc.Err() != nil || wc.ID != id {
			t.Fatalf("%+v: %v", wc, wc.Err())
		}
	}
	eventually(t, "the good write arrives", func() bool { return rb.Load()[0] == 7 })
	quiet(t, b)
	if b.State() != verbs.QPStateRTS {
		t.Errorf("the responder is in %v", b.State())
	}
}

// runShared takes the receives of two queue pairs from one queue (case M05).
func runShared(t *testing.T, f Fabric) {
	require(t, f, FeatureSRQ)
	shared := EndConfig{UseSRQ: true}
	a0, b0 := f.Connect(t, Link{Type: verbs.QPTypeRC, B: shared})
	a1, b1 := f.Connect(t, Link{Type: verbs.QPTypeRC, B: shared})
	r := b0.Region(t, RegionConfig{Size: 64, Access: verbs.AccessLocalWrite})
	for id := range uint64(4) {
		wr := verbs.RecvWR{ID: id, SGE: []verbs.SGE{r.Piece(int(id), 1)}}
		if _, err := b0.Recv(wr); err != nil {
			t.Fatal(err)
		}
	}
	for id := range uint64(4) {
		from, to := a0, b0
		if id%2 == 1 {
			from, to = a1, b1
		}
		wr := verbs.SendWR{
			ID: id, Opcode: verbs.WRSend, Inline: []byte{byte(50 + id)}, Flags: verbs.SendSignaled,
		}
		if _, err := from.Send(wr); err != nil {
			t.Fatal(err)
		}
		if wc := next(t, from); wc.Err() != nil {
			t.Fatal(wc.Err())
		}
		if wc := next(t, to); wc.Err() != nil || wc.ID != id || wc.QPN != to.QPN() {
			t.Fatalf("M05: receive %d: %+v", id, wc)
		}
		if got := r.Load()[id]; got != byte(50+id) {
			t.Fatalf("message %d holds %d", id, got)
		}
	}
}
