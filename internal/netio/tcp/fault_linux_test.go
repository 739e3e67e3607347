package tcp

import (
	"bytes"
	"testing"

	"github.com/softrnic/softrnic/internal/nic"
)

// TestPort_FaultInMemory_NICEndsTheStream_SpaceIsForgotten has the NIC end a stream after a fault,
// while memory was lent for its bytes: that of the next stream is filled, and no other.
func TestPort_FaultInMemory_NICEndsTheStream_SpaceIsForgotten(t *testing.T) {
	h := newHost(t, Config{})
	c, id, s := dialled(t, h)
	other := dial(t, s.accepted.Local)
	until(t, "accepted", func() bool { return h.lastID == id+1 }, h)
	_, o := h.latest()
	lent := make([]byte, 10)
	s.space = lent
	h.onStream = func(nic.StreamID, []byte) { panic("fault") }
	if _, err := c.Write([]byte("0123456789 and more")); err != nil {
		t.Fatal(err)
	}
	func() { // as a lane does
		defer func() { _ = recover() }()
		until(t, "a fault", func() bool { return false }, h)
	}()
	h.port.Abort(id)
	h.onStream = nil
	clear(lent)
	o.space, o.inOrder = make([]byte, 4), true
	if _, err := other.Write([]byte("all of it")); err != nil {
		t.Fatal(err)
	}
	until(t, "received", func() bool { return o.received == 9 }, h)
	if string(o.in) != "all of it" || !bytes.Equal(lent, make([]byte, 10)) {
		t.Errorf("the next stream has %q, memory that was lent before %q", o.in, lent)
	}
}
