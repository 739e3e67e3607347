package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/sim/check"
	"github.com/softrnic/softrnic/test/racetest"
)

// regressionStreams are seeds of worlds of iWARP that found faults which are mended; see
// regressionSeeds.
var regressionStreams = []uint64{
	6,  // a program that accepted was told CONNECT_ERROR without an error
	34, // a reply of MPA revision 1 left the initiator with more READs than the responder served
	76, // a region registered again in the middle of a WRITE ended the connection
}

var fixedStreams = fixedWorld{world: WorldIWARP, seeds: 120, regressions: regressionStreams}

func TestRunStreams_FixedSeeds_KeepEveryPromise(t *testing.T) { fixedStreams.check(t) }

func TestRunStreams_SameSeed_SameTrace(t *testing.T) {
	last := uint64(6)
	if racetest.Enabled {
		last = 2
	}
	for seed := uint64(1); seed <= last; seed++ {
		a, err := Run(Config{Seed: seed, World: WorldIWARP})
		if err != nil {
			t.Fatal(err)
		}
		b, _ := Run(Config{Seed: seed, World: WorldIWARP})
		if a.Hash != b.Hash || a.Packets != b.Packets || a.Elapsed != b.Elapsed {
			t.Errorf("seed %d: traces %x and %x", seed, a.Hash, b.Hash)
		}
	}
}

// streamMarks are the rare branches that the fixed seeds have to reach.
//
//tidy:table
var streamMarks = []string{
	// What is on the wire.
	"segment.WRITE", "segment.READ_REQUEST", "segment.READ_RESPONSE", "segment.SEND",
	"segment.SEND_INV", "segment.SEND_SE", "segment.SEND_SE_INV", "segment.TERMINATE",
	"segment.IMMEDIATE", "segment.IMMEDIATE_SE", "segment.ATOMIC_REQUEST",
	"segment.ATOMIC_RESPONSE", "marker", "ord.full",
	"terminate.MPA wrong CRC (0x2002)",
	"terminate.DDP tagged buffer error: invalid STag (0x1100)",
	"terminate.DDP tagged buffer error: base or bounds violation (0x1101)",
	"terminate.DDP untagged buffer error: invalid MSN: no buffer available (0x1202)",
	"terminate.DDP untagged buffer error: message too long for the buffer (0x1205)",
	"terminate.DDP local catastrophic error (0x1000)",
	"terminate.RDMAP local catastrophic error (0x0000)",
	"terminate.RDMAP remote protection error: access rights violation (0x0102)",
	"terminate.RDMAP remote protection error: STag cannot be invalidated (0x0109)",
	"terminate.RDMAP remote operation error: unspecified error (0x02ff)",
	// TCP.
	"socket.full", "segment.again", "stream.damaged", "stream.held_up", "stream.in_place",
	"stream.aborted", "stream.half_open", "stream.late_bytes", "tcp.connection refused",
	"mishap.reset", "mishap.silence", "stream.joined", "stream.held_back",
	// Connections: CONNECT_ERROR, UNREACHABLE, REJECTED, DISCONNECTED.
	"cm.event.6", "cm.event.7", "cm.event.8", "cm.event.10", "cm.reject", "cycle.disconnect",
	"cycle.closing", "parting.done", "cycle.renew", "cycle.error", "cycle.destroy", "world.pair_at_rest",
	// Programs.
	"sleep.short", "sleep.long", "mishap.restart", "mishap.death", "mishap.dereg", "mem.rereg",
	"bad.receive", "door.peer_invalidate", "door.READ", "door.WRITE", "event.last WQE reached",
	"vandal.connected", "vandal.verb",
	"post.in_error", "wc.remote access error", "wc.memory window bind error",
}

func TestRunStreams_FixedSeeds_ReachRareBranches(t *testing.T) {
	if racetest.Enabled || testing.Short() {
		t.Skip("few seeds are played with the race detector or -short; run without")
	}
	checkReached(t, fixedStreams.play(), streamMarks)
}

// streamSabotage breaks the world of iWARP behind the NICs' backs.
//
//tidy:table
var streamSabotage = []struct {
	name string
	harm func(w *World) bool // reports whether it could
	want string
}{
	{"a byte on the wire, without CRCs", func(w *World) bool {
		done := false
		w.streams.tamper = func(s *sock, b []byte) {
			if !done && s.wire.IsSetUp() && !s.wire.HasCRC() && len(b) > 400 {
				done = true
				b[200] ^= 0x40
			}
		}
		return true
	}, "wrong"},
	{"a byte on the wire, with CRCs", func(w *World) bool {
		done := false
		w.streams.tamper = func(s *sock, b []byte) {
			if !done && s.wire.HasCRC() && len(b) > 400 {
				done = true
				b[200] ^= 0x40
			}
		}
		return true
	}, "as they were sent"},
	{"a byte of a window", func(w *World) bool {
		e := w.someEnd()
		if e == nil || e.near == nil {
			return false
		}
		e.app.mem.Bytes[e.near.area.off] ^= 0x55
		return true
	}, "window"},
	{"a byte between two regions", func(w *World) bool {
		w.apps[0].mem.Bytes[10]++
		return true
	}, "without a right"},
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
	{"an event is swallowed", func(w *World) bool {
		done := false
		w.streams.isDeaf = func(kind check.CMEvent) bool {
			isFirst := !done && kind == check.Established
			done = done || isFirst
			return isFirst
		}
		return true
	}, "no outcome"},
	{"a connection ends without a cause", func(w *World) bool {
		e := w.someEnd()
		if e == nil || e.pair.isSpoiled || e.dial.state != dialUp {
			return false
		}
		return e.app.session.Disconnect(w.now, e.dial.id) == nil
	}, "without a cause"},
	{"a socket is left", func(w *World) bool {
		w.hosts[0].tcp.socks[12345] = &sock{host: w.hosts[0], name: "nobody's"}
		return true
	}, "a socket is left"},
}

// TestRunStreams_Sabotage_IsFound: see TestRun_Sabotage_IsFound.
func TestRunStreams_Sabotage_IsFound(t *testing.T) {
	for _, r := range streamSabotage {
		found, done := false, false
		for seed := uint64(1); seed < 60 && !found; seed++ {
			w := newWorld(Config{Seed: seed, Faults: FaultsNone, World: WorldIWARP})
			var try func()
			try = func() {
				if !r.harm(w) && !w.isCalm {
					w.at(w.now.Add(10*time.Microsecond), try)
					return
				}
				done = true
			}
			at := 2 * time.Millisecond
			if strings.HasPrefix(r.name, "an event") {
				at = 0
			}
			w.at(w.now.Add(at), try)
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
