package sim

import (
	"fmt"
	"syscall"
	"time"

	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/sim/check"
)

// streamWorld is what a world of iWARP has beside what it shares with that of packets.
type streamWorld struct {
	latency, jitter time.Duration
	rate            int           // bytes a second of each connection; 0: no bound
	loss            float64       // chance that a piece has to be sent again
	again           time.Duration // and how long that takes at most
	chunk           int           // bytes of a piece at most
	room            int           // bytes that a connection holds
	partial         float64       // chance that a socket takes less than it could
	inPlace         float64       // chance that the shell receives in place
	mss             int           // 0: the shell does not know
	timeout         time.Duration // after which TCP gives a silent peer up

	corrupt, refuses, rejects float64
	resets, mutes, sleepers   bool

	bytes uint64 // handed over
	socks []*sock
	// tamper is how a test harms bytes, and isDeaf how it keeps events back.
	tamper func(s *sock, b []byte)
	isDeaf func(kind check.CMEvent) bool
}

// newIWARPWorld makes a world whose NICs have an iWARP device, and connections of TCP.
func newIWARPWorld(cfg Config) *World {
	w := newEmptyWorld(cfg)
	w.streams = &streamWorld{}
	w.makePlan()
	w.makeStreamPlan()
	w.populate()
	w.mishaps()
	return w
}

func (w *World) makeStreamPlan() {
	p, s := &w.plan, w.streams
	p.domains, p.datagrams, p.strips, p.marks = 0, 0, 0, 0
	p.overruns, p.partitions, p.clogs = false, false, false
	s.latency = p.profile.Delay
	s.jitter = time.Duration(w.pick(0, 0, 1, 20)) * s.latency / 10
	s.rate = w.pick(0, 0, 0, 1e7, 1e9)
	s.chunk = w.pick(1448, 1448, 65536, 100, 7)
	s.room = w.pick(1<<20, 1<<20, 64<<10, 5000, 700)
	isSlow := s.chunk < 1000 || s.room < 6000
	if isSlow {
		p.maxMessage = min(p.maxMessage, 9000)
	}
	if w.cfg.Duration == 0 {
		p.quota = min(p.quota, 1500)
		if isSlow {
			p.quota = min(p.quota, 400)
		}
	}
	s.partial, s.inPlace = w.pickFloat(0, 0.1, 0.5), w.pickFloat(0, 0.5, 1)
	s.mss = w.pick(1448, 1448, 0, 536, 8948, 65483)
	s.timeout = time.Duration(w.pick(20, 200, 900)) * time.Millisecond
	if p.profile.Loss > 0 {
		s.loss, s.again = p.profile.Loss, time.Duration(w.pick(1, 10, 200))*time.Millisecond
	}
	if p.profile.Corrupt > 0 {
		s.corrupt = w.pickFloat(0.0005, 0.005)
	}
	if w.cfg.Faults == "" {
		p.restarts, p.deaths = p.restarts || w.chance(0.1), p.deaths || w.chance(0.1)
		s.refuses = w.pickFloat(0, 0, 0.1)
	}
	if p.profile.Reorder > 0 || p.restarts || p.deaths {
		s.resets, s.mutes = w.chance(0.5), w.chance(0.4)
	}
	s.sleepers = w.chance(0.3)
	s.rejects = w.pickFloat(0, 0, 0.1)
	p.profile.Loss, p.profile.Corrupt, p.profile.Reorder, p.profile.Dup = 0, 0, 0, 0
	p.picky, p.pickLoss = 0, 0
}

// chooseStreamOptions makes a host's iWARP device.
func (w *World) chooseStreamOptions() nic.StreamOptions {
	return nic.StreamOptions{
		NoCRC: w.chance(0.5), Markers: w.chance(0.3), Revision: uint8(w.pick(0, 0, 1, 2)),
		FPDU: nic.FPDUSize(w.between(0, 2)),
	}
}

func (s *streamWorld) String() string {
	return fmt.Sprintf(", TCP: latency %v±%v, %d B/s, %.2f sent again, pieces up to %d B, "+
		"room for %d B, MSS %d, %.4f damaged, resets %v, half-open %v, sleepers %v", s.latency,
		s.jitter, s.rate, s.loss, s.chunk, s.room, s.mss, s.corrupt, s.resets, s.mutes, s.sleepers)
}

// breakSome lets something happen to a connection of TCP.
func (w *World) breakSome() {
	var open []*sock
	for _, s := range w.streams.socks {
		if s.isOpen() && !s.isBroken && s.peer.isOpen() {
			open = append(open, s)
		}
	}
	w.streams.socks = open
	if len(open) == 0 {
		return
	}
	s := open[w.between(0, len(open)-1)]
	if w.streams.mutes && (!w.streams.resets || w.chance(0.5)) {
		w.mark("mishap.silence")
		w.trace.note(w.now, "%s: silence", s.name)
		w.spoilStream(s)
		w.muteStream(s)
		return
	}
	w.mark("mishap.reset")
	w.trace.note(w.now, "%s: reset by the network", s.name)
	w.breakStream(s, syscall.ECONNRESET)
}

// flushable is the right that only devices with FLUSH know.
func (w *World) flushable() rdma.Access {
	if w.streams != nil {
		return 0
	}
	return rdma.AccessFlushGlobal
}

// sleep is for how long a program does nothing now and then. Messages that come meanwhile may need
// receives that nobody posts: the NIC waits, but not for ever.
func (a *app) sleep() time.Duration {
	w := a.world
	const gap = 3 * time.Second
	if w.streams == nil || !w.streams.sleepers || w.isCalm || !w.chance(0.01) ||
		a.sleptAt != 0 && w.now.Sub(a.sleptAt) < gap {
		return 0
	}
	a.sleptAt = w.now
	if w.chance(0.5) {
		w.mark("sleep.short")
		return w.delay(0, limits.ReceivePatience/2)
	}
	w.mark("sleep.long")
	for _, e := range a.endpoints {
		e.pair.spoil()
	}
	d := w.delay(limits.ReceivePatience/2, 3*limits.ReceivePatience)
	a.sleepTill = w.now.Add(d)
	return d
}

// remoteRights are all that a region may grant.
func (w *World) remoteRights() rdma.Access {
	return rdma.AccessLocalWrite | remoteAny&^rdma.AccessFlushGlobal | w.flushable()
}
