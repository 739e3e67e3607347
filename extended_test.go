package softrnic_test

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/softrnic/softrnic"
	"github.com/softrnic/softrnic/test/nictest"
	"github.com/softrnic/softrnic/verbs"
)

// xrcPair connects a sending XRC queue pair to a receiving one of the domain.
func xrcPair(t *testing.T, dev *verbs.Context, pd *verbs.PD, cq *verbs.CQ, domain *verbs.XRCD) (
	ini, tgt *verbs.QP,
) {
	t.Helper()
	ini, err := pd.CreateQP(verbs.QPConfig{Type: verbs.QPTypeXRCSend, SendCQ: cq})
	if err != nil {
		t.Fatal(err)
	}
	if tgt, err = domain.CreateQP(); err != nil {
		t.Fatal(err)
	}
	gids, err := dev.GIDs()
	if err != nil {
		t.Fatal(err)
	}
	path := verbs.AHAttr{Port: 1, DGID: gids[0].GID, SGIDIndex: uint8(gids[0].Index)}
	const state = verbs.QPAttrState
	for _, side := range []struct{ q, peer *verbs.QP }{{ini, tgt}, {tgt, ini}} {
		a := verbs.QPAttr{
			Port: 1, Access: verbs.AccessAll, PathMTU: verbs.MTU1024, DestQPN: side.peer.QPN(),
			Path: path, MaxRdAtomic: 4, MaxDestRdAtomic: 4, Timeout: 14, RetryCnt: 7, RNRRetry: 7,
		}
		for _, step := range []struct {
			to   verbs.QPState
			mask verbs.QPAttrMask
		}{
			{verbs.QPStateInit, state | verbs.QPAttrPKeyIndex | verbs.QPAttrPort |
				verbs.QPAttrAccessFlags},
			{verbs.QPStateRTR, state | verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN |
				verbs.QPAttrRQPSN | verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer},
			{verbs.QPStateRTS, state | verbs.QPAttrTimeout | verbs.QPAttrRetryCnt |
				verbs.QPAttrRNRRetry | verbs.QPAttrSQPSN | verbs.QPAttrMaxQPRdAtomic},
		} {
			a.State = step.to
			if err := side.q.Modify(a, step.mask); err != nil {
				t.Fatal(err)
			}
		}
	}
	return ini, tgt
}

// TestXRC_QueueOfADomain_IsReachedByItsNumber: a domain of a file, a shared receive queue of it,
// and a further handle of the receiving queue pair in another context.
func TestXRC_QueueOfADomain_IsReachedByItsNumber(t *testing.T) {
	nic := nictest.Start(t, softrnic.Config{})
	dev, other := open(t, verbs.WithConnector(nic)), open(t, verbs.WithConnector(nic))
	file, err := os.CreateTemp(t.TempDir(), "domain")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if _, err := dev.OpenXRCD(verbs.XRCDConfig{File: file}); !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("a domain that is not there: %v", err)
	}
	domain, err := dev.OpenXRCD(verbs.XRCDConfig{File: file, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	sends, err1 := dev.CreateCQ(verbs.CQConfig{})
	receives, err2 := dev.CreateCQ(verbs.CQConfig{})
	srq, err3 := pd.CreateSRQ(verbs.SRQConfig{XRC: domain, CQ: receives})
	mr, err4 := pd.AllocMemory(4096, verbs.AccessAll)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	ini, tgt := xrcPair(t, dev, pd, sends, domain)
	if _, err := srq.PostRecv(verbs.RecvWR{ID: 7, SGE: mr.SGE(0, 64)}); err != nil {
		t.Fatal(err)
	}
	resizeSRQ(t, srq)
	_, err = ini.PostSend(verbs.SendWR{
		Opcode: verbs.WRSend, Flags: verbs.SendSignaled, Inline: []byte("to a queue"),
		SRQN: srq.Number(),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, cq := range []*verbs.CQ{sends, receives} {
		wc := next(t, cq)
		if err := wc.Err(); err != nil {
			t.Fatal(err)
		}
		isRight := wc.ID == 7 && wc.QPN == tgt.QPN() && string(mr.Bytes()[:10]) == "to a queue"
		if cq == receives && !isRight {
			t.Errorf("completion %+v, memory %q", wc, mr.Bytes()[:10])
		}
	}
	theirs, err := other.OpenXRCD(verbs.XRCDConfig{File: file})
	if err != nil {
		t.Fatal(err)
	}
	again, err := theirs.OpenQP(tgt.QPN())
	if err != nil {
		t.Fatal(err)
	}
	if err := tgt.Close(); err != nil {
		t.Fatal(err)
	}
	if a, err := again.Query(); err != nil || a.State != verbs.QPStateRTS {
		t.Errorf("the other handle: %v, %v", a.State, err)
	}
	if err := theirs.Close(); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("closing a domain that is in use: %v", err)
	}
	if err := errors.Join(again.Close(), theirs.Close(), srq.Close(), domain.Close()); err != nil {
		t.Error(err)
	}
}

// resizeSRQ makes a queue with one receive in it larger, then smaller, then fills it.
func resizeSRQ(t *testing.T, srq *verbs.SRQ) {
	t.Helper()
	if err := errors.Join(srq.Resize(1000), srq.Resize(2)); err != nil {
		t.Fatal(err)
	}
	if _, err := srq.PostRecv(make([]verbs.RecvWR, 2)...); !errors.Is(err, verbs.ErrQueueFull) {
		t.Errorf("two receives beside the one in a queue of two: %v", err)
	}
}

// next waits for a completion.
func next(t *testing.T, cq *verbs.CQ) verbs.WC {
	t.Helper()
	var wc [1]verbs.WC
	for {
		n, err := cq.Poll(wc[:])
		if err == nil && n == 0 {
			err = cq.Wait(nictest.Soon(t))
		}
		if err != nil {
			t.Fatal(err)
		}
		if n == 1 {
			return wc[0]
		}
	}
}

func TestAtomicWriteAndFlush_ReachThePeersMemory(t *testing.T) {
	nic := nictest.Start(t, softrnic.Config{})
	dev := open(t, verbs.WithConnector(nic))
	x, y := pair(t, dev, dev, verbs.QPConfig{Type: verbs.QPTypeRC})
	mr, err := y.pd.AllocMemory(4096, verbs.AccessAll)
	if err != nil {
		t.Fatal(err)
	}
	soon := nictest.Soon(t)
	err = x.do(soon, verbs.SendWR{
		Opcode: verbs.WRAtomicWrite, Inline: []byte("8 bytes!"), RemoteAddr: mr.Addr() + 8,
		RKey: mr.RKey(),
	})
	if err != nil || string(mr.Bytes()[8:16]) != "8 bytes!" {
		t.Errorf("%q: %v", mr.Bytes()[8:16], err)
	}
	if err := x.do(soon, verbs.SendWR{Opcode: verbs.WRFlush}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a flush of nothing: %v", err)
	}
	narrow, err := y.pd.AllocMemory(4096, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []*verbs.Flush{{Length: 16}, {Region: true}} {
		err := x.do(soon, verbs.SendWR{
			Opcode: verbs.WRFlush, RemoteAddr: mr.Addr(), RKey: mr.RKey(), Flush: f,
		})
		if err != nil {
			t.Errorf("flush %+v: %v", f, err)
		}
	}
	// Another region has no right to it, which the peer says.
	err = x.do(soon, verbs.SendWR{
		Opcode: verbs.WRFlush, RemoteAddr: narrow.Addr(), RKey: narrow.RKey(),
		Flush: &verbs.Flush{Length: 16},
	})
	var status *verbs.StatusError
	if !errors.As(err, &status) || status.Status != verbs.WCRemAccessErr {
		t.Errorf("a flush without the right: %v", err)
	}
}

// TestCQ_ResizeAndModerate: what was not polled stays, and events wait for one another.
func TestCQ_ResizeAndModerate(t *testing.T) {
	nic := nictest.Start(t, softrnic.Config{})
	dev := open(t, verbs.WithConnector(nic))
	x, y := pair(t, dev, dev, verbs.QPConfig{Type: verbs.QPTypeRC})
	mr, err := y.pd.AllocMemory(64, verbs.AccessAll)
	if err != nil {
		t.Fatal(err)
	}
	write := func(id uint64) {
		t.Helper()
		_, err := x.qp.PostSend(verbs.SendWR{
			ID: id, Opcode: verbs.WRWrite, Flags: verbs.SendSignaled, Inline: []byte{1},
			RemoteAddr: mr.Addr(), RKey: mr.RKey(),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	before := dev.Clock()
	for id := range uint64(3) {
		write(id)
	}
	if err := x.cq.Wait(nictest.Soon(t)); err != nil {
		t.Fatal(err)
	}
	if err := x.cq.Resize(1000); err != nil || x.cq.Entries() != 1024 {
		t.Fatalf("%d entries: %v", x.cq.Entries(), err)
	}
	write(3)
	for id := range uint64(4) {
		wc := next(t, x.cq)
		if wc.ID != id || wc.Err() != nil || wc.Timestamp < before || wc.Timestamp > dev.Clock() {
			t.Errorf("completion %d: %+v, clock %d…%d", id, wc, before, dev.Clock())
		}
	}
	for _, n := range []int{0, -1, 1 << 30} {
		if err := x.cq.Resize(n); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("resize to %d: %v", n, err)
		}
	}
	if err := x.cq.Moderate(100, 20*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	write(4)
	if wc := next(t, x.cq); wc.ID != 4 {
		t.Errorf("completion %+v", wc)
	}
	if err := x.cq.Moderate(1<<20, time.Millisecond); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("moderation out of range: %v, after %v", err, time.Since(start))
	}
	if err := x.cq.Resize(1); err != nil || x.cq.Entries() != 1 {
		t.Errorf("%d entries: %v", x.cq.Entries(), err)
	}
}
