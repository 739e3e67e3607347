package sim

import (
	"maps"
	"slices"

	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/sim/check"
	"github.com/softrnic/softrnic/internal/wire/ib"
	"github.com/softrnic/softrnic/internal/wire/roce"
)

// observer watches packets from outside and marks rare ones, so that a test can demand that the
// seeds reach them (STYLE T4).
type observer struct {
	world   *World
	flows   map[uint64]*flow
	headers ib.Headers
	// Conversations by responder and by requester.
	requests, answers map[uint64]*check.Conversation
}

// place names a queue pair of any host.
func place(h *host, qpn uint32) uint64 { return uint64(h.index)<<32 | uint64(qpn) }

// listen follows the packets of a reliable connection from e to its peer and back.
func (o *observer) listen(e *endpoint) {
	c := &check.Conversation{
		Court: &o.world.court, Name: e.name + " ⇄ " + e.peer.name,
		MTU: uint32(o.world.plan.mtu.Bytes()), First: e.psn,
		RNRRetry: int(e.pair.rnrRetry), Flushed: e.flushed,
	}
	o.requests[place(e.peer.app.host, e.peer.qpn)] = c
	o.answers[place(e.app.host, e.qpn)] = c
}

// flow is what was seen of the requests to one queue pair.
type flow struct {
	psn      rdma.PSN
	isUsed   bool
	read     rdma.PSN // the last READ request
	readSize uint32
	hasRead  bool
	atomics  map[rdma.PSN]bool
}

func (w *World) mark(name string) { w.marks[name]++ }

func (w *World) markStatus(s rdma.WCStatus) {
	if s != rdma.WCSuccess {
		w.mark("wc." + s.String())
	}
}

func (o *observer) flow(h *host, q rdma.QPN) *flow {
	key := place(h, uint32(q))
	f := o.flows[key]
	if f == nil {
		f = &flow{atomics: map[rdma.PSN]bool{}}
		o.flows[key] = f
	}
	return f
}

// retuned hears that e repeats for ever from now on what meets a receiver that is not ready.
func (o *observer) retuned(e *endpoint) {
	if c := o.answers[place(e.app.host, e.qpn)]; c != nil {
		c.RNRRetry = 7
	}
}

// forget drops what was seen of a queue pair that is reset or gone.
func (o *observer) forget(e *endpoint) {
	at := place(e.app.host, e.qpn)
	delete(o.flows, at)
	delete(o.world.strikes, at)
	delete(o.requests, at)
	delete(o.answers, at)
}

// sent looks at a packet before the network has its way with it.
func (o *observer) sent(f *flight) {
	h := &o.headers
	payload, err := h.Parse(f.buf[:len(f.buf)-roce.ICRCLen])
	if err != nil {
		o.world.court.Failf("%s sends what nobody understands: %v", f.from.name, err)
		return
	}
	if !h.BTH.Opcode.IsRequest() {
		c := o.answers[place(f.to, uint32(h.BTH.DestQPN))]
		if c != nil && h.BTH.Opcode.IsResponse() {
			c.Answer(h, payload)
		}
		return
	}
	if c := o.requests[place(f.to, uint32(h.BTH.DestQPN))]; c != nil {
		c.Request(o.world.now, h, payload)
	}
	if check.IsQuestion(h, payload) {
		o.world.mark("read.question")
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

// operationMarks name the duplicates of what must not be done twice.
var operationMarks = map[ib.Operation]string{
	ib.OperationFetchAdd: "atomic.duplicate", ib.OperationCompareSwap: "atomic.duplicate",
	ib.OperationAtomicWrite: "atomic_write.duplicate", ib.OperationFlush: "flush.duplicate",
}

// arrived looks at a packet that a NIC is about to get.
func (o *observer) arrived(to *host, h *ib.Headers) {
	w := o.world
	op := h.BTH.Opcode
	if name := operationMarks[op.Info().Operation]; name != "" {
		x := o.flow(to, h.BTH.DestQPN)
		if x.atomics[h.BTH.PSN] {
			w.mark(name)
		}
		x.atomics[h.BTH.PSN] = true
	}
	if c := o.answers[place(to, uint32(h.BTH.DestQPN))]; c != nil && op.IsResponse() {
		c.Arrived(w.now, h)
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
