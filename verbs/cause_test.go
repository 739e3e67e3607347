package verbs

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
)

// leave plays the NIC that leaves evidence in a queue pair's memory.
func (q *fakeQP) leave(c *abi.Cause) {
	words := abi.PutCause(c)
	m := q.memory.Bytes()
	for i := range abi.CauseNumberWords {
		ring.Word(m, abi.OffQPCause+4*i).Store(0)
	}
	for i := len(words) - 1; i >= 0; i-- {
		ring.Word(m, abi.OffQPCause+4*i).Store(words[i])
	}
}

func pairOf(t *testing.T) (*fakeNIC, *CQ, *QP) {
	t.Helper()
	n, c := openFake(t)
	pd, err := c.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	cq, err := c.CreateCQ(CQConfig{Entries: 8, PollOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	qp, err := pd.CreateQP(QPConfig{Type: QPTypeRC, SendCQ: cq})
	if err != nil {
		t.Fatal(err)
	}
	return n, cq, qp
}

// Case E09: the error of a completion holds all that the NIC saw; case E08: and the request's id.
func TestPoll_FailedRequest_E08_E09_CarriesItsCause(t *testing.T) {
	n, cq, qp := pairOf(t)
	peer := GID{10: 0xff, 11: 0xff, 12: 10, 15: 2}
	n.qp(qp).leave(&abi.Cause{
		Number: 3, WRID: 42, Status: uint32(WCRemAccessErr), Vendor: uint32(abi.VendorNak) | 0x62<<8,
		QPN: uint32(qp.QPN()), PeerQPN: 0x99, Peer: peer, Syndrome: 0x62, State: uint8(QPStateRTS),
		QPType: uint8(QPTypeRC), Opcode: uint8(WRWrite), Key: 0x1234, Addr: 0x1000, Length: 64,
		Asked: uint32(AccessRemoteWrite), Flags: abi.CauseHasPath,
	})
	n.cq(cq).push(abi.CQE{
		WRID: 42, Status: uint32(WCRemAccessErr), VendorErr: uint32(abi.VendorNak) | 0x62<<8,
		QPNum: uint32(qp.QPN()),
	})
	n.cq(cq).push(abi.CQE{
		WRID: 43, Status: uint32(WCWRFlushErr), VendorErr: uint32(abi.VendorFlushed),
		QPNum: uint32(qp.QPN()),
	})
	// One whose evidence was overwritten has none rather than another's.
	n.cq(cq).push(abi.CQE{WRID: 44, Status: uint32(WCLocLenErr), QPNum: uint32(qp.QPN())})
	var wcs [4]WC
	if got, err := cq.Poll(wcs[:]); got != 3 || err != nil {
		t.Fatalf("polled %d, %v", got, err)
	}
	err := wcs[0].Err()
	var cause *Cause
	if !errors.Is(err, ErrRemoteAccess) || !errors.As(err, &cause) {
		t.Fatalf("%v has no cause", err)
	}
	if cause.Key != 0x1234 || cause.Peer != peer || cause.PeerQPN != 0x99 || cause.NAK != 0x62 ||
		cause.Asked != AccessRemoteWrite || cause.State != QPStateRTS || cause.ID != 42 {
		t.Errorf("cause %+v", cause)
	}
	for _, want := range []string{"request 42", "10.0.0.2", "0x000099", "syndrome 0x62", "likely"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	flushed := wcs[1].Err()
	if !errors.Is(flushed, ErrFlushed) || errors.Is(flushed, ErrRemoteAccess) ||
		!errors.As(flushed, &cause) || cause.ID != 42 ||
		!strings.Contains(flushed.Error(), "because wr_id 42, WRITE: remote access error") {
		t.Errorf("flushed: %v", flushed)
	}
	if wcs[2].Cause() != nil || (&WC{}).Cause() != nil {
		t.Error("a cause that is none")
	}
	event := Event{Type: EventQPAccessErr, QP: qp}
	if event.Cause() == nil || !strings.Contains(event.String(), "wr_id 42") {
		t.Errorf("the event %v", event)
	}
	event.Type = EventCommEst
	if event.Cause() != nil || strings.Contains(event.String(), "wr_id") {
		t.Errorf("the event %v", event)
	}
	if c := qp.Cause(); c == nil || c.ID != 42 || len(c.Chain()) < 3 {
		t.Errorf("the queue pair's %v", c)
	}
}

func TestCause_Errno_SaysWhatTheHostSaid(t *testing.T) {
	for vendor, want := range map[abi.Vendor]error{
		abi.VendorNoNIC: syscall.ECONNREFUSED, abi.VendorNoRoute: syscall.EHOSTUNREACH,
		abi.VendorAckTimeout: nil,
	} {
		err := (&WC{
			Status: WCRetryExcErr, Evidence: Evidence(vendor),
			cause: causeFrom(&abi.Cause{Status: uint32(WCRetryExcErr), Vendor: uint32(vendor)}),
		}).Err()
		if want != nil && !errors.Is(err, want) || errors.Is(err, syscall.EINVAL) {
			t.Errorf("%v is not %v", err, want)
		}
	}
}

// TestQP_Cause_UnwrittenOrHalfWritten_IsNone also has a NIC that stopped in the middle of writing.
func TestQP_Cause_UnwrittenOrHalfWritten_IsNone(t *testing.T) {
	n, _, qp := pairOf(t)
	if c := qp.Cause(); c != nil {
		t.Errorf("a new queue pair has the cause %v", c)
	}
	fake := n.qp(qp)
	fake.leave(&abi.Cause{Number: 1, Status: uint32(WCRetryExcErr)})
	ring.Word(fake.memory.Bytes(), abi.OffQPCause).Store(0)
	if c := qp.Cause(); c != nil {
		t.Errorf("half a cause: %v", c)
	}
	if err := qp.Close(); err != nil || qp.Cause() != nil {
		t.Errorf("closed: %v, %v", err, qp.Cause())
	}
}

func TestPost_Refused_LeavesWordForTheNIC(t *testing.T) {
	n, _, qp := pairOf(t)
	fake := n.qp(qp)
	left := func() (p abi.PostRefusal) {
		abi.DecodePostRefusal(fake.memory.Bytes()[abi.OffQPRefusal:], &p)
		return p
	}
	if _, err := qp.PostSend(SendWR{ID: 7, Opcode: WRSend}); err == nil {
		t.Fatal("a send was posted in RESET")
	}
	p := left()
	if p.Count != 1 || p.WRID != 7 || p.Error != uint32(syscall.EINVAL) ||
		!strings.Contains(string(p.Text[:]), "state RESET") {
		t.Errorf("left %+v, %q", p, p.Text)
	}
	fake.setState(rdma.QPStateRTS)
	if _, err := qp.PostSend(SendWR{ID: 8, Opcode: WROpcode(99)}); err == nil {
		t.Fatal("operation 99 was posted")
	}
	if p = left(); p.Count != 2 || p.WRID != 8 {
		t.Errorf("left %+v", p)
	}
	fake.setState(rdma.QPStateInit)
	for range 10000 {
		if _, err := qp.PostRecv(RecvWR{ID: 9}); errors.Is(err, ErrQueueFull) {
			break
		}
	}
	if p = left(); p.Opcode != uint32(rdma.WCOpRecv) || p.Error != uint32(syscall.ENOMEM) {
		t.Errorf("left %+v", p)
	}
	full := RecvWR{ID: 9}
	if n := testing.AllocsPerRun(100, func() { _, _ = qp.PostRecv(full) }); n > 0 {
		t.Errorf("a full queue costs %v allocations", n)
	}
}
