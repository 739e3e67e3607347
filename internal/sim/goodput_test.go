package sim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/netio/faulty"
	"github.com/softrnic/softrnic/internal/rdma"
)

// goodput measures, in virtual time, how many bytes per second one connection moves in messages of
// size bytes, depth of them at a time, over a link of 10 Gbit/s.
func goodput(t *testing.T, op rdma.WROpcode, loss float64, mtu rdma.MTU) float64 {
	const (
		size, depth = 65536, 8
		duration    = 400 * time.Millisecond
	)
	w := newEmptyWorld(Config{Seed: 9})
	w.plan = plan{
		hosts: 2, apps: 2, duration: duration, mtu: mtu, burst: 16,
		packetCost: 200 * time.Nanosecond, lag: time.Microsecond, pause: 10 * time.Microsecond,
		posts: 1, maxMessage: size,
		profile: faulty.Profile{Delay: 5 * time.Microsecond, Rate: 10e9, Loss: loss},
	}
	w.populate()
	p := &pair{world: w, kind: rdma.QPTypeRC}
	w.pairs = append(w.pairs, p)
	p.maxMessage = size
	for i := range p.ends {
		p.ends[i] = w.apps[i].newEndpoint(p.kind, size)
	}
	p.wire()
	p.timeout, p.retryCnt, p.rnrRetry = 14, 7, 7
	p.raise()
	e := p.ends[0]
	done := uint64(0)
	var next func()
	next = func() {
		e.drainCQs()
		for e.isOpen && e.ledger.Open() < min(depth, e.maxSend) {
			r := request{}
			if !e.load(&r, size, 1, 0) {
				break
			}
			_ = op
			r.wqe.Opcode = uint8(rdma.WRWrite)
			r.wqe.RemoteAddr, r.wqe.RKey = e.far.area.address(e.far.area.off), e.far.area.key
			r.entry.Opcode, r.entry.Bytes = rdma.WCOpWrite, -1
			r.entry.Done = func(s rdma.WCStatus) {
				if s == rdma.WCSuccess {
					done += size
				}
			}
			e.submit(&r)
			e.app.ringBell(e.slot)
		}
		w.turnAll()
		w.at(w.now.Add(10*time.Microsecond), next)
	}
	begin := w.now
	w.at(w.now.Add(2*time.Millisecond), next)
	w.advance(begin.Add(duration))
	if w.court.HasFailed() {
		t.Fatal(w.court.Failures())
	}
	return float64(done) / duration.Seconds()
}

func TestGoodput(t *testing.T) {
	var b strings.Builder
	for _, loss := range []float64{0, 0.0001, 0.001, 0.01, 0.05} {
		for _, mtu := range []rdma.MTU{rdma.MTU1024, rdma.MTU4096} {
			g := goodput(t, rdma.WRWrite, loss, mtu)
			fmt.Fprintf(&b, "loss %.4f mtu %v: %.0f MB/s\n", loss, mtu, g/1e6)
		}
	}
	t.Log("\n" + b.String())
}
