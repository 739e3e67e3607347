package ibt

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "run this seed of the fault tests only")
	seedCount = flag.Uint64("seeds", 150, "number of seeds of the fault tests")
)

// faults are the chances of each kind, in percent.
type faults struct{ lose, double, delay int }

func (f faults) judge(r *rand.Rand) func(*node, *Packet) fate {
	return func(*node, *Packet) fate {
		switch x := r.IntN(100); {
		case x < f.lose:
			return lose
		case x < f.lose+f.double:
			return double
		case x < f.lose+f.double+f.delay:
			return delay
		}
		return deliver
	}
}

const (
	slotBytes = 16 << 10
	slotCount = 32 // in each direction
	slotsEnd  = 2 * slotCount * slotBytes
	faultyMem = slotsEnd + 64
)

// job is one work request of a plan.
type job struct {
	op   rdma.WROpcode
	size int
	add  uint64
	flag uint8
}

// plan is one direction of traffic. Each job has a slot of memory of its own, at the same place on
// both sides, so that the outcome does not depend on the order that the standard leaves open.
type plan struct {
	from, to *node
	base     int // of the slots
	counter  int // where the atomic operand lies
	jobs     []job
}

func (p *plan) at(i int) int { return p.base + i*slotBytes }

func makePlan(r *rand.Rand, from, to *node, half int) *plan {
	p := &plan{from: from, to: to, base: half * slotCount * slotBytes, counter: slotsEnd + 8*half}
	ops := []rdma.WROpcode{
		rdma.WRWrite, rdma.WRWriteWithImm, rdma.WRSend, rdma.WRSendWithImm, rdma.WRRead,
		rdma.WRFetchAdd, rdma.WRAtomicWrite, rdma.WRFlush,
	}
	switch from.q.Type() {
	case rdma.QPTypeUC:
		ops = ops[:4]
	case rdma.QPTypeXRCSend:
		ops = ops[:6]
	default:
	}
	for range slotCount {
		j := job{op: ops[r.IntN(len(ops))], size: r.IntN(200), flag: signaled}
		switch r.IntN(3) {
		case 0:
			j.size = r.IntN(slotBytes)
		case 1:
			j.size = max(0, min(slotBytes-1, int(from.q.mtu)*r.IntN(6)+r.IntN(3)-1))
		}
		if r.IntN(4) == 0 {
			j.flag |= uint8(rdma.SendFence)
		}
		if r.IntN(3) == 0 {
			j.flag &^= signaled
		}
		switch j.op {
		case rdma.WRFetchAdd:
			j.size, j.add = 8, uint64(r.IntN(1000))
		case rdma.WRAtomicWrite:
			j.size = 8
		case rdma.WRFlush:
			j.size, j.add = 0, uint64(ib.FlushGlobal)
		default:
		}
		p.jobs = append(p.jobs, j)
	}
	p.jobs[slotCount-1].flag |= signaled
	return p
}

// start posts everything, and the receives for it first.
func (p *plan) start(w *world) {
	for i, j := range p.jobs {
		at := p.at(i)
		if operations[j.op].takesReceive {
			p.to.receive(uint64(i), p.to.at(at, slotBytes))
		}
		switch j.op {
		case rdma.WRRead:
			pattern(p.to.mem[at:at+j.size], byte(i))
		case rdma.WRFetchAdd:
		default:
			pattern(p.from.mem[at:at+j.size], byte(i))
		}
	}
	for i, j := range p.jobs {
		wqe := abi.SendWQE{
			WRID: uint64(i), Opcode: uint8(j.op), Flags: j.flag, ImmOrRKey: uint32(i) * 3,
			RemoteAddr: testBase + uint64(p.at(i)), RKey: uint32(p.to.region.Key), CompareAdd: j.add,
			Extra: xrcQueue, // which only XRC looks at
		}
		if j.op == rdma.WRFetchAdd {
			wqe.RemoteAddr = testBase + uint64(p.counter)
		}
		if j.op == rdma.WRFlush {
			wqe.Swap = slotBytes
			p.from.post(w.now, wqe)
			continue
		}
		p.from.post(w.now, wqe, p.from.at(p.at(i), j.size))
	}
}

// check compares completions and memory with what the plan says.
func (p *plan) check(t *testing.T) {
	t.Helper()
	sends, next, sum := p.from.sends.take(), 0, uint64(0)
	for i, j := range p.jobs {
		at := p.at(i)
		if j.flag&signaled != 0 {
			if next >= len(sends) || sends[next].WRID != uint64(i) || sends[next].Status != 0 {
				t.Fatalf("job %d %v: completion %d of %d: %+v", i, j.op, next, len(sends), sends)
			}
			next++
		}
		if j.op == rdma.WRFetchAdd {
			if got := getNative(p.from.mem[at:]); got != sum {
				t.Fatalf("job %d: fetched %d, want %d", i, got, sum)
			}
			sum += j.add
			continue
		}
		if !bytes.Equal(p.from.mem[at:at+slotBytes], p.to.mem[at:at+slotBytes]) {
			t.Fatalf("job %d %v of %d bytes: memory differs", i, j.op, j.size)
		}
	}
	if next != len(sends) {
		t.Fatalf("%d completions, want %d", len(sends), next)
	}
	if got := getNative(p.to.mem[p.counter:]); got != sum {
		t.Fatalf("counter %d, want %d", got, sum)
	}
	p.checkReceives(t)
}

// checkReceives: a receive's slot is the slot of the job that used it, because receives are posted
// and used in the order of the jobs.
func (p *plan) checkReceives(t *testing.T) {
	t.Helper()
	recvs, next := p.to.recvs.take(), 0
	for i, j := range p.jobs {
		if !operations[j.op].takesReceive {
			continue
		}
		if next >= len(recvs) {
			t.Fatalf("%d receives are too few", len(recvs))
		}
		e := recvs[next]
		if e.WRID != uint64(i) || e.Status != 0 || e.ByteLen != uint32(j.size) {
			t.Fatalf("receive of job %d: %+v, want %d bytes", i, e, j.size)
		}
		next++
	}
	if next != len(recvs) {
		t.Fatalf("%d receives, want %d", len(recvs), next)
	}
}

func eachSeed(t *testing.T, f func(t *testing.T, seed uint64)) {
	if *seedFlag != 0 {
		f(t, *seedFlag)
		return
	}
	for seed := uint64(1); seed <= *seedCount; seed++ {
		if !t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { f(t, seed) }) {
			return
		}
	}
}

// TestFaults_XRC_DeliversExactlyOnceInOrder is the same one way over an XRC connection, whose
// receives are those of a shared queue.
func TestFaults_XRC_DeliversExactlyOnceInOrder(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 3))
		f := faults{lose: r.IntN(9), double: r.IntN(6), delay: r.IntN(6)}
		w := newWorld(t, worldConfig{
			qpType: rdma.QPTypeXRCSend, bytes: faultyMem, edit: func(_ string, a *Attr) {
				a.PathMTU = rdma.MTU(1 + seed%5)
				a.MaxRdAtomic, a.MaxDestRdAtomic = uint8(1+seed%4), uint8(1+seed%4)
			},
		})
		if *seedFlag != 0 {
			w.traceOnFailure()
		}
		w.judge = f.judge(r)
		w.runMax = []uint32{0, 3, 64}[seed/4%3]
		p := makePlan(r, w.a, w.b, 0)
		p.start(w)
		w.run(60 * time.Second)
		p.check(t)
	})
}

// TestFaults_RC_DeliversExactlyOnceInOrder runs mixed traffic both ways over links that lose,
// double and delay packets: nothing of it may be seen.
func TestFaults_RC_DeliversExactlyOnceInOrder(t *testing.T) {
	var worst time.Duration
	eachSeed(t, func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		f := faults{lose: r.IntN(9), double: r.IntN(6), delay: r.IntN(6)}
		c := worldConfig{bytes: faultyMem, edit: func(_ string, a *Attr) {
			a.PathMTU = rdma.MTU(1 + seed%5)
			a.MaxRdAtomic, a.MaxDestRdAtomic = uint8(1+seed%4), uint8(1+seed%4)
			if seed%3 == 0 {
				a.RQPSN, a.SQPSN = 0xfffff0, 0xfffff0
			}
		}}
		if seed%4 == 1 {
			c.spaceA = &space{}
		}
		w := newWorld(t, c)
		if *seedFlag != 0 {
			w.traceOnFailure()
		}
		w.judge = f.judge(r)
		w.runMax = []uint32{0, 3, 64}[seed/4%3]
		ab, ba := makePlan(r, w.a, w.b, 0), makePlan(r, w.b, w.a, 1)
		ab.start(w)
		ba.start(w)
		w.run(60 * time.Second)
		ab.check(t)
		ba.check(t)
		worst = max(worst, time.Duration(w.now))
	})
	t.Logf("the slowest seed took %v", worst)
}
