package iwarp

import (
	"bytes"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

var waits = []ConnConfig{
	{Patience: time.Second},
	{Patience: time.Second, CRC: true},
	{Patience: time.Second, CRC: true, Markers: true},
	{Patience: time.Second, FPDU: FPDULarge},
}

// A message that finds no receive waits for one, and what comes behind it waits with it.
func TestWait_ReceiveComesLate_IsTaken(t *testing.T) {
	for _, conn := range waits {
		for _, shared := range []bool{false, true} {
			w := connected(t, worldConfig{
				a: nodeConfig{conn: conn}, b: nodeConfig{conn: conn, shared: shared},
				split: func(n int) int { return (n + 2) / 3 },
			})
			pattern(w.a.mem, 5)
			w.b.receive(1, w.b.at(0, 5000))
			for i := range uint64(3) {
				w.a.post(w.now, wqeOf(rdma.WRSend, i), w.a.at(int(5000*i), 5000))
			}
			w.a.post(w.now, remote(wqeOf(rdma.WRWrite, 9), w.b, 20_000), w.a.at(20_000, 5000))
			w.run(10 * time.Millisecond)
			if !w.b.c.IsWaiting() || w.b.mem[20_001] != 0 {
				t.Fatalf("%+v: waits %v, or did not", conn, w.b.c.IsWaiting())
			}
			wantStatus(t, w.b.recvs.take(), rdma.WCSuccess)
			w.b.receive(2, w.b.at(5000, 5000))
			if !shared {
				w.b.ring(w.now)
			}
			w.run(10 * time.Millisecond)
			wantStatus(t, w.b.recvs.take(), rdma.WCSuccess)
			w.b.receive(3, w.b.at(10_000, 5000))
			w.run(10 * time.Millisecond)
			wantStatus(t, w.b.recvs.take(), rdma.WCSuccess)
			if w.b.c.IsWaiting() || !bytes.Equal(w.a.mem[:15_000], w.b.mem[:15_000]) ||
				!bytes.Equal(w.a.mem[20_000:25_000], w.b.mem[20_000:25_000]) {
				t.Errorf("%+v: other bytes, or waits still: %v", conn, w.b.c.IsWaiting())
			}
		}
	}
}

func TestWait_NoReceiveComes_IsTerminated(t *testing.T) {
	for _, conn := range waits {
		w := connected(t, worldConfig{a: nodeConfig{conn: conn}, b: nodeConfig{conn: conn}})
		w.a.post(w.now, wqeOf(rdma.WRSend, 1), w.a.at(0, 100))
		w.run(990 * time.Millisecond)
		if !w.b.c.IsWaiting() {
			t.Fatalf("%+v: does not wait", conn)
		}
		w.run(time.Second)
		if e := w.b.end(); e.How != HowTerminateSent || e.Code != iwarp.CodeUntaggedNoBuffer {
			t.Errorf("%+v: ended %+v", conn, e)
		}
	}
}

func TestWait_PeerEnds_AfterWhatItHasSent(t *testing.T) {
	for _, conn := range waits {
		w := connected(t, worldConfig{a: nodeConfig{conn: conn}, b: nodeConfig{conn: conn}})
		w.a.post(w.now, wqeOf(rdma.WRSend, 1), w.a.at(0, 100))
		w.a.c.Disconnect(w.now)
		w.run(10 * time.Millisecond)
		if len(w.b.events) > 0 {
			t.Fatalf("%+v: events %v", conn, w.b.kinds())
		}
		w.b.receive(1, w.b.at(0, 100))
		w.run(10 * time.Millisecond)
		wantStatus(t, w.b.recvs.take(), rdma.WCSuccess)
		if e := w.b.end(); e.How != HowPeer {
			t.Errorf("%+v: ended %+v", conn, e)
		}
	}
}

// An owner that goes on reading all the same has no more of it than a bound.
func TestWait_OwnerReadsOn_IsBounded(t *testing.T) {
	r := responderNode(t, nodeConfig{conn: ConnConfig{Patience: time.Hour}})
	b := fpdu(sendHeader(nil), nil)
	for i := range uint32(2) {
		b = append(b, fpdu(sendHeader(func(h *iwarp.Header) { h.MSN = i + 2 }), nil)...)
	}
	r.say(b)
	for range 300 {
		r.say(make([]byte, 4096))
	}
	r.wantTerminate(iwarp.CodeUntaggedNoBuffer)
}
