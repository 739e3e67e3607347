package sim

import "time"

// HostsMax bounds Config.Hosts: each costs about three quarters of a megabyte.
const HostsMax = 4096

// hostsUsual is up to how many hosts programs have all that they like. Worlds of more are for what
// shows among many only: their programs have less memory each, and look at their queues less often,
// so that such a world fits a machine and ends within seconds.
const hostsUsual = 16

// Of a world of many hosts.
const (
	manyReceiveBudget = 8 << 10
	manyMessageMax    = 4000
	manyAreaBytes     = 64 << 10
	manyPause         = 50 * time.Microsecond
	manyCalmPause     = 50 * time.Millisecond
	manyDuration      = 20 * time.Millisecond
	manyPlaces        = 6
	manyDeskEntries   = 256
)

// scale is how many worlds of the usual size a world is worth.
func (p *plan) scale() int { return max(1, p.hosts/hostsUsual) }

// isMany reports a world of many hosts.
func (p *plan) isMany() bool { return p.hosts > hostsUsual }

// planMany gives each of many hosts as much to do as it has in a world of few.
func (w *World) planMany() {
	p := &w.plan
	if !p.isMany() {
		return
	}
	n := p.scale()
	p.connections = p.hosts * (1 + p.connections/4)
	p.datagrams, p.domains, p.vandals = p.datagrams*n, p.domains*n, p.vandals*n
	p.mishapGap = max(p.mishapGap/time.Duration(n), time.Microsecond)
	if w.cfg.Duration == 0 {
		p.duration, p.quota = min(p.duration, manyDuration), p.quota*uint64(n)
	}
	p.pause = max(p.pause, manyPause)
	p.maxMessage = min(p.maxMessage, manyMessageMax)
	p.areaBytes, p.windowsRoom = manyAreaBytes, manyAreaBytes
	p.receiveBudget = manyReceiveBudget
}

// slowDown makes the time between two looks longer the longer many hosts are calm: what they still
// wait for are timeouts.
func (w *World) slowDown(d time.Duration) time.Duration {
	if !w.isCalm || !w.plan.isMany() {
		return d
	}
	return max(d, min(w.now.Sub(w.calmAt)/32, manyCalmPause))
}

// planManyCalls is planMany for a world of connections.
func (w *World) planManyCalls() {
	p, c := &w.plan, &w.board.plan
	c.places, c.entries = placesMax, deskEntries
	if !p.isMany() {
		return
	}
	n := p.scale()
	c.places, c.entries = manyPlaces, manyDeskEntries
	p.mishapGap = max(p.mishapGap/time.Duration(n), time.Microsecond)
	if w.cfg.Duration == 0 {
		c.calls = max(c.calls*n, 2*p.hosts)
	}
}

// manyApp returns an application of the host whose turn it is in a world of many, so that each host
// has a connection; nil where chance decides.
func (w *World) manyApp(p *pair) *app {
	if !w.plan.isMany() || p.serial > 1 {
		return nil
	}
	h := w.hosts[p.number%len(w.hosts)]
	if len(h.apps) == 0 || len(h.apps[0].endpoints) >= endpointsMax {
		return nil
	}
	return h.apps[0]
}
