package sim

// judgeHalves finds connections that one end believes in and the other does not, at rest.
func (w *World) judgeHalves() {
	if w.streams == nil {
		return
	}
	for _, p := range w.pairs {
		a, b := p.ends[0], p.ends[1]
		if a == nil || b == nil || a.isGone || b.isGone {
			continue
		}
		if a.dial.state == dialUp && p.ending == p.life() {
			w.court.Failf("%s: a request that %s has to refuse has not ended the connection", a.name,
				b.name)
		}
		if a.dial.state == dialUp && b.dial.state == dialUp {
			w.mark("world.pair_at_rest")
		} else if a.dial.state == dialUp || b.dial.state == dialUp {
			w.court.Failf("%s: dial state %d at rest, that of %s is %d", a.name, a.dial.state, b.name,
				b.dial.state)
		}
		for _, e := range p.ends {
			if e.dial.state == dialAsking {
				w.court.Failf("%s: connect or accept has no outcome", e.name)
			}
		}
	}
}

// judgeStreams looks for what programs that are gone left behind in TCP.
func (h *host) judgeStreams() {
	w := h.world
	if h.tcp == nil || w.court.HasFailed() {
		return
	}
	for _, id := range sortedKeys(h.tcp.socks) {
		w.court.Failf("%s: a socket is left", h.tcp.socks[id].name)
	}
	if n := len(h.tcp.listeners); n > 0 {
		w.court.Failf("%s: %d listeners are left", h.name, n)
	}
	if s := h.nic.Status(); len(s.CMIDs) > 0 {
		w.court.Failf("%s: identifiers are left: %v", h.name, s.CMIDs)
	}
	if h.nic.HasWork() {
		w.court.Failf("%s: the NIC has work for nobody", h.name)
	}
}
