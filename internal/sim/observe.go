package sim

import (
	"maps"
	"slices"

	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

// observer watches packets from outside and marks rare ones, so that a test can demand that the
// seeds reach them (STYLE T4).
type observer struct {
	world   *World
	flows   map[uint64]*flow
	headers ib.Headers
}

// flow is what was seen of the requests to one queue pair.
type flow struct {
	psn      rdma.PSN
	isUsed   bool
	read     rdma.PSN // the last READ request
	readSize uint32
	hasRead  bool
	atomics  map[rdma.PSN]bool
	// answered are the PSNs that only data answer: those of READs and atomics.
	answered map[rdma.PSN]bool
}

func (w *World) mark(name string) { w.marks[name]++ }

func (w *World) markStatus(s rdma.WCStatus) {
	if s != rdma.WCSuccess {
		w.mark("wc." + s.String())
	}
}

func (o *observer) flow(h *host, q rdma.QPN) *flow {
	key := uint64(h.index)<<32 | uint64(q)
	f := o.flows[key]
	if f == nil {
		f = &flow{atomics: map[rdma.PSN]bool{}, answered: map[rdma.PSN]bool{}}
		o.flows[key] = f
	}
	return f
}

// forget drops what was seen of requests to a queue pair that was reset.
func (o *observer) forget(e *endpoint) {
	delete(o.flows, uint64(e.app.host.index)<<32|uint64(e.qpn))
}

// sent looks at a packet before the network has its way with it.
func (o *observer) sent(f *flight) {
	h := &o.headers
	if _, err := h.Parse(f.buf[:len(f.buf)-4]); err != nil {
		o.world.court.Failf("%s sends what nobody understands: %v", f.from.name, err)
		return
	}
	if !h.BTH.Opcode.IsRequest() {
		o.judgeAcknowledge(f)
		return
	}
	x := o.flow(f.to, h.BTH.DestQPN)
	psn := h.BTH.PSN
	if x.isUsed && psn < 0x1000 && x.psn > 0xfff000 {
		o.world.mark("request.psn_wrap")
	}
	if x.isUsed && psn.LessEq(x.psn) {
		o.world.mark("request.again")
	}
	x.psn, x.isUsed = psn, true
	x.noteAnswered(h, uint32(o.world.plan.mtu.Bytes()))
	if !h.BTH.Opcode.IsReadRequest() {
		return
	}
	switch mtu := uint32(o.world.plan.mtu.Bytes()); {
	case x.hasRead && psn == x.read:
		o.world.mark("read.again")
	case x.hasRead && x.read.Less(psn) && psn.Less(x.read.Add((x.readSize+mtu-1)/mtu)):
		o.world.mark("read.partial_retry")
		return
	}
	x.read, x.readSize, x.hasRead = psn, h.RETH.Length, true
}

// noteAnswered remembers how the peer has to answer.
func (x *flow) noteAnswered(h *ib.Headers, mtu uint32) {
	psn, n := h.BTH.PSN, uint32(1)
	isData := h.BTH.Opcode.IsAtomic() || h.BTH.Opcode.IsReadRequest()
	if h.BTH.Opcode.IsReadRequest() {
		n = max(1, (h.RETH.Length+mtu-1)/mtu)
	}
	for i := range n {
		if isData {
			x.answered[psn.Add(i)] = true
		} else {
			delete(x.answered, psn.Add(i))
		}
	}
}

// judgeAcknowledge finds a plain ACK with the PSN of a READ or an atomic, which would say that
// data were sent that were not (case T05).
func (o *observer) judgeAcknowledge(f *flight) {
	h := &o.headers
	if h.BTH.Opcode != ib.RCAcknowledge || h.AETH.Syndrome.Kind() != ib.SyndromeACK {
		return
	}
	for _, a := range f.to.apps {
		e := a.endpointOf(uint32(h.BTH.DestQPN))
		if e == nil || e.peer == nil || e.peer.isGone {
			continue
		}
		if o.flow(f.from, rdma.QPN(e.peer.qpn)).answered[h.BTH.PSN] {
			o.world.court.Failf("%s: an ACK carries PSN %v, which a READ or atomic has",
				e.peer.name, h.BTH.PSN)
		}
	}
}

// arrived looks at a packet that a NIC is about to get.
func (o *observer) arrived(to *host, h *ib.Headers) {
	w := o.world
	op := h.BTH.Opcode
	if op.IsAtomic() {
		x := o.flow(to, h.BTH.DestQPN)
		if x.atomics[h.BTH.PSN] {
			w.mark("atomic.duplicate")
		}
		x.atomics[h.BTH.PSN] = true
	}
	if op == ib.CNP {
		w.mark("congestion.notified")
	}
	if !op.HasAETH() {
		return
	}
	switch s := h.AETH.Syndrome; s.Kind() {
	case ib.SyndromeRNRNAK:
		w.mark("nak.not_ready")
	case ib.SyndromeNAK:
		w.mark("nak." + s.NAKCode().String())
	case ib.SyndromeACK:
		if n, ok := s.Credits().Decode(); ok && n == 0 {
			w.mark("ack.no_credits")
		}
	case ib.SyndromeReserved:
		w.court.Failf("%s gets a reserved syndrome", to.name)
	}
}

// markCounters marks what only the NICs' counters tell.
func (w *World) markCounters() {
	for _, h := range w.hosts {
		for name, v := range h.nic.Status().Counters {
			h.counters[name] += v
		}
		for _, name := range slices.Sorted(maps.Keys(h.counters)) {
			if v := h.counters[name]; v > 0 {
				w.marks["counter."+name] += v
			}
		}
	}
}
