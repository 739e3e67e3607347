package sim

import (
	"bytes"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
)

// desk is what a caller needs of verbs: memory, one completion queue, and queue pairs.
type desk struct {
	ctx    *nic.Context
	bells  []byte
	mem    []byte
	pd, cq uint32
	xrcd   uint32
	key    uint32
	done   *ring.Consumer
	plugs  map[uint32]*plug // by queue pair number
	places []bool           // of the memory that are taken
	own    *plug            // for datagrams
}

// plug is a queue pair.
type plug struct {
	caller            *caller
	call              *call // nil: datagrams
	isActive          bool
	kind              rdma.QPType
	handle, qpn, slot uint32
	sq, rq            *ring.Producer
	srq, srqn         uint32 // XRC: the shared queue of a target, and its number for peers
	place             int
	said, heard       int
	isBroken          bool // a request failed
	groups            map[rdma.GID]bool
}

// A place is memory for one queue pair: messages to send, then buffers for messages that come.
const (
	deskBase    = 0x5000_0000
	messageMax  = 3000
	messageRoom = messageMax + ibt.GRHBytes
	talkMax     = 6 // messages of one direction
	placeBytes  = 2 * talkMax * messageRoom
	placesMax   = 128
	deskEntries = 4096
)

func (c *caller) openDesk() {
	w := c.world
	c.bells, c.mem = make([]byte, abi.DoorbellPageBytes), make([]byte, w.board.plan.places*placeBytes)
	c.plugs, c.places = map[uint32]*plug{}, make([]bool, w.board.plan.places)
	ctx, refusal := c.host.nic.OpenContext(w.now, nic.ContextConfig{
		Name: c.name, PID: uint32(1000 + w.appCount), Space: c, Doorbells: c.bells, Owner: c,
	})
	if refusal != nil {
		w.court.Failf("%s: open: %v", c.name, refusal)
		return
	}
	c.ctx = ctx
	c.pd, refusal = ctx.AllocPD()
	n := uint64(len(c.mem))
	mr, r := ctx.RegMR(&abi.RegMRReq{
		PD: c.pd, Access: uint32(rdma.AccessLocalWrite), Addr: deskBase, Length: n, IOVA: deskBase,
		NumSegments: 1,
	}, []mem.Segment{{Addr: deskBase, Length: n, Mapped: c.mem}})
	rsp, shared, r2 := ctx.CreateCQ(&abi.CreateCQReq{Entries: w.board.plan.entries})
	xrcd, r3 := ctx.OpenXRCD(nil, abi.XRCDCreate)
	if refusal != nil || r != nil || r2 != nil || r3 != nil {
		w.court.Failf("%s: open the device: %v, %v, %v, %v", c.name, refusal, r, r2, r3)
		return
	}
	c.xrcd = xrcd
	c.key, c.cq = mr.LKey, rsp.Handle
	m := shared.Bytes()
	c.done = ring.NewConsumer(m[abi.QueueHeaderBytes:],
		ring.Geometry{Entries: rsp.Entries, Stride: abi.CQEBytes},
		ring.Word(m, abi.OffCQProducer), ring.Word(m, abi.OffCQConsumer))
	if c.own = c.newPlug(rdma.QPTypeUD, nil, false); c.own != nil {
		c.own.openForDatagrams()
	}
}

// Read implements mem.Space: all memory is mapped.
func (c *caller) Read(addr uint64, dst []byte) bool {
	c.world.court.Failf("%s: the NIC reads %d bytes at %#x through the process", c.name, len(dst),
		addr)
	return false
}

// Write implements mem.Space.
func (c *caller) Write(addr uint64, src []byte) bool { return c.Read(addr, src) }

// IsGone implements mem.Space.
func (c *caller) IsGone() bool { return false }

// newPlug makes a queue pair with receives, nil where there is no room.
func (c *caller) newPlug(kind rdma.QPType, owner *call, isActive bool) *plug {
	w := c.world
	place := 0
	for place < len(c.places) && c.places[place] {
		place++
	}
	if place == len(c.places) {
		return nil
	}
	rsp, shared, refusal := c.ctx.CreateQP(w.now, &abi.CreateQPReq{
		Type: uint32(kind), PD: c.pd, SendCQ: c.cq, RecvCQ: c.cq, MaxSendWR: 2 * talkMax,
		MaxRecvWR: talkMax, MaxSendSGE: 1, MaxRecvSGE: 1, XRCD: c.xrcd,
	})
	if refusal != nil {
		w.court.Failf("%s: create_qp: %v", c.name, refusal)
		return nil
	}
	p := &plug{
		caller: c, call: owner, isActive: isActive, kind: kind, handle: rsp.Handle, qpn: rsp.QPN,
		slot: rsp.Doorbell, place: place, groups: map[rdma.GID]bool{},
	}
	m := shared.Bytes()
	if kind != rdma.QPTypeXRCRecv {
		p.sq = ring.NewProducer(m[rsp.SQOffset:],
			ring.Geometry{Entries: rsp.SQEntries, Stride: rsp.SQStride},
			ring.Word(m, abi.OffSQProducer), ring.Word(m, abi.OffSQConsumer))
	}
	switch kind {
	case rdma.QPTypeXRCSend:
	case rdma.QPTypeXRCRecv:
		p.addSharedQueue()
	default:
		p.rq = ring.NewProducer(m[rsp.RQOffset:],
			ring.Geometry{Entries: rsp.RQEntries, Stride: rsp.RQStride},
			ring.Word(m, abi.OffRQProducer), ring.Word(m, abi.OffRQConsumer))
	}
	c.places[place], c.plugs[p.qpn] = true, p
	return p
}

// openForDatagrams takes the program's own queue pair to RTS.
func (p *plug) openForDatagrams() {
	p.modify(&abi.QPAttr{State: uint32(rdma.QPStateInit), Port: 1, QKey: callQKey},
		rdma.QPAttrState|rdma.QPAttrPort|rdma.QPAttrPKeyIndex|rdma.QPAttrQKey)
	for i := range talkMax {
		p.receive(i)
	}
	p.modify(&abi.QPAttr{State: uint32(rdma.QPStateRTR)}, rdma.QPAttrState)
	p.modify(&abi.QPAttr{State: uint32(rdma.QPStateRTS)}, rdma.QPAttrState|rdma.QPAttrSQPSN)
}

// callQKey is what rdma_cm gives datagrams (RDMA_UDP_QKEY).
const callQKey = 0x01234567

// modify returns false where the host has lost an address, and so a way that a connection was to
// take: any other refusal is a fault.
func (p *plug) modify(a *abi.QPAttr, mask rdma.QPAttrMask) bool {
	c := p.caller
	_, refusal := c.ctx.ModifyQP(c.world.now, &abi.ModifyQPReq{
		Handle: p.handle, Mask: uint32(mask), Attr: *a,
	})
	if refusal != nil && !c.host.isHidden() {
		c.world.court.Failf("%s: QP %#x: modify_qp: %v", c.name, p.qpn, refusal)
	}
	return refusal == nil
}

func (p *plug) state() rdma.QPState {
	a, refusal := p.caller.ctx.QueryQP(p.handle)
	if refusal != nil {
		p.caller.world.court.Failf("%s: query_qp: %v", p.caller.name, refusal)
	}
	return rdma.QPState(a.State)
}

func (p *plug) buffer(i int) (off int) { return p.place*placeBytes + i*messageRoom }

// receive posts buffer i.
func (p *plug) receive(i int) {
	slot := p.rq.Slot()
	off := p.buffer(talkMax + i)
	abi.EncodeRecvWQE(slot, &abi.RecvWQE{WRID: uint64(p.qpn)<<32 | 1<<16 | uint64(i), NumSGE: 1})
	abi.EncodeSGE(slot[abi.RecvWQEBytes:], 0, &abi.SGE{
		Addr: deskBase + uint64(off), Length: messageRoom, LKey: p.caller.key,
	})
	p.rq.Push()
	p.rq.Publish()
	if p.kind != rdma.QPTypeXRCRecv {
		p.ring()
	}
}

// addSharedQueue gives an XRC target receives: in a queue of its domain.
func (p *plug) addSharedQueue() {
	c := p.caller
	rsp, shared, refusal := c.ctx.CreateSRQ(&abi.CreateSRQReq{
		PD: c.pd, MaxWR: talkMax, MaxSGE: 1, Type: srqTypeXRC, XRCD: c.xrcd, CQ: c.cq,
	})
	if refusal != nil {
		c.world.court.Failf("%s: create_srq: %v", c.name, refusal)
		return
	}
	m := shared.Bytes()
	p.srq, p.srqn = rsp.Handle, rsp.SRQN
	p.rq = ring.NewProducer(m[rsp.Offset:],
		ring.Geometry{Entries: rsp.Entries, Stride: rsp.Stride},
		ring.Word(m, abi.OffRQProducer), ring.Word(m, abi.OffRQConsumer))
}

func (p *plug) ring() {
	c := p.caller
	word := int(p.slot / 64)
	ring.Word64(c.bells, abi.OffDoorbellWords+8*word).Or(1 << (p.slot % 64))
	ring.Word64(c.bells, abi.OffDoorbellSummary+8*(word/64)).Or(1 << (word % 64))
	c.host.rung()
}

// message is what one end of a call says as its n-th word.
func message(c *call, isActive bool, n int) []byte {
	seed := c.token<<8 | uint64(n)<<1
	most := messageMax
	if isActive {
		seed |= 1
	}
	if c.kind == rdma.QPTypeUD {
		most = 200 // fits into every path MTU
	}
	random := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, 8+random.IntN(most-8))
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	binary.BigEndian.PutUint64(b, c.token)
	return b
}

// say sends the next message; to and qkey count for datagrams.
func (p *plug) say(of *call, wqe abi.SendWQE) {
	c := p.caller
	i := p.said % talkMax
	b := message(of, p.isActive, p.said)
	if of.kind == rdma.QPTypeUD {
		b = message(of, true, 0)
	}
	off := p.buffer(i)
	copy(c.mem[off:], b)
	p.said++
	wqe.WRID, wqe.Opcode = uint64(p.qpn)<<32|uint64(i), uint8(rdma.WRSend)
	wqe.Flags, wqe.NumSGE = uint8(rdma.SendSignaled), 1
	slot := p.sq.Slot()
	abi.EncodeSendWQE(slot, &wqe)
	abi.EncodeSGE(slot[abi.SendWQEBytes:], 0, &abi.SGE{
		Addr: deskBase + uint64(off), Length: uint32(len(b)), LKey: c.key,
	})
	p.sq.Push()
	p.sq.Publish()
	p.ring()
	c.after(50*time.Millisecond, c.poll)
	c.after(time.Second, c.poll)
}

// poll takes all completions.
func (c *caller) poll() {
	for {
		n, _ := c.done.Pending()
		if n == 0 {
			return
		}
		var e abi.CQE
		abi.DecodeCQE(c.done.Slot(0), &e)
		c.done.Release(1)
		p := c.plugs[uint32(e.WRID>>32)]
		if p == nil {
			continue // its queue pair is gone
		}
		if e.WRID&(1<<16) != 0 {
			p.received(&e)
		} else {
			p.sent(&e)
		}
	}
}

func (p *plug) sent(e *abi.CQE) {
	c, w := p.caller, p.caller.world
	switch status := rdma.WCStatus(e.Status); status {
	case rdma.WCSuccess:
	case rdma.WCRetryExcErr, rdma.WCWRFlushErr:
		p.isBroken = true
		if status == rdma.WCRetryExcErr && w.isBenign() && p.call != nil && !p.call.isEnding {
			w.court.Failf("%s: QP %#x: %v without a cause", c.name, p.qpn, status)
		}
		w.mark("call.broken")
	default:
		w.court.Failf("%s: QP %#x: a send ends with %v", c.name, p.qpn, status)
	}
}

func (p *plug) received(e *abi.CQE) {
	c, w := p.caller, p.caller.world
	if s := rdma.WCStatus(e.Status); s != rdma.WCSuccess {
		if s != rdma.WCWRFlushErr {
			w.court.Failf("%s: QP %#x: a receive ends with %v", c.name, p.qpn, s)
		}
		return
	}
	i := int(e.WRID & 0xffff)
	off := p.buffer(talkMax + i)
	b := c.mem[off : off+int(e.ByteLen)]
	if p.kind == rdma.QPTypeUD {
		p.receivedDatagram(b[ibt.GRHBytes:])
		p.receive(i)
		return
	}
	w.mark("call.heard." + p.kind.String())
	for n := p.heard; n < talkMax; n++ {
		if bytes.Equal(b, message(p.call, !p.isActive, n)) {
			p.heard = n + 1
			return
		}
		if p.kind == rdma.QPTypeRC || p.kind == rdma.QPTypeXRCRecv {
			break
		}
	}
	w.court.Failf("%s: QP %#x: %d bytes arrive that the peer did not send", c.name, p.qpn, len(b))
}

func (p *plug) receivedDatagram(b []byte) {
	w := p.caller.world
	var of *call
	if len(b) >= 8 {
		of = w.board.calls[binary.BigEndian.Uint64(b)]
		if of == nil {
			of = w.board.casts[binary.BigEndian.Uint64(b)]
		}
	}
	switch {
	case of == nil || !bytes.Equal(b, message(of, true, 0)):
		w.court.Failf("%s: a datagram of %d bytes that nobody sent", p.caller.name, len(b))
	case !of.group.IsZero() && !p.groups[of.group]:
		w.court.Failf("%s: a datagram for a group that the queue pair is not in", p.caller.name)
	case of.group.IsZero() && of.target != p.caller.service(rdma.QPTypeUD):
		w.court.Failf("%s: a datagram for service %v", p.caller.name, of.target)
	default:
		of.heard++
		w.mark("call.heard.UD")
	}
}

// destroy ends the queue pair.
func (p *plug) destroy() {
	c := p.caller
	c.poll()
	p.leaveGroups()
	if refusal := c.ctx.DestroyQP(c.world.now, p.handle); refusal != nil {
		c.world.court.Failf("%s: destroy_qp: %v", c.name, refusal)
	}
	if p.srq != 0 {
		if refusal := c.ctx.DestroySRQ(p.srq); refusal != nil {
			c.world.court.Failf("%s: destroy_srq: %v", c.name, refusal)
		}
	}
	delete(c.plugs, p.qpn)
	c.places[p.place] = false
}

// leaveGroups detaches the queue pair, which cannot be destroyed before.
func (p *plug) leaveGroups() {
	c := p.caller
	if len(p.groups) == 0 {
		return
	}
	refusal := c.ctx.DestroyQP(c.world.now, p.handle)
	if refusal == nil || refusal.Errno != syscall.EBUSY {
		c.world.court.Failf("%s: destroy_qp of a member of %d groups: %v", c.name, len(p.groups),
			refusal)
	}
	byBytes := func(a, b rdma.GID) int { return bytes.Compare(a[:], b[:]) }
	for _, g := range slices.SortedFunc(maps.Keys(p.groups), byBytes) {
		r := c.ctx.DetachMulticast(&abi.AttachMulticastReq{GID: g, QP: p.handle})
		if r != nil {
			c.world.court.Failf("%s: detach_mcast of %v: %v", c.name, g, r)
		}
	}
	clear(p.groups)
}
