package conformance

import (
	"context"
	"testing"

	"github.com/softrnic/softrnic/rdmacm"
	"github.com/softrnic/softrnic/verbs"
)

// StreamFabric is package verbs over connections that only rdma_cm makes: iWARP.
type StreamFabric struct {
	*GoFabric
	dial, accept rdmacm.Config
	listener     *rdmacm.Listener
	address      string
}

// StreamSide is one side of a fabric over streams: a device of a NIC, and an address of it.
type StreamSide struct {
	NIC     verbs.Connector
	Device  *verbs.Context
	Address string
}

// NewStreamFabric makes a fabric; the end of the test frees what it made.
func NewStreamFabric(t *testing.T, a, b StreamSide) *StreamFabric {
	t.Helper()
	f := &StreamFabric{GoFabric: NewGoFabric(t, a.Device, b.Device, streamLacks)}
	f.dial = rdmacm.Config{NIC: a.NIC, Device: a.Device.Device().Name}
	f.accept = rdmacm.Config{NIC: b.NIC, Device: b.Device.Device().Name}
	var err error
	if f.listener, err = rdmacm.Listen(t.Context(), "rdma", b.Address+":0", f.accept); err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, f.listener)
	f.address = f.listener.Addr().String()
	return f
}

// Connect implements Fabric.
func (f *StreamFabric) Connect(t *testing.T, l Link) (a, b End) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	x, y := f.a.newEnd(t, l.A), f.b.newEnd(t, l.B)
	dial, accept := f.dial, f.accept
	dial.PD, dial.QP = x.side.pd, x.config(l.Type, l.A)
	accept.PD, accept.QP = y.side.pd, y.config(l.Type, l.B)
	type accepted struct {
		conn *rdmacm.Conn
		err  error
	}
	done := make(chan accepted, 1)
	go func() {
		var got accepted
		var r *rdmacm.Request
		if r, got.err = f.listener.Accept(ctx); got.err == nil {
			got.conn, got.err = r.Accept(ctx, accept)
		}
		done <- got
	}()
	conn, err := rdmacm.Dial(ctx, "rdma", f.address, dial)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, conn)
	got := <-done
	if got.err != nil {
		t.Fatal(got.err)
	}
	closeAtEnd(t, got.conn)
	x.qp, y.qp = conn.QP(), got.conn.QP()
	x.grant(t, l.A)
	y.grant(t, l.B)
	return x, y
}

// grant gives the peer the rights that are asked for, where those are not all.
func (e *goEnd) grant(t *testing.T, c EndConfig) {
	t.Helper()
	if c.Adjust == nil {
		return
	}
	const all = verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic
	attr := verbs.ConnectConfig{Access: all}
	if c.Adjust(&attr); attr.Access == all {
		return
	}
	if err := e.qp.Modify(verbs.QPAttr{Access: attr.Access}, verbs.QPAttrAccessFlags); err != nil {
		t.Fatal(err)
	}
}
