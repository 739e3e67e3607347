package verbs

import (
	"context"
	"net"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
	"github.com/softrnic/softrnic/internal/shm"
)

// fakeNIC answers the control protocol and leaves the queues to the test, which plays the NIC's
// part there by hand: so a test decides what happens between any two steps.
type fakeNIC struct {
	t    *testing.T
	lane *shm.Memory
	sock *net.UnixConn

	mu     sync.Mutex
	device string // opened
	bells  *shm.Memory
	kicks  int // eventfd
	async  int // write end
	next   uint32
	pipes  map[uint32]int // write ends by channel
	cqs    map[uint32]*fakeCQ
	qps    map[uint32]*fakeQP
	refuse map[abi.Op]*rdma.Refusal
	asked  map[abi.Op]int
	mrs    map[uint32]fakeRegion
	bend   func(any) // changes a reply before it is sent
	ended  chan struct{}
}

type fakeCQ struct {
	nic     *fakeNIC
	memory  *shm.Memory
	ring    *ring.Producer
	handle  uint32
	channel uint32
}

type fakeQP struct {
	memory *shm.Memory
	sq, rq *ring.Consumer
	rsp    abi.CreateQPRsp
}

func newFakeNIC(t *testing.T) *fakeNIC {
	t.Helper()
	lane, err := shm.CreateReadOnly("lane", abi.LanePageBytes)
	if err != nil {
		t.Fatal(err)
	}
	n := &fakeNIC{
		t: t, lane: lane, kicks: -1, async: -1, pipes: map[uint32]int{}, cqs: map[uint32]*fakeCQ{},
		qps: map[uint32]*fakeQP{}, refuse: map[abi.Op]*rdma.Refusal{}, asked: map[abi.Op]int{},
		mrs: map[uint32]fakeRegion{}, ended: make(chan struct{}),
	}
	t.Cleanup(func() {
		n.kill()
		n.lane.Release()
	})
	return n
}

// Connect makes the fake a Connector for one context.
func (n *fakeNIC) Connect(context.Context) (*net.UnixConn, error) {
	client, sock, err := ctl.Pair()
	if err != nil {
		return nil, err
	}
	n.sock = sock
	go n.serve(ctl.NewServerConn(sock))
	return client, nil
}

// kill ends the NIC as the kernel would end its process: all descriptors close.
func (n *fakeNIC) kill() {
	n.mu.Lock()
	sock := n.sock
	n.sock = nil
	n.mu.Unlock()
	if sock == nil {
		return
	}
	_ = sock.Close()
	<-n.ended
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, fd := range n.pipes {
		_ = unix.Close(fd)
	}
	_ = unix.Close(n.async)
	_ = unix.Close(n.kicks)
	for _, q := range n.cqs {
		q.memory.Release()
	}
	for _, q := range n.qps {
		q.memory.Release()
	}
	if n.bells != nil {
		n.bells.Release()
	}
}

func (n *fakeNIC) serve(conn *ctl.Conn) {
	defer close(n.ended)
	for {
		var m ctl.Message
		if err := conn.Receive(&m); err != nil {
			return
		}
		reply, passed := n.answer(&m)
		reply.Op, reply.Seq = m.Op, m.Seq
		err := conn.Reply(&reply)
		m.CloseFDs()
		for _, fd := range passed {
			_ = unix.Close(fd)
		}
		if err != nil {
			return
		}
	}
}

// answer returns the reply, and the descriptors to close once it is sent.
func (n *fakeNIC) answer(m *ctl.Message) (reply ctl.Message, passed []int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked[m.Op]++
	if r := n.refuse[m.Op]; r != nil {
		return ctl.Message{Status: int32(r.Errno), Body: []byte(r.Reason)}, nil
	}
	n.next++
	switch m.Op {
	case abi.OpHello:
		rsp := abi.HelloRsp{Version: abi.Version, NICPID: uint32(syscall.Getpid()), Devices: 1}
		return ctl.Message{Body: ctl.Bytes(&rsp), FDs: []int{n.lane.FD()}}, nil
	case abi.OpListDevices:
		d := []abi.DeviceInfo{{Ports: 1, NodeGUID: 7}, {Ports: 1, NodeGUID: 8, Transport: 1}}
		copy(d[0].Name[:], "rnic0")
		copy(d[1].Name[:], "iwarp0")
		return ctl.Message{Body: ctl.ListBytes(d)}, nil
	case abi.OpOpenDevice:
		var req abi.OpenDeviceReq
		ctl.Decode(m.Body, &req)
		n.device = text(req.Name[:])
		n.bells, _ = shm.Create("bells", abi.DoorbellPageBytes)
		n.kicks, _ = shm.EventFD()
		read, write, _ := shm.Pipe()
		n.async = write
		rsp := abi.OpenDeviceRsp{Context: 1}
		fds := []int{n.bells.FD(), n.kicks, read}
		return ctl.Message{Body: ctl.Bytes(&rsp), FDs: fds}, []int{read}
	case abi.OpAllocPD:
		return ctl.Message{Body: ctl.Bytes(&abi.HandleMsg{Handle: n.next})}, nil
	case abi.OpRegMR:
		var req regMR
		if ctl.Decode(m.Body, &req) {
			n.mrs[n.next] = inspectRegion(m.FDs, req.Segment)
		}
		rsp := abi.RegMRRsp{Handle: n.next, LKey: n.next << 8, RKey: n.next << 8}
		return ctl.Message{Body: ctl.Bytes(&rsp)}, nil
	case abi.OpCreateCompChannel:
		read, write, _ := shm.Pipe()
		n.pipes[n.next] = write
		rsp := abi.HandleMsg{Handle: n.next}
		return ctl.Message{Body: ctl.Bytes(&rsp), FDs: []int{read}}, []int{read}
	case abi.OpDestroyCompChannel:
		var req abi.HandleMsg
		if ctl.Decode(m.Body, &req) {
			_ = unix.Close(n.pipes[req.Handle])
			delete(n.pipes, req.Handle)
		}
	case abi.OpCreateCQ:
		return n.createCQ(m), nil
	case abi.OpCreateQP:
		return n.createQP(m), nil
	case abi.OpModifyQP:
		return ctl.Message{Body: ctl.Bytes(&abi.QueryQPRsp{})}, nil
	}
	return ctl.Message{}, nil
}

func (n *fakeNIC) createCQ(m *ctl.Message) ctl.Message {
	var req abi.CreateCQReq
	if !ctl.Decode(m.Body, &req) {
		return ctl.Message{Status: int32(syscall.EPROTO)}
	}
	geo := ring.Geometry{Entries: ring.RoundEntries(req.Entries), Stride: abi.CQEBytes}
	memory, _ := shm.Create("cq", abi.QueueHeaderBytes+geo.Bytes())
	b := memory.Bytes()
	n.cqs[n.next] = &fakeCQ{
		nic: n, memory: memory, handle: n.next, channel: req.Channel,
		ring: ring.NewProducer(b[abi.QueueHeaderBytes:], geo, ring.Word(b, abi.OffCQProducer),
			ring.Word(b, abi.OffCQConsumer)),
	}
	rsp := abi.CreateCQRsp{Handle: n.next, Entries: geo.Entries}
	if n.bend != nil {
		n.bend(&rsp)
	}
	return ctl.Message{Body: ctl.Bytes(&rsp), FDs: []int{memory.FD()}}
}

func (n *fakeNIC) createQP(m *ctl.Message) ctl.Message {
	var req abi.CreateQPReq
	if !ctl.Decode(m.Body, &req) {
		return ctl.Message{Status: int32(syscall.EPROTO)}
	}
	sq := ring.Geometry{
		Entries: ring.RoundEntries(req.MaxSendWR), Stride: abi.SQStride(req.MaxSendSGE, req.MaxInline),
	}
	rq := ring.Geometry{
		Entries: ring.RoundEntries(req.MaxRecvWR), Stride: abi.RQStride(req.MaxRecvSGE),
	}
	q := &fakeQP{rsp: abi.CreateQPRsp{
		Handle: n.next, QPN: 0x100 + n.next, Doorbell: 64 + n.next,
		SQEntries: sq.Entries, SQStride: sq.Stride, SQOffset: abi.QueueHeaderBytes,
		RQEntries: rq.Entries, RQStride: rq.Stride,
		RQOffset:   uint32(abi.QueueHeaderBytes + sq.Bytes()),
		MaxSendSGE: req.MaxSendSGE, MaxRecvSGE: req.MaxRecvSGE, MaxInline: req.MaxInline,
		Bytes: uint32(abi.QueueHeaderBytes + sq.Bytes() + rq.Bytes()),
	}}
	q.memory, _ = shm.Create("qp", int(q.rsp.Bytes))
	b := q.memory.Bytes()
	q.sq = ring.NewConsumer(b[q.rsp.SQOffset:], sq, ring.Word(b, abi.OffSQProducer),
		ring.Word(b, abi.OffSQConsumer))
	q.rq = ring.NewConsumer(b[q.rsp.RQOffset:], rq, ring.Word(b, abi.OffRQProducer),
		ring.Word(b, abi.OffRQConsumer))
	n.qps[n.next] = q
	if n.bend != nil {
		n.bend(&q.rsp)
	}
	return ctl.Message{Body: ctl.Bytes(&q.rsp), FDs: []int{q.memory.FD()}}
}

func (q *fakeQP) setState(s QPState) {
	ring.Word(q.memory.Bytes(), abi.OffQPState).Store(uint32(s))
}

// push writes a completion as the NIC does, and the event that was asked for.
func (q *fakeCQ) push(e abi.CQE) {
	q.nic.mu.Lock()
	defer q.nic.mu.Unlock()
	abi.EncodeCQE(q.ring.Slot(), &e)
	q.ring.Push()
	q.ring.Publish()
	if ring.Word(q.memory.Bytes(), abi.OffCQArm).Swap(abi.ArmNone) == abi.ArmNone || q.channel == 0 {
		return
	}
	event := abi.CompEvent{CQ: q.handle}
	if _, err := unix.Write(q.nic.pipes[q.channel], ctl.Bytes(&event)); err != nil {
		q.nic.t.Errorf("event: %v", err)
	}
}

func (n *fakeNIC) raise(t EventType, handle uint32) {
	event := abi.AsyncEvent{Type: uint32(t), Handle: handle}
	if _, err := unix.Write(n.async, ctl.Bytes(&event)); err != nil {
		n.t.Errorf("asynchronous event: %v", err)
	}
}

func (n *fakeNIC) cq(q *CQ) *fakeCQ {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cqs[q.handle]
}

func (n *fakeNIC) qp(q *QP) *fakeQP {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.qps[q.handle]
}

func (n *fakeNIC) region(r *MR) (fakeRegion, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	got, ok := n.mrs[r.handle]
	return got, ok
}

func (n *fakeNIC) count(op abi.Op) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked[op]
}

// openFake opens a context on a fresh fake.
func openFake(t *testing.T) (*fakeNIC, *Context) {
	t.Helper()
	n := newFakeNIC(t)
	return n, openOn(t, n)
}

func openOn(t *testing.T, n *fakeNIC) *Context {
	t.Helper()
	c, err := Open(t.Context(), "", WithConnector(n))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

// rig is a context with one of everything.
type rig struct {
	nic *fakeNIC
	ctx *Context
	pd  *PD
	cq  *CQ
	qp  *QP
}

func newRig(t *testing.T, cfg QPConfig) *rig {
	t.Helper()
	return newRigOn(t, newFakeNIC(t), cfg)
}

func newRigOn(t *testing.T, n *fakeNIC, cfg QPConfig) *rig {
	t.Helper()
	c := openOn(t, n)
	r := &rig{nic: n, ctx: c}
	var err error
	if r.pd, err = c.AllocPD(); err != nil {
		t.Fatal(err)
	}
	if r.cq, err = c.CreateCQ(CQConfig{Entries: 64}); err != nil {
		t.Fatal(err)
	}
	cfg.SendCQ = r.cq
	if cfg.Type == 0 {
		cfg.Type = QPTypeRC
	}
	if r.qp, err = r.pd.CreateQP(cfg); err != nil {
		t.Fatal(err)
	}
	n.qp(r.qp).setState(QPStateRTS)
	return r
}

func (q *fakeCQ) isFull() bool {
	q.nic.mu.Lock()
	defer q.nic.mu.Unlock()
	return q.ring.Free() == 0
}

// deny makes the NIC refuse a request from now on.
func (n *fakeNIC) deny(op abi.Op, errno syscall.Errno, reason string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refuse[op] = rdma.Refuse(errno, reason)
}
