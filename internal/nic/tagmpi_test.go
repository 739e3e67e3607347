package nic

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/tm"
)

// mpiReceive is a receive of a program that sorts messages by tags as MPI has it: those that the
// NIC has matched, and those that came too early, which the program sorts itself.
type mpiReceive struct {
	id        uint64
	tag, mask uint64
	handle    uint32
	isPosted  bool // in the NIC's list
}

func (r *mpiReceive) fits(tag uint64) bool { return tag&r.mask == r.tag }

// mpiMessage is a message that came too early.
type mpiMessage struct {
	sender int
	seq    uint32
	tag    uint64
}

// taken is a message that has found its receive.
type taken struct {
	sender  int
	seq     uint32
	tag     uint64
	receive mpiReceive
}

// mpiProgram is the receiver's end: the list of receives in order, the messages that wait in order,
// and what has come together.
type mpiProgram struct {
	x       *tagBench
	r       *rand.Rand
	senders []*appQP
	next    []uint32 // sequence numbers
	// sent has the tags of messages by sender and number.
	sent     map[[2]uint32]uint64
	receives []*mpiReceive
	matched  []*mpiReceive // by the NIC; their data are on the way
	early    []mpiMessage
	handled  uint32
	made     []taken
	ids      uint64
	fins     []int // receives for them, by sender
}

const (
	mpiTags  = 4
	mpiBytes = 256
)

// send lets one sender send its next message, by either protocol.
func (p *mpiProgram) send() {
	i := p.r.IntN(len(p.senders))
	if p.senders[i].sq.Free() == 0 {
		return
	}
	seq := p.next[i]
	p.next[i]++
	tag := p.r.Uint64N(mpiTags)
	p.sent[[2]uint32{uint32(i), seq}] = tag
	at := i*8192 + int(seq%64)*128
	body := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(i)), seq)
	if p.r.IntN(2) == 0 {
		p.x.sendFrom(p.senders[i], at, eager(tag, 0, body))
		return
	}
	copy(p.x.sourceMem[at+64:], body)
	m := p.x.request(tag, uint32(at+64), uint32(len(body)))
	p.x.sendFrom(p.senders[i], at, append(m, body...)) // for the program, if it comes too early
}

// receive posts a receive: for a message that waits, or to the NIC with the count of messages that
// the program knows.
func (p *mpiProgram) receive() {
	p.ids++
	q := &mpiReceive{id: p.ids, mask: uint64(p.r.IntN(mpiTags))}
	q.tag = p.r.Uint64N(mpiTags) & q.mask
	if i := slices.IndexFunc(p.early, func(m mpiMessage) bool { return q.fits(m.tag) }); i >= 0 {
		m := p.early[i]
		p.early = slices.Delete(p.early, i, i+1)
		p.made = append(p.made, taken{m.sender, m.seq, m.tag, *q})
		return
	}
	hasSlot := func(o *mpiReceive) bool { return o.id%64 == q.id%64 }
	if len(p.receives) == 32 || slices.ContainsFunc(p.receives, hasSlot) ||
		slices.ContainsFunc(p.matched, hasSlot) {
		return
	}
	q.isPosted = true
	q.handle = p.x.op(abi.TagWQE{
		RecvWRID: q.id, Tag: q.tag, Mask: q.mask, Flags: uint8(rdma.TagCounted),
		Unexpected: p.handled,
	}, p.x.into(uint32(q.id%64)*mpiBytes, mpiBytes))
	p.receives = append(p.receives, q)
}

// run lets the NIC work for a while, and the senders have a place for FINs.
func (p *mpiProgram) run(d clock.Time) {
	x := p.x
	for _, e := range x.scq.poll() {
		if e.Status != 0 {
			x.t.Fatalf("sender: %+v", e)
		}
		if e.Opcode == uint32(rdma.WCOpRecv) {
			p.fins[e.WRID]--
		}
	}
	for i, q := range p.senders {
		for ; p.fins[i] < 8; p.fins[i]++ {
			q.recv(uint64(i), abi.SGE{Addr: x.sourceAddr + finAt, Length: 64, LKey: x.source.LKey})
		}
	}
	x.runLossy(p.r, d)
}

// poll takes what has completed.
func (p *mpiProgram) poll() {
	for _, e := range p.x.rcq.poll() {
		switch {
		case rdma.WCOpcode(e.Opcode) == rdma.WCOpTagDel:
			p.x.t.Errorf("a receive that was out of step was matched: %+v", e)
		case e.Status != 0:
			p.x.t.Fatalf("%+v", e)
		case e.WCFlags&uint32(rdma.WCTagMatch|rdma.WCTagDataValid) == 0:
			p.takeEarly(&e)
		default:
			p.takeMatched(&e)
		}
	}
}

// takeMatched notes what the NIC has brought together. The buffer says which message it is.
func (p *mpiProgram) takeMatched(e *abi.CQE) {
	isIt := func(q *mpiReceive) bool { return q.id == e.WRID }
	if e.WCFlags&uint32(rdma.WCTagMatch) != 0 {
		i := slices.IndexFunc(p.receives, isIt)
		if i < 0 {
			p.x.t.Fatalf("no such receive: %+v", e)
		}
		p.matched = append(p.matched, p.receives[i])
		p.receives = slices.Delete(p.receives, i, i+1)
	}
	if e.WCFlags&uint32(rdma.WCTagDataValid) == 0 {
		return
	}
	i := slices.IndexFunc(p.matched, isIt)
	if i < 0 {
		p.x.t.Fatalf("no such receive: %+v", e)
	}
	b := p.x.targetMem[e.WRID%64*mpiBytes:]
	sender, seq := binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])
	tag := p.sent[[2]uint32{sender, seq}]
	p.made = append(p.made, taken{int(sender), seq, tag, *p.matched[i]})
	p.matched = slices.Delete(p.matched, i, i+1)
}

// takeEarly takes a message that the NIC had no receive for when it came. One that was posted
// meanwhile is out of step, so it can be taken back. The count grows only then.
func (p *mpiProgram) takeEarly(e *abi.CQE) {
	b := p.x.targetMem[plainAt+e.WRID%8*plainBytes:]
	h, err := tm.ParseHeader(b)
	if err != nil {
		p.x.t.Fatal(err)
	}
	body := b[tm.HeaderLen:]
	if h.Opcode == tm.OpRendezvous {
		body = b[finBytes:]
	}
	m := mpiMessage{
		int(binary.BigEndian.Uint32(body)), binary.BigEndian.Uint32(body[4:]), h.Tag,
	}
	p.x.plain(e.WRID)
	i := slices.IndexFunc(p.receives, func(q *mpiReceive) bool { return q.fits(m.tag) })
	if i >= 0 {
		q := p.receives[i]
		p.receives = slices.Delete(p.receives, i, i+1)
		// Without TagSignaled it completes only where it fails.
		p.x.op(abi.TagWQE{WRID: q.id, Opcode: uint8(rdma.TagDel), Handle: q.handle})
		p.made = append(p.made, taken{m.sender, m.seq, m.tag, *q})
	} else {
		p.early = append(p.early, m)
	}
	p.handled++
	p.x.op(abi.TagWQE{
		Opcode: uint8(rdma.TagSync), Flags: uint8(rdma.TagCounted), Unexpected: p.handled,
	})
}

// judge checks that no message was lost or taken twice, that each fits its receive, and that of one
// sender none has overtaken another.
func (p *mpiProgram) judge() {
	t := p.x.t
	t.Helper()
	seen := map[[2]uint32]bool{}
	for _, m := range p.made {
		key := [2]uint32{uint32(m.sender), m.seq}
		if seen[key] || !m.receive.fits(m.tag) {
			t.Fatalf("message %+v: twice, or where it does not fit", m)
		}
		seen[key] = true
	}
	for _, m := range p.early {
		seen[[2]uint32{uint32(m.sender), m.seq}] = true
	}
	if len(seen) != len(p.sent) {
		t.Errorf("%d messages of %d are there", len(seen), len(p.sent))
	}
	for _, a := range p.made {
		for _, b := range p.made {
			if a.sender != b.sender || a.seq >= b.seq || a.receive.id <= b.receive.id {
				continue
			}
			if b.receive.fits(a.tag) {
				t.Fatalf("%+v\nhas overtaken\n%+v", b, a)
			}
		}
	}
}

// TestTags_RandomTraffic_FollowsTheRulesOfMPI: several senders over a bad link, receives that come
// before and after their messages, and a program that keeps the protocol of counts. Whatever the
// NIC matches, nothing is lost, and of one sender's messages none overtakes another.
func TestTags_RandomTraffic_FollowsTheRulesOfMPI(t *testing.T) {
	matched := 0
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			x := newTagBench(t, 64)
			p := &mpiProgram{
				x: x, r: rand.New(rand.NewPCG(seed, 2)), sent: map[[2]uint32]uint64{},
				senders: []*appQP{x.sender, x.rc(x.scq), x.rc(x.scq)}, next: make([]uint32, 3),
			}
			for _, q := range p.senders[1:] {
				x.connectPair(q, x.tagged())
			}
			for i := range uint64(8) {
				x.plain(i)
			}
			p.fins = make([]int, len(p.senders))
			for range 300 {
				// Messages come between what the program sees and what it does.
				switch p.r.IntN(7) {
				case 0, 1:
					p.send()
				case 2, 3:
					p.receive()
				case 4, 5:
					p.run(second / 1000)
				default:
					p.poll()
				}
			}
			for range 40 {
				p.run(second / 4)
				p.poll()
			}
			p.judge()
			for _, m := range p.made {
				if m.receive.isPosted {
					matched++
				}
			}
			x.leavesNothing()
		})
	}
	if matched < 500 {
		t.Errorf("the NIC has matched %d messages in all: the test tests little", matched)
	}
}
