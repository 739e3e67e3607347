package sim

import "github.com/softrnic/softrnic/internal/wire/ib"

// strike waits for the worst moment to do something to a queue pair: when a part of a message has
// come, and the rest is on its way.
func (w *World) strike(e *endpoint, do func()) {
	p, serial := e.pair, e.pair.serial
	w.strikes[place(e.app.host, e.qpn)] = func() {
		if p.serial == serial && !p.isDoomed && !e.isGone && !w.isCalm {
			w.mark("strike")
			do()
			p.stir()
		}
	}
}

// struck is called after a NIC has taken a packet.
func (w *World) struck(to *host, h *ib.Headers) {
	op := h.BTH.Opcode
	if len(w.strikes) == 0 || !op.IsRequest() || !op.IsFirst() && !op.IsMiddle() {
		return
	}
	at := place(to, uint32(h.BTH.DestQPN))
	do := w.strikes[at]
	if do == nil {
		return
	}
	delete(w.strikes, at)
	if !to.isBusy {
		do()
		return
	}
	// It sends a burst to itself: what follows in the burst comes first.
	w.at(w.now, func() {
		do()
		w.turnAll()
	})
}
