package nic

import (
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
)

// direct hands rights to libraries that carry one-sided operations out themselves, and takes them
// back (ADR 0026). Whatever takes a right back clears the shared word first and looks then whether
// the library is at work; the library says that it is and looks at the words then.
type direct struct {
	nic     *NIC
	tickets []*atomic.Uint64 // by slot; none: there is no direct path
	free    []uint32         // slots
	last    uint64           // ticket
	links   uint32
	regions map[*mem.Region]*ticket
	isHeld  bool // no grants for a while
	waits   []DirectWait
}

// ticket is a region that somebody may have mapped.
type ticket struct {
	slot    uint32
	value   uint64
	holders map[*qp]struct{}
}

// directEnd is a queue pair's part.
type directEnd struct {
	over                    directTransport
	grant, busy, done       *atomic.Uint32 // nil where the queue pair never goes direct
	ops, sent, received     *atomic.Uint64
	shown                   uint32 // in done
	rights                  uint32 // in grant
	link                    uint32
	peer                    *qp // with which it is connected both ways; nil: none of this NIC
	tickets                 map[*ticket]struct{}
	late                    DirectWait // the last peer's library, if it was at work when they parted
	opsWas, outWas, backWas uint64     // what was counted before
}

// DirectWait is a library that may still use a right that was taken back.
type DirectWait struct {
	q    *qp
	seen uint32
}

// IsOver reports that the library has seen that the right is gone, or is gone itself.
func (w DirectWait) IsOver() bool { return w.q.dead || w.q.direct.busy.Load() != w.seen }

// Owner returns the owner of the context that w waits for.
func (w DirectWait) Owner() any { return w.q.context.cfg.Owner }

func newDirect(n *NIC, tickets []byte) direct {
	d := direct{nic: n, regions: make(map[*mem.Region]*ticket)}
	for at := 0; at+8 <= len(tickets); at += 8 {
		d.tickets = append(d.tickets, ring.Word64(tickets, at))
	}
	for i := len(d.tickets) - 1; i >= 0; i-- {
		d.free = append(d.free, uint32(i))
	}
	return d
}

// newDirectEnd finds the words of a queue pair's memory.
func (q *qp) newDirectEnd(m []byte) (e directEnd) {
	if len(q.nic.direct.tickets) == 0 || q.qpType != rdma.QPTypeRC {
		return e
	}
	e.over = packetLink{q}
	if q.ibt == nil {
		e.over = streamLink{q}
	}
	e.grant, e.busy = ring.Word(m, abi.OffQPGrant), ring.Word(m, abi.OffDirectBusy)
	e.done, e.ops = ring.Word(m, abi.OffSQDone), ring.Word64(m, abi.OffDirectOps)
	e.sent, e.received = ring.Word64(m, abi.OffDirectSent), ring.Word64(m, abi.OffDirectReceived)
	return e
}

// follow gives or takes rights after something about q may have changed.
func (d *direct) follow(q *qp) {
	if q.direct.grant == nil {
		return
	}
	d.awaitLate(q)
	peer := d.peerOf(q)
	if old := q.direct.peer; old != nil && old != peer {
		d.unlink(q, old)
	}
	if peer == nil {
		return
	}
	if q.direct.peer == nil {
		d.links = (d.links + 1) & (1<<(32-abi.GrantLinkShift) - 1)
		q.direct.peer, q.direct.link = peer, d.links
		peer.direct.peer, peer.direct.link = q, d.links
	}
	d.set(q, d.rightsOf(q, peer))
	d.set(peer, d.rightsOf(peer, q))
}

// unlink parts two ends.
func (d *direct) unlink(q, peer *qp) {
	for _, x := range []*qp{q, peer} {
		x.countDirect()
		d.set(x, 0)
		// A library at work may be at work in these regions: who takes one of them away waits for it,
		// though the connection has gone before. So does who ends or changes the other queue pair.
		if seen := x.direct.busy.Load(); seen&1 == 0 {
			x.dropTickets()
		} else {
			x.direct.peer.direct.late = DirectWait{x, seen}
		}
	}
	q.direct.peer, peer.direct.peer = nil, nil
}

// dropTickets forgets the regions that q's library may have mapped.
func (q *qp) dropTickets() {
	for t := range q.direct.tickets {
		delete(t.holders, q)
	}
	clear(q.direct.tickets)
}

// leave ends the part of a queue pair that goes.
func (d *direct) leave(q *qp) {
	if peer := q.direct.peer; peer != nil {
		d.unlink(q, peer)
	}
	d.awaitLate(q)
	q.dropTickets()
}

// peerOf returns the queue pair of this NIC that q is connected with, both ways and by programs of
// one user that want it; else nil.
func (d *direct) peerOf(q *qp) *qp {
	if q.dead {
		return nil
	}
	p := q.direct.over.peer()
	if p == nil || p.dead || p.direct.grant == nil {
		return nil
	}
	x, y := &q.context.cfg, &p.context.cfg
	if x.UID != y.UID || x.KeepsOut || y.KeepsOut {
		return nil
	}
	return p
}

// rightsOf is what q may do at its peer.
func (d *direct) rightsOf(q, peer *qp) uint32 {
	if d.isHeld || q.state() != sRTS {
		return 0
	}
	return q.direct.over.begins() & peer.direct.over.serves()
}

// set shows what q may do.
func (d *direct) set(q *qp, rights uint32) {
	e := &q.direct
	word := rights
	if rights != 0 {
		word |= e.link << abi.GrantLinkShift
		q.showDone()
	}
	if e.rights == rights {
		return
	}
	lost := e.rights &^ rights
	e.rights = rights
	e.grant.Store(word)
	if lost != 0 {
		d.await(q)
	}
}

// await notes q if its library is at work, since what was just cleared may still be in use.
func (d *direct) await(q *qp) {
	if seen := q.direct.busy.Load(); seen&1 != 0 {
		d.note(DirectWait{q, seen})
	}
}

// awaitLate notes the library that was at work when q's last connection ended, if it still is: what
// it has begun may reach memory of q's owner.
func (d *direct) awaitLate(q *qp) {
	switch late := q.direct.late; {
	case late.q == nil:
	case late.IsOver():
		q.direct.late = DirectWait{}
	default:
		d.note(late)
	}
}

func (d *direct) note(w DirectWait) {
	if !slices.Contains(d.waits, w) {
		d.waits = append(d.waits, w)
	}
}

// showDone tells the library how far the send queue is complete.
func (q *qp) showDone() {
	if done := q.direct.over.done(); done != q.direct.shown {
		q.direct.shown = done
		q.direct.done.Store(done)
	}
}

// revoke ends the ticket of a region, which is about to change or go.
func (d *direct) revoke(r *mem.Region) {
	t := d.regions[r]
	if t == nil {
		return
	}
	d.tickets[t.slot].Store(0)
	for q := range t.holders {
		d.await(q)
		delete(q.direct.tickets, t)
	}
	delete(d.regions, r)
	d.free = append(d.free, t.slot)
}

// TakeDirectWaits returns the libraries that may still use what was taken back since the last call.
// Until they are over, memory that is not a peer's any more may change.
func (n *NIC) TakeDirectWaits() []DirectWait {
	w := n.direct.waits
	n.direct.waits = nil
	return w
}

// HoldDirect takes all rights back, or gives them again: while it holds, every operation goes
// through the NIC, where it can be seen.
func (n *NIC) HoldDirect(hold bool) {
	if n.direct.isHeld == hold || len(n.direct.tickets) == 0 {
		return
	}
	n.direct.isHeld = hold
	n.followDirect()
}

// followDirect follows all queue pairs.
func (n *NIC) followDirect() {
	if len(n.direct.tickets) == 0 {
		return
	}
	for _, c := range n.contexts {
		for _, q := range c.sortedQPs() {
			n.direct.follow(q)
		}
	}
}

// RemotePart is memory of a peer that a library may map.
type RemotePart struct {
	Owner  any    // of the context that it belongs to
	Handle uint32 // of the region
	Bytes  []byte // the NIC's view of the part
}

// MapRemote lets a queue pair's library reach memory of its peer by itself. The shell adds where in
// a memfd the part lies, or refuses.
func (c *Context) MapRemote(req *abi.MapRemoteReq) (
	rsp abi.MapRemoteRsp, part RemotePart, refusal *rdma.Refusal,
) {
	d := &c.nic.direct
	q := c.qps[req.QP]
	switch {
	case q == nil:
		return rsp, part, refusef(syscall.EINVAL, "queue pair %d is unknown", req.QP)
	case q.direct.rights == 0:
		return rsp, part, refusef(syscall.EPERM, "queue pair %v does not go direct", q.qpn)
	}
	peer := q.direct.peer
	r, refusal := c.nic.checkRemote(req, peer)
	if refusal != nil {
		return rsp, part, refusal
	}
	start, bytes := r.Piece(req.Addr, req.Length)
	part = RemotePart{Owner: peer.context.cfg.Owner, Handle: peer.context.handleOf(r), Bytes: bytes}
	if bytes == nil || part.Handle == 0 || peer.context.memory.dmOf[part.Handle] != nil {
		return rsp, part, refusef(syscall.EOPNOTSUPP, "the memory is not mapped in one piece")
	}
	t := d.ticketOf(r)
	if t == nil {
		return rsp, part, refusef(syscall.ENOSPC, "all %d tickets are in use", len(d.tickets))
	}
	t.holders[q] = struct{}{}
	if q.direct.tickets == nil {
		q.direct.tickets = make(map[*ticket]struct{})
	}
	q.direct.tickets[t] = struct{}{}
	return abi.MapRemoteRsp{
		Ticket: t.value, Slot: t.slot, Addr: start, Length: uint64(len(bytes)),
		Access: uint32(r.Access), Link: q.direct.link,
	}, part, nil
}

// checkRemote finds the region of a key that peer opens. A window's key is none: it can change
// without the NIC's control.
func (n *NIC) checkRemote(req *abi.MapRemoteReq, peer *qp) (*mem.Region, *rdma.Refusal) {
	r := n.memory.Find(rdma.Key(req.RKey))
	switch {
	case r == nil || r.Kind() != mem.KindMemory:
		return nil, refusef(syscall.ENOENT, "rkey %v is no region's", rdma.Key(req.RKey))
	case r.PD != mem.PD(peer.init.PD):
		return nil, refusef(syscall.EPERM, "the region is of another protection domain")
	case r.Access&rdma.AccessRemoteAny == 0:
		return nil, refusef(syscall.EPERM, "the region has no remote access")
	}
	return r, nil
}

func (c *Context) handleOf(r *mem.Region) uint32 {
	for h, x := range c.mrs {
		if x == r {
			return h
		}
	}
	return 0
}

// ticketOf returns the ticket of a region, a new one if need be; nil where there is no slot.
func (d *direct) ticketOf(r *mem.Region) *ticket {
	if t := d.regions[r]; t != nil {
		return t
	}
	k := len(d.free)
	if k == 0 {
		return nil
	}
	d.last++
	t := &ticket{slot: d.free[k-1], value: d.last, holders: make(map[*qp]struct{})}
	d.free = d.free[:k-1]
	d.regions[r] = t
	d.tickets[t.slot].Store(t.value)
	return t
}

// directOpBytes is the most that one operation can have moved: what a library says beyond it is not
// true.
const directOpBytes = 1 << 31

// countDirect brings the counters up to date.
func (n *NIC) countDirect() {
	for _, c := range n.contexts {
		for _, q := range c.qps {
			q.countDirect()
		}
	}
}

// countDirect adds what the library did itself to the counters. A library can lie about itself.
func (q *qp) countDirect() {
	e := &q.direct
	if e.grant == nil {
		return
	}
	ops, sent, received := e.ops.Load(), e.sent.Load(), e.received.Load()
	n, out, back := ops-e.opsWas, sent-e.outWas, received-e.backWas
	e.opsWas, e.outWas, e.backWas = ops, sent, received
	if n == 0 || n > 1<<48 || out/directOpBytes > n || back/directOpBytes > n {
		return
	}
	q.Count(work.CountDirectOps, n)
	q.Count(work.CountDirectBytes, out+back)
	q.Count(work.CountSentBytes, out)
	q.Count(work.CountRcvdBytes, back)
	if p := e.peer; p != nil {
		p.Count(work.CountRcvdBytes, out)
		p.Count(work.CountSentBytes, back)
	}
}
