package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/sim/check"
	"github.com/softrnic/softrnic/internal/wire/mad"
	"github.com/softrnic/softrnic/test/racetest"
)

// regressionCalls are seeds of worlds of connections that found faults which are mended; see
// regressionSeeds.
var regressionCalls = []uint64{
	15, // a late copy of a REQ that was asked again with a smaller MTU ended the connection
}

// fixedCalls are many seeds: each is short.
var fixedCalls = fixedWorld{world: WorldConnections, seeds: 500, regressions: regressionCalls}

func TestRunCalls_FixedSeeds_KeepEveryPromise(t *testing.T) { fixedCalls.check(t) }

// callMarks are the rare branches that the fixed seeds have to reach.
//
//tidy:table
var callMarks = []string{
	"call.asked.RC", "call.asked.UC", "call.asked.UD", "call.up.RC", "call.up.UC", "call.up.UD",
	"call.asked.XRC_SEND", "call.up.XRC_SEND", "call.up.XRC_RECV", "call.heard.XRC_RECV",
	"call.heard.RC", "call.heard.UC", "call.heard.UD", "call.last_word", "call.rejects",
	"call.delayed", "call.smaller_mtu", "call.farewell.up", "call.farewell.accepted", "call.sluggish", "call.migrated", "call.joined", "call.left",
	// Ends that are destroyed in each state.
	"call.destroy.resolving", "call.destroy.resolved", "call.destroy.routed", "call.destroy.asking",
	"call.destroy.querying", "call.destroy.answered", "call.destroy.requested",
	"call.destroy.accepted", "call.destroy.up", "call.destroy.down", "call.destroy.over",
	"call.destroy.serving",
	// Refusals by cause: reasons 3, 4, 6, 8, 10 and 28.
	"call.refused.no resources available", "call.refused.timeout",
	"call.refused.invalid communication ID", "call.refused.invalid service ID: nobody listens",
	"call.refused.stale connection", "call.refused.rejected by the application",
	// Events: ADDR_ERROR, UNREACHABLE, TIMEWAIT_EXIT.
	"call.event.1", "call.event.7", "call.event.15",
	// The world.
	"call.channel_dropped", "call.no_neighbour", "call.partition", "call.restart", "call.death", "call.address", "call.no_source",
	"call.stranger", "call.broken", "icmp.unreachable", "icrc.refused",
}

func TestRunCalls_FixedSeeds_ReachRareBranches(t *testing.T) {
	if racetest.Enabled || testing.Short() {
		t.Skip("few seeds are played with the race detector or -short; run without")
	}
	checkReached(t, fixedCalls.play(), callMarks)
}

func TestRunCalls_SameSeed_SameTrace(t *testing.T) {
	for seed := uint64(1); seed <= 6; seed++ {
		a, err := Run(Config{Seed: seed, World: WorldConnections})
		if err != nil {
			t.Fatal(err)
		}
		b, _ := Run(Config{Seed: seed, World: WorldConnections})
		if a.Hash != b.Hash || a.Packets != b.Packets || a.Elapsed != b.Elapsed {
			t.Errorf("seed %d: traces %x and %x", seed, a.Hash, b.Hash)
		}
	}
}

// callSabotage breaks the world of connections behind the NICs' backs. Each row harms once, as soon
// as it can, and reports whether it did.
//
//tidy:table
var callSabotage = []struct {
	name string
	harm func(w *World) bool
	want string
}{
	{"an event is swallowed", func(w *World) bool {
		return w.harmEvent(check.ConnectResponse, func(*nic.ConnectionEvent) int { return 0 })
	}, "has no outcome"},
	{"an event comes twice", func(w *World) bool {
		return w.harmEvent(check.Established, func(*nic.ConnectionEvent) int { return 2 })
	}, "when the end is up"},
	{"TIMEWAIT never ends", func(w *World) bool {
		return w.harmEvent(check.TimewaitExit, func(*nic.ConnectionEvent) int { return 0 })
	}, "TIMEWAIT has no outcome"},
	{"a byte of private data", func(w *World) bool {
		return w.harmEvent(check.ConnectRequest, func(e *nic.ConnectionEvent) int {
			e.Record.Param.PrivateData[e.Record.Param.PrivateDataLen-1] ^= 1
			return 1
		})
	}, "private data"},
	{"the wrong channel", func(w *World) bool {
		return w.harmEvent(check.AddrResolved, func(e *nic.ConnectionEvent) int {
			c := e.Session.Owner().(*caller)
			for _, b := range c.boxes {
				if b.handle != e.Channel {
					e.Channel = b.handle
					return 1
				}
			}
			return -1
		})
	}, "comes by channel"},
	{"another queue pair answers", func(w *World) bool {
		return w.harmEnd(func(e *callEnd) bool {
			e.rtr.RQPSN++
			return e.fate.State() == check.EndAccepted
		})
	}, "PSNs"},
	{"a rejection without a cause", func(w *World) bool {
		return w.harmEnd(func(e *callEnd) bool {
			if e.fate.State() != check.EndAsking {
				return false
			}
			e.judgeRefusal(mad.ReasonStaleConnection)
			return true
		})
	}, "without a cause"},
	{"a program dies in silence", func(w *World) bool {
		return w.harmEnd(func(e *callEnd) bool {
			p := e.peer()
			if e.fate.State() != check.EndUp || p == nil || p.fate.State() != check.EndUp ||
				p.caller == e.caller {
				return false
			}
			dead := e.caller
			dead.expectFarewells()
			dead.lose()
			w.board.tamper = func(e *nic.ConnectionEvent) int {
				if e.Session.Owner().(*caller) == dead {
					return 0
				}
				return 1
			}
			return true
		})
	}, "has said nothing"},
	{"an identifier is left", func(w *World) bool {
		session, refusal := w.hosts[0].nic.OpenCM(w.now, nic.CMConfig{Owner: w.hosts[0].callers[0]})
		if refusal != nil {
			return false
		}
		channel, _ := session.CreateEventChannel()
		_, refusal = session.CreateID(&abi.CreateIDReq{Channel: channel, PortSpace: spaceTCP})
		return refusal == nil
	}, "left are identifiers"},
	{"a message is heard by nobody", func(w *World) bool {
		return w.harmEnd(func(e *callEnd) bool {
			if e.fate.State() != check.EndUp || e.plug == nil || e.plug.heard == 0 {
				return false
			}
			e.plug.heard += 2
			return true
		})
	}, "arrive that the peer did not send"},
}

// harmEvent does something with the next event of a kind that will do: it says how often the event
// is to come, or −1 for another try.
func (w *World) harmEvent(kind check.CMEvent, harm func(*nic.ConnectionEvent) int) bool {
	done := false
	w.board.tamper = func(e *nic.ConnectionEvent) int {
		if done || check.CMEvent(e.Record.Event) != kind {
			return 1
		}
		n := harm(e)
		if n < 0 {
			return 1
		}
		done = true
		return n
	}
	return true
}

// harmEnd tries all ends.
func (w *World) harmEnd(harm func(*callEnd) bool) bool {
	for _, c := range w.board.callers {
		if c.isGone {
			continue
		}
		for _, h := range sortedKeys(c.ends) {
			if harm(c.ends[h]) {
				return true
			}
		}
	}
	return false
}

// TestRunCalls_Sabotage_IsFound: see TestRun_Sabotage_IsFound.
func TestRunCalls_Sabotage_IsFound(t *testing.T) {
	for _, r := range callSabotage {
		found := false
		var last []string
		for seed := uint64(1); seed < 40 && !found; seed++ {
			w := newWorld(Config{Seed: seed, Hosts: 2, Faults: FaultsNone, World: WorldConnections})
			if len(w.hosts[0].callers) < 2 {
				continue
			}
			var try func()
			try = func() {
				if !w.isCalm && !r.harm(w) {
					w.at(w.now.Add(20*time.Millisecond), try)
				}
			}
			w.at(w.now.Add(time.Second), try)
			w.runGuarded()
			last = w.court.Failures()
			for _, f := range last {
				found = found || strings.Contains(f, r.want)
			}
		}
		if !found {
			t.Errorf("%s: not found; found was %q", r.name, last)
		}
	}
}
