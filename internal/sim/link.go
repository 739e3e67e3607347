package sim

import (
	"encoding/binary"
	"math/rand/v2"
	"time"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/netio/faulty"
	"github.com/softrnic/softrnic/internal/wire/ib"
	"github.com/softrnic/softrnic/internal/wire/roce"
)

// link is one direction between two hosts.
type link struct {
	from, to *host
	random   *rand.Rand
	decider  *faulty.Decider
	downTill clock.Time // a partition ends here
	marks    float64    // chance of a congestion mark
	picks    float64    // chance that a packet of the plan's picky kind is lost
	last     clock.Time // latest arrival of a packet in order, whatever profile it came by
}

// linkTo returns the way to another host. A seed's worlds are the same whenever links are made:
// each has random numbers of its own.
func (h *host) linkTo(to *host) *link {
	l := h.links[to]
	if l != nil {
		return l
	}
	w := h.world
	stream := uint64(h.index)<<6 | uint64(to.index)&63 | uint64(to.index)>>6<<40
	l = &link{
		from: h, to: to, random: rand.New(rand.NewPCG(w.cfg.Seed, stream)), marks: w.plan.marks,
		picks: w.plan.pickLoss,
	}
	switch {
	case w.isCalm:
		l.calm()
	case w.mild.has(h.index*len(w.hosts) + to.index):
		l.picks = 0
		l.setProfile(faulty.Profile{Delay: w.plan.profile.Delay})
	default:
		l.setProfile(w.plan.profile)
	}
	h.links[to] = l
	w.links = append(w.links, l)
	return l
}

// calm makes the link a perfect one.
func (l *link) calm() {
	l.downTill, l.marks, l.picks = 0, 0, 0
	l.setProfile(faulty.Profile{Delay: l.from.world.plan.profile.Delay})
}

// pickyKinds are kinds of packets that a link may lose more often than others: whatever recovers
// from one loss rests on other packets.
//
//tidy:table
var pickyKinds = []struct {
	name string
	has  func(h *ib.Headers) bool
}{
	{"acknowledges", func(h *ib.Headers) bool { return h.BTH.Opcode.Info().Operation == ib.OperationAcknowledge }},
	{"NAKs", func(h *ib.Headers) bool {
		return h.BTH.Opcode.Info().Operation == ib.OperationAcknowledge && h.AETH.Syndrome.Kind() != ib.SyndromeACK
	}},
	{"atomic answers", func(h *ib.Headers) bool { return h.BTH.Opcode.Info().Operation == ib.OperationAtomicAcknowledge }},
	{"READ data", func(h *ib.Headers) bool { return h.BTH.Opcode.IsReadResponse() }},
	{"ends of READ data", func(h *ib.Headers) bool {
		return h.BTH.Opcode.IsReadResponse() && h.BTH.Opcode.EndsMessage()
	}},
	{"READ and atomic requests", func(h *ib.Headers) bool {
		return h.BTH.Opcode.IsReadRequest() || h.BTH.Opcode.IsAtomic()
	}},
	{"ends of messages", func(h *ib.Headers) bool {
		return h.BTH.Opcode.IsRequest() && h.BTH.Opcode.EndsMessage()
	}},
	{"starts of messages", func(h *ib.Headers) bool { return h.BTH.Opcode.IsFirst() }},
	{"middles of messages", func(h *ib.Headers) bool { return h.BTH.Opcode.IsMiddle() }},
	{"packets that ask for an acknowledge", func(h *ib.Headers) bool { return h.BTH.AckReq }},
}

// flight is a packet on the wire, in bytes.
type flight struct {
	from, to *host
	path     roce.Path
	buf      []byte // BTH to ICRC
	damaged  int    // number of the byte with a wrong bit, or −1
}

// frameOverhead is what Ethernet, IP and UDP add on the wire; it matters for rates only.
const frameOverhead = 14 + 20 + 8

// newFlight serialises a packet into memory of its own.
func (w *World) newFlight(p *ibt.Packet) *flight {
	var f *flight
	if list := w.stock.flights; len(list) > 0 {
		f = list[len(list)-1]
		w.stock.flights = list[:len(list)-1]
	} else {
		f = &flight{buf: make([]byte, 0, 4096+ib.HeadersLenMax+8)}
	}
	f.damaged = -1
	f.path = roce.Path{
		Src: p.SGID.Addr(), Dst: p.DGID.Addr(), FlowLabel: p.FlowLabel, SrcPort: p.Flow,
		TrafficClass: p.TrafficClass, HopLimit: p.HopLimit, DF: true,
	}
	b := p.Headers.Append(f.buf[:0])
	b = append(b, p.Payload...)
	b = ib.AppendPad(b, p.Headers.BTH.PadCount)
	f.buf = roce.AppendICRC(&f.path, b)
	return f
}

func (w *World) freeFlight(f *flight) {
	f.from, f.to = nil, nil
	w.stock.flights = append(w.stock.flights, f)
}

// carry puts a packet on the link.
func (l *link) carry(p *ibt.Packet) {
	w := l.from.world
	f := w.newFlight(p)
	f.from, f.to = l.from, l.to
	w.packets++
	w.observe.sent(f)
	if w.now < l.downTill {
		w.trace.packet(w.now, "cut", f)
		w.freeFlight(f)
		return
	}
	if l.picks > 0 && pickyKinds[w.plan.picky].has(&p.Headers) && l.random.Float64() < l.picks {
		w.trace.packet(w.now, "picked", f)
		w.freeFlight(f)
		return
	}
	v := l.decider.Decide(w.now, len(f.buf)+frameOverhead)
	switch {
	case v.Drop:
		w.trace.packet(w.now, "lost", f)
		w.freeFlight(f)
		return
	case !v.Reordered:
		v.At = max(v.At, l.last)
		l.last = v.At
	}
	if v.Duplicate {
		d := w.newFlight(p)
		d.from, d.to = l.from, l.to
		w.fly(d, max(v.DuplicateAt, v.At), "doubled")
	}
	if l.marks > 0 && f.path.ECN() != 0 && l.random.Float64() < l.marks {
		f.path.TrafficClass |= roce.ECNCongestionExperienced
	}
	what := "sent"
	if bit := v.Bit - 8*frameOverhead; bit >= 0 {
		// What is damaged in front of the BTH would reach nobody or be noticed by lower layers.
		f.buf[bit/8] ^= 1 << (bit % 8)
		f.damaged = bit / 8
		what = "damaged"
	}
	w.fly(f, v.At, what)
}

func (w *World) fly(f *flight, at clock.Time, what string) {
	w.trace.packet(w.now, what, f)
	w.inFlight++
	w.calendar.add(event{at: at, flight: f})
}

// arrive takes a packet off the wire as a receiving port does.
func (w *World) arrive(f *flight) {
	w.inFlight--
	h := f.to
	defer w.freeFlight(f)
	if h.isDown {
		w.refuse(f.from, h)
		return
	}
	if !h.accepts(f) {
		w.trace.packet(w.now, "ignored", f)
		return
	}
	n := len(f.buf) - roce.ICRCLen
	isGood := roce.CheckICRC(&f.path, f.buf) == roce.Good
	if isGood && f.damaged >= 0 && f.damaged != unprotectedByte {
		w.court.Failf("a damaged packet passed the ICRC: %v", ib.Packet(f.buf[:n]))
	}
	if !isGood {
		if f.damaged < 0 {
			w.court.Failf("the ICRC refuses an intact packet: %v", ib.Packet(f.buf[:n]))
		}
		w.mark("icrc.refused")
		w.trace.packet(w.now, "refused", f)
		return
	}
	p := &w.arrival
	payload, err := p.Headers.Parse(f.buf[:n:n])
	if err != nil {
		w.court.Failf("an intact packet is not understood: %v: %v", err, ib.Packet(f.buf[:n]))
		return
	}
	p.Payload = payload
	p.Address = ibt.Address{
		SGID: f.path.Src.As16(), DGID: f.path.Dst.As16(), FlowLabel: f.path.FlowLabel,
		Flow: f.path.SrcPort, TrafficClass: f.path.TrafficClass, HopLimit: f.path.HopLimit, Port: 1,
	}
	w.trace.packet(w.now, "arrived", f)
	w.observe.arrived(h, &p.Headers)
	if w.board != nil {
		w.board.overhear(f.from, h, &p.Headers, payload, true)
	}
	h.nic.HandlePacket(w.now, p)
	w.struck(h, &p.Headers)
	h.turnSoon()
}

// refuse lets a host without a NIC answer as its kernel does, with an ICMP port unreachable, which
// is lost at times.
func (w *World) refuse(from, to *host) {
	if !w.chance(0.5) {
		return
	}
	life := from.lives
	gid := to.gids[w.between(0, 1)]
	w.at(w.now.Add(w.plan.profile.Delay), func() {
		if from.lives == life && !from.isDown {
			w.mark("icmp.unreachable")
			from.nic.HandleUnreachable(w.now, gid)
			from.turn()
		}
	})
}

// unprotectedByte holds FECN, BECN and reserved bits, which the ICRC leaves out.
const unprotectedByte = 4

// setProfile makes the link good or bad from now on.
func (l *link) setProfile(p faulty.Profile) {
	l.decider = faulty.NewDecider(p, 0, l.random)
}

// cut takes the link down for a while.
func (l *link) cut(d time.Duration) { l.downTill = max(l.downTill, l.from.world.now.Add(d)) }

// put64 and get64 access application memory as the host's processor does.
func get64(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }

func put64(b []byte, v uint64) { binary.NativeEndian.PutUint64(b, v) }
