package nic

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
	"github.com/softrnic/softrnic/internal/wire/mad"
)

// left is the evidence that the application finds in its queue pair's memory.
func (q *appQP) left() abi.Cause {
	var words [abi.CauseWords]uint32
	for i := range words {
		words[i] = ring.Word(q.mem, abi.OffQPCause+4*i).Load()
	}
	return abi.TakeCause(&words)
}

// says wants each text in the joined chain of the error that is n-th from the end.
func says(t *testing.T, n *NIC, last int, texts ...string) ErrorStatus {
	t.Helper()
	list := n.Status().Errors
	if len(list) < last {
		t.Fatalf("%d errors are known", len(list))
	}
	e := list[len(list)-last]
	whole := strings.Join(e.Chain, "\n")
	for _, want := range texts {
		if !strings.Contains(whole, want) {
			t.Errorf("no %q in\n%s", want, whole)
		}
	}
	return e
}

func TestCause_MissingRight_E09_TellsKeyRangeAndRightsOfBothSides(t *testing.T) {
	b := newBench(t)
	a, z, cq := pairRC(b)
	src, srcAddr, _ := b.region(64, 0)
	dst, dstAddr, _ := b.region(4096, rdma.AccessLocalWrite|rdma.AccessRemoteRead)
	a.send(abi.SendWQE{
		WRID: 77, Opcode: uint8(rdma.WRWrite), RemoteAddr: dstAddr + 8, RKey: dst.RKey,
	}, abi.SGE{Addr: srcAddr, Length: 64, LKey: src.LKey})
	a.recv(78)
	b.run(second)
	if got := cq.poll(); len(got) != 2 || got[0].Status != uint32(rdma.WCRemAccessErr) {
		t.Fatalf("completions %+v", got)
	}
	says(t, b.n, 2, "a request of the peer was refused: RC_WRITE_ONLY",
		"NAK remote access error (syndrome 0x62)", "access right missing",
		rdma.Key(dst.RKey).String(), "remote_write asked", "grants local_write|remote_read",
		"the queue pair grants its peer")
	e := says(t, b.n, 1, "wr_id 77, WRITE: remote access error (IBV_WC_REM_ACCESS_ERR, 10)",
		"10.0.0.1 QP", "syndrome 0x62", "the RC queue pair was in RTS", "likely:",
		"at the peer, test[7]: access right missing")
	if e.Program != "test" || e.PID != 7 || e.QPN != a.rsp.QPN || e.Kind != ErrorRequest ||
		e.Evidence == nil || e.Evidence.WRID != 77 || e.Evidence.Asked != "remote_write" ||
		e.Evidence.Syndrome != 0x62 || e.Evidence.Addr != dstAddr+8 {
		t.Errorf("error %+v, evidence %+v", e, e.Evidence)
	}
	// Each side finds its own evidence in its own queue pair.
	mine, theirs := a.left(), z.left()
	if mine.Number == 0 || mine.WRID != 77 || mine.Flags&abi.CauseOfPeer != 0 ||
		mine.PeerQPN != z.rsp.QPN || mine.Key != dst.RKey {
		t.Errorf("left here %+v", mine)
	}
	if theirs.Flags&(abi.CauseOfPeer|abi.CauseHasRegion) != abi.CauseOfPeer|abi.CauseHasRegion ||
		theirs.RegionAddr != dstAddr || theirs.RegionLength != 4096 || theirs.Number == mine.Number {
		t.Errorf("left at the peer %+v", theirs)
	}
	s := b.c.status()
	if q := s.QPs[0]; !strings.Contains(q.Error, "IBV_WC_REM_ACCESS_ERR") || q.Errors != 1 {
		t.Errorf("status %+v", q)
	}
}

func TestCause_LocalBounds_E09_TellsBothRanges(t *testing.T) {
	b := newBench(t)
	a, _, _ := pairRC(b)
	src, srcAddr, _ := b.region(64, 0)
	a.send(abi.SendWQE{WRID: 5, Opcode: uint8(rdma.WRSend)},
		abi.SGE{Addr: srcAddr + 32, Length: 64, LKey: src.LKey})
	b.run(second)
	says(t, b.n, 1, "wr_id 5, SEND: local protection error", "range outside the region",
		"(64 bytes) for local_read asked", "the region is 0x", "likely:")
}

func TestCause_ReceiveTooShort_E09_TellsBothLengths(t *testing.T) {
	b := newBench(t)
	a, z, _ := pairRC(b)
	src, srcAddr, _ := b.region(64, everyRight)
	z.recv(9, abi.SGE{Addr: srcAddr, Length: 16, LKey: src.LKey})
	a.send(abi.SendWQE{WRID: 5, Opcode: uint8(rdma.WRSend)},
		abi.SGE{Addr: srcAddr, Length: 64, LKey: src.LKey})
	b.run(second)
	e := says(t, b.n, 2, "the receive wr_id 9 completed with local length error",
		"64 bytes or more, there is room for 16")
	if e.Kind != ErrorPeer {
		t.Errorf("kind %v", e.Kind)
	}
	says(t, b.n, 1, "remote invalid request error", "at the peer, test[7]: the message has 64 bytes")
}

func TestCause_NoAnswer_E09_T14_TellsTimeoutsRetriesAndNaks(t *testing.T) {
	b := newBench(t)
	cq := b.cq(64, 0)
	a := b.rc(cq)
	a.connect(0x4711) // nobody has it
	a.send(abi.SendWQE{WRID: 5, Opcode: uint8(rdma.WRSend)})
	b.run(60 * second)
	says(t, b.n, 1, "transport retry counter exceeded (IBV_WC_RETRY_EXC_ERR, 12)",
		"8 ACK timeouts of 67.1", "7 retries spent of retry_cnt 7", "no NAK ever came",
		"10.0.0.1 QP 0x004711", "did not acknowledge PSN 5")

	x, y := b.rc(cq), b.rc(cq)
	y.connect(x.rsp.QPN)
	attr := fullAttr(y.rsp.QPN)
	attr.RNRRetry = 2
	for _, step := range []struct {
		to   rdma.QPState
		mask rdma.QPAttrMask
	}{{sInit, toInit}, {sRTR, toRTR}, {sRTS, toRTS}} {
		attr.State = uint32(step.to)
		b.granted(x.modify(attr, step.mask))
	}
	x.send(abi.SendWQE{WRID: 6, Opcode: uint8(rdma.WRSend)})
	b.run(60 * second)
	says(t, b.n, 1, "RNR retry counter exceeded", "rnr_retry 2",
		"the last NAK was RNR NAK timer=640µs", "likely: the peer posted no receive")
}

func TestCause_Overrun_TellsTheQueue(t *testing.T) {
	b := newBench(t)
	cq := b.cq(1, 0)
	a, z := b.rc(cq), b.rc(cq)
	a.connect(z.rsp.QPN)
	z.connect(a.rsp.QPN)
	for i := range 4 {
		a.send(abi.SendWQE{
			WRID: uint64(i), Opcode: uint8(rdma.WRWrite), Flags: uint8(rdma.SendSignaled),
		})
	}
	b.run(second)
	if e := says(t, b.n, 1, "overran"); e.Kind != ErrorQueue {
		t.Errorf("kind %v", e.Kind)
	}
}

func TestCause_ProgramEndsIt_LeavesWordAndNoError(t *testing.T) {
	b := newBench(t)
	a, _, _ := pairRC(b)
	b.granted(a.modify(abi.QPAttr{State: uint32(sError)}, rdma.QPAttrState))
	if c := a.left(); c.Vendor != uint32(abi.VendorModified) || c.Number == 0 {
		t.Errorf("left %+v", c)
	}
	if n := len(b.n.Status().Errors); n != 0 {
		t.Errorf("%d errors", n)
	}
	b.granted(a.modify(abi.QPAttr{State: uint32(sReset)}, rdma.QPAttrState))
	if c := a.left(); c.Number != 0 {
		t.Errorf("after a reset %+v", c)
	}
}

// TestCause_PeerEndsTheStream_IsToldWhereARequestIsFlushed: nothing else says why it was.
func TestCause_PeerEndsTheStream_IsToldWhereARequestIsFlushed(t *testing.T) {
	for _, isUnderWay := range []bool{false, true} {
		l := newLAN(t)
		a, z, _ := l.pair()
		mr, addr, _ := a.region(64, everyRight)
		a.q.recv(1, abi.SGE{Addr: addr, Length: 64, LKey: mr.LKey})
		z.granted(z.s.Disconnect(l.now, z.id))
		if isUnderWay {
			a.q.send(abi.SendWQE{
				WRID: 77, Opcode: uint8(rdma.WRRead), RemoteAddr: 8, RKey: 9,
			}, abi.SGE{Addr: addr, Length: 64, LKey: mr.LKey})
			l.nodes[0].n.HandleDoorbells(l.now)
		}
		l.run(time.Second)
		if c := a.q.left(); c.Vendor != uint32(abi.VendorPeerEnded) || c.Number == 0 {
			t.Errorf("left %+v", c)
		}
		if !isUnderWay {
			if e := l.nodes[0].n.Status().Errors; len(e) != 0 {
				t.Errorf("an end in order is an error: %+v", e)
			}
			continue
		}
		e := says(t, l.nodes[0].n, 1, "wr_id 77, READ: Work Request Flushed Error",
			"the peer, 10.0.0.2 TCP port 7000, ended the connection", "likely: the program")
		if e.Kind != ErrorRequest || e.QPN != a.q.rsp.QPN || a.q.state() != sError {
			t.Errorf("error %+v", e)
		}
	}
}

func TestCause_RefusedVerb_NamesVerbErrnoAndArgument(t *testing.T) {
	b := newBench(t)
	a := b.rc(b.cq(8, 0))
	r := a.modify(abi.QPAttr{State: uint32(sRTS)}, rdma.QPAttrState)
	if r == nil {
		t.Fatal("RESET to RTS was granted")
	}
	b.c.NoteRefusal(b.now, abi.OpModifyQP, a.rsp.Handle, r)
	e := says(t, b.n, 1, "ibv_modify_qp failed with EINVAL (22, invalid argument)", "RESET to RTS")
	if e.QPN != a.rsp.QPN || e.Errno != "EINVAL" || e.Kind != ErrorVerb {
		t.Errorf("error %+v", e)
	}
}

// TestCause_RefusedPost_IsTheLibrarysWord reads what a library, or somebody who wants to harm
// terminals, leaves about posts that the NIC never saw.
func TestCause_RefusedPost_IsTheLibrarysWordMadePrintable(t *testing.T) {
	b := newBench(t)
	a := b.rc(b.cq(8, 0))
	p := abi.PostRefusal{
		Count: 3, Error: uint32(syscall.EINVAL), WRID: 12, Opcode: uint32(rdma.WRRead),
	}
	copy(p.Text[:], "too many\x1b[2J entries")
	abi.EncodePostRefusal(a.mem[abi.OffQPRefusal:], &p)
	e := says(t, b.n, 1, "ibv_post_send of wr_id 12, READ, failed with EINVAL",
		"too many?[2J entries", "3 posts")
	if e.Kind != ErrorPost || e.QPN != a.rsp.QPN {
		t.Errorf("error %+v", e)
	}
	if n := len(b.n.Status().Errors); n != 1 {
		t.Errorf("%d errors for one refusal", n)
	}
	p.Count, p.Opcode = 4, uint32(rdma.WCOpRecv)
	for i := range p.Text {
		p.Text[i] = 0xff
	}
	abi.EncodePostRefusal(a.mem[abi.OffQPRefusal:], &p)
	if r := b.c.DestroyQP(b.now, a.rsp.Handle); r != nil {
		t.Fatal(r)
	}
	says(t, b.n, 1, "ibv_post_recv of wr_id 12 failed with EINVAL", "????")
}

// TestCause_DeadProgram_StaysForAWhile also holds that a noisy program pushes no other's errors
// out.
func TestCause_DeadProgram_StaysForAWhileAndNobodyPushesItOut(t *testing.T) {
	b := newBench(t)
	first := b.c
	r := rdma.Refuse(syscall.EINVAL, "the first")
	first.NoteRefusal(b.now, abi.OpRegMR, 0, r)
	noisy, _ := b.open()
	for i := range 1000 {
		noisy.NoteRefusal(b.now, abi.OpRegMR, 0, refusef(syscall.ENOMEM, "noise %d", i))
	}
	b.n.CloseContext(b.now, first)
	list := b.n.Status().Errors
	if len(list) != 1+historyKept || !list[0].Ended || list[0].Chain[1] != "the first" {
		t.Fatalf("%d errors, the first %+v", len(list), list[0])
	}
	if list[len(list)-1].Number != 1001 {
		t.Errorf("the newest is %d", list[len(list)-1].Number)
	}
	if n := len(b.n.Causes(0)); n != causesKept {
		t.Errorf("%d for the log", n)
	}
	for range programsKept + 3 {
		c, _ := b.open()
		c.NoteRefusal(b.now, abi.OpRegMR, 0, r)
		b.n.CloseContext(b.now, c)
	}
	if n := len(b.n.causes.past); n != programsKept {
		t.Errorf("%d dead programs are remembered", n)
	}
	b.run(clock.Time(programsTime + time.Second))
	b.n.now = b.now
	if list := b.n.Status().Errors; len(list) != historyKept || list[0].Ended {
		t.Errorf("%d errors after a while", len(list))
	}
}

// TestCause_SameRefusals_AreToldOnce: a program that probes what there is leaves a line for each
// thing that it has asked for, not for each time.
func TestCause_SameRefusals_AreToldOnce(t *testing.T) {
	b := newBench(t)
	other, _ := b.open()
	other.NoteRefusal(b.now, abi.OpRegMR, 0, rdma.Refuse(syscall.EINVAL, "one"))
	start := b.now
	for i := range 100 {
		b.now = start.Add(time.Duration(i) * time.Second)
		b.c.NoteRefusal(b.now, abi.OpRegMR, 0, rdma.Refuse(syscall.EINVAL, "one"))
		b.c.NoteRefusal(b.now, abi.OpRegMR, 0, rdma.Refuse(syscall.EINVAL, "another"))
		b.c.NoteRefusal(b.now, abi.OpCreateCQ, 0, rdma.Refuse(syscall.EINVAL, "one"))
		b.c.NoteRefusal(b.now, abi.OpRegMR, 0, rdma.Refuse(syscall.EPERM, "one"))
	}
	list := b.n.Status().Errors
	if len(list) != 5 || list[0].Count != 1 {
		t.Fatalf("%d errors: %+v", len(list), list)
	}
	for i, e := range list[1:] {
		if e.Count != 100 || e.AgeSeconds != 0 || e.FirstAgeSeconds != 99 ||
			e.Number != uint64(398+i) {
			t.Errorf("%+v", e)
		}
	}
}

func TestCause_ManyPrograms_ListingIsBounded(t *testing.T) {
	b := newBench(t)
	for range errorsShown/historyKept + 4 {
		c, _ := b.open()
		for i := range historyKept + 1 {
			c.NoteRefusal(b.now, abi.OpRegMR, 0, refusef(syscall.EINVAL, "for the %d. time", i))
		}
	}
	list := b.n.Status().Errors
	if len(list) != errorsShown || list[len(list)-1].Number != b.n.causes.total {
		t.Errorf("%d errors, the last is %d of %d", len(list), list[len(list)-1].Number,
			b.n.causes.total)
	}
}

func TestCause_ConnectionRejected_TellsReasonAndEnds(t *testing.T) {
	f := newFabric(t, 2)
	a, b := f.hosts[0], f.hosts[1]
	id := a.tcp()
	a.resolve(id, "10.0.0.2", 4444) // nobody listens
	a.granted(a.s.Connect(f.now, &abi.CMConnReq{ID: id, Param: params(0x123, "")}))
	e := a.expect(eventRejected, id)
	if e.Status != int32(mad.ReasonInvalidServiceID) {
		t.Fatalf("event %+v", e)
	}
	s := says(t, a.n, 1, "10.0.0.2:4444", "RDMA_CM_EVENT_REJECTED", "status 8", "invalid service ID",
		"likely: the server is not running")
	if s.Kind != ErrorConnection || s.QPN != 0x123 {
		t.Errorf("error %+v", s)
	}
	away := says(t, b.n, 1, "10.0.0.1 asked for a connection with 10.0.0.2, port 4444 of TCP",
		"it was rejected: invalid service ID")
	if away.Kind != ErrorTurnedAway || away.Program != "" {
		t.Errorf("turned away %+v", away)
	}
	b.listen(spaceTCP, "0.0.0.0", 7471, 3)
	id = a.tcp()
	a.resolve(id, "10.0.0.2", 7471)
	a.granted(a.s.Connect(f.now, &abi.CMConnReq{ID: id, Param: params(0x123, "")}))
	child := b.expect(eventConnectRequest, 0).ID
	b.granted(b.s.Reject(f.now, &abi.CMConnReq{ID: child}))
	a.expect(eventRejected, id)
	says(t, a.n, 1, "status 28", "rejected by the application", "likely: the server is full")
}

func TestCause_AddressError_TellsErrno(t *testing.T) {
	f := newFabric(t, 1)
	a := f.hosts[0]
	id := a.tcp()
	a.granted(a.s.ResolveAddr(f.now, &abi.CMAddrReq{
		ID: id, TimeoutMS: 1000, Dst: cmAddr("203.0.113.9", 80),
	}))
	f.run(10 * time.Second)
	a.expect(eventAddrError, id)
	if e := says(t, a.n, 1, "RDMA_CM_EVENT_ADDR_ERROR", "203.0.113.9:80"); e.Errno == "" {
		t.Errorf("error %+v", e)
	}
}

func TestCause_Evidence_FitsTheHeader(t *testing.T) {
	b := newBench(t)
	a, _, _ := pairRC(b)
	q := b.c.qps[a.rsp.Handle]
	before := append([]byte(nil), a.mem...)
	q.Note(nil, work.Cause{Status: rdma.WCFatalErr, Vendor: abi.VendorLocalFault})
	for i := range a.mem {
		inside := i >= abi.OffQPCause && i < abi.OffQPCause+abi.CauseBytes
		if !inside && a.mem[i] != before[i] {
			t.Fatalf("byte %#x of the queue changed", i)
		}
	}
}
