package softrnic_test

import (
	"bytes"
	"errors"
	"syscall"
	"testing"

	"github.com/softrnic/softrnic"
	"github.com/softrnic/softrnic/test/nictest"
	"github.com/softrnic/softrnic/verbs"
)

// tagged is an end whose receives come from a queue that matches tags.
type tagged struct {
	end
	srq *verbs.SRQ
	mr  *verbs.MR
}

func newTagged(t *testing.T, dev *verbs.Context, cfg verbs.TagConfig) *tagged {
	t.Helper()
	e := &tagged{end: end{dev: dev}}
	var err1, err2, err3, err4, err5 error
	e.pd, err1 = dev.AllocPD()
	e.cq, err2 = dev.CreateCQ(verbs.CQConfig{})
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	e.srq, err1 = e.pd.CreateSRQ(verbs.SRQConfig{Tags: &cfg, CQ: e.cq})
	e.qp, err2 = e.pd.CreateQP(verbs.QPConfig{Type: verbs.QPTypeRC, SendCQ: e.cq, SRQ: e.srq})
	e.mr, err3 = e.pd.AllocMemory(64<<10, verbs.AccessLocalWrite)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	e.point, err4 = e.qp.Endpoint()
	_, err5 = e.srq.PostRecv(verbs.RecvWR{ID: 1000, SGE: e.mr.SGE(60<<10, 1024)})
	if err := errors.Join(err4, err5); err != nil {
		t.Fatal(err)
	}
	return e
}

// next waits for a completion and wants it to be this.
func (e *tagged) wants(t *testing.T, id uint64, op verbs.WCOpcode, flags verbs.WCFlags) verbs.WC {
	t.Helper()
	wc := next(t, e.cq)
	if wc.Err() != nil || wc.ID != id || wc.Opcode != op || wc.Flags != flags {
		t.Fatalf("%+v, want %d, opcode %d, flags %#x", wc, id, op, flags)
	}
	return wc
}

// TestTags_EagerAndRendezvous_GoWhereTheirTagsSay over the whole way, on one NIC and between two.
func TestTags_EagerAndRendezvous_GoWhereTheirTagsSay(t *testing.T) {
	one := nictest.Start(t, softrnic.Config{})
	network := softrnic.NewNetwork()
	for name, nics := range map[string][2]verbs.Connector{
		"one NIC": {one, one},
		"two NICs": {
			nictest.Start(t, softrnic.Config{Network: network}),
			nictest.Start(t, softrnic.Config{Network: network}),
		},
	} {
		t.Run(name, func(t *testing.T) { exchangeTagged(t, nics[0], nics[1]) })
	}
}

func exchangeTagged(t *testing.T, from, to verbs.Connector) {
	x, err := newEnd(open(t, verbs.WithConnector(from)), verbs.QPConfig{Type: verbs.QPTypeRC})
	if err != nil {
		t.Fatal(err)
	}
	y := newTagged(t, open(t, verbs.WithConnector(to)), verbs.TagConfig{})
	if err := errors.Join(x.qp.ConnectTo(y.point), y.qp.ConnectTo(x.point)); err != nil {
		t.Fatal(err)
	}
	mr, err := x.pd.AllocMemory(64<<10, verbs.AccessRemoteRead|verbs.AccessLocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	for i := range mr.Bytes() {
		mr.Bytes()[i] = byte(i % 251)
	}
	ctx := nictest.Soon(t)

	// A buffer for each, and one for everything else.
	for _, b := range []verbs.TagBuffer{
		{ID: 1, Tag: 0x51, Mask: ^uint64(0), SGE: y.mr.SGE(0, 100)},
		{ID: 2, Tag: 0x60, Mask: 0xf0, SGE: y.mr.SGE(1000, 40000)},
	} {
		if _, err := y.srq.AddTag(b, verbs.TagOp{ID: 10 + b.ID, Flags: verbs.TagSignaled}); err != nil {
			t.Fatal(err)
		}
		y.wants(t, 10+b.ID, verbs.WCOpTagAdd, 0)
	}

	eager := verbs.TagHeader{Opcode: verbs.TagEager, Tag: 0x51, Context: 77}
	err = x.do(ctx, verbs.SendWR{
		Opcode: verbs.WRSend, Inline: append(eager.Append(nil), "to a tag"...),
	})
	if err != nil {
		t.Fatal(err)
	}
	const whole = verbs.WCTagMatch | verbs.WCTagDataValid
	wc := y.wants(t, 1, verbs.WCOpTagRecv, whole)
	if wc.Tag != 0x51 || wc.TagContext != 77 || wc.ByteLen != 8 ||
		string(y.mr.Bytes()[:8]) != "to a tag" {
		t.Errorf("%+v, %q", wc, y.mr.Bytes()[:8])
	}

	if _, err := x.qp.PostRecv(verbs.RecvWR{ID: 5, SGE: mr.SGE(60<<10, 64)}); err != nil {
		t.Fatal(err)
	}
	header := verbs.TagHeader{Opcode: verbs.TagRendezvous, Tag: 0x66}
	where := verbs.Rendezvous{VA: mr.Addr(), RKey: mr.RKey(), Length: 30000}
	request := where.Append(header.Append(nil))
	if err := x.do(ctx, verbs.SendWR{Opcode: verbs.WRSend, Inline: request}); err != nil {
		t.Fatal(err)
	}
	if wc := y.wants(t, 2, verbs.WCOpTagRecv, verbs.WCTagMatch); wc.Tag != 0x66 {
		t.Errorf("%+v", wc)
	}
	if wc := y.wants(t, 2, verbs.WCOpTagRecv, verbs.WCTagDataValid); wc.ByteLen != 30000 {
		t.Errorf("%+v", wc)
	}
	if !bytes.Equal(y.mr.Bytes()[1000:31000], mr.Bytes()[:30000]) {
		t.Error("the data are not there")
	}
	fin := next(t, x.cq)
	h, err1 := verbs.ParseTagHeader(mr.Bytes()[60<<10:])
	r, err2 := verbs.ParseRendezvous(mr.Bytes()[60<<10+verbs.TagHeaderLen:])
	if err := errors.Join(fin.Err(), err1, err2); err != nil || fin.ID != 5 ||
		h.Opcode != verbs.TagFin || h.Tag != 0x66 || r != where {
		t.Errorf("FIN %+v: %v %v, %v", fin, h, r, err)
	}
	refuseTags(t, x, y)
}

// refuseTags tries what is refused or fails, after an unexpected message.
func refuseTags(t *testing.T, x *end, y *tagged) {
	t.Helper()
	late := verbs.TagHeader{Opcode: verbs.TagEager, Tag: 1}
	err := x.do(nictest.Soon(t), verbs.SendWR{Opcode: verbs.WRSend, Inline: late.Append(nil)})
	if err != nil {
		t.Fatal(err)
	}
	y.wants(t, 1000, verbs.WCOpTagRecv, 0)
	signaled := verbs.TagOp{ID: 30, Flags: verbs.TagSignaled}
	h, err := y.srq.AddTag(verbs.TagBuffer{ID: 3, Tag: 1, Mask: 1}, signaled)
	if err != nil {
		t.Fatal(err)
	}
	y.wants(t, 30, verbs.WCOpTagAdd, verbs.WCTagSyncWanted)
	counted := verbs.TagOp{ID: 31, Flags: verbs.TagSignaled | verbs.TagCounted, Unexpected: 1}
	if err := y.srq.SyncTags(counted); err != nil {
		t.Fatal(err)
	}
	y.wants(t, 31, verbs.WCOpTagSync, 0)
	if err := errors.Join(y.srq.DeleteTag(h, signaled), y.srq.DeleteTag(h, signaled)); err != nil {
		t.Fatal(err)
	}
	y.wants(t, 30, verbs.WCOpTagDel, 0)
	if wc := next(t, y.cq); !errors.Is(wc.Err(), verbs.ErrTag) || wc.ID != 30 {
		t.Errorf("deleted twice: %+v", wc)
	}
	b := verbs.TagBuffer{SGE: make([]verbs.SGE, 5)}
	if _, err := y.srq.AddTag(b, verbs.TagOp{}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("five entries: %v", err)
	}
	if err := y.srq.SyncTags(verbs.TagOp{Flags: 4}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("flags: %v", err)
	}
	for i := range 128 {
		if _, err := y.srq.AddTag(verbs.TagBuffer{ID: uint64(i)}, verbs.TagOp{}); err != nil {
			t.Fatalf("buffer %d: %v", i, err)
		}
	}
	_, err = y.srq.AddTag(verbs.TagBuffer{}, verbs.TagOp{})
	if !errors.Is(err, verbs.ErrQueueFull) {
		t.Errorf("one more than the list holds: %v", err)
	}
	plain, err := x.pd.CreateSRQ(verbs.SRQConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plain.AddTag(verbs.TagBuffer{}, verbs.TagOp{}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a queue without tags: %v", err)
	}
	if _, err := x.pd.CreateSRQ(verbs.SRQConfig{Tags: new(verbs.TagConfig)}); err == nil {
		t.Error("a queue without a CQ was made")
	}
	a, err := x.dev.Query()
	if err != nil || a.MaxTags < 128 || a.MaxTagSGE < 1 ||
		a.MaxRendezvousHeader < verbs.TagHeaderLen+verbs.RendezvousLen {
		t.Errorf("%+v, %v", a, err)
	}
	if err := errors.Join(y.qp.Close(), y.srq.Close(), y.cq.Close()); err != nil {
		t.Error(err)
	}
	if err := y.srq.SyncTags(verbs.TagOp{}); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestTags_WrongKey_CauseIsTold: the NIC fetches data by a key that the sender does not have. The
// program learns what its NIC has seen, in the queue's CQ.
func TestTags_WrongKey_CauseIsTold(t *testing.T) {
	nic := nictest.Start(t, softrnic.Config{})
	dev := open(t, verbs.WithConnector(nic))
	x, err := newEnd(dev, verbs.QPConfig{Type: verbs.QPTypeRC})
	if err != nil {
		t.Fatal(err)
	}
	y := newTagged(t, dev, verbs.TagConfig{})
	qp, err := y.pd.CreateQP(verbs.QPConfig{Type: verbs.QPTypeRC, SendCQ: x.cq, SRQ: y.srq})
	if err != nil {
		t.Fatal(err)
	}
	point, err := qp.Endpoint()
	if err := errors.Join(err, x.qp.ConnectTo(point), qp.ConnectTo(x.point)); err != nil {
		t.Fatal(err)
	}
	b := verbs.TagBuffer{ID: 2, Tag: 9, Mask: 0xff, SGE: y.mr.SGE(0, 64)}
	if _, err := y.srq.AddTag(b, verbs.TagOp{}); err != nil {
		t.Fatal(err)
	}
	header := verbs.TagHeader{Opcode: verbs.TagRendezvous, Tag: 9}
	where := verbs.Rendezvous{VA: 0x1000, RKey: 0xbad00bad, Length: 64}
	request := where.Append(header.Append(nil))
	if _, err := x.qp.PostSend(verbs.SendWR{Opcode: verbs.WRSend, Inline: request}); err != nil {
		t.Fatal(err)
	}
	y.wants(t, 2, verbs.WCOpTagRecv, verbs.WCTagMatch)
	wc := next(t, y.cq)
	if !errors.Is(wc.Err(), verbs.ErrRemoteAccess) || wc.ID != 2 || wc.QPN != qp.QPN() {
		t.Fatalf("%+v", wc)
	}
	if c := wc.Cause(); c == nil || c.ID != 2 || c.Key != where.RKey {
		t.Errorf("cause %+v", c)
	}
	if qp.Config().RecvCQ != y.cq {
		t.Error("receives complete elsewhere than the queue says")
	}
}

// TestTags_Matching_AllocatesNothing: adding a buffer, and a message for it.
func TestTags_Matching_AllocatesNothing(t *testing.T) {
	nic := nictest.Start(t, softrnic.Config{})
	dev := open(t, verbs.WithConnector(nic))
	x, err := newEnd(dev, verbs.QPConfig{Type: verbs.QPTypeRC})
	if err != nil {
		t.Fatal(err)
	}
	y := newTagged(t, dev, verbs.TagConfig{})
	if err := errors.Join(x.qp.ConnectTo(y.point), y.qp.ConnectTo(x.point)); err != nil {
		t.Fatal(err)
	}
	header := verbs.TagHeader{Opcode: verbs.TagEager, Tag: 5}
	message := append(header.Append(nil), "twelve bytes"...)
	buffer := verbs.TagBuffer{ID: 1, Tag: 5, Mask: 0xff, SGE: y.mr.SGE(0, 64)}
	var wcs [4]verbs.WC
	step := func() {
		if _, err := y.srq.AddTag(buffer, verbs.TagOp{}); err != nil {
			t.Fatal(err)
		}
		_, err := x.qp.PostSend(verbs.SendWR{
			Opcode: verbs.WRSend, Flags: verbs.SendSignaled, Inline: message,
		})
		for _, cq := range []*verbs.CQ{x.cq, y.cq} {
			for n := 0; n == 0 && err == nil; {
				n, err = cq.Poll(wcs[:])
			}
			if err != nil || wcs[0].Err() != nil {
				t.Fatal(err, wcs[0].Err())
			}
		}
	}
	for range 1000 {
		step()
	}
	if got := testing.AllocsPerRun(1000, step); got != 0 {
		t.Errorf("%v allocations per message", got)
	}
}
