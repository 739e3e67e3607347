package daemon_test

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/daemon"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/shm"
)

// sequence is a client that calls verbs in any order with arguments that are right, nearly right or
// wrong, and writes anything into the queues it gets. It keeps what the NIC has given it.
type sequence struct {
	*rawClient
	r      *rand.Rand
	bells  *shm.Memory
	fds    []int // some good, some bad
	buffer []byte
	gids   []abi.GIDEntry

	pools  [kinds][]uint32 // handles of what exists
	gone   []uint32        // handles of what existed
	keys   []uint32
	qpns   []uint32
	srqns  []uint32
	paged  []uint32 // lkeys
	xrc    []uint32 // numbers of receiving queue pairs
	queues map[uint32]*sequenceQueue

	granted map[abi.Op]int
	refused int
	careful bool
	states  map[uint32]uint32 // of queue pairs, as far as they were set
	groups  [][]byte          // requests that have attached queue pairs
}

// sequenceQueue is the memory of a queue of the sequence. A ring has no entries where it has none.
type sequenceQueue struct {
	*shm.Memory
	slot                           uint32
	sq, rq                         [3]uint32 // offset, entries, stride
	sqAt, rqAt, sqProduce, rqProdu uint32
	tags                           bool // sq has operations on a matching list, if any
}

type kind int

const (
	kindPD kind = iota
	kindChannel
	kindCQ
	kindSRQ
	kindXRCD
	kindQP
	kindMR
	kindMW
	kindDM
	kindAH
	kinds
	kindNone kind = -1
)

const sequenceBytes = 1 << 16

// sequenceVerb says which handle a verb replies with or ends, and what it may fail with.
type sequenceVerb struct {
	op     abi.Op
	body   func(*sequence) []byte
	makes  kind
	ends   kind
	errnos []unix.Errno
}

func (s *bystander) sequence(seed uint64, device string) *sequence {
	s.t.Helper()
	c := s.raw()
	q := &sequence{
		rawClient: c, r: rand.New(rand.NewPCG(seed, 77)), bells: c.openDevice(device),
		fds:    someFDs(s.t),
		queues: map[uint32]*sequenceQueue{}, states: map[uint32]uint32{}, keys: []uint32{0},
	}
	// The memory that remote segments name has nothing of the test's own around it.
	m, err := unix.Mmap(-1, 0, 3*sequenceBytes, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		s.t.Fatal(err)
	}
	q.buffer = m[sequenceBytes : 2*sequenceBytes]
	if err := unix.Mprotect(q.buffer, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = c.Close()
		_ = unix.Munmap(m)
	})
	reply, err := c.Do(abi.OpQueryGIDTable, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	q.gids, _ = ctl.DecodeList[abi.GIDEntry](reply.Body)
	return q
}

// any chooses between a few values.
func (q *sequence) any(values ...uint32) uint32 { return values[q.r.IntN(len(values))] }

// one is any, but for a careful step, which takes the first or the second.
func (q *sequence) one(values ...uint32) uint32 {
	if q.careful {
		values = values[:min(2, len(values))]
	}
	return q.any(values...)
}

// odds reports true once in n times.
func (q *sequence) odds(n int) bool { return q.r.IntN(n) == 0 }

func (q *sequence) from(list []uint32) uint32 {
	if len(list) == 0 {
		return 0
	}
	return list[q.r.IntN(len(list))]
}

// a is a handle, mostly of that kind.
func (q *sequence) a(k kind) uint32 {
	if q.careful {
		return q.from(q.pools[k])
	}
	switch q.r.IntN(12) {
	case 0:
		return q.from(q.pools[q.r.IntN(int(kinds))])
	case 1:
		return q.from(q.gone)
	case 2:
		return q.one(0, 1, 1<<31, ^uint32(0))
	}
	return q.from(q.pools[k])
}

// maybe is a handle or none.
func (q *sequence) maybe(k kind) uint32 {
	if q.odds(2) {
		return 0
	}
	return q.a(k)
}

// bend makes one field of a request strange, now and then.
func (q *sequence) bend(body []byte) []byte {
	if q.careful || !q.odds(4) || len(body) == 0 {
		return body
	}
	switch q.r.IntN(12) {
	case 0:
		return body[:q.r.IntN(len(body))]
	case 1:
		return append(body, make([]byte, 1+q.r.IntN(40))...)
	}
	if len(body) < 4 {
		return body
	}
	at := q.r.IntN(len(body)/4) * 4
	was := binary.NativeEndian.Uint32(body[at:])
	binary.NativeEndian.PutUint32(body[at:], q.one(0, 1, 2, 7, 255, was+1, was-1, was^1<<q.r.IntN(32),
		was*2, 4096, 1<<16, 1<<20, 1<<31-1, 1<<31, ^uint32(0)))
	return body
}

// step calls a verb and sees to it that it succeeds, or fails with what is documented.
func (q *sequence) step(v *sequenceVerb) error {
	q.careful = !q.odds(3)
	body := q.bend(v.body(q))
	var fds []int
	if v.op == abi.OpRegMR || v.op == abi.OpReregMR || v.op == abi.OpOpenXRCD {
		fds = q.fds
		if v.op == abi.OpOpenXRCD && !q.odds(4) {
			fds = nil
		}
	}
	reply, err := q.Do(v.op, body, fds...)
	var refused *ctl.Error
	switch {
	case errors.As(err, &refused):
		q.refused++
		if refused.Refusal.Reason == "" || !slices.Contains(v.errnos, refused.Refusal.Errno) {
			q.t.Errorf("%v: refused with %v, %q", v.op, refused.Refusal.Errno, refused.Refusal.Reason)
		}
		return nil
	case err != nil:
		return err
	}
	defer reply.CloseFDs()
	q.granted[v.op]++
	if v.ends != kindNone {
		q.forget(v.ends, binary.NativeEndian.Uint32(body))
	}
	if v.makes != kindNone {
		q.keep(v, body, reply)
	}
	if v.op == abi.OpAttachMulticast {
		q.groups = append(q.groups, body)
	}
	if v.op == abi.OpModifyQP {
		var req abi.ModifyQPReq
		ctl.Decode(body, &req)
		q.states[req.Handle] = req.Attr.State
	}
	return nil
}

func (q *sequence) forget(k kind, handle uint32) {
	i := slices.Index(q.pools[k], handle)
	if i < 0 {
		q.t.Errorf("%d of kind %d was destroyed, which did not exist", handle, k)
		return
	}
	q.pools[k] = slices.Delete(q.pools[k], i, i+1)
	if q.gone = append(q.gone, handle); len(q.gone) > 50 {
		q.gone = q.gone[1:]
	}
	if m := q.queues[handle]; m != nil {
		m.Release()
		delete(q.queues, handle)
	}
}

func (q *sequence) keep(v *sequenceVerb, body []byte, reply *ctl.Message) {
	words := make([]uint32, len(reply.Body)/4)
	for i := range words {
		words[i] = binary.NativeEndian.Uint32(reply.Body[4*i:])
	}
	handle := words[0]
	switch v.op {
	case abi.OpAllocDM:
		handle = words[2]
	case abi.OpRegMR, abi.OpAllocNullMR, abi.OpRegDeviceMR:
		q.keys = append(q.keys, words[1], words[2])
		if v.op == abi.OpRegMR && body[4]&byte(rdma.AccessOnDemand) != 0 {
			q.paged = append(q.paged, words[1])
		}
	case abi.OpAllocMW:
		q.keys = append(q.keys, words[1])
	case abi.OpCreateQP:
		var rsp abi.CreateQPRsp
		ctl.Decode(reply.Body, &rsp)
		q.qpns = append(q.qpns, rsp.QPN)
		if body[0] == byte(rdma.QPTypeXRCRecv) {
			q.xrc = append(q.xrc, rsp.QPN)
		}
		q.mapQueue(handle, reply, int(rsp.Bytes), &sequenceQueue{
			slot: rsp.Doorbell, sqAt: abi.OffSQProducer, rqAt: abi.OffRQProducer,
			sq: [3]uint32{rsp.SQOffset, rsp.SQEntries, rsp.SQStride},
			rq: [3]uint32{rsp.RQOffset, rsp.RQEntries, rsp.RQStride},
		})
	case abi.OpCreateSRQ:
		var rsp abi.CreateSRQRsp
		ctl.Decode(reply.Body, &rsp)
		q.srqns = append(q.srqns, rsp.SRQN)
		q.mapQueue(handle, reply, int(rsp.Bytes), &sequenceQueue{
			rqAt: abi.OffRQProducer, rq: [3]uint32{rsp.Offset, rsp.Entries, rsp.Stride},
			slot: rsp.Doorbell, sq: [3]uint32{rsp.TagOffset, rsp.TagOps, rsp.TagStride}, tags: true,
		})
	}
	for k, pool := range q.pools {
		if slices.Contains(pool, handle) && kind(k) == v.makes {
			q.t.Errorf("%v: handle %d is in use", v.op, handle)
		}
	}
	q.pools[v.makes] = append(q.pools[v.makes], handle)
}

func (q *sequence) mapQueue(handle uint32, reply *ctl.Message, bytes int, queue *sequenceQueue) {
	if len(reply.FDs) == 0 {
		return // a receiving XRC queue pair has none
	}
	fd := reply.FDs[0]
	reply.FDs = reply.FDs[1:]
	m, err := shm.Open(fd, bytes, true)
	if err != nil {
		q.t.Errorf("queue of %d bytes: %v", bytes, err)
		return
	}
	queue.Memory = m
	q.queues[handle] = queue
}

// post writes work requests into some queue, with whatever keys and numbers there are.
func (q *sequence) post() {
	q.careful = !q.odds(3)
	handle := q.from(q.pools[q.any(uint32(kindQP), uint32(kindQP), uint32(kindSRQ))])
	m := q.queues[handle]
	if m == nil {
		return
	}
	b := m.Bytes()
	for range 1 + q.r.IntN(4) {
		if m.sq[1] > 0 && !q.odds(3) {
			m.sqProduce = q.write(b, m.sq, m.sqProduce, q.workFor(m))
		} else if m.rq[1] > 0 {
			wr := abi.RecvWQE{NumSGE: q.one(1, 1, 0, 2, 33)}
			m.rqProdu = q.write(b, m.rq, m.rqProdu, ctl.Bytes(&wr))
		}
	}
	binary.NativeEndian.PutUint32(b[m.sqAt:], m.sqProduce)
	binary.NativeEndian.PutUint32(b[m.rqAt:], m.rqProdu)
	if m.sq[1] > 0 {
		page := q.bells.Bytes()
		page[abi.OffDoorbellWords+int(m.slot/8)] |= 1 << (m.slot % 8)
		page[abi.OffDoorbellSummary+int(m.slot/64/8)] |= 1 << (m.slot / 64 % 8)
		if err := shm.Kick(q.kick); err != nil {
			q.t.Error(err)
		}
	}
}

// write puts an entry and a scatter/gather list behind it into the next slot of a ring.
func (q *sequence) write(b []byte, ring [3]uint32, at uint32, fixed []byte) uint32 {
	slot := b[ring[0]+at%ring[1]*ring[2]:][:ring[2]]
	n := copy(slot, fixed)
	for ; n+abi.SGEBytes <= len(slot); n += abi.SGEBytes {
		sge := abi.SGE{
			Addr: q.address(), Length: q.one(8, 64, 0, 4096, sequenceBytes), LKey: q.from(q.keys),
		}
		copy(slot[n:], ctl.Bytes(&sge))
	}
	return at + q.one(1, 1, 1, 1, 1, 1, 1, 2, ring[1], ring[1]+1)
}

// work is a send work request: a bind or an invalidation as often as anything else.
func (q *sequence) work() []byte {
	w := abi.SendWQE{
		Opcode: uint8(q.r.IntN(18)), Flags: uint8(q.r.IntN(64)) &^ 8, NumSGE: uint16(q.r.IntN(4)),
		ImmOrRKey: q.from(q.keys), RemoteAddr: q.address(), RKey: q.from(q.keys),
		CompareAdd: uint64(q.one(0, 1, 8, 4096)), Swap: uint64(q.any(0, 1, 2, 6, 14, 31, 63)),
		AH: q.a(kindAH), RemoteQPN: q.from(q.qpns), RemoteQKey: q.one(0, 0x11111111),
		Extra: q.from(q.keys),
	}
	switch q.r.IntN(4) {
	case 0:
		w.Opcode, w.Extra = uint8(rdma.WRBindMW), q.from(q.keys)
		w.RKey += q.any(0, 1)
	case 1:
		w.Opcode = uint8(q.any(uint32(rdma.WRLocalInvalidate), uint32(rdma.WRSendWithInv)))
	case 2:
		w.Extra = q.from(q.srqns)
	}
	return ctl.Bytes(&w)
}

// address is in the buffer, near its ends, or far off.
func (q *sequence) address() uint64 {
	base := uint64(shm.AddressOf(q.buffer))
	if q.careful {
		return base
	}
	switch q.r.IntN(8) {
	case 0:
		return uint64(q.one(0, 8, 4096))
	case 1:
		return base - uint64(q.one(1, 4096))
	case 2:
		return base + sequenceBytes - uint64(q.one(0, 1, 64))
	case 3:
		return []uint64{1 << 63, ^uint64(0), ^uint64(0) - 4095, 1 << 47}[q.r.IntN(4)]
	}
	return base + uint64(q.r.IntN(16))*4096
}

// clear destroys everything, in any order that the NIC allows.
func (q *sequence) clear() {
	ends := slices.DeleteFunc(slices.Clone(sequenceVerbs), func(v sequenceVerb) bool {
		return v.ends == kindNone
	})
	for _, body := range q.groups { // a queue pair in a group stays
		_, _ = q.Do(abi.OpDetachMulticast, body)
	}
	for q.left() > 0 {
		before := q.left()
		for _, i := range q.r.Perm(len(ends)) {
			v := &ends[i]
			for _, handle := range slices.Clone(q.pools[v.ends]) {
				_, err := q.Do(v.op, ctl.Bytes(&abi.HandleMsg{Handle: handle}))
				switch {
				case err == nil:
					q.forget(v.ends, handle)
				case !errors.Is(err, unix.EBUSY):
					q.t.Errorf("%v of %d, which is there: %v", v.op, handle, err)
				}
			}
		}
		if q.left() == before {
			q.t.Fatalf("%d objects cannot be destroyed: %v", before, q.pools)
		}
	}
}

func (q *sequence) left() (n int) {
	for _, pool := range q.pools {
		n += len(pool)
	}
	return n
}

func (q *sequence) run(steps int) {
	for range steps {
		if q.odds(4) {
			q.post()
			continue
		}
		v := &sequenceVerbs[q.r.IntN(len(sequenceVerbs))]
		if v.ends != kindNone && !q.odds(3) {
			continue // else there is never much to work with
		}
		if err := q.step(v); err != nil {
			// The NIC ends who sends too much that is out of shape, and nobody else.
			q.t.Fatalf("%v: %v", v.op, err)
		}
	}
}

// empty wants nothing left of the client that connected last.
func (q *sequence) empty(s *bystander) {
	q.t.Helper()
	status, _ := s.d.Status()
	c := status.Contexts[len(status.Contexts)-1]
	if c.PDs+c.AHs+c.MWs+len(c.MRs)+len(c.CQs)+len(c.SRQs)+len(c.QPs)+int(c.DMBytes) != 0 {
		q.t.Errorf("left: %+v", c)
	}
}

// TestVerbs_RandomSequences_DocumentedErrnoNothingLeft lets hostile clients call every verb; a pair
// of others goes on meanwhile. RNIC_SEQUENCES asks for more of them, from another seed on.
func TestVerbs_RandomSequences_DocumentedErrnoNothingLeft(t *testing.T) {
	runSequences(t, startWithBystander(t), "rnic0", nil)
}

// The same on iWARP, where some verbs are never granted.
func TestVerbs_RandomSequencesOnIWARP_DocumentedErrnoNothingLeft(t *testing.T) {
	runSequences(t, startWithBystander(t, "iwarp0=iwarp"), "iwarp0", []abi.Op{
		abi.OpQueryPKey, abi.OpOpenXRCD, abi.OpCloseXRCD, abi.OpOpenQP, abi.OpCreateAH,
		abi.OpDestroyAH, abi.OpAttachMulticast, abi.OpDetachMulticast,
	})
}

// runSequences wants every verb to be granted now and then, but for some, which never are.
func runSequences(t *testing.T, s *bystander, device string, never []abi.Op) {
	seeds, first := uint64(6), uint64(1)
	if n, err := strconv.ParseUint(os.Getenv("RNIC_SEQUENCES"), 10, 64); err == nil {
		seeds, first = n, uint64(os.Getpid())
	}
	granted := map[abi.Op]int{}
	fds, maps := countFDs(t), countMaps(t)
	var heap int64
	for seed := first; seed < first+seeds; seed++ {
		runSequence(t, s, sequenceSeed{seed, device}, granted)
		if seed == first+1 {
			heap = heapNow() // the tables of errors are filled
		}
	}
	eventually(t, "the last client is gone", func() bool {
		status, _ := s.d.Status()
		return len(status.Contexts) == 2
	})
	grown := heapNow() - heap
	t.Logf("%d bytes grown", grown)
	if grown > 512<<10 {
		t.Errorf("%d bytes more on the heap", grown)
	}
	for i := range sequenceVerbs {
		op := sequenceVerbs[i].op
		if isGranted := granted[op] > 0; isGranted == slices.Contains(never, op) {
			t.Errorf("%v was granted: %v", op, isGranted)
		}
	}
	eventually(t, "descriptors and mappings as before", func() bool {
		status, _ := s.d.Status()
		return status.Connections == 2 && countFDs(t) <= fds && countMaps(t) <= maps
	})
}

// sequenceSeed says which sequence, and where.
type sequenceSeed struct {
	seed   uint64
	device string
}

func runSequence(t *testing.T, s *bystander, from sequenceSeed, granted map[abi.Op]int) {
	t.Run(strconv.FormatUint(from.seed, 10), func(t *testing.T) {
		mine := *s
		mine.t = t
		q := mine.sequence(from.seed, from.device)
		q.granted = granted
		for range 8 {
			q.run(300)
			s.check()
		}
		if from.seed%2 == 0 {
			q.clear()
			q.empty(s)
		}
		for _, m := range q.queues {
			m.Release()
		}
	})
}

// FuzzVerbs_HostileClient is the same for any seed.
func FuzzVerbs_HostileClient(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) {
		d := start(t, daemon.Config{
			Embedded: true, NoNetwork: true, Devices: []string{"iwarp0=iwarp"},
		})
		a, b := pair(t, d, 5000, true)
		for _, device := range []string{"rnic0", "iwarp0"} {
			runSequence(t, &bystander{t, d, a, b}, sequenceSeed{seed, device}, map[abi.Op]int{})
		}
	})
}
