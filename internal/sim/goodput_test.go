package sim

import (
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/netio/faulty"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/test/racetest"
)

// stream is one connection that writes messages of a size, depth of them at a time, over a link of
// 10 Gbit/s and 5 µs.
type stream struct {
	*World
	end  *endpoint
	done uint64 // bytes
}

const (
	streamBytes = 65536
	streamDepth = 8
)

func newStream(loss float64, mtu rdma.MTU) *stream {
	w := newEmptyWorld(Config{Seed: 9})
	w.plan = plan{
		hosts: 2, apps: 2, duration: time.Hour, mtu: mtu, burst: 16,
		packetCost: 200 * time.Nanosecond, lag: time.Microsecond, pause: 10 * time.Microsecond,
		posts: 1, maxMessage: streamBytes, areaBytes: 640 << 10, windowsRoom: 640 << 10,
		profile: faulty.Profile{Delay: 5 * time.Microsecond, Rate: 10e9, Loss: loss},
	}
	w.populate()
	p := &pair{world: w, kind: rdma.QPTypeRC, maxMessage: streamBytes}
	w.pairs = append(w.pairs, p)
	s := &stream{World: w}
	// What an endpoint draws at random decides how deep its queue is: draw until it is deep enough.
	for s.end == nil || s.end.maxSend < streamDepth {
		s.end = w.apps[0].newEndpoint(p.kind, streamBytes)
	}
	p.ends = [2]*endpoint{s.end, w.apps[1].newEndpoint(p.kind, streamBytes)}
	p.wire()
	for s.end.far.n < streamBytes {
		s.end.far.close()
		s.end.far = s.end.peer.app.newWindow("stream", streamBytes)
	}
	p.raise()
	p.timeout, p.retryCnt, p.rnrRetry = 14, 7, 7
	return s
}

// pump keeps the queue full.
func (s *stream) pump() {
	e := s.end
	e.drainCQs()
	for e.isOpen && e.ledger.Open() < streamDepth {
		r := request{}
		if !e.load(&r, streamBytes, 1, 0) {
			break
		}
		r.wqe.Opcode = uint8(rdma.WRWrite)
		r.wqe.RemoteAddr, r.wqe.RKey = e.far.area.address(e.far.area.off), e.far.area.key
		r.entry.Opcode, r.entry.Bytes = rdma.WCOpWrite, -1
		r.entry.Done = func(status rdma.WCStatus) {
			if status == rdma.WCSuccess {
				s.done += streamBytes
			}
		}
		e.submit(&r)
		e.app.ringBell(e.slot)
	}
	s.turnAll()
	s.at(s.now.Add(10*time.Microsecond), s.pump)
}

// TestGoodput_Loss_LowersThroughputOnly_T03 keeps the shape of performance, in virtual time: what a
// loss costs is a retransmission, not a timeout. The numbers are about two thirds of what was
// measured; the line carries 1250 MB/s.
func TestGoodput_Loss_LowersThroughputOnly_T03(t *testing.T) {
	rows := []struct {
		loss float64
		mtu  rdma.MTU
		min  float64 // MB/s
	}{
		{0, rdma.MTU1024, 1100},
		{0, rdma.MTU4096, 1150},
		{0.001, rdma.MTU1024, 800},
		{0.001, rdma.MTU4096, 900},
		{0.01, rdma.MTU1024, 400},
		{0.01, rdma.MTU4096, 600},
		{0.05, rdma.MTU1024, 50},
		{0.05, rdma.MTU4096, 200},
	}
	duration := 100 * time.Millisecond
	if racetest.Enabled {
		duration = 20 * time.Millisecond
	}
	for _, r := range rows {
		s := newStream(r.loss, r.mtu)
		begin := s.now
		s.pump()
		s.advance(begin.Add(duration))
		if s.court.HasFailed() {
			t.Fatalf("loss %v, MTU %v: %v", r.loss, r.mtu, s.court.Failures())
		}
		got := float64(s.done) / duration.Seconds() / 1e6
		t.Logf("loss %5.3f MTU %4v: %5.0f MB/s", r.loss, r.mtu, got)
		if got < r.min {
			t.Errorf("loss %v, MTU %v: %.0f MB/s, want %.0f", r.loss, r.mtu, got, r.min)
		}
	}
}
