package nic

import (
	"syscall"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/invariant"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
)

// Config makes a NIC.
type Config struct {
	// Devices are what programs see of the NIC, at least one. Where a program does not say which it
	// means, the first that can do what it asks is taken.
	Devices  []DeviceConfig
	NodeGUID rdma.GUID // of the first device; never 0. Those of the others follow from it.
	Version  string    // shown as firmware version
	// Secret decides keys, first QPN and the first sequence numbers of connections; the same secret
	// and calls repeat exactly.
	Secret uint64
	// Client bounds what each application may have; fields that are 0 stand for the defaults.
	Client limits.Client
	Memory Allocator
	// LocalSegment is the payload in bytes of a full packet between connected QPs of this NIC,
	// whatever path MTU they ask for; 0 keeps to the path MTU (ADR 0011).
	LocalSegment uint32
	// UnreliableRate bounds what UC and UD queue pairs together send to other hosts, in bytes per
	// second; 0 is no bound (ADR 0014).
	UnreliableRate uint64
	// HoldCompletions is how long the completions of a queue are held back, so that a program finds
	// many at once, as with some adapters; 0 shows each as it comes.
	HoldCompletions time.Duration
	// NoPackets says that packets reach nobody beyond this NIC, while streams do.
	NoPackets bool
	// Groups joins multicast groups on the network; nil where there is none.
	Groups GroupPort
	// Streams is TCP, which iWARP runs over; nil where there is none.
	Streams StreamPort
	// Scratch is what NICs that one thread drives may share; nil stands for one of its own.
	Scratch *work.Scratch
	// Tickets is abi.TicketBytes of memory that applications can read; nil sends every operation
	// through the NIC (ADR 0026).
	Tickets []byte
}

// NIC is one adapter with its objects. Its methods, and those of its contexts, are for one thread.
type NIC struct {
	cfg      Config
	now      clock.Time
	memory   *mem.Table
	scratch  *work.Scratch
	devices  []*device
	local    map[rdma.GID]bool // destinations whose packets the shell loops back
	contexts []*Context
	qps      map[rdma.QPN]*qp
	ahs      map[uint32]*addressHandle
	srqns    map[uint32]*srq // XRC SRQs by number
	domains  map[XRCKey]*xrcDomain
	counts   census
	// multicast and cm have tables of their own.
	multicast *multicast
	cm        *connections
	streams   *streams
	direct    direct
	nextID    uint32
	nextQPN   rdma.QPN
	nextSRQN  uint32
	seed      uint64

	// handsOver says that messages inside the NIC need no packets; see HandOver.
	handsOver  bool
	handedOver int
	scrap      ibt.Packet // of what is handed over

	run    runQueue
	pacer  pacer
	timers timerHeap[*qp]
	doomed []*cq // overrun CQs whose QPs have to fail yet
	// moderated are the CQs that hold an event back.
	moderated moderatedList
	// held are the CQs that hold completions back.
	held   heldList
	events eventQueue

	counters Counters
	causes   causeLog
}

// New makes a NIC without addresses; SetPort gives it some.
func New(cfg Config) *NIC {
	cfg.Client = cfg.Client.WithDefaults()
	invariant.Assert(len(cfg.Devices) > 0, "nic: no device")
	if cfg.Scratch == nil {
		cfg.Scratch = work.NewScratch()
	}
	n := &NIC{
		cfg:      cfg,
		devices:  newDevices(&cfg),
		memory:   mem.NewTable(cfg.Secret),
		scratch:  cfg.Scratch,
		qps:      make(map[rdma.QPN]*qp),
		ahs:      make(map[uint32]*addressHandle),
		srqns:    make(map[uint32]*srq),
		domains:  make(map[XRCKey]*xrcDomain),
		seed:     cfg.Secret,
		pacer:    pacer{rate: cfg.UnreliableRate},
		nextQPN:  firstQPN + rdma.QPN(cfg.Secret>>20)&0xffff,
		nextSRQN: uint32(cfg.Secret>>36) & 0xffff,
	}
	n.multicast = newMulticast(n)
	n.cm = newConnections(n)
	n.streams = newStreams(n)
	n.direct = newDirect(n, cfg.Tickets)
	return n
}

// firstQPN leaves 0…15 to special queue pairs.
const firstQPN rdma.QPN = 16

// id returns a handle that no living object has. Handles start at 1 and are not reused before
// 2^32 others were given.
func (n *NIC) id() uint32 {
	n.nextID++
	if n.nextID == 0 {
		n.nextID = 1
	}
	return n.nextID
}

// newQPN returns a free queue pair number. Numbers rise, so that late packets to a dead QP meet
// nobody for long.
func (n *NIC) newQPN() rdma.QPN {
	for {
		q := n.nextQPN
		n.nextQPN++
		if n.nextQPN >= rdma.QPNMulticast {
			n.nextQPN = firstQPN
		}
		if _, taken := n.qps[q]; !taken {
			return q
		}
	}
}

// random is the NIC's own sequence for values that only have to differ.
func (n *NIC) random() uint64 {
	n.seed = n.seed*6364136223846793005 + 1442695040888963407
	return n.seed ^ n.seed>>29
}

// HandlePacket takes a packet that arrived from the wire or from a QP of this NIC.
func (n *NIC) HandlePacket(now clock.Time, p *ibt.Packet) {
	n.now = now
	dest := p.Headers.BTH.DestQPN
	q := n.qps[dest]
	if q == nil || q.ibt == nil {
		n.handleSpecial(now, p, dest)
		return
	}
	q.ibt.HandlePacket(now, p)
	n.settle(q)
	n.failDoomed()
	n.cm.collect()
}

// handleSpecial takes a packet for a queue pair number that no application owns.
func (n *NIC) handleSpecial(now clock.Time, p *ibt.Packet, dest rdma.QPN) {
	switch dest {
	case rdma.QPNGSI:
		n.cm.handleGSI(now, p)
	case rdma.QPNMulticast:
		n.multicast.handlePacket(now, p)
	default:
		n.counters.NoQP++
	}
}

// HandleUnreachable tells all QPs connected to peer that its host has no NIC (an ICMP port
// unreachable came back).
func (n *NIC) HandleUnreachable(now clock.Time, peer rdma.GID) {
	n.now = now
	n.counters.Unreachable++
	for _, c := range n.contexts {
		for _, q := range c.sortedQPs() {
			if q.ibt != nil && q.qpType != rdma.QPTypeUD && q.ibt.Attr().AV.DGID == peer {
				q.ibt.HandleUnreachable(now)
				n.settle(q)
			}
		}
	}
	n.failDoomed()
	n.cm.handleUnreachable(peer, syscall.ECONNREFUSED)
}

// HandleNoHost says that packets to peer do not arrive anywhere (ICMP host unreachable, which is
// also what a host says of a neighbour that does not answer ARP). Queue pairs go on trying, since
// hosts come back; who is connecting learns.
func (n *NIC) HandleNoHost(now clock.Time, peer rdma.GID) {
	n.now = now
	n.cm.handleUnreachable(peer, syscall.EHOSTUNREACH)
}

// HandleTimeout runs the timers that are due.
func (n *NIC) HandleTimeout(now clock.Time) {
	n.now = now
	for {
		q := n.timers.due(now)
		if q == nil {
			break
		}
		if q.ibt.PollTimeout() <= now {
			q.ibt.HandleTimeout(now)
		}
		n.settle(q)
	}
	n.pacer.release(n, now)
	n.held.handleTimeout(now)
	n.streams.handleTimeout(now)
	n.moderated.handleTimeout(now)
	n.failDoomed()
	n.cm.handleTimeout(now)
}

// PollTimeout returns when HandleTimeout wants to be called; it may be early, never late.
func (n *NIC) PollTimeout() clock.Time {
	return min(n.timers.next(), n.streams.timers.next(), n.cm.pollTimeout(), n.pacer.deadline(),
		n.moderated.deadline(), n.held.deadline())
}

// PollTransmit fills p with the next packet to send: management first, then QPs in turns.
func (n *NIC) PollTransmit(now clock.Time, p *ibt.Packet) bool {
	n.now = now
	p.More = 0
	if n.cm.pollTransmit(now, p) {
		return true
	}
	// One turn more than there are QPs: who has used up its quota and is alone goes on.
	handed := n.handedOver
	for turns := n.run.len() + 1; turns > 0 && n.run.head != nil; turns-- {
		if n.handedOver-handed >= handOversPerPoll {
			return false
		}
		q := n.run.head.owner
		if n.pacer.holds(q, now) {
			n.run.pop()
			n.pacer.hold(q)
			continue
		}
		n.handOver(q)
		if q.quota > 0 && q.pollTransmit(now, p) {
			n.pacer.charge(n, q, p)
			n.show(q)
			return true
		}
		n.run.pop()
		n.settle(q)
	}
	if len(n.streams.flushing) > 0 {
		n.streams.flush(now)
	}
	n.failDoomed()
	return false
}

// pollTransmit takes packets within the quota, which is positive.
func (q *qp) pollTransmit(now clock.Time, p *ibt.Packet) bool {
	most := p.RunMax
	p.RunMax = min(most, uint32(q.quota))
	isSending := q.ibt.PollTransmit(now, p)
	p.RunMax = most
	if isSending {
		q.quota -= 1 + int(p.More)
	}
	return isSending
}

// HasWork reports that PollTransmit or PollStream may have more although they returned false once.
func (n *NIC) HasWork() bool {
	return n.run.head != nil || n.cm.isActive || n.streams.hasWork()
}

// settle follows a QP after a call into its engine: run queue, timer, and the state that the
// application sees.
func (n *NIC) settle(q *qp) {
	if q.dead {
		return
	}
	if q.ibt == nil {
		n.settleStreamed(q)
		return
	}
	n.show(q)
	if q.ibt.HasWork() {
		n.run.push(q)
	}
	n.timers.update(&q.timer, q.ibt.PollTimeout())
}

// show publishes the QP's state. In the error state receives ring the doorbell too; those that
// were posted before the application saw the flag are fetched at once.
func (n *NIC) show(q *qp) {
	s := q.state()
	if s == q.shown {
		if q.direct.rights != 0 {
			q.showDone()
		}
		return
	}
	q.shown = s
	q.stateWord.Store(uint32(s))
	n.direct.follow(q)
	if s != rdma.QPStateError {
		q.rqDoorbell.Store(0)
		return
	}
	q.rqDoorbell.Store(1)
	q.engine.HandleDoorbell(n.now)
}

// failDoomed moves the QPs of overrun CQs to the error state (IBTA 10.10.2.3); it runs outside
// any engine call, since the overrun was found inside one.
func (n *NIC) failDoomed() {
	for len(n.doomed) > 0 {
		c := n.doomed[0]
		n.doomed = n.doomed[1:]
		for _, q := range c.context.sortedQPs() {
			if q.dead || (q.sendCQ != c && q.recvCQ != c) {
				continue
			}
			if q.state() != sError {
				q.Note(nil, work.Cause{Vendor: abi.VendorCQOverrun, Length: uint64(c.ring.Entries())})
			}
			q.fail(n.now)
			n.raise(q.context, rdma.EventQPFatal, q.handle)
		}
	}
}
