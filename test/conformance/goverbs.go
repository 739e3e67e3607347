package conformance

import (
	"context"
	"maps"
	"testing"

	"github.com/softrnic/softrnic/verbs"
)

// GoFabric is package verbs over two contexts, which may be of one NIC or of two that reach each
// other.
type GoFabric struct {
	a, b  *goSide
	mtu   int
	lacks map[Feature]string
}

// goSide is what the ends of one side share.
type goSide struct {
	ctx       *verbs.Context
	pd, other *verbs.PD
	// srqs holds the one shared receive queue of each test that asks for one.
	srqs map[*testing.T]*verbs.SRQ
}

// NewGoFabric makes a fabric; the end of the test frees what it made. lacks says why a feature is
// not there.
func NewGoFabric(t *testing.T, a, b *verbs.Context, lacks map[Feature]string) *GoFabric {
	t.Helper()
	port, err := a.Port(1)
	if err != nil {
		t.Fatal(err)
	}
	f := &GoFabric{mtu: port.ActiveMTU.Bytes(), lacks: map[Feature]string{}}
	maps.Copy(f.lacks, lacks)
	if attr, err := b.Query(); err != nil {
		t.Fatal(err)
	} else if attr.MaxTags == 0 {
		f.lacks[FeatureTags] = "the device says so"
	}
	f.a, f.b = newGoSide(t, a), newGoSide(t, b)
	return f
}

func newGoSide(t *testing.T, ctx *verbs.Context) *goSide {
	t.Helper()
	s := &goSide{ctx: ctx, srqs: map[*testing.T]*verbs.SRQ{}}
	for _, pd := range []**verbs.PD{&s.pd, &s.other} {
		var err error
		if *pd, err = ctx.AllocPD(); err != nil {
			t.Fatal(err)
		}
		closeAtEnd(t, *pd)
	}
	return s
}

type closer interface{ Close() error }

func closeAtEnd(t *testing.T, c closer) {
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close %T: %v", c, err)
		}
	})
}

// Lacks implements Fabric.
func (f *GoFabric) Lacks(feature Feature) string { return f.lacks[feature] }

// MTU implements Fabric.
func (f *GoFabric) MTU() int { return f.mtu }

// Connect implements Fabric.
func (f *GoFabric) Connect(t *testing.T, l Link) (a, b End) {
	t.Helper()
	x, y := f.a.newEnd(t, l.A), f.b.newEnd(t, l.B)
	x.makeQP(t, l.Type, l.A)
	y.makeQP(t, l.Type, l.B)
	x.point, y.point = x.describe(t, l.A), y.describe(t, l.B)
	x.join(t, l.A, y)
	y.join(t, l.B, x)
	return x, y
}

// goEnd implements End.
type goEnd struct {
	side  *goSide
	cq    *verbs.CQ
	qp    *verbs.QP
	srq   *verbs.SRQ
	point verbs.Endpoint
	peer  verbs.Endpoint
	ah    *verbs.AH
}

func (s *goSide) newEnd(t *testing.T, c EndConfig) *goEnd {
	t.Helper()
	e := &goEnd{side: s}
	var err error
	if e.cq, err = s.ctx.CreateCQ(verbs.CQConfig{Entries: 1024}); err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, e.cq)
	switch {
	case c.UseSRQ:
		e.srq = s.sharedQueue(t)
	case c.UseTags:
		e.srq, err = s.pd.CreateSRQ(verbs.SRQConfig{Tags: new(verbs.TagConfig), CQ: e.cq})
		if err != nil {
			t.Fatal(err)
		}
		closeAtEnd(t, e.srq)
	}
	return e
}

// config describes a queue pair of the end.
func (e *goEnd) config(service verbs.QPType, c EndConfig) verbs.QPConfig {
	return verbs.QPConfig{
		Type: service, SendCQ: e.cq, SRQ: e.srq, MaxSendWR: c.MaxSendWR, SignalAll: c.SignalAll,
		QKey: c.QKey,
	}
}

func (e *goEnd) makeQP(t *testing.T, service verbs.QPType, c EndConfig) {
	t.Helper()
	var err error
	if e.qp, err = e.side.pd.CreateQP(e.config(service, c)); err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, e.qp)
}

func (s *goSide) sharedQueue(t *testing.T) *verbs.SRQ {
	t.Helper()
	if q := s.srqs[t]; q != nil {
		return q
	}
	q, err := s.pd.CreateSRQ(verbs.SRQConfig{})
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, q)
	s.srqs[t] = q
	return q
}

func (e *goEnd) describe(t *testing.T, c EndConfig) verbs.Endpoint {
	t.Helper()
	if c.PSN != nil {
		e.qp.SetPSN(*c.PSN)
	}
	point, err := e.qp.Endpoint()
	if err != nil {
		t.Fatal(err)
	}
	return point
}

func (e *goEnd) join(t *testing.T, c EndConfig, to *goEnd) {
	t.Helper()
	var err error
	e.peer = to.point
	if e.qp.Config().Type == verbs.QPTypeUD {
		attr := verbs.AHAttr{DGID: to.point.GID, SGIDIndex: e.point.GIDIndex, Port: e.point.Port}
		if e.ah, err = e.side.pd.CreateAH(attr); err != nil {
			t.Fatal(err)
		}
		closeAtEnd(t, e.ah)
		err = e.qp.Activate()
	} else if c.Adjust != nil {
		err = e.qp.ConnectTo(to.point, c.Adjust)
	} else {
		err = e.qp.ConnectTo(to.point)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// AddTag implements Tags.
func (e *goEnd) AddTag(b verbs.TagBuffer, op verbs.TagOp) (verbs.TagHandle, error) {
	return e.srq.AddTag(b, op)
}

// DeleteTag implements Tags.
func (e *goEnd) DeleteTag(h verbs.TagHandle, op verbs.TagOp) error { return e.srq.DeleteTag(h, op) }

// SyncTags implements Tags.
func (e *goEnd) SyncTags(op verbs.TagOp) error { return e.srq.SyncTags(op) }

// QPN implements End.
func (e *goEnd) QPN() verbs.QPN { return e.qp.QPN() }

// State implements End.
func (e *goEnd) State() verbs.QPState { return e.qp.State() }

// Send implements End.
func (e *goEnd) Send(wrs ...verbs.SendWR) (int, error) { return e.qp.PostSend(wrs...) }

// Recv implements End.
func (e *goEnd) Recv(wrs ...verbs.RecvWR) (int, error) {
	if e.srq != nil {
		return e.srq.PostRecv(wrs...)
	}
	return e.qp.PostRecv(wrs...)
}

// Poll implements End.
func (e *goEnd) Poll(t *testing.T) (verbs.WC, bool) {
	t.Helper()
	var wcs [1]verbs.WC
	n, err := e.cq.Poll(wcs[:])
	if err != nil {
		t.Fatal(err)
	}
	return wcs[0], n == 1
}

// Fail implements End.
func (e *goEnd) Fail(t *testing.T) {
	t.Helper()
	if err := e.qp.ToError(); err != nil {
		t.Fatal(err)
	}
}

// Aim implements End.
func (e *goEnd) Aim(wr *verbs.SendWR) {
	wr.AH, wr.RemoteQPN, wr.RemoteQKey = e.ah, e.peer.QPN, e.peer.QKey
}

// Event implements End.
func (e *goEnd) Event(t *testing.T) verbs.EventType {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	for {
		event, err := e.side.ctx.NextEvent(ctx)
		if err != nil {
			t.Fatalf("asynchronous event: %v", err)
		}
		if event.QP == e.qp {
			return event.Type
		}
	}
}

// Region implements End.
func (e *goEnd) Region(t *testing.T, c RegionConfig) Region {
	t.Helper()
	pd := e.side.pd
	if c.OtherPD {
		pd = e.side.other
	}
	r := new(goRegion)
	var err error
	if c.Kind == KindMapped {
		r.mr, err = pd.AllocMemory(c.Size, c.Access)
	} else {
		r.mr, err = pd.Register(make([]byte, c.Size), c.Access)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.memory = r.mr.Bytes()
	closeAtEnd(t, r.mr)
	return r
}

// goRegion implements Region.
type goRegion struct {
	mr     *verbs.MR
	memory []byte
}

// Piece implements Region.
func (r *goRegion) Piece(off, n int) verbs.SGE { return r.mr.Piece(off, n) }

// Addr implements Region.
func (r *goRegion) Addr() uint64 { return r.mr.Addr() }

// LKey implements Region.
func (r *goRegion) LKey() verbs.Key { return r.mr.LKey() }

// RKey implements Region.
func (r *goRegion) RKey() verbs.Key { return r.mr.RKey() }

// Load implements Region.
func (r *goRegion) Load() []byte {
	out := make([]byte, len(r.memory))
	observe(out, r.memory)
	return out
}

// Store implements Region.
func (r *goRegion) Store(b []byte) { copy(r.memory, b) }

// Close implements Region.
func (r *goRegion) Close(t *testing.T) {
	t.Helper()
	if err := r.mr.Close(); err != nil {
		t.Fatal(err)
	}
}

// goWindow implements Window.
type goWindow struct {
	mw *verbs.MW
}

// Window implements Windows.
func (e *goEnd) Window(t *testing.T, typ verbs.MWType) Window {
	t.Helper()
	w, err := e.side.pd.AllocWindow(typ)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, w)
	return &goWindow{mw: w}
}

// Bind implements Window.
func (w *goWindow) Bind(r Region, off, n int, access verbs.Access) verbs.SendWR {
	b := &verbs.Bind{Window: w.mw, Length: uint64(n), Access: access}
	if n > 0 {
		b.Region, b.Addr = r.(*goRegion).mr, r.Addr()+uint64(off)
	}
	return verbs.SendWR{Opcode: verbs.WRBindMW, Flags: verbs.SendSignaled, Bind: b}
}

// RKey implements Window.
func (w *goWindow) RKey() verbs.Key { return w.mw.RKey() }
