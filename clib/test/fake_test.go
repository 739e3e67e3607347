package clibtest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
	"github.com/softrnic/softrnic/internal/shm"
)

// fakeNIC speaks the protocol of package abi without a transport: work requests complete as they
// are read, wherever they go. It can be told to answer wrongly and to die.
type fakeNIC struct {
	t        *testing.T
	listener *ctl.Listener
	lane     *shm.Memory

	mu     sync.Mutex // guards what follows
	conns  map[*fakeConn]bool
	cm     *fakeCM
	mangle func(op abi.Op, reply *ctl.Message) // nil, or spoils replies before they are sent
	dieAt  abi.Op                              // the request upon which the NIC dies
	sends  []abi.SendWQE                       // all that were read, in order
	sges   [][]abi.SGE
	inline [][]byte
	kicks  int
	loops  bool     // each send also arrives at a receive of its own QP
	isBusy bool     // it has done none of what was posted yet
	broken bool     // there is another device, in front, that cannot be opened
	twin   bool     // there is another device, behind, of iWARP
	opened []string // devices, in order
	waits  []string
}

// fakeConn is one context.
type fakeConn struct {
	nic    *fakeNIC
	conn   *ctl.Conn
	next   uint32
	bells  *shm.Memory
	kick   int
	async  int
	pipes  map[uint32]int
	cqs    map[uint32]*fakeCQ
	qps    map[uint32]*fakeQP
	srqs   map[uint32]*shm.Memory
	groups map[abi.AttachMulticastReq]bool
	memory []*shm.Memory
	fds    []int
}

type fakeCQ struct {
	mem      *shm.Memory
	ring     *ring.Producer
	channel  uint32
	handle   uint32
	overfull bool
}

type fakeQP struct {
	handle, slot uint32
	mem          *shm.Memory
	rsp          abi.CreateQPRsp
	sq, rq       *ring.Consumer
	send, recv   *fakeCQ
	attr         abi.QPAttr
	all          bool
}

func startFake(t *testing.T) (nic *fakeNIC, socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "nic.sock")
	return startFakeAt(t, socket), socket
}

func startFakeAt(t *testing.T, socket string) *fakeNIC {
	t.Helper()
	listener, err := ctl.Listen(ctl.ListenConfig{Path: socket})
	if err != nil {
		t.Fatal(err)
	}
	lane, err := shm.CreateReadOnly("fake-lane", abi.LanePageBytes)
	if err != nil {
		t.Fatal(err)
	}
	nic := &fakeNIC{
		t: t, listener: listener, lane: lane, conns: map[*fakeConn]bool{},
		cm: newFakeCM(),
	}
	var wg sync.WaitGroup
	wg.Go(func() { nic.accept(&wg) })
	t.Cleanup(func() {
		_ = listener.Close()
		nic.die()
		wg.Wait()
		lane.Release()
	})
	return nic
}

func (n *fakeNIC) accept(wg *sync.WaitGroup) {
	for {
		conn, err := n.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			n.t.Error(err)
			return
		}
		c := &fakeConn{
			nic: n, conn: conn, next: 1, kick: -1, async: -1, pipes: map[uint32]int{},
			cqs: map[uint32]*fakeCQ{}, qps: map[uint32]*fakeQP{}, srqs: map[uint32]*shm.Memory{},
			groups: map[abi.AttachMulticastReq]bool{},
		}
		n.mu.Lock()
		n.conns[c] = true
		n.mu.Unlock()
		wg.Go(c.serve)
	}
}

// die does what the death of a process does: its descriptors close.
func (n *fakeNIC) die() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		_ = c.conn.Close()
	}
}

func (c *fakeConn) serve() {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { c.work(stop) })
	for {
		var m ctl.Message
		if err := c.conn.Receive(&m); err != nil {
			break
		}
		c.nic.mu.Lock()
		reply := c.execute(&m)
		reply.Op, reply.Seq = m.Op, m.Seq
		if c.nic.mangle != nil {
			c.nic.mangle(m.Op, &reply)
		}
		dies := c.nic.dieAt == m.Op
		c.nic.mu.Unlock()
		err := c.conn.Send(&reply)
		m.CloseFDs()
		if dies {
			time.Sleep(100 * time.Millisecond) // so that the program gets to where it waits
			c.nic.die()
			break
		}
		if err != nil {
			break
		}
	}
	close(stop)
	wg.Wait()
	c.nic.mu.Lock()
	delete(c.nic.conns, c)
	c.nic.cm.closeOf(c)
	c.nic.mu.Unlock()
	c.release()
}

func (c *fakeConn) release() {
	_ = c.conn.Close()
	for _, m := range c.memory {
		m.Release()
	}
	for _, fd := range c.fds {
		_ = unix.Close(fd)
	}
}

// work looks at the doorbells every millisecond, as a lane that never sleeps would.
func (c *fakeConn) work(stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Millisecond):
		}
		c.nic.mu.Lock()
		c.ring()
		c.nic.mu.Unlock()
	}
}

func (c *fakeConn) ring() {
	if c.bells == nil {
		return
	}
	var b [8]byte
	if n, _ := unix.Read(c.kick, b[:]); n == 8 {
		c.nic.kicks++
	}
	page := c.bells.Bytes()
	for i := range abi.DoorbellSlots / 64 / 64 {
		if ring.Word64(page, abi.OffDoorbellSummary+8*i).Swap(0) == 0 {
			continue
		}
		for w := i * 64; w < i*64+64; w++ {
			if word := ring.Word64(page, abi.OffDoorbellWords+8*w).Swap(0); word != 0 {
				for _, q := range c.qps {
					if int(q.slot/64) == w && word>>(q.slot%64)&1 == 1 {
						q.drain(c)
					}
				}
			}
		}
	}
}

var completes = map[rdma.WROpcode]rdma.WCOpcode{
	rdma.WRWrite: rdma.WCOpWrite, rdma.WRWriteWithImm: rdma.WCOpWrite,
	rdma.WRRead: rdma.WCOpRead, rdma.WRCompareSwap: rdma.WCOpCompareSwap,
	rdma.WRFetchAdd: rdma.WCOpFetchAdd, rdma.WRLocalInvalidate: rdma.WCOpLocalInvalidate,
}

// drain reads the send queue and completes it.
func (q *fakeQP) drain(c *fakeConn) {
	pending, ok := q.sq.Pending()
	if c.nic.isBusy {
		return
	}
	if !ok {
		c.nic.t.Error("the library wrote a producer index that does not fit")
	}
	for i := range pending {
		slot := append([]byte(nil), q.sq.Slot(i)...)
		var w abi.SendWQE
		abi.DecodeSendWQE(slot, &w)
		sges := make([]abi.SGE, w.NumSGE)
		for j := range sges {
			abi.DecodeSGE(slot[abi.SendWQEBytes:], j, &sges[j])
		}
		c.nic.sends = append(c.nic.sends, w)
		c.nic.sges = append(c.nic.sges, sges)
		c.nic.inline = append(c.nic.inline, slot[abi.SendWQEBytes:][:w.InlineLen])
		if c.nic.loops {
			q.arrive(c)
		}
		if q.all || rdma.SendFlags(w.Flags)&rdma.SendSignaled != 0 {
			q.send.push(c, &abi.CQE{
				WRID: w.WRID, Opcode: uint32(completes[rdma.WROpcode(w.Opcode)]),
				QPNum: q.rsp.QPN, ByteLen: 77, ImmOrRKey: w.ImmOrRKey, VendorErr: 5, SrcQP: 6,
				WCFlags: uint32(rdma.WCWithImm), PKeyIndex: 7, SLID: 8, SL: 9, DLIDPathBits: 10,
				Timestamp: 11, SQIndex: q.sq.Released() + i + 1,
			})
		}
	}
	q.sq.Release(pending)
}

// arrive completes a receive.
func (q *fakeQP) arrive(c *fakeConn) {
	if n, _ := q.rq.Pending(); n == 0 {
		c.nic.t.Error("a message finds no receive")
		return
	}
	var w abi.RecvWQE
	abi.DecodeRecvWQE(append([]byte(nil), q.rq.Slot(0)...), &w)
	q.rq.Release(1)
	q.recv.push(c, &abi.CQE{WRID: w.WRID, Opcode: uint32(rdma.WCOpRecv), QPNum: q.rsp.QPN})
}

func (q *fakeCQ) push(c *fakeConn, e *abi.CQE) {
	if q == nil {
		return // the reply that named the queue was spoiled
	}
	if q.ring.Free() == 0 {
		q.overfull = true
		ring.Word(q.mem.Bytes(), abi.OffCQState).Store(1)
		c.event(abi.AsyncEvent{Type: uint32(rdma.EventCQErr), Handle: q.handle})
		return
	}
	abi.EncodeCQE(q.ring.Slot(), e)
	q.ring.Push()
	q.ring.Publish()
	if ring.Word(q.mem.Bytes(), abi.OffCQArm).Swap(abi.ArmNone) != abi.ArmNone && q.channel != 0 {
		event := abi.CompEvent{CQ: q.handle}
		_, _ = unix.Write(c.pipes[q.channel], ctl.Bytes(&event))
	}
}

func (c *fakeConn) event(e abi.AsyncEvent) { _, _ = unix.Write(c.async, ctl.Bytes(&e)) }

func (c *fakeConn) handle() uint32 {
	c.next++
	return c.next
}

func (c *fakeConn) share(bytes int) (*shm.Memory, int) {
	m, err := shm.Create("fake", bytes)
	if err != nil {
		c.nic.t.Error(err)
		return nil, -1
	}
	c.memory = append(c.memory, m)
	return m, m.FD()
}

func (c *fakeConn) pipe() (read, write int) {
	read, write, err := shm.Pipe()
	if err != nil {
		c.nic.t.Error(err)
	}
	c.fds = append(c.fds, write, read)
	return read, write
}

func body[T any](v T) ctl.Message { return ctl.Message{Body: ctl.Bytes(&v)} }

func refuse(errno syscall.Errno, text string) ctl.Message {
	return ctl.Message{Status: int32(errno), Body: []byte(text)}
}

// decode reads a request of the size that the contract says.
func decode[T any](c *fakeConn, m *ctl.Message) (v T) {
	if !ctl.Decode(m.Body, &v) {
		c.nic.t.Errorf("%v: %d bytes", m.Op, len(m.Body))
	}
	return v
}

func (c *fakeConn) execute(m *ctl.Message) ctl.Message {
	switch m.Op {
	case abi.OpHello:
		req := decode[abi.HelloReq](c, m)
		if req.Magic != abi.Magic || req.Version != abi.Version || req.PID == 0 || req.Name[0] == 0 {
			c.nic.t.Errorf("hello: %+v", req)
		}
		rsp := body(abi.HelloRsp{Version: abi.Version, NICPID: uint32(unix.Getpid()), Devices: 1})
		rsp.FDs = []int{c.nic.lane.FD()}
		return rsp
	case abi.OpListDevices:
		info := abi.DeviceInfo{NodeGUID: 0x0011223344556677, NodeType: 1, Ports: 1, Index: 3}
		copy(info.Name[:], "rnic0")
		other := info
		switch {
		case c.nic.twin:
			other.NodeGUID, other.NodeType, other.Transport, other.Index = 7, 4, 1, 4
			copy(other.Name[:], "iwarp0")
			return ctl.Message{Body: ctl.ListBytes([]abi.DeviceInfo{info, other})}
		case !c.nic.broken:
			return body(info)
		}
		copy(other.Name[:], brokenDevice)
		return ctl.Message{Body: ctl.ListBytes([]abi.DeviceInfo{other, info})}
	case abi.OpOpenDevice:
		req := decode[abi.OpenDeviceReq](c, m)
		name, _, _ := strings.Cut(string(req.Name[:]), "\x00")
		c.nic.opened = append(c.nic.opened, name)
		if name == brokenDevice {
			return refuse(syscall.ENODEV, "it has just been pulled out")
		}
		return c.open()
	case abi.OpQueryDevice:
		attr := abi.DeviceAttr{
			NodeGUID: 0x0011223344556677, MaxQP: 1000, Ports: 1, MaxPKeys: 1, MaxSGE: 32,
			MaxQPReadAtomic: 16, MaxQPInitReadAtomic: 16,
			CapFlags: 1<<34 | 1<<17, CompletionTSMask: ^uint64(0), HCACoreClockKHz: 1e6,
		}
		copy(attr.FWVersion[:], "fake")
		return body(attr)
	case abi.OpQueryPort:
		if decode[abi.PortReq](c, m).Port != 1 {
			return refuse(syscall.EINVAL, "no such port")
		}
		return body(abi.PortAttr{
			State: 4, MaxMTU: 5, ActiveMTU: 3, GIDTableLen: 4,
			MaxMsgSize: 1 << 30, PKeyTableLen: 1, ActiveWidth: 2, ActiveSpeed: 4, PhysState: 5,
			LinkLayer: 2, CapFlags: 1 << 26, CapFlags2: 1 << 10,
		})
	case abi.OpQueryGIDTable:
		gid := [16]byte{10: 0xff, 11: 0xff, 12: 192, 13: 0, 14: 2, 15: 1}
		entries := []abi.GIDEntry{{GID: gid, Index: 1, Port: 1, Type: 2, IfIndex: 9}}
		return ctl.Message{Body: ctl.ListBytes(entries)}
	case abi.OpQueryPKey:
		if decode[abi.PortReq](c, m).Index != 0 {
			return refuse(syscall.EINVAL, "no such index")
		}
		return body(abi.PKeyRsp{PKey: 0xffff})
	default:
		return c.executeObject(m)
	}
}

// brokenDevice is the name of a device that cannot be opened.
const brokenDevice = "broken0"

func (c *fakeConn) open() ctl.Message {
	bells, fd := c.share(abi.DoorbellPageBytes)
	kick, err := shm.EventFD()
	if err != nil {
		c.nic.t.Error(err)
	}
	read, write := c.pipe()
	c.fds = append(c.fds, kick)
	c.bells, c.kick, c.async = bells, kick, write
	rsp := body(abi.OpenDeviceRsp{Context: 1})
	rsp.FDs = []int{fd, kick, read}
	return rsp
}

func (c *fakeConn) executeObject(m *ctl.Message) ctl.Message {
	switch m.Op {
	case abi.OpAllocPD:
		return body(abi.HandleMsg{Handle: c.handle()})
	case abi.OpCreateAH:
		decode[abi.CreateAHReq](c, m)
		return body(abi.HandleMsg{Handle: c.handle()})
	case abi.OpRegMR:
		var req abi.RegMRReq
		rest, _ := ctl.DecodeHead(m.Body, &req)
		segments, ok := ctl.DecodeList[abi.Segment](rest)
		if !ok || len(segments) != int(req.NumSegments) {
			c.nic.t.Errorf("registration with %d of %d segments", len(segments), req.NumSegments)
		}
		if req.Length == 13 {
			return refuse(syscall.EPERM, "memory of this process cannot be reached")
		}
		h := c.handle()
		return body(abi.RegMRRsp{Handle: h, LKey: h << 8, RKey: h<<8 | 1})
	case abi.OpCreateCompChannel:
		read, write := c.pipe()
		h := c.handle()
		c.pipes[h] = write
		rsp := body(abi.HandleMsg{Handle: h})
		rsp.FDs = []int{read}
		return rsp
	case abi.OpCreateCQ:
		return c.createCQ(decode[abi.CreateCQReq](c, m))
	case abi.OpResizeCQ:
		return c.resizeCQ(decode[abi.ResizeCQReq](c, m))
	case abi.OpResizeSRQ:
		return c.resizeSRQ(decode[abi.ResizeSRQReq](c, m))
	case abi.OpModifyCQ:
		return modifyCQ(decode[abi.ModifyCQReq](c, m))
	case abi.OpOpenXRCD, abi.OpOpenQP, abi.OpAllocMW:
		return refuse(syscall.EOPNOTSUPP, "neither XRC nor windows here")
	case abi.OpCreateQP:
		return c.createQP(decode[abi.CreateQPReq](c, m))
	case abi.OpModifyQP:
		return c.modifyQP(decode[abi.ModifyQPReq](c, m))
	case abi.OpQueryQP:
		return body(abi.QueryQPRsp{Attr: c.qps[decode[abi.HandleMsg](c, m).Handle].attr})
	case abi.OpDestroyQP:
		return c.destroyQP(decode[abi.HandleMsg](c, m).Handle)
	case abi.OpCreateSRQ:
		return c.createSRQ(decode[abi.CreateSRQReq](c, m))
	case abi.OpModifySRQ:
		req := decode[abi.SRQAttr](c, m)
		c.event(abi.AsyncEvent{Type: uint32(rdma.EventSRQLimitReached), Handle: req.Handle})
		return ctl.Message{}
	case abi.OpQuerySRQ:
		return body(abi.SRQAttr{MaxWR: 16, MaxSGE: 4, Limit: 2})
	case abi.OpAttachMulticast, abi.OpDetachMulticast:
		req := decode[abi.AttachMulticastReq](c, m)
		if attach := m.Op == abi.OpAttachMulticast; c.groups[req] == attach {
			return refuse(syscall.EINVAL, "it is so already")
		}
		c.groups[req] = !c.groups[req]
		return ctl.Message{}
	case abi.OpWaits:
		return c.noteWait(decode[abi.WaitsReq](c, m))
	case abi.OpDeallocPD, abi.OpDeregMR, abi.OpDestroyAH, abi.OpDestroyCQ, abi.OpDestroySRQ,
		abi.OpDestroyCompChannel:
		decode[abi.HandleMsg](c, m)
		return ctl.Message{}
	}
	return c.executeCM(m)
}

func (c *fakeConn) noteWait(req abi.WaitsReq) ctl.Message {
	c.nic.waits = append(c.nic.waits, fmt.Sprintf("%s waits for %s of %s (%d)",
		text(req.Call[:]), text(req.Ack[:]), text(req.Event[:]), req.Count))
	return ctl.Message{}
}

// text is what a field holds before its padding.
func text(field []byte) string { return string(bytes.TrimRight(field, "\x00")) }

// waited is what programs were said to wait for.
func (n *fakeNIC) waited() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.waits)
}

func (c *fakeConn) createCQ(req abi.CreateCQReq) ctl.Message {
	geo := ring.Geometry{Entries: ring.RoundEntries(req.Entries), Stride: abi.CQEBytes}
	m, fd := c.share(abi.QueueHeaderBytes + geo.Bytes())
	q := &fakeCQ{mem: m, channel: req.Channel, handle: c.handle()}
	q.ring = ring.NewProducer(m.Bytes()[abi.QueueHeaderBytes:], geo,
		ring.Word(m.Bytes(), abi.OffCQProducer), ring.Word(m.Bytes(), abi.OffCQConsumer))
	c.cqs[q.handle] = q
	rsp := body(abi.CreateCQRsp{Handle: q.handle, Entries: geo.Entries})
	rsp.FDs = []int{fd}
	return rsp
}

func modifyCQ(req abi.ModifyCQReq) ctl.Message {
	if req.PeriodMicroseconds == 0 {
		return refuse(syscall.EINVAL, "no period")
	}
	return ctl.Message{}
}

func (c *fakeConn) resizeCQ(req abi.ResizeCQReq) ctl.Message {
	q := c.cqs[req.Handle]
	geo := ring.Geometry{Entries: ring.RoundEntries(req.Entries), Stride: abi.CQEBytes}
	if q.ring.Unreleased() > geo.Entries {
		return refuse(syscall.EINVAL, "too few entries")
	}
	m, fd := c.share(geo.Bytes())
	q.ring = q.ring.MoveTo(m.Bytes(), geo)
	rsp := body(abi.CreateCQRsp{Handle: q.handle, Entries: geo.Entries})
	rsp.FDs = []int{fd}
	return rsp
}

func (c *fakeConn) createQP(req abi.CreateQPReq) ctl.Message {
	rsp := abi.CreateQPRsp{
		Handle: c.handle(), SQEntries: ring.RoundEntries(req.MaxSendWR), MaxInline: req.MaxInline,
		SQStride: abi.SQStride(req.MaxSendSGE, req.MaxInline), SQOffset: abi.QueueHeaderBytes,
		RQStride: abi.RQStride(req.MaxRecvSGE), MaxSendSGE: req.MaxSendSGE,
		MaxRecvSGE: req.MaxRecvSGE,
	}
	rsp.QPN, rsp.Doorbell = 0x100+rsp.Handle, 4100+rsp.Handle
	rsp.RQOffset = rsp.SQOffset + rsp.SQEntries*rsp.SQStride
	if req.SRQ == 0 {
		rsp.RQEntries = ring.RoundEntries(req.MaxRecvWR)
	}
	rsp.Bytes = rsp.RQOffset + rsp.RQEntries*rsp.RQStride
	m, fd := c.share(int(rsp.Bytes))
	mem := m.Bytes()
	q := &fakeQP{
		handle: rsp.Handle, slot: rsp.Doorbell, mem: m, rsp: rsp, all: req.SignalAll != 0,
		send: c.cqs[req.SendCQ], recv: c.cqs[req.RecvCQ],
	}
	q.sq = ring.NewConsumer(mem[rsp.SQOffset:],
		ring.Geometry{Entries: rsp.SQEntries, Stride: rsp.SQStride},
		ring.Word(mem, abi.OffSQProducer), ring.Word(mem, abi.OffSQConsumer))
	q.rq = ring.NewConsumer(mem[rsp.RQOffset:],
		ring.Geometry{Entries: rsp.RQEntries, Stride: rsp.RQStride},
		ring.Word(mem, abi.OffRQProducer), ring.Word(mem, abi.OffRQConsumer))
	c.qps[q.handle] = q
	out := body(rsp)
	out.FDs = []int{fd}
	return out
}

func (c *fakeConn) modifyQP(req abi.ModifyQPReq) ctl.Message {
	q := c.qps[req.Handle]
	if req.Mask&uint32(rdma.QPAttrState) != 0 {
		q.attr = req.Attr
		q.attr.CurState = req.Attr.State
		ring.Word(q.mem.Bytes(), abi.OffQPState).Store(req.Attr.State)
		if rdma.QPState(req.Attr.State) == rdma.QPStateReset {
			q.sq.Skip()
			q.rq.Skip()
		}
	}
	if req.Mask&uint32(rdma.QPAttrEnSQDAsyncNotify) != 0 {
		c.event(abi.AsyncEvent{Type: uint32(rdma.EventSQDrained), Handle: req.Handle})
	}
	return body(abi.QueryQPRsp{Attr: q.attr})
}

// resizeSRQ hands out other slots; nothing is ever taken from them.
func (c *fakeConn) resizeSRQ(req abi.ResizeSRQReq) ctl.Message {
	rsp := abi.CreateSRQRsp{
		Handle: req.Handle, Entries: ring.RoundEntries(req.Entries),
		Stride: abi.RQStride(req.MaxSGE), MaxSGE: req.MaxSGE,
	}
	rsp.Bytes = rsp.Entries * rsp.Stride
	_, fd := c.share(int(rsp.Bytes))
	out := body(rsp)
	out.FDs = []int{fd}
	return out
}

func (c *fakeConn) destroyQP(handle uint32) ctl.Message {
	for req, isAttached := range c.groups {
		if isAttached && req.QP == handle {
			return refuse(syscall.EBUSY, "it is attached to a multicast group")
		}
	}
	delete(c.qps, handle)
	return ctl.Message{}
}

func (c *fakeConn) createSRQ(req abi.CreateSRQReq) ctl.Message {
	if req.MaxSGE > limits.MaxSGE || req.Limit > req.MaxWR {
		return refuse(syscall.EINVAL, "too many SGEs, or a limit over max_wr")
	}
	rsp := abi.CreateSRQRsp{
		Handle: c.handle(), SRQN: 99, Entries: ring.RoundEntries(req.MaxWR),
		Stride: abi.RQStride(req.MaxSGE), Offset: abi.QueueHeaderBytes, MaxSGE: req.MaxSGE,
	}
	rsp.Bytes = rsp.Offset + rsp.Entries*rsp.Stride
	m, fd := c.share(int(rsp.Bytes))
	c.srqs[rsp.Handle] = m
	out := body(rsp)
	out.FDs = []int{fd}
	return out
}
