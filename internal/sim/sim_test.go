package sim

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/test/racetest"
)

// regressionSeeds found faults of the product that are mended. A seed finds what it found only as
// long as the plan that it draws stays the same, so each fault has a test of its own too, beside
// the code; here the seeds are a wall of odd worlds.
var regressionSeeds = []uint64{
	1009, // query_qp reported the address vector of a queue pair's life before RESET
}

var fixedVerbs = fixedWorld{world: WorldVerbs, seeds: 200, regressions: regressionSeeds}

func TestRun_FixedSeeds_KeepEveryPromise(t *testing.T) { fixedVerbs.check(t) }

// marks are the rare branches that the fixed seeds have to reach.
//
//tidy:table
var marks = []string{
	// Sequence numbers, losses and repetitions.
	"request.psn_wrap", "request.again", "nak.PSN sequence error", "counter.local_ack_timeout_err",
	"counter.completer_retry_err", "counter.duplicate_request", "counter.out_of_seq_request",
	"icrc.refused", "wc.transport retry counter exceeded", "counter.ack_deferred",
	// READs and atomics.
	"read.again", "read.partial_retry", "atomic.duplicate",
	// ATOMIC WRITE and FLUSH.
	"placement.slot", "placement.window", "placement.read", "placement.flush", "flush.answered",
	"atomic_write.duplicate", "flush.duplicate", "bad.atomic_write_alignment",
	"bad.atomic_write_rights", "bad.atomic_write_length", "bad.flush_rights", "bad.flush_bounds",
	"bad.flush_nothing",
	// XRC.
	"connected.XRC_SEND", "xrc.target_dies", "bad.shared_queue", "bad.atomic_write_on_xrc", "flush.answered.XRC",
	"xrc.shared", "xrc.outlived", "xrc.dereg", "xrc.queue_destroyed", "strike",
	// Receivers that are not ready.
	"nak.not_ready", "ack.no_credits", "wc.RNR retry counter exceeded", "counter.out_of_buffer",
	// Requests that are wrong.
	"nak.invalid request", "nak.remote access error", "nak.remote operational error",
	"bad.rkey", "bad.dead_rkey", "bad.bounds", "bad.rights", "bad.read_rights", "bad.atomic_alignment",
	"bad.atomic_rights", "bad.atomic_length", "bad.invalidate", "bad.opcode", "bad.read_on_uc", "bad.address_handle",
	"bad.lkey", "bad.local_bounds", "bad.read_into_readonly", "bad.too_many_entries",
	"bad.revoked_rkey", "bad.door_bounds", "bad.bind", "wc.memory window bind error", "door.open", "door.unbind",
	"mem.rereg", "mem.rereg_held",
	"door.invalidate", "door.peer_invalidate", "door.WRITE", "door.READ", "door.ATOMIC_WRITE",
	"bad.too_long", "bad.receive", "bad.qkey", "counter.bad_qkey",
	"wc.local protection error", "wc.local length error", "wc.local QP operation error",
	// States.
	"sq.drained", "sqe.recovered", "cycle.error", "cycle.reset", "cycle.destroy", "post.in_error",
	"wc.work request flushed",
	// Events.
	"cq.event", "event.SRQ limit reached", "event.last WQE reached", "event.QP access error",
	"event.QP request error", "event.communication established",
	// The world.
	"connected.RC", "connected.UC", "connected.UD", "doorbell.late", "congestion.notified", "read.question",
	"counter.rp_cnp_handled", "counter.no_such_qp", "mishap.partition", "mishap.clog",
	"mishap.restart", "mishap.port", "mishap.death", "mishap.dereg", "vandal.act", "vandal.verb", "cq.overrun",
	"icmp.unreachable", "cycle.renew", "cycle.retune", "world.gentle",
}

func TestRun_FixedSeeds_ReachRareBranches(t *testing.T) {
	if racetest.Enabled || testing.Short() {
		t.Skip("few seeds are played with the race detector or -short; run without")
	}
	checkReached(t, fixedVerbs.play(), marks)
}

// checkReached wants each of the marks in one report at least.
func checkReached(t *testing.T, reports []Report, marks []string) {
	t.Helper()
	reached := map[string]uint64{}
	for _, r := range reports {
		for name, n := range r.Marks {
			reached[name] += n
		}
	}
	for _, name := range marks {
		if reached[name] == 0 {
			t.Errorf("no seed reaches %q", name)
		}
	}
	for _, name := range sortedKeys(reached) {
		t.Logf("%9d %s", reached[name], name)
	}
}

func TestRun_SameSeed_SameTrace(t *testing.T) {
	seen := map[uint64]uint64{}
	last := uint64(6)
	if racetest.Enabled {
		last = 2
	}
	for seed := uint64(1); seed <= last; seed++ {
		a, err := Run(Config{Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		b, _ := Run(Config{Seed: seed})
		if a.Hash != b.Hash || a.Packets != b.Packets || a.Elapsed != b.Elapsed {
			t.Errorf("seed %d: traces %x and %x", seed, a.Hash, b.Hash)
		}
		if other, ok := seen[a.Hash]; ok {
			t.Errorf("seeds %d and %d have one trace", seed, other)
		}
		seen[a.Hash] = seed
	}
}

func TestRun_Choices_AreTaken(t *testing.T) {
	cfg := Config{Seed: 3, Hosts: 3, Duration: 3 * time.Millisecond, Faults: FaultsHeavy}
	r, err := Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(r.Plan, "3 hosts") || r.Requests == 0 {
		t.Errorf("plan %q, %d requests", r.Plan, r.Requests)
	}
	if got := cfg.Replay(); got != "rnic sim --seed 3 --hosts 3 --duration 3ms --faults heavy" {
		t.Errorf("replay %q", got)
	}
	for _, bad := range []Config{
		{Hosts: HostsMax + 1}, {Hosts: -1}, {Duration: -1}, {Faults: "terrible"},
	} {
		if _, err := Run(bad); err == nil || errors.Is(err, ErrFailed) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// sabotage breaks the world behind the NICs' backs.
//
//tidy:table
var sabotage = []struct {
	name string
	harm func(w *World) bool // reports whether it could
	want string
}{
	{"a byte between two regions", func(w *World) bool {
		w.apps[0].mem.Bytes[10]++
		return true
	}, "without a right"},
	{"a byte of a window", func(w *World) bool {
		e := w.someEnd()
		if e == nil || e.near == nil {
			return false
		}
		e.app.mem.Bytes[e.near.area.off] ^= 0x55
		return true
	}, "window"},
	{"a completion is swallowed", func(w *World) bool {
		for _, q := range w.apps[0].cqs {
			if n, _ := q.ring.Pending(); n > 0 && q.mode == cqPolled {
				q.ring.Release(1)
				return true
			}
		}
		return false
	}, ""},
	{"a completion comes twice", func(w *World) bool {
		for _, q := range w.apps[0].cqs {
			if n, _ := q.ring.Pending(); n > 1 {
				copy(q.ring.Slot(1), q.ring.Slot(0))
				return true
			}
		}
		return false
	}, ""},
	{"a counter cell", func(w *World) bool {
		a := w.apps[0]
		put64(a.mem.Bytes[a.cells.off:], get64(a.mem.Bytes[a.cells.off:])+1<<40)
		return true
	}, "cell 0"},
	{"half of a slot", func(w *World) bool {
		a := w.apps[0]
		b := a.mem.Bytes[a.slots.off:]
		put64(b, get64(b)^0xffff)
		return true
	}, "slot 0"},
	{"a receive of a shared queue is forgotten", func(w *World) bool {
		for _, a := range w.apps {
			for _, s := range a.queues {
				if s.done > 0 {
					s.done--
					return true
				}
			}
		}
		return false
	}, "were taken and did not complete"},
	{"a queue that is never given back", func(w *World) bool {
		w.hosts[0].heap.live++
		return true
	}, "queues is left"},
	{"an arm word is lost", func(w *World) bool {
		for _, q := range w.apps[0].cqs {
			if q.mode == cqAwaited && q.isArmed && !q.isAwake && q.arm.Load() == abi.ArmNext {
				q.arm.Store(abi.ArmNone)
				return true
			}
		}
		return false
	}, ""},
}

// TestRun_Sabotage_IsFound: a checker that stays silent when something is wrong proves nothing when
// it is silent otherwise.
func TestRun_Sabotage_IsFound(t *testing.T) {
	for _, r := range sabotage {
		found, done := false, false
		for seed := uint64(1); seed < 60 && !found; seed++ {
			w := newWorld(Config{Seed: seed, Faults: FaultsNone})
			var try func()
			try = func() {
				if !r.harm(w) && !w.isCalm {
					w.at(w.now.Add(10*time.Microsecond), try)
					return
				}
				done = true
			}
			w.at(w.now.Add(2*time.Millisecond), try)
			w.runGuarded()
			for _, f := range w.court.Failures() {
				found = found || strings.Contains(f, r.want)
			}
		}
		if !done || !found {
			t.Errorf("%s: done %v, found %v", r.name, done, found)
		}
	}
}

// someEnd returns an end of a reliable connection that is up.
func (w *World) someEnd() *endpoint {
	for _, p := range w.pairs {
		if p.isUp && p.ends[0] != nil && !p.ends[0].isGone {
			return p.ends[0]
		}
	}
	return nil
}

func TestCalendar_SameInstant_KeepsOrder(t *testing.T) {
	var c calendar
	var got []int
	for i := range 50 {
		c.add(event{at: 5, run: func() { got = append(got, i) }})
	}
	c.add(event{at: 4, run: func() { got = append(got, -1) }})
	for !c.isEmpty() {
		c.next().run()
	}
	for i, v := range got {
		if v != i-1 {
			t.Fatalf("order %v", got)
		}
	}
}
